"""The state directory: created if necessary, private, and used by one system at a time.

A lock on a file in it holds it. The processes inherit the lock: a new system cannot start before the last process of an
old one has ended, even if the old supervisor was killed. The broker's socket and the journals are in directories below
it that no other user can enter, nor replace: no other user may write to the state directory or change its path.

Not here: the files in it (`broker/sqlite_store.py`, `partition_worker/journal/`, `yunishard/webservice/`).
"""

import fcntl
import logging
import os
import stat
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yunishard.common.process.folders import find_intruder, make_temporary_folder
from yunishard.common.process.main import LEAVE_MAX_S
from yunishard.common.settings import Settings, SettingsError
from yunishard.common.text_formats import describe_file_error

SOCKET_PATH_BYTES_MAX: Final = 107
"""The kernel's limit on the path of a unix socket."""

HOLDER_GONE_MAX_S: Final = LEAVE_MAX_S + 5
"""Seconds for which processes of a killed supervisor may still hold its directory: to detect its end, to stop, and to
finish their writes.
"""

POLL_S: Final = 0.05

LOCK: Final = "lock"
"""The locked file; it contains the supervisor's process id."""

_log = logging.getLogger("core.supervisor")


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The directory while this process holds it."""

    folder: Path
    settings: Path
    """The file of the processes' settings."""
    broker: str
    """Address of the broker's socket, in a directory that only this user can enter."""
    lock: int
    """File descriptor of the lock, which the processes inherit."""


def claim_state_directory(settings: Settings, stack: ExitStack) -> StateDirectory:
    """Create and lock the directory until the stack closes. Waits for processes that a killed supervisor has left.

    Raises:
        SettingsError: it cannot be used, is in use, or other users can enter its private parts.
    """
    origin = settings.origin("state")
    folder = _make_temporary(stack) if settings.state is None else settings.state.absolute()
    try:
        _check_intruders(folder, origin)
        _make_folders(folder)
        _check_intruders(folder, origin)
        run, _, _ = (_make_private(folder / name, origin) for name in ("run", "journals", "history"))
        lock = _lock(folder / LOCK, origin)
    except FileExistsError:
        raise SettingsError(f"{origin}: {folder}: not a directory; choose one with --state") from None
    except OSError as error:
        advice = "choose a directory you can write to with --state, or use --ephemeral"
        raise SettingsError(f"{origin}: {folder}: {describe_file_error(error)}; {advice}") from None
    stack.callback(os.close, lock)
    socket = run / "broker.sock"
    if len(os.fsencode(socket)) > SOCKET_PATH_BYTES_MAX:
        socket = _make_temporary(stack) / "broker.sock"
    stack.callback(socket.unlink, missing_ok=True)
    return StateDirectory(folder, run / "settings.json", f"ipc://{socket}", lock)


def _check_intruders(folder: Path, origin: str) -> None:
    if problem := find_intruder(folder):
        raise SettingsError(f"{origin}: {problem}; or choose another directory with --state, which only you can change")


def _make_folders(folder: Path) -> None:
    """Create a directory and those above it, to which no other user may write."""
    for one in (*reversed(folder.parents), folder):
        if not one.is_dir():
            one.mkdir(mode=0o700 if one == folder else 0o755, exist_ok=True)


def _make_private(folder: Path, origin: str) -> Path:
    """Create a directory that no other user can enter. An existing one with other permissions is an error, not
    repaired: other users may have changed it.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise SettingsError(f"{origin}: {folder}: must be a directory and no link to one; move it away")
    if found.st_uid != os.geteuid():
        raise SettingsError(f"{origin}: {folder}: belongs to another user; choose another directory with --state")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SettingsError(f"{origin}: {folder}: others may enter it; see what is there, then `chmod 700` it")
    return folder


def _make_temporary(stack: ExitStack) -> Path:
    """Make a directory that only this user can enter, removed when the stack closes."""
    try:
        # That one stays locked while it is in use. The state directory itself is locked for each line of the audit log.
        folder = stack.enter_context(make_temporary_folder("up")) / "state"
        folder.mkdir(mode=0o700)
    except OSError as error:
        reason = describe_file_error(error)
        raise SettingsError(f"no temporary directory: {reason}; set TMPDIR to one you can write to") from None
    _check_intruders(folder, "TMPDIR")
    return folder


# The lock -------------------------------------------------------------------------------------------------------------


def _lock(path: Path, origin: str) -> int:
    """Open and lock the file, and write our process id into it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline, is_waiting = time.monotonic() + HOLDER_GONE_MAX_S, False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        supervisor, holders = os.pread(lock, 32, 0).decode(errors="replace").strip(), _list_holders(path, lock)
        if supervisor in holders or time.monotonic() >= deadline:
            os.close(lock)
            raise SettingsError(f"{origin}: {path.parent} is {_describe_holders(supervisor, holders)}")
        if holders and not is_waiting:
            is_waiting = True
            _log.warning(
                "process %s, which used %s, has ended; waiting up to %g s for the processes that it left behind: %s",
                *(supervisor, path.parent, HOLDER_GONE_MAX_S, " ".join(holders)),
            )
        time.sleep(POLL_S)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _describe_holders(supervisor: str, holders: list[str]) -> str:
    otherwise = "choose another directory with --state, or use --ephemeral"
    if not holders or supervisor in holders:
        return f"in use by process {supervisor or 'unknown'}; stop that one first, or {otherwise}"
    rest = " ".join(holders)
    return f"still in use by what process {supervisor} has left behind; end it (`kill -KILL {rest}`), or {otherwise}"


def _list_holders(path: Path, own: int) -> list[str]:
    """The ids of processes that have the file open, other than through our descriptor `own`, as far as /proc shows."""
    there, ours = os.path.realpath(path), f"/proc/{os.getpid()}/fd/{own}"
    found: dict[str, None] = {}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it was closed meanwhile, or belongs to another user
            if str(link) != ours and str(link.readlink()) == there:
                found[link.parts[2]] = None
    return list(found)
