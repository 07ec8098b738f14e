"""What `yunishard up` was told: command line, then environment, then settings file, then defaults.

Every value arrives as text with the name of its source, so that a wrong one is refused in a line that says where to
mend it. An empty value counts as not given (`YUNISHARD_CONFIG=` in a compose file). Paths in a settings file are
relative to that file.

Not here: whether ports are free and directories usable (`premises.py`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from common.process import LOG_LEVELS

OPTIONS: Final = ("config", "native", "grpc", "rest", "state", "ephemeral", "log-level")
"""Names on the command line (`--log-level`) and in the settings file; in the environment YUNISHARD_LOG_LEVEL."""

DEFAULTS: Final = {
    "native": "tcp://127.0.0.1:9090",
    "grpc": "127.0.0.1:3333",
    "rest": "127.0.0.1:9080",
    "ephemeral": "false",
    "log-level": "info",
}
NATIVE_SCHEME: Final = "tcp://"
PORT_MAX: Final = 65535

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/*\[\]]+):(?P<port>[0-9]{1,5})")
_YES: Final = ("true", "yes", "on", "1")
_NO: Final = ("false", "no", "off", "0")


class Unusable(ValueError):
    """Something that was asked for cannot be used; one line with the thing, the reason, and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it as HOST:PORT."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All options, valid in themselves."""

    config: Path | None
    """Queues for resource managers that send none; None for the built-in ones."""
    native: Address
    grpc: Address
    rest: Address
    state: Path | None
    """None for a temporary directory."""
    log_level: str
    sources: Mapping[str, str]
    """Where each option was given, as in `--grpc`, `YUNISHARD_GRPC` or `grpc in settings.yaml`."""

    def source(self, option: str) -> str:
        """Where to change an option."""
        return self.sources.get(option, f"--{option}")


@dataclass(frozen=True, slots=True)
class _Given:
    """An option's text, where it came from, and the order of that source: a smaller `rank` wins."""

    text: str
    source: str
    rank: int
    folder: Path = Path()


def settings_from(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """All options, from every source.

    Raises:
        Unusable: a value that is not valid, a settings file that cannot be read, `state` together with `ephemeral`.
    """
    given: dict[str, _Given] = {}
    for option, value in _sources(flags, environment):
        if value.text:
            given.setdefault(option, value)
    ephemeral = _yes_no(given["ephemeral"])
    state = given.get("state")
    if ephemeral and state:
        if state.rank == given["ephemeral"].rank:
            raise Unusable(f"{given['ephemeral'].source} and {state.source} exclude each other: leave one out")
        ephemeral = state.rank > given["ephemeral"].rank
    return Settings(
        config=_path(given["config"]) if "config" in given else None,
        native=_address(given["native"], NATIVE_SCHEME),
        grpc=_address(given["grpc"]),
        rest=_address(given["rest"]),
        state=None if ephemeral else _path(state or _usual_state(environment)),
        log_level=_log_level(given["log-level"]),
        sources={option: value.source for option, value in given.items()},
    )


def _sources(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Iterator[tuple[str, _Given]]:
    """Every option that was given, the source that wins first."""
    for option in OPTIONS:
        yield option, _Given(flags.get(option) or "", f"--{option}", rank=0)
    for option in OPTIONS:
        variable = variable_of(option)
        yield option, _Given(environment.get(variable, ""), variable, rank=1)
    file = flags.get("settings") or environment.get(variable_of("settings"), "")
    if file:
        yield from _in_file(Path(file), "--settings" if flags.get("settings") else variable_of("settings"))
    for option, text in DEFAULTS.items():
        yield option, _Given(text, f"--{option}", rank=3)


def variable_of(option: str) -> str:
    """The environment variable of an option."""
    return f"YUNISHARD_{option.upper().replace('-', '_')}"


def _in_file(file: Path, source: str) -> Iterator[tuple[str, _Given]]:
    try:
        # BaseLoader makes nothing but text, lists and maps: `on`, `3333` and `~` stay what was written.
        document: object = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{source} {file}: cannot be read: {reason_of(error)}") from None
    except yaml.YAMLError as error:
        raise Unusable(f"{source} {file}: not valid YAML: {' '.join(str(error).split())}") from None
    if document is None or document == "":
        return
    if not isinstance(document, dict):
        raise Unusable(f"{source} {file}: expected lines such as `native: {DEFAULTS['native']}`")
    for option, text in document.items():
        if option not in OPTIONS:
            raise Unusable(f"{source} {file}: unknown setting {option!r}; there are {', '.join(OPTIONS)}")
        if not isinstance(text, str):
            raise Unusable(f"{option} in {file}: expected one value, got a list or a map")
        yield option, _Given(text, f"{option} in {file}", rank=2, folder=file.absolute().parent)


def reason_of(error: OSError | UnicodeDecodeError) -> str:
    """Why something could not be read, without the path, which stands elsewhere in the line."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text (byte {error.start})"
    return (error.strerror or str(error)).lower()


def _usual_state(environment: Mapping[str, str]) -> _Given:
    """The per-user directory of the XDG base directory specification, which says to ignore what is not absolute."""
    folder = Path(environment.get("XDG_STATE_HOME", ""))
    if not folder.is_absolute():
        try:
            folder = Path.home() / ".local" / "state"
        except RuntimeError:
            raise Unusable("--state: your home directory is unknown: set HOME, or choose a directory") from None
    return _Given(str(folder / "yunishard"), "--state", rank=3)


def _path(given: _Given) -> Path:
    try:
        return given.folder / Path(given.text).expanduser()
    except RuntimeError:
        raise Unusable(f"{given.source}: no such user in {given.text!r}") from None


def _address(given: _Given, scheme: str = "") -> Address:
    match = _ADDRESS.fullmatch(given.text.removeprefix(scheme)) if given.text.startswith(scheme) else None
    if match is None:
        raise Unusable(f"{given.source}: expected {scheme}HOST:PORT, got {given.text!r}")
    port = int(match["port"])
    if port > PORT_MAX:
        raise Unusable(f"{given.source}: port {port} is above {PORT_MAX}")
    return Address(match["host"], port)


def _yes_no(given: _Given) -> bool:
    if given.text.lower() not in (*_YES, *_NO):
        raise Unusable(f"{given.source}: expected true or false, got {given.text!r}")
    return given.text.lower() in _YES


def _log_level(given: _Given) -> str:
    if given.text not in LOG_LEVELS:
        raise Unusable(f"{given.source}: expected one of {', '.join(LOG_LEVELS)}, got {given.text!r}")
    return given.text
