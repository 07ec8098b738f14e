"""A forked process that writes a snapshot while the worker continues.

It has a copy of the memory, encodes the snapshot and does nothing else: first it closes all descriptors that it
inherited. It ends when its time limit expires, and with its parent.

Rejected: copying the state inside the worker, which blocks it for half a second with 150,000 allocations. That happens
only where the system cannot fork another process.
"""

import ctypes
import errno
import gc
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

STANDARD_ERROR: Final = 2
CRASHED: Final = 255
"""Exit status after any error but an OSError, whose number is the status otherwise."""

_SET_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG: the signal that `prctl` sends to a process when its parent ends."""

_libc = ctypes.CDLL(None)


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
            run_forked(work, limit_s, parent)

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


def run_forked(work: Callable[[], None], limit_s: float, parent: int, *, keep: int = STANDARD_ERROR) -> NoReturn:
    """Run the work in the forked process, and end it. Of the inherited descriptors it closes all but the standard ones
    and `keep`.
    """
    status = CRASHED
    try:
        _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(status)
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        gc.disable()  # a collection would finalize objects of the parent, and touch every page of the copy
        os.closerange(STANDARD_ERROR + 1, keep)
        os.closerange(max(keep, STANDARD_ERROR) + 1, 1 << 20)
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
