"""The state directory: made if need be, ours alone, and used by one system at a time.

It is held by a lock on a file in it. The processes inherit the lock: a new instance cannot begin before the last
process of an old one is gone, even if the old supervisor was killed. The socket and the journals lie in directories
below it that nobody else can enter.

Not here: what is written there (`broker/record_file.py`, `partition_worker/journal/`).
"""

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.process import LEAVE_MAX_S
from deploy.settings import Settings, reason_of
from deploy.values import Unusable

SOCKET_PATH_BYTES_MAX: Final = 107
"""What the kernel allows for the path of a unix socket."""

HOLDER_GONE_MAX_S: Final = LEAVE_MAX_S + 5
"""How long the processes of an instance that was killed may still hold its directory: to notice, to leave, and to end
what they have begun to write.
"""

POLL_S: Final = 0.05

LOCK: Final = "lock"
"""The file whose lock says that the directory is in use; it holds the process id of the supervisor."""

_RUN: Final = "run"
_JOURNALS: Final = "journals"
_HISTORY: Final = "history"
_PREFIX: Final = "yunishard-"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

_log = logging.getLogger("core.supervisor")


@dataclass(frozen=True, slots=True)
class State:
    """The directory while it is ours."""

    folder: Path
    run: Path
    """For what is of no use any more at the next start."""
    journals: Path
    history: Path
    socket: Path
    """Where the broker's is to be, in a directory that only this user can enter."""
    lock: int
    """File descriptor of the lock, for the processes to inherit."""


def claimed(settings: Settings, stack: ExitStack, *, patience_s: float = HOLDER_GONE_MAX_S) -> State:
    """The directory, locked until the stack ends. What a killed instance has left behind has `patience_s` to leave it.

    Raises:
        Unusable: it cannot be used, is in use, or others may enter what is to be private.
    """
    source = settings.source("state")
    folder = _temporary(stack) if settings.state is None else settings.state.absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        run, journals, history = (_private(folder / name, source) for name in (_RUN, _JOURNALS, _HISTORY))
        lock = _locked(folder / LOCK, source, patience_s)
    except FileExistsError:
        raise Unusable(f"{source}: {folder}: not a directory; choose one with --state") from None
    except OSError as error:
        advice = "choose a directory you can write to with --state, or use --ephemeral"
        raise Unusable(f"{source}: {folder}: {reason_of(error)}; {advice}") from None
    stack.callback(os.close, lock)
    return State(folder, run, journals, history, _socket_path(run, stack), lock)


def _private(folder: Path, source: str) -> Path:
    """A directory of ours that nobody else can enter. One that others could is not mended: who knows who was there."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Unusable(f"{source}: {folder}: must be a directory and no link to one; move it away")
    if found.st_uid != os.geteuid():
        raise Unusable(f"{source}: {folder}: belongs to another user; choose another directory with --state")
    if found.st_mode & _OTHERS:
        raise Unusable(f"{source}: {folder}: others may enter it; see what is there, then `chmod 700` it")
    return folder


def _temporary(stack: ExitStack) -> Path:
    """A directory that only this user can enter, removed at the end."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise Unusable(f"no temporary directory: {reason_of(error)}; set TMPDIR to one you can write to") from None
    stack.callback(shutil.rmtree, folder, ignore_errors=True)  # at the very end nobody can do more about it
    return folder


def _socket_path(run: Path, stack: ExitStack) -> Path:
    path = run / "broker.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        path = _temporary(stack) / "broker.sock"
    stack.callback(path.unlink, missing_ok=True)
    return path


# The lock -------------------------------------------------------------------------------------------------------------


def _locked(path: Path, source: str, patience_s: float) -> int:
    """Open and lock the file, and write our process id into it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    ends, waits = time.monotonic() + patience_s, False
    while not _lock(lock):
        supervisor, holders = os.pread(lock, 32, 0).decode(errors="replace").strip(), _holders(path, lock)
        if supervisor in holders or time.monotonic() >= ends:
            os.close(lock)
            raise Unusable(f"{source}: {path.parent} is {_in_use(supervisor, holders)}")
        if holders and not waits:
            waits = True
            _log.warning(
                "process %s, which used %s, has ended; waiting up to %g s for the processes that it left behind: %s",
                *(supervisor, path.parent, patience_s, " ".join(holders)),
            )
        time.sleep(POLL_S)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _in_use(supervisor: str, holders: list[str]) -> str:
    otherwise = "choose another directory with --state, or use --ephemeral"
    if not holders or supervisor in holders:
        return f"in use by process {supervisor or 'unknown'}; stop that one first, or {otherwise}"
    rest = " ".join(holders)
    return f"still in use by what process {supervisor} has left behind; end it (`kill -KILL {rest}`), or {otherwise}"


def _lock(file: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _holders(path: Path, own: int) -> list[str]:
    """The ids of processes that have the file open otherwise than as our `own` descriptor, as far as we may know."""
    there, ours = os.path.realpath(path), f"/proc/{os.getpid()}/fd/{own}"
    found: dict[str, None] = {}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it has gone meanwhile, or is not ours to look at
            if str(link) != ours and str(link.readlink()) == there:
                found[link.parts[2]] = None
    return list(found)
