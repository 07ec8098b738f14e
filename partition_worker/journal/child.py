"""Work on the process's memory as it is at one moment, in a child that has a copy of it, while the process goes on.

The child does this work and nothing else: no socket, database or log of its parent means anything to it, and whatever
it inherits open it closes first. It ends itself when its time is up, and with its parent: by then another worker may
write the same file.

Rejected: copying the memory in the process itself, which stands still meanwhile, for half a second with 150,000
allocations. That is what happens where the system has no room for another process.
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
DESCRIPTORS_MAX: Final = 1 << 20
BROKE: Final = 255
"""The exit status of work that raised something else than an OSError, whose number is the status otherwise."""

_DEATH_SIGNAL: Final = 1
"""What `prctl` calls the signal that a process gets when its parent ends."""

_libc = ctypes.CDLL(None)


class Child:
    """A child at work, which has the memory as it was when this was made."""

    def __init__(self, work: Callable[[], None], *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._problem = ""
        """Of work that was done without a child."""
        self._follower: threading.Thread | None = None
        parent = os.getpid()
        self._process = _fork()
        if self._process == 0:
            _live(work, limit_s, parent)
        if self._process is None:
            self._problem = _inline(work)

    def follow(self, done: Callable[[str], None]) -> None:
        """Have `done` called once, with the problem or an empty text; in a thread of its own if there is a child."""
        if self._process is None:
            done(self._problem)
            return
        self._follower = threading.Thread(target=self._wait, args=(self._process, done), name="snapshot", daemon=True)
        self._follower.start()

    def end(self, limit_s: float) -> bool:
        """Wait until it has ended and `done` was called, so long; then kill it. Whether it ended by itself."""
        if self._follower is None or self._process is None:
            return True
        self._follower.join(limit_s)
        if not self._follower.is_alive():
            return True
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        return False

    def _wait(self, process: int, done: Callable[[str], None]) -> None:
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            late = f"it took longer than {self._limit_s:g} s"
            done(late if number == signal.SIGALRM else f"its process ended by signal {number}")
        else:
            done(_problem_of(os.WEXITSTATUS(status)))


def _fork() -> int | None:
    """The number of the child, 0 in the child, None where there can be none."""
    with warnings.catch_warnings():
        # What other threads hold at this moment stays held in the child, which is why it uses nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return os.fork()
        except OSError:
            return None


def _live(work: Callable[[], None], limit_s: float, parent: int) -> NoReturn:
    """The child's whole life."""
    status = BROKE
    try:
        _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before it could be asked for
            os._exit(status)
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        gc.disable()  # or it would finalize what belongs to the parent, and touch every page of the copy
        os.closerange(STANDARD_ERROR + 1, DESCRIPTORS_MAX)
        work()
        status = 0
    except OSError as error:
        status = error.errno or BROKE
    except BaseException:  # whatever it is, nothing of the parent may run in here
        os.write(STANDARD_ERROR, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(status)


def _inline(work: Callable[[], None]) -> str:
    try:
        work()
    except OSError as error:
        return _problem_of(error.errno or BROKE)
    return ""


def _problem_of(status: int) -> str:
    if status == 0:
        return ""
    if status == BROKE:
        return "it broke; standard error has the reason"
    return os.strerror(status).lower() if status in errno.errorcode else f"exit status {status}"
