"""What must hold before anything is started: a valid configuration, TLS files that can be used, enough file
descriptors, a state directory of our own, and free ports.

Each is tried for real, and what is wrong is told in one line that names the thing and the next step.

Not here: reading the options (`settings.py`), the state directory (`state.py`), starting processes (`processes.py`).
"""

import errno
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import msgspec

from common.config.hierarchy import find_hierarchy_problems
from common.config.placement_rules import find_rule_problems
from common.config.problems import ConfigError
from common.config.validation import find_build_problems, load
from common.names import PREDICATE_PLUGINS
from common.process_limits import raise_descriptor_limit
from common.text_formats import format_count
from common.token_keys import TokenKeyError, read_token_keys
from deploy.exposure import check_exposure
from deploy.native_keys import NativeKeys, native_keys
from deploy.settings import Resolved, Settings, Tls, reason_of
from deploy.state import claimed
from deploy.values import NATIVE_SCHEME, Address, Unusable

RECORD: Final = "broker.sqlite"
SHOWN: Final = "settings.json"
AUDIT: Final = "audit.log"
HISTORY: Final = "history.sqlite"

DESCRIPTORS_FIXED: Final = 256
"""File descriptors that a process may need whatever the number of partitions: libraries, files, connections of a few
clients, and the reserve of `common/process_limits.py`."""

DESCRIPTORS_OF_PARTITION: Final = 3
"""File descriptors that the supervisor and the broker may need for each partition: a lifeline or a connection for its
worker, the same for the worker that replaces it, and one to wait for its end."""


@dataclass(frozen=True, slots=True)
class Premises:
    """What the processes may use."""

    broker: str
    """Address of the broker's socket, in a directory that only this user can enter."""
    lock: int
    """File descriptor of the lock, for the processes to inherit."""
    record: Path
    """Where the broker keeps what it has to know at the next start."""
    journals: Path
    """Where the workers keep their partitions."""
    settings: Path
    """The settings in force, as a list of `name`, `value` and `source`, for whoever asks over REST."""
    audit: Path
    """Where the web service writes down every change that somebody wanted."""
    history: Path
    """Where it keeps what there was over time, in a directory that only this user can enter."""
    keys: NativeKeys | None
    """Of the native port."""


@contextmanager
def prepared(settings: Settings) -> Iterator[Premises]:
    """Everything checked and claimed; let go of at the end.

    Raises:
        Unusable: with the first thing that is not as it must be.
    """
    _check_config(settings)
    _check_predicates(settings)
    _check_tls(settings, "grpc", settings.grpc_tls)
    _check_tls(settings, "rest", settings.rest_tls)
    _check_token_keys(settings)
    _check_web_root(settings)
    _check_descriptors(settings)
    keys = native_keys(settings)
    check_exposure(settings)
    with ExitStack() as stack:
        state = claimed(settings, stack)
        _check_ports(settings)  # after the lock: the processes of a killed instance held ports too
        shown = _shown(settings.resolved, state.run, settings.source("state"))
        yield Premises(
            broker=f"ipc://{state.socket}",
            lock=state.lock,
            record=state.folder / RECORD,
            journals=state.journals,
            settings=shown,
            audit=state.folder / AUDIT,
            history=state.history / HISTORY,
            keys=keys,
        )


def _check_config(settings: Settings) -> None:
    if settings.config is None:
        return
    place = f"{settings.source('config')}: {settings.config}"
    try:
        configuration = load(settings.config.read_text(encoding="utf-8"))
        problems = [
            problem
            for partition in configuration.partitions
            for problem in (*find_build_problems(partition), *find_rule_problems(partition))
        ]
        problems += find_hierarchy_problems(configuration) if settings.same_hierarchy == "enforce" else []
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{place}: cannot be read: {reason_of(error)}; leave it out for the built-in queues") from None
    except ConfigError as error:
        problems = list(error.problems)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Unusable(f"{place}: {' '.join(str(problems[0]).split())}{more}; mend it (`yunishard validate` lists all)")


def _check_predicates(settings: Settings) -> None:
    """Whether they are installed; a worker that loads one and cannot says so itself."""
    there = {point.name for point in entry_points(group=PREDICATE_PLUGINS)} if settings.predicates else set()
    for name in settings.predicates:
        if name not in there:
            known = ", ".join(sorted(there)) or "none"
            raise Unusable(f"{settings.source('predicates')}: no plug-in {name!r} is installed; there are: {known}")


def _check_token_keys(settings: Settings) -> None:
    file = settings.web.auth_keys
    try:
        if file is not None:
            read_token_keys(file)
    except TokenKeyError as error:
        advice = "`yunishard token --new-key` makes one"
        raise Unusable(f"{settings.source('auth-keys')}: {file}: {error}; {advice}") from None


def _check_web_root(settings: Settings) -> None:
    root = settings.web.root
    if root is not None and not root.is_dir():
        raise Unusable(f"{settings.source('web-root')}: {root}: is no directory; give the one with the UI's index.html")


def _check_descriptors(settings: Settings) -> None:
    """Raise the limit, which the processes inherit, and check that it is enough for all partitions. The default of
    `partitions-max` is more than most systems use, so it is only worth a warning.
    """
    available = raise_descriptor_limit()
    needed = descriptors_needed(settings.partitions_max + settings.spare_workers)
    if needed <= available:
        return
    fitting = (available - descriptors_needed(settings.spare_workers)) // DESCRIPTORS_OF_PARTITION
    lower = f", or choose at most {format_count(fitting, 'partition')}" if fitting > 0 else ""
    problem = (
        f"{settings.source('partitions-max')}: {format_count(settings.partitions_max, 'partition')} may need {needed} "
        f"file descriptors in one process, and the hard limit is {available}; raise it (`ulimit -Hn`, LimitNOFILE= of "
        f"a systemd unit, `--ulimit nofile=` of a container){lower}"
    )
    if not settings.is_default("partitions-max"):
        raise Unusable(problem)
    logging.getLogger("core.supervisor").warning("%s", problem)


def descriptors_needed(workers: int) -> int:
    """How many file descriptors a process may need in a system with so many workers."""
    return DESCRIPTORS_FIXED + DESCRIPTORS_OF_PARTITION * workers


# TLS ------------------------------------------------------------------------------------------------------------------


def _check_tls(settings: Settings, port: str, tls: Tls | None) -> None:
    """Load the files as the port will."""
    if tls is None:
        return
    for part, file in (("cert", tls.cert), ("key", tls.key), ("client-ca", tls.client_ca)):
        try:
            if file is not None:
                file.read_bytes()
        except OSError as error:
            source = settings.source(f"{port}-tls-{part}")
            raise Unusable(f"{source}: {file}: cannot be read: {reason_of(error)}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    source = settings.source(f"{port}-tls-cert")
    try:
        context.load_cert_chain(tls.cert, tls.key, password=_no_password)
    except ssl.SSLError as error:
        raise Unusable(f"{source}: {_tls_reason(error, tls, settings.source(f'{port}-tls-key'))}") from None
    except _Encrypted:
        source = settings.source(f"{port}-tls-key")
        raise Unusable(f"{source}: {tls.key}: has a password; give a key without one") from None
    try:
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
    except ssl.SSLError:
        source = settings.source(f"{port}-tls-client-ca")
        raise Unusable(f"{source}: {tls.client_ca}: holds no certificate in PEM form") from None


class _Encrypted(Exception):
    """The key wants a password, and there is nobody to ask."""


def _no_password() -> str:
    raise _Encrypted


def _tls_reason(error: ssl.SSLError, tls: Tls, key_source: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{tls.cert}: does not belong to the key {tls.key} ({key_source})"
    return f"{tls.cert} and {tls.key} ({key_source}) are no certificate and key in PEM form"


# Ports ----------------------------------------------------------------------------------------------------------------


def _check_ports(settings: Settings) -> None:
    """Listen on each port for a moment."""
    taken: dict[Address, str] = {}
    with ExitStack() as stack:
        for option, address in (("native", settings.native), ("grpc", settings.grpc), ("rest", settings.rest)):
            if address is None:
                continue
            scheme, source = NATIVE_SCHEME if option == "native" else "", settings.source(option)
            if address.port and address in taken:
                raise Unusable(f"{source}: {scheme}{address}: {taken[address]} has the same; give each its own")
            taken[address] = source
            try:
                _listen(address, stack)
            except OSError as error:
                advice = _advice(error, example=f"--{option} {scheme}{address.host}:0")
                raise Unusable(f"{source}: {scheme}{address}: {reason_of(error)}; {advice}") from None


def _advice(error: OSError, *, example: str) -> str:
    if isinstance(error, socket.gaierror):
        return "give an address of this machine"
    match error.errno:
        case errno.EADDRINUSE:
            return f"stop what listens there, or choose another port ({example} takes any free one)"
        case errno.EACCES:
            return f"choose a port from 1024 on ({example} takes any free one)"
        case _:
            return "give an address of this machine, such as 127.0.0.1"


def _listen(address: Address, stack: ExitStack) -> None:
    """Listen on every address that the host stands for; those that the machine has not got are passed over."""
    absent: list[OSError] = []
    found = socket.getaddrinfo(address.host.strip("[]"), address.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, where in found:
        try:
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the processes do
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(where)
            listener.listen(1)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            absent.append(error)
    if len(absent) == len(found):
        raise absent[0]


def _shown(resolved: tuple[Resolved, ...], run: Path, source: str) -> Path:
    """Write the settings down for the web service; nothing in them is secret."""
    path = run / SHOWN
    try:
        path.write_bytes(msgspec.json.encode(resolved))
    except OSError as error:
        raise Unusable(f"{source}: {path}: cannot be written: {reason_of(error)}") from None
    return path
