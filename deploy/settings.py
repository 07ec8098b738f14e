"""What `yunishard up` was told: command line, then environment, then settings file, then defaults.

Every value arrives as text with the name of its source, so that a wrong one is refused in a line that says where to
mend it. An empty value counts as not given (`YUNISHARD_CONFIG=` in a compose file). Paths in a settings file are
relative to that file.

Not here: which settings there are (`options.py`), what their texts mean (`values.py`), what only the web service needs
(`web_settings.py`), whether ports are free and files
and directories usable (`premises.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import yaml

from common.names import OFF
from deploy.options import OPTIONS, SAME_HIERARCHY
from deploy.values import (
    NATIVE_SCHEME,
    Address,
    Given,
    Unusable,
    acl,
    count,
    duration_s,
    listen_address,
    path,
    percent,
    plugin_names,
    rm_ids,
    size_bytes,
    word,
    yes_no,
)
from deploy.web_settings import WebSettings, web_settings

SETTINGS_FILE: Final = "settings"
"""`--settings` and YUNISHARD_SETTINGS name the file; it is not a setting itself."""

SPARE_WORKERS_MAX: Final = 64
"""Each takes the memory of a Python process, used or not."""

ASKS_MAX: Final = 100_000_000
"""Of which each takes about a kilobyte."""

PARTITIONS_MAX: Final = 10_000
"""Each takes the memory of a Python process, too."""

HEARTBEAT_MIN_S: Final = 0.1
"""More signs of life than this would cost more than they tell."""

HEARTBEATS_MISSED: Final = 2
"""Nobody counts as silent before at least so many heartbeats could have been heard."""

PROXY_BYTES_MIN: Final = 256 * 1024**2
"""A few of the largest messages that may be sent have room in it."""

PORTS: Final = ("native", "grpc", "rest")

_NATIVE_ONLY: Final = ("native-keys", "native-allowed")
"""Settings that have no effect without the native port, although an operator who gives them relies on them."""

JOURNAL_BYTES_MIN: Final = 16 * 1024**2
"""Less would hold a snapshot of a small partition only."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A setting as it is in force, for people."""

    name: str
    value: str
    source: str
    """`--rest`, `YUNISHARD_REST`, `FILE:LINE` or `default`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files of a port that speaks TLS. Whether they can be used is tried by `premises.py`."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    """Who may connect: whoever has a certificate signed by one of these; None for anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, valid in themselves."""

    config: Path | None
    """Queues for resource managers that send none; None for the built-in ones."""
    same_hierarchy: str
    """What to do about a queue that has another parent in another partition: off, warn or enforce."""
    native: Address | None
    """None for a port that is off, here and below."""
    grpc: Address | None
    rest: Address | None
    native_keys: Path | None
    """The server's secret key or the directory it is in; None for a port without keys."""
    native_allowed: Path | None
    """The list of keys that may connect; None for the one beside the secret key."""
    grpc_tls: Tls | None
    rest_tls: Tls | None
    allowed_rms: tuple[str, ...]
    """Which ids may register; `*` in them stands for any text."""
    scheduler_admins: str
    """An access control list; empty for nobody but the user who runs this."""
    preemption_threshold_percent: int
    preemption_pause_s: float
    disable_reservation: bool
    predicates: tuple[str, ...]
    """Plug-ins that the workers load. Whether they are installed is for `premises.py` to see."""
    manual: bool
    """Whether the workers decide only when they are asked to."""
    interpreted: bool
    """Whether the workers run the engine as Python, even where there is a compiled one."""
    insecure: bool
    """Whether ports that are not secured may be open to other machines."""
    asks_max: int
    """Of each partition, allocations included."""
    partitions_max: int
    """Of all resource managers together."""
    spare_workers: int
    heartbeat_s: float
    silence_s: float
    pause_timeout_s: float
    lease_timeout_s: float
    proxy_memory_max_bytes: int
    journal_max_bytes: int
    """Of each partition."""
    state: Path | None
    """None for a temporary directory."""
    log_level: str
    web: WebSettings
    sources: Mapping[str, str]
    """Where each setting was given, as in `--grpc`, `YUNISHARD_GRPC` or `grpc in settings.yaml`."""
    resolved: tuple[Resolved, ...]
    """All of them as text, in the order of `options.py`."""

    def source(self, option: str) -> str:
        """Where to change a setting."""
        return self.sources.get(option, OPTIONS[option].flag)

    def is_default(self, option: str) -> bool:
        """Whether no source sets it."""
        return any(one.name == option and one.source == DEFAULT_PLACE for one in self.resolved)


def settings_from(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """All settings, from every source.

    Raises:
        Unusable: a value that is not valid, a settings file that cannot be read, `state` together with `ephemeral`.
    """
    given: dict[str, Given] = {}
    for name, value in _sources(flags, environment):
        if value.text:
            given.setdefault(name, value)
    state = _state(given, environment)
    settings = Settings(
        config=path(given["config"]) if "config" in given else None,
        same_hierarchy=word(given["queues.same-hierarchy"], SAME_HIERARCHY),
        native=listen_address(given["native"], NATIVE_SCHEME),
        grpc=listen_address(given["grpc"]),
        rest=listen_address(given["rest"]),
        native_keys=path(given["native-keys"]) if "native-keys" in given else None,
        native_allowed=path(given["native-allowed"]) if "native-allowed" in given else None,
        grpc_tls=_tls(given, "grpc"),
        rest_tls=_tls(given, "rest"),
        allowed_rms=rm_ids(given["allowed-rms"]),
        scheduler_admins=acl(given["scheduler-admins"]) if "scheduler-admins" in given else "",
        preemption_threshold_percent=percent(given["preemption-threshold"]),
        preemption_pause_s=duration_s(given["preemption-pause"]),
        disable_reservation=yes_no(given["disable-reservation"]),
        predicates=plugin_names(given["predicates"]) if "predicates" in given else (),
        manual=yes_no(given["manual"]),
        interpreted=yes_no(given["interpreted"]),
        insecure=yes_no(given["insecure"]),
        asks_max=count(given["asks-max"], maximum=ASKS_MAX, minimum=1),
        partitions_max=count(given["partitions-max"], maximum=PARTITIONS_MAX, minimum=1),
        spare_workers=count(given["spare-workers"], maximum=SPARE_WORKERS_MAX),
        heartbeat_s=duration_s(given["heartbeat"]),
        silence_s=duration_s(given["silence"]),
        pause_timeout_s=duration_s(given["pause-timeout"]),
        lease_timeout_s=duration_s(given["lease-timeout"]),
        proxy_memory_max_bytes=size_bytes(given["proxy-memory-max"], minimum=PROXY_BYTES_MIN),
        journal_max_bytes=size_bytes(given["journal-max"], minimum=JOURNAL_BYTES_MIN),
        state=None if state is None else path(state),
        log_level=word(given["log-level"], OPTIONS["log-level"].metavar.split("|")),
        web=web_settings(given),
        sources={name: value.source for name, value in given.items()},
        resolved=(),
    )
    _check_times(given)
    _check_ports(settings)
    return _with_resolved(settings, given, state)


def _with_resolved(settings: Settings, given: Mapping[str, Given], state: Given | None) -> Settings:
    """The same with every setting as people see it: paths in full, and `state` and `ephemeral` after their dispute."""
    resolved = []
    for name, option in OPTIONS.items():
        value = given.get(name) or Given("", option.flag, rank=DEFAULT_RANK, place=DEFAULT_PLACE)
        if name == "state":
            value = state or replace(given["ephemeral"], text="")
        text = str(path(value)) if option.metavar in ("FILE", "DIR") and value.text else value.text
        if name == "ephemeral":
            text = str(state is None).lower()
        resolved.append(Resolved(name=name, value=text, source=value.place or value.source))
    return replace(settings, resolved=tuple(resolved))


# Sources --------------------------------------------------------------------------------------------------------------

DEFAULT_RANK: Final = 3
DEFAULT_PLACE: Final = "default"


def _sources(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """Every setting that was given, the source that wins first."""
    for name, option in OPTIONS.items():
        yield name, Given(flags.get(name) or "", option.flag, rank=0)
    for name, option in OPTIONS.items():
        yield name, Given(environment.get(option.variable, ""), option.variable, rank=1)
    variable = f"YUNISHARD_{SETTINGS_FILE.upper()}"
    file = flags.get(SETTINGS_FILE) or environment.get(variable, "")
    if file:
        yield from _in_file(Path(file), f"--{SETTINGS_FILE}" if flags.get(SETTINGS_FILE) else variable)
    for name, option in OPTIONS.items():
        yield name, Given(option.default, option.flag, rank=DEFAULT_RANK, place=DEFAULT_PLACE)


def _in_file(file: Path, source: str) -> Iterator[tuple[str, Given]]:
    try:
        # Composed, not loaded: `on`, `3333` and `~` stay what was written, and each has its line.
        document = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{source} {file}: cannot be read: {reason_of(error)}") from None
    except yaml.YAMLError as error:
        raise Unusable(f"{source} {file}: not valid YAML: {' '.join(str(error).split())}") from None
    if document is None or (isinstance(document, yaml.ScalarNode) and not document.value):
        return
    if not isinstance(document, yaml.MappingNode):
        raise Unusable(f"{source} {file}: expected lines such as `native: {OPTIONS['native'].default}`")
    seen: set[str] = set()
    for key, value in document.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        if name not in OPTIONS:
            raise Unusable(f"{source} {file}: unknown setting {name!r}; there are {', '.join(OPTIONS)}")
        if name in seen:
            raise Unusable(f"{name} in {file}: it is there twice, again in line {key.start_mark.line + 1}")
        if not isinstance(value, yaml.ScalarNode):
            raise Unusable(f"{name} in {file}: expected one value, got a list or a map")
        seen.add(name)
        place = f"{file}:{key.start_mark.line + 1}"
        yield name, Given(value.value, f"{name} in {file}", rank=2, folder=file.absolute().parent, place=place)


def reason_of(error: OSError | UnicodeDecodeError) -> str:
    """Why something could not be read, without the path, which stands elsewhere in the line."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text (byte {error.start})"
    return (error.strerror or str(error)).lower()


# What belongs together ------------------------------------------------------------------------------------------------


def _state(given: Mapping[str, Given], environment: Mapping[str, str]) -> Given | None:
    """The directory, or None if a temporary one was asked for more strongly."""
    ephemeral, state = given["ephemeral"], given.get("state")
    if yes_no(ephemeral):
        if state is None or ephemeral.rank < state.rank:
            return None
        if state.rank == ephemeral.rank:
            raise Unusable(f"{ephemeral.source} and {state.source} exclude each other: leave one out")
    return state or _usual_state(environment)


def _usual_state(environment: Mapping[str, str]) -> Given:
    """The per-user directory of the XDG base directory specification, which says to ignore what is not absolute."""
    folder = Path(environment.get("XDG_STATE_HOME", ""))
    if not folder.is_absolute():
        try:
            folder = Path.home() / ".local" / "state"
        except RuntimeError:
            raise Unusable("--state: your home directory is unknown: set HOME, or choose a directory") from None
    return Given(str(folder / "yunishard"), "--state", rank=DEFAULT_RANK, place=DEFAULT_PLACE)


def _check_times(given: Mapping[str, Given]) -> None:
    """Whether a heartbeat can be missed before somebody counts as gone."""
    heartbeat = given["heartbeat"]
    if duration_s(heartbeat) < HEARTBEAT_MIN_S:
        raise Unusable(f"{heartbeat.source}: {heartbeat.text} is too short, {HEARTBEAT_MIN_S:g}s is the least")
    for other in (given["silence"], given["lease-timeout"]):
        if duration_s(other) < HEARTBEATS_MISSED * duration_s(heartbeat):
            raise Unusable(
                f"{other.source}: {other.text} is too short: with a heartbeat of {heartbeat.text} "
                f"({heartbeat.source}) it takes at least {HEARTBEATS_MISSED * duration_s(heartbeat):g}s"
            )


def _check_ports(settings: Settings) -> None:
    """Check that a port is open, and that no keys are given for a native port that is off."""
    if settings.native is settings.grpc is settings.rest is None:
        sources = ", ".join(settings.source(name) for name in PORTS)
        raise Unusable(f"{sources}: all ports are {OFF}, so nothing could reach the system; leave one open")
    for option in _NATIVE_ONLY:
        if settings.native is None and option in settings.sources:
            raise Unusable(
                f"{settings.source(option)}: protects nothing while the native port is {OFF} "
                f"({settings.source('native')}); leave one of the two out"
            )


def _tls(given: Mapping[str, Given], port: str) -> Tls | None:
    """The files of a port's TLS: certificate and key go together, and a list of client authorities needs both."""
    cert, key, client_ca = (given.get(f"{port}-tls-{part}") for part in ("cert", "key", "client-ca"))
    if cert and key:
        return Tls(cert=path(cert), key=path(key), client_ca=path(client_ca) if client_ca else None)
    there = cert or key or client_ca
    if there:
        missing = f"{port}-tls-key" if cert else f"{port}-tls-cert"
        raise Unusable(f"{there.source}: needs {OPTIONS[missing].flag} too")
    return None
