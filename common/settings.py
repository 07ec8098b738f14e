"""The table of settings: name, type, default and help text of each, for `yunishard up` and the processes it starts.

`Settings` is the only definition. The options of `up`, the names in its environment and settings file, and the output
of `yunishard settings` follow from it. The supervisor writes the effective settings to one JSON file, which every
process that it starts reads.

Not here: the sources of settings and checks that concern several of them (`deploy/settings.py`), and the settings that
RMs send (`common/config/extra_config.py`).
"""

# ruff: noqa: RUF009 - `setting` returns a field, as `dataclasses.field` does

import argparse
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from yunishard.common.config.acl import AclError, parse_acl
from yunishard.common.names import HOST_NAME, LOCAL_HOST, OFF, RM_ID, SUPERVISED, parse_rm_ids
from yunishard.common.simulated_nodes import NODE_RESOURCES, NODES_MAX, parse_node_resources
from yunishard.common.text_formats import parse_duration

T = TypeVar("T", covariant=True)
C = TypeVar("C", bound=str)

TOKEN: Final = "token"  # noqa: S105 - the name of a method, no secret
CERTIFICATE: Final = "certificate"
PROXY: Final = "proxy"
AUTH_METHODS: Final = (TOKEN, CERTIFICATE, PROXY)
"""Methods by which REST clients authenticate, in the order in which they are tried."""

ANY: Final = "*"
PORT_MAX: Final = 65535


class SettingsError(ValueError):
    """A setting that is invalid or cannot be used: one line with its origin, the reason, and what to do."""


# Kinds of values ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """The type of a setting: what its text looks like, and how it is parsed."""

    metavar: str
    parse: Callable[[str], T]
    """Raises ValueError with the reason, without the name of the setting."""


def _expected(what: str, text: str) -> ValueError:
    return ValueError(f"expected {what}, got {text!r}")


def _path(text: str) -> Path | None:
    try:
        return Path(text).expanduser() if text else None
    except RuntimeError:
        raise ValueError(f"no such user in {text!r}") from None


def _flag(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise _expected("true or false", text)


def _acl(text: str) -> str:
    """Check an access control list. A queue ignores names that no user can have, but a misspelt administrator is an
    error.
    """
    expected = "expected 'user,user group,group'"
    try:
        listed = parse_acl(text)
    except AclError as error:
        raise ValueError(f"{error}; {expected}") from None
    written = {name for part in text.split(" ") for name in part.split(",")} - {ANY}
    if text[:1] in ("", " "):
        written.discard("")  # no users, only groups
    if not listed.everybody and (odd := sorted(written - listed.users - listed.groups)):
        problem = f"{odd[0]!r} can be no name" if odd[0] else "a name is missing"
        raise ValueError(f"{problem} in {text!r}; {expected}")
    return text


def _rm_id(text: str) -> str:
    if text and not RM_ID.fullmatch(text):
        raise _expected("the id of a resource manager, such as rm-1", text)
    return text


def _choice(*choices: C) -> Kind[C]:
    def parse(text: str) -> C:
        for choice in choices:
            if choice == text:
                return choice
        raise _expected(f"one of {', '.join(choices)}", text)

    return Kind("|".join(choices), parse)


def _address(scheme: str = "") -> Kind[str]:
    """`HOST:PORT` behind a scheme, or `off`."""
    pattern = re.compile(rf"{scheme}(?:\[[0-9A-Fa-f:.]+\]|[^\s:/*\[\]]+):([0-9]{{1,5}})")

    def parse(text: str) -> str:
        match = pattern.fullmatch(text)
        if match is None and text != OFF:
            raise _expected(f"{scheme}HOST:PORT or {OFF}", text)
        if match is not None and int(match[1]) > PORT_MAX:
            raise ValueError(f"port {int(match[1])} is above {PORT_MAX}")
        return text

    return Kind(f"{scheme}HOST:PORT|{OFF}", parse)


def _duration(least: str = "") -> Kind[float]:
    """A positive time in seconds, of at least the duration `least`."""

    def parse(text: str) -> float:
        found = parse_duration(text)
        if found is None or found <= 0:
            raise _expected("a duration such as 500ms, 15s or 1m30s", text)
        if least and found < (parse_duration(least) or 0):
            raise ValueError(f"{text} is too short, {least} is the least")
        return found

    return Kind("DURATION", parse)


def _count(minimum: int, maximum: int) -> Kind[int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not minimum <= int(text) <= maximum:
            raise _expected(f"a whole number from {minimum} to {maximum}", text)
        return int(text)

    return Kind("N", parse)


_UNITS: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{letter}iB": 1 << 10 * power for power, letter in enumerate("KMGT", start=1)
}
_SIZE: Final = re.compile(rf"([0-9]{{1,18}}) ?({'|'.join(_UNITS)})")


def _size(minimum_mib: int) -> Kind[int]:
    """Bytes, written with a unit."""

    def parse(text: str) -> int:
        match = _SIZE.fullmatch(text)
        if match is None:
            raise _expected("bytes with a unit, such as 512MiB or 1GiB", text)
        found = int(match[1]) * _UNITS[match[2]]
        if found < minimum_mib << 20:
            raise ValueError(f"{text} is too little, {minimum_mib} MiB is the least")
        return found

    return Kind("BYTES", parse)


def _words(
    metavar: str,
    expected: str,
    is_valid: Callable[[str], object],
    *,
    normalise: Callable[[str], str] = str,
    alone: str | None = None,
) -> Kind[tuple[str, ...]]:
    """Words separated by commas, with blanks around them ignored; `alone` is valid as the only word. An `is_valid` that
    raises ValueError means no.
    """

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(normalise(word.strip()) for word in text.split(",")) if text else ()
        try:
            if found in ((), (alone,)) or all(map(is_valid, found)):
                return found
        except ValueError:
            pass
        raise _expected(expected, text)

    return Kind(metavar, parse)


_POSTGRESQL: Final = re.compile(r"postgres(ql)?://[^?]*(\?.*)?")
_PASSWORD: Final = re.compile(r"//[^/?@]*:[^/?@]*@|[?&](ssl)?password=")


def _store(text: str) -> str:
    """The URI of a PostgreSQL database. It is shown and logged, so it must contain no password."""
    if text and not _POSTGRESQL.fullmatch(text):
        raise ValueError("expected postgresql://USER@HOST[,HOST]/DATABASE[?OPTIONS]")
    if _PASSWORD.search(text):
        raise ValueError("contains a password; put it in a file, and name that with ?passfile=FILE or PGPASSFILE")
    return text


def _host(text: str) -> str:
    if not HOST_NAME.fullmatch(text):
        raise _expected("up to 63 letters a-z, digits and '-'", text)
    return text


def _node_resources(text: str) -> str:
    """Check the size of a node; it stays text, as it is written in the file of the settings."""
    parse_node_resources(text)
    return text


def _methods(text: str) -> tuple[str, ...]:
    found = {word.strip() for word in text.split(",")}
    if text != OFF and not found <= set(AUTH_METHODS):
        raise _expected(f"{OFF}, or some of {', '.join(AUTH_METHODS)}", text)
    return tuple(method for method in AUTH_METHODS if method in found)


FILE: Final = Kind("FILE", _path)
DIR: Final = Kind("DIR", _path)
TEXT: Final = Kind("TEXT", str)
STORE: Final = Kind("URI", _store)
FLAG: Final = Kind("true|false", _flag)
ACL: Final = Kind("ACL", _acl)
NODE_SIZE: Final = Kind("RESOURCES", _node_resources)
PERCENT: Final = Kind("PERCENT", lambda text: _count(0, 100).parse(text.removesuffix("%").strip()))
DURATION: Final = _duration()
RM: Final = Kind("ID", _rm_id)
HOST: Final = Kind("NAME", _host)
RM_IDS: Final = _words("IDS", "ids with commas between, as in 'rm-1,test-*'", parse_rm_ids)
PLUGINS: Final = _words(
    "NAMES", "names of plug-ins with commas between", re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*").fullmatch
)
NETWORKS: Final = _words("ADDRESSES", "addresses or networks, as in 127.0.0.1,10.1.0.0/16", ipaddress.ip_network)
METHODS: Final = Kind("METHODS", _methods)
ORIGINS: Final = _words(
    "ORIGINS",
    "origins such as https://ui.example:8443, or *",
    re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?").fullmatch,
    normalise=str.lower,
    alone=ANY,
)
HOSTS: Final = _words(
    "NAMES",
    "host names without a port such as core.example, or *",
    re.compile(r"[a-z0-9_.-]+").fullmatch,
    normalise=lambda word: word.lower().removesuffix("."),
    alone=ANY,
)

# The table ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: `--log-level` on the command line, YUNISHARD_LOG_LEVEL in the environment, `log-level` in the file."""

    attribute: str
    """Its name in `Settings`, which ends in its unit if it has one; the other names follow from it."""
    kind: Kind[object]
    about: str
    default: str
    prefix: str
    """Of its name in the file."""

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return f"--{re.sub('_(s|bytes|percent)$', '', self.attribute).replace('_', '-')}"

    @property
    def name(self) -> str:
        """Its name in the file and in the output."""
        return self.prefix + self.flag[2:]

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"YUNISHARD_{self.flag[2:].upper().replace('-', '_')}"

    @property
    def help(self) -> str:
        """The help text with the default."""
        return self.about if self.default in ("", "false") else f"{self.about} (default: {self.default})"


def setting(kind: Kind[T], about: str, default: str = "", *, prefix: str = "") -> T:
    """Define an attribute of `Settings`."""
    row = {"kind": kind, "about": about, "default": default, "prefix": prefix}
    return field(default=kind.parse(default), metadata=row)


class EffectiveSetting(NamedTuple):
    """The effective value of a setting as text, for users."""

    name: str
    value: str
    source: str
    """`--rest`, `YUNISHARD_REST`, `FILE:LINE` or `default`."""
    origin: str
    """The beginning of error messages: `--rest`, `YUNISHARD_REST` or `rest in FILE`."""


class TlsPaths(NamedTuple):
    """The PEM files of a TLS port."""

    cert: Path
    key: Path
    client_ca: Path | None
    """CAs of client certificates; None if clients need none."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings. Each is valid in itself; the defaults are those of a process that is started by hand."""

    config: Path | None = setting(FILE, "queues for RMs that send none, watched for changes (default: built-in queues)")
    same_hierarchy: Literal["off", "warn", "enforce"] = setting(
        _choice("off", "warn", "enforce"),
        "what to do about a queue with a different parent in another partition",
        "warn",
        prefix="queues.",
    )
    native: str = setting(_address("tcp://"), "port for resource managers (RMs), or `off`", "tcp://127.0.0.1:9090")
    grpc: str = setting(_address(), "port for the scheduler interface over gRPC, or `off`", "127.0.0.1:3333")
    rest: str = setting(_address(), "port for REST and metrics, or `off`: then no history", "127.0.0.1:9080")
    grpc_tls_cert: Path | None = setting(FILE, "certificate of the gRPC port (default: no TLS)")
    grpc_tls_key: Path | None = setting(FILE, "its key")
    grpc_tls_client_ca: Path | None = setting(FILE, "CAs of gRPC clients' certificates (default: clients need none)")
    rest_tls_cert: Path | None = setting(FILE, "certificate of the REST port (default: no TLS)")
    rest_tls_key: Path | None = setting(FILE, "its key")
    rest_tls_client_ca: Path | None = setting(FILE, "CAs that sign users' certificates, for --auth certificate")
    native_keys: Path | None = setting(DIR, "key server.key_secret, or its directory (default: clients need no key)")
    native_allowed: Path | None = setting(FILE, "keys of the RMs, watched for changes (default: allowed beside it)")
    insecure: bool = setting(FLAG, "open unsecured ports on addresses other than loopback, too", "false")
    allowed_rms: tuple[str, ...] = setting(RM_IDS, "ids of RMs that may register; * in an id matches any text", "*")
    scheduler_admins: str = setting(ACL, "administrators as 'user,user group,group', besides yourself (default: none)")
    auth: tuple[str, ...] = setting(METHODS, "how clients authenticate: some of token,certificate,proxy", OFF)
    auth_keys: Path | None = setting(FILE, "keys of tokens, watched for changes: a JWKS or that of `yunishard token`")
    auth_issuer: str = setting(TEXT, "accept only tokens with this `iss` (default: any)")
    auth_audience: str = setting(TEXT, "accept only tokens with this in `aud` (default: only tokens without `aud`)")
    auth_proxy: tuple[str, ...] = setting(NETWORKS, "addresses or networks of proxies whose X-Forwarded-User counts")
    cors: tuple[str, ...] = setting(
        ORIGINS, "origins of pages that may use the API (default: all may read without --auth)"
    )
    rest_hosts: tuple[str, ...] = setting(
        HOSTS,
        "host names of the REST port, * for any; without --auth and TLS, private answers are given "
        "only under these, addresses and localhost (default: the name in --rest)",
    )
    preemption_threshold_percent: int = setting(PERCENT, "preempt for guarantees only above this usage", "0")
    preemption_pause_s: float = setting(DURATION, "time between two searches for victims for an ask", "15s")
    disable_reservation: bool = setting(FLAG, "reserve no node for an ask that fits none now", "false")
    reservation_share_percent: int = setting(PERCENT, "share of the nodes that an application may have reserved", "25")
    reservation_timeout_s: float = setting(_duration("1s"), "time after which a reservation of a node ends", "2h")
    predicates: tuple[str, ...] = setting(PLUGINS, "plug-ins that filter nodes for an ask (default: built-in)")
    manual: bool = setting(FLAG, "make no scheduling decision unless `yunishard schedule` asks for it", "false")
    simulated_nodes: int = setting(
        _count(0, NODES_MAX), "nodes that each partition has without an RM reporting them; implies --ephemeral", "0"
    )
    node_resources: str = setting(NODE_SIZE, "size of a simulated node", NODE_RESOURCES)
    simulated_load_percent: int = setting(
        PERCENT, "share of the simulated nodes that applications of a built-in fake RM keep busy", "0"
    )
    interpreted: bool = setting(FLAG, "run the engine as Python even if `make compiled` has compiled it", "false")
    asks_max: int = setting(_count(1, 100_000_000), "asks and allocations of a partition; more are rejected", "2000000")
    partitions_max: int = setting(_count(1, 10_000), "partitions of all RMs together, each is a process", "500")
    spare_workers: int = setting(_count(0, 64), "idle workers that can take over a partition whose worker ended", "0")
    heartbeat_s: float = setting(_duration("0.1s"), "interval of the heartbeats of a process or RM", "1s")
    silence_s: float = setting(DURATION, "time without a message after which an RM is disconnected", "3s")
    pause_timeout_s: float = setting(DURATION, "time after which the partitions of a disconnected RM end", "15m")
    lease_timeout_s: float = setting(DURATION, "time without a message after which a worker is replaced", "10s")
    proxy_memory_max_bytes: int = setting(_size(256), "memory of the proxy; beyond it, all RMs reconnect", "2GiB")
    state: Path | None = setting(DIR, "state directory (default: ~/.local/state/yunishard)")
    store: str = setting(STORE, "PostgreSQL database of the state (default: files in --state)")
    host_name: str = setting(HOST, "name of this host, which no other host of the same --store has", LOCAL_HOST)
    cluster_address: str = setting(_address("tcp://"), "port for the other hosts of the same --store, or `off`", OFF)
    cluster_keys: Path | None = setting(DIR, "keys of the connections between hosts, from `yunishard cluster init`")
    ephemeral: bool = setting(FLAG, "keep state in a temporary directory, removed at the end", "false")
    journal_max_bytes: int = setting(_size(16), "maximum size of each partition's journal, as in 512MiB", "1GiB")
    journal_history_bytes: int = setting(
        _size(0), "earlier changes of each partition that are kept for `yunishard journal replay`", "0B"
    )
    record_max_bytes: int = setting(
        _size(64), "maximum size of all configurations and their versions; the oldest versions are deleted", "1GiB"
    )
    history: bool = setting(FLAG, "record the use by applications, queues and users over time", "true")
    history_max_bytes: int = setting(_size(16), "maximum size of the history; the oldest rows are deleted", "1GiB")
    history_age_s: float = setting(_duration("1h"), "maximum age of rows in the history", "720h")
    log_level: str = setting(_choice("debug", "info", "warning", "error"), "how much to log", "info")
    log_format: Literal["text", "json"] = setting(
        _choice("text", "json"), "lines of the log: plain text, or one JSON object each", "text"
    )
    default_rm: str = setting(RM, "RM of plain partition names and requests without ?rm= (default: the first one)")
    web_root: Path | None = setting(DIR, "directory with the files of a web UI, served there (default: none)")
    debug: bool = setting(FLAG, "also serve /debug/stack and /debug/pprof/", "false")
    effective: tuple[EffectiveSetting, ...] = ()
    """All settings as text, in the order of this table; empty in a process that is started by hand."""

    def origin(self, name: str) -> str:
        """The place to change a setting, for error messages."""
        return next((one.origin for one in self.effective if one.name == name), SETTINGS[name].flag)

    def error(self, name: str, problem: str) -> SettingsError:
        """The error about a setting, with the place to change it."""
        return SettingsError(f"{self.origin(name)}: {problem}")

    def is_default(self, name: str) -> bool:
        """Whether no source sets it."""
        return any(one.name == name and one.source == DEFAULT for one in self.effective)

    @property
    def instance(self) -> str:
        """The instance of the proxy and of the web service that the supervisor runs."""
        return SUPERVISED if self.cluster_address == OFF else self.host_name

    @property
    def grpc_tls(self) -> TlsPaths | None:
        """The TLS files of the gRPC port; None without TLS."""
        return _tls_paths(self.grpc_tls_cert, self.grpc_tls_key, self.grpc_tls_client_ca)

    @property
    def rest_tls(self) -> TlsPaths | None:
        """The TLS files of the REST port; None without TLS."""
        return _tls_paths(self.rest_tls_cert, self.rest_tls_key, self.rest_tls_client_ca)

    @property
    def journals(self) -> Path | None:
        """The directory of the workers' journals."""
        return self.state and self.state / "journals"

    @property
    def history_file(self) -> Path | None:
        """The database of the history, in a directory that only its owner can enter; None if there is none."""
        return self.state / "history" / "history.sqlite" if self.state and self.history else None


HEADINGS: Final = {
    "config": "queues",
    "native": "ports",
    "grpc-tls-cert": "TLS (certificate chains and keys are PEM files)",
    "native-keys": "keys of the native port (`yunishard keys` makes them)",
    "insecure": "authorization",
    "auth": "REST clients (see docs/security.md)",
    "preemption-threshold": "preemption and reservation",
    "predicates": "plug-ins",
    "manual": "for tests and teaching",
    "asks-max": "limits",
    "spare-workers": "liveness and recovery",
    "state": "state and logs",
    "default-rm": "more on the REST port",
}
"""The headings in the help, by the first setting below each."""

DEFAULT: Final = "default"
"""The source of a setting that no source sets."""

_ROWS: Final = [Setting(one.name, **one.metadata) for one in fields(Settings) if one.metadata]

SETTINGS: Final[Mapping[str, Setting]] = {row.name: row for row in _ROWS}
"""By name, in the order of help and output."""


def _tls_paths(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsPaths | None:
    return TlsPaths(cert, key, client_ca) if cert and key else None


def host_and_port(address: str) -> tuple[str, int]:
    """Split `HOST:PORT`, with or without the native scheme; the brackets of an IPv6 address go.

    >>> host_and_port("tcp://[::1]:9090")
    ('::1', 9090)
    """
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


def add_options(parser: argparse.ArgumentParser, *, help_of: Callable[[Setting], str] = lambda row: row.help) -> None:
    """Add an option for each setting, under its heading. Values stay text, which `parse_setting` checks."""
    group = parser.add_argument_group()
    for row in SETTINGS.values():
        if row.name in HEADINGS:
            group = parser.add_argument_group(HEADINGS[row.name])
        if row.kind is FLAG and row.default == "false":
            group.add_argument(row.flag, dest=row.name, action="store_const", const="true", help=help_of(row))
        else:
            group.add_argument(row.flag, dest=row.name, metavar=row.kind.metavar, help=help_of(row))


def given_options(args: argparse.Namespace) -> dict[str, str]:
    """Return the settings that were given on the command line, by name."""
    return {name: text for name, text in vars(args).items() if name in SETTINGS and isinstance(text, str)}


def parse_setting(name: str, text: str, origin: str) -> object:
    """Parse the text of one setting.

    Raises:
        SettingsError: it is invalid.
    """
    try:
        return SETTINGS[name].kind.parse(text)
    except ValueError as error:
        raise SettingsError(f"{origin}: {error}") from None


def parse_options(args: argparse.Namespace) -> dict[str, object]:
    """Return the values of the settings on the command line, by attribute. Raises SettingsError."""
    given = [(SETTINGS[name], text) for name, text in given_options(args).items()]
    return {row.attribute: parse_setting(row.name, text, row.flag) for row, text in given}


def replace_settings(base: Settings, values: Mapping[str, object]) -> Settings:
    """Return `base` with these values, by attribute."""
    return msgspec.convert({**vars(base), **values}, Settings, dec_hook=_decode)


def encode_settings(settings: Settings) -> bytes:
    """Encode as JSON. No setting is a secret."""
    return msgspec.json.encode(settings, enc_hook=str)


def read_settings(file: Path) -> Settings:
    """Read the file that the supervisor has written.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=Settings, dec_hook=_decode)
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(f"the settings in {file} cannot be read: {error}") from None


def _decode(kind: type[Path], value: str) -> Path:
    return kind(value)
