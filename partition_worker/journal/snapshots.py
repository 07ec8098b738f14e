"""Write and read snapshot files; a forked process writes them while the worker continues.

A snapshot file holds the encoded state after a step, with a checksum. It is written under a temporary name and renamed,
so it exists whole or not at all.

The forked process has a copy of the memory, encodes the snapshot and does nothing else: first it closes all descriptors
that it inherited. It ends when its time limit expires, and with its parent: by then another worker may write the same
file.

Rejected: copying the state inside the worker, which blocks it for half a second with 150,000 allocations. That happens
only where the system cannot fork another process.
"""

import ctypes
import errno
import gc
import os
import signal
import struct
import threading
import traceback
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from partition_worker.journal.files import PRIVATE, sync
from partition_worker.recovery import JournalDamaged

MAGIC: Final = b"YSHSNAP2"
"""The last byte is the version of the file format."""

_HEAD: Final = struct.Struct(">8sQQI")
"""Magic, number of the step, length of the content, checksum of both and the content."""

STANDARD_ERROR: Final = 2
CRASHED: Final = 255
"""Exit status after any error but an OSError, whose number is the status otherwise."""

_SET_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG: the signal that `prctl` sends to a process when its parent ends."""

_libc = ctypes.CDLL(None)


# Files --------------------------------------------------------------------------------------------------------------


def write_snapshot(path: Path, number: int, content: bytes) -> None:
    """Write a snapshot under a temporary name, make it durable, then rename it.

    Raises:
        OSError: the disk is full or fails; no file is left.
    """
    unfinished = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE), "wb") as file:
            file.write(_HEAD.pack(MAGIC, number, len(content), _checksum(number, content)))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync(path.parent)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def read_snapshot(path: Path, number: int) -> bytes:
    """Read the content of a snapshot.

    Raises:
        JournalDamaged: the file is missing or damaged.
        OSError: it cannot be read.
    """
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        raise JournalDamaged(f"its snapshot {path.name} is missing") from None
    if len(found) < _HEAD.size:
        raise JournalDamaged(f"its snapshot {path.name} is cut off")
    magic, of, length, checksum = _HEAD.unpack_from(found)
    content = found[_HEAD.size :]
    if magic != MAGIC:
        raise JournalDamaged(f"its snapshot {path.name} has no valid header, or a format that this release cannot read")
    if (of, length) != (number, len(content)) or checksum != _checksum(number, content):
        raise JournalDamaged(f"its snapshot {path.name} does not match its checksum")
    return content


def _checksum(number: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack(">QQ", number, len(content))))


# Process ------------------------------------------------------------------------------------------------------------


class SnapshotProcess:
    """A forked process that runs `work` on the memory as it was when this object was created."""

    def __init__(self, work: Callable[[], None], *, limit_s: float) -> None:
        self._work, self._limit_s = work, limit_s
        self._watcher: threading.Thread | None = None
        self._process: int | None = None
        """None if the system cannot fork."""
        parent = os.getpid()
        with warnings.catch_warnings(), suppress(OSError):
            # Locks of other threads stay locked in the child, which is why it uses none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = os.fork()
        if self._process == 0:
            _run_forked(work, limit_s, parent)

    def watch(self, finish: Callable[[str], None]) -> None:
        """Call `finish` once, with the error or an empty text; in a thread of its own if there is a forked process."""
        if self._process is None:
            problem = ""
            try:
                self._work()
            except OSError as error:
                problem = _describe(error.errno or CRASHED)
            finish(problem)
            return
        self._watcher = threading.Thread(target=self._wait, args=(self._process, finish), name="snapshot", daemon=True)
        self._watcher.start()

    def stop(self, limit_s: float) -> bool:
        """Wait until it has ended and `finish` was called; kill it after `limit_s`. Whether it ended by itself."""
        if self._watcher is None or self._process is None:
            return True
        self._watcher.join(limit_s)
        if not self._watcher.is_alive():
            return True
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        return False

    def _wait(self, process: int, finish: Callable[[str], None]) -> None:
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            late = f"it took longer than {self._limit_s:g} s"
            finish(late if number == signal.SIGALRM else f"its process ended by signal {number}")
        else:
            finish(_describe(os.WEXITSTATUS(status)))


def _run_forked(work: Callable[[], None], limit_s: float, parent: int) -> NoReturn:
    """Run the work in the forked process, and end it."""
    status = CRASHED
    try:
        _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(status)
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        gc.disable()  # a collection would finalize objects of the parent, and touch every page of the copy
        os.closerange(STANDARD_ERROR + 1, 1 << 20)
        work()
        status = 0
    except OSError as error:
        status = error.errno or CRASHED
    except BaseException:  # no handler of the parent may run here
        os.write(STANDARD_ERROR, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(status)


def _describe(status: int) -> str:
    if status == 0:
        return ""
    if status == CRASHED:
        return "its process failed; standard error has the reason"
    return os.strerror(status).lower() if status in errno.errorcode else f"exit status {status}"
