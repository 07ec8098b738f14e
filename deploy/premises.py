"""What must hold before anything is started: a valid configuration, TLS files that can be used, a state directory of
our own, and free ports.

Each is tried for real, and what is wrong is told in one line that names the thing and the next step. The state
directory is held by a lock on a file in it. The processes inherit the lock: a new instance cannot begin before the
last process of an old one is gone, even if the old supervisor was killed.

Not here: reading the options (`settings.py`), starting processes (`processes.py`).
"""

import errno
import fcntl
import os
import shutil
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import msgspec

from common.config.check import load, load_problems
from common.config.hierarchy import hierarchy_problems
from common.config.problems import ConfigError
from common.config.rules import rule_problems
from common.names import PREDICATE_PLUGINS
from common.process import LEAVE_MAX_S
from deploy.settings import Resolved, Settings, Tls, reason_of
from deploy.values import NATIVE_SCHEME, Address, Unusable

SOCKET_PATH_BYTES_MAX: Final = 107
"""What the kernel allows for the path of a unix socket."""

HOLDER_GONE_MAX_S: Final = LEAVE_MAX_S + 1
"""How long the processes of an instance that was killed may still hold its directory."""

POLL_S: Final = 0.05

LOCK: Final = "lock"
"""The file in the state directory whose lock says that it is in use; it holds the process id of the supervisor."""

RECORD: Final = "broker.sqlite"
SHOWN: Final = "settings.json"

_PREFIX: Final = "yunishard-"


@dataclass(frozen=True, slots=True)
class Premises:
    """What the processes may use."""

    broker: str
    """Address of the broker's socket, in a directory that only this user can enter."""
    lock: int
    """File descriptor of the lock, for the processes to inherit."""
    record: Path
    """Where the broker keeps the versions of configurations."""
    settings: Path
    """The settings in force, as a list of `name`, `value` and `source`, for whoever asks over REST."""


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
    with ExitStack() as stack:
        state, lock = _claimed(settings, stack)
        stack.callback(os.close, lock)
        _check_ports(settings)  # after the lock: the processes of a killed instance held ports too
        path = _socket_path(state, stack)
        stack.callback(path.unlink, missing_ok=True)
        shown = _shown(settings.resolved, state, settings.source("state"))
        yield Premises(f"ipc://{path}", lock, state / RECORD, shown)


def _check_config(settings: Settings) -> None:
    if settings.config is None:
        return
    place = f"{settings.source('config')}: {settings.config}"
    try:
        configuration = load(settings.config.read_text(encoding="utf-8"))
        problems = [
            problem
            for partition in configuration.partitions
            for problem in (*load_problems(partition), *rule_problems(partition))
        ]
        problems += hierarchy_problems(configuration) if settings.same_hierarchy == "enforce" else []
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


# The state directory --------------------------------------------------------------------------------------------------


def _claimed(settings: Settings, stack: ExitStack) -> tuple[Path, int]:
    """The state directory, made if need be, and the lock on it."""
    source = settings.source("state")
    state = _temporary(stack) if settings.state is None else settings.state.absolute()
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        run = state / "run"
        run.mkdir(mode=0o700, exist_ok=True)
        run.chmod(0o700)
        return state, _locked(state / LOCK, source)
    except FileExistsError:
        raise Unusable(f"{source}: {state}: not a directory; choose one with --state") from None
    except OSError as error:
        advice = "choose a directory you can write to with --state, or use --ephemeral"
        raise Unusable(f"{source}: {state}: {reason_of(error)}; {advice}") from None


def _temporary(stack: ExitStack) -> Path:
    """A directory that only this user can enter, removed at the end."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise Unusable(f"no temporary directory: {reason_of(error)}; set TMPDIR to one you can write to") from None
    stack.callback(shutil.rmtree, folder, ignore_errors=True)  # at the very end nobody can do more about it
    return folder


def _shown(resolved: tuple[Resolved, ...], state: Path, source: str) -> Path:
    """Write the settings down for the web service; nothing in them is secret."""
    path = state / "run" / SHOWN
    try:
        path.write_bytes(msgspec.json.encode(resolved))
    except OSError as error:
        raise Unusable(f"{source}: {path}: cannot be written: {reason_of(error)}") from None
    return path


def _socket_path(state: Path, stack: ExitStack) -> Path:
    path = state / "run" / "broker.sock"
    return path if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX else _temporary(stack) / "broker.sock"


def _locked(path: Path, source: str) -> int:
    """Open and lock the file, and write our process id into it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    patience = time.monotonic() + HOLDER_GONE_MAX_S
    while not _lock(lock):
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
        if _alive(holder) or time.monotonic() >= patience:
            os.close(lock)
            raise Unusable(
                f"{source}: {path.parent} is in use by process {holder or 'unknown'}; stop that one first, "
                "or choose another directory with --state, or use --ephemeral"
            )
        time.sleep(POLL_S)  # it was killed: its processes notice and leave
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _lock(file: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _alive(holder: str) -> bool:
    if not holder.isdecimal():
        return False
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
