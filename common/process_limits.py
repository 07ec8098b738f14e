"""File descriptors of this process: the limit on them, and a pause in accepting connections while few are free.

Each connection takes a descriptor, so clients can take all that a process may have. A process then cannot open its own
files any more, and a loop that waits for connections runs without end: `accept` fails, and the connection that it could
not accept makes the listener ready again. So every process that accepts connections has a `DescriptorGuard`, which
counts descriptors and pauses all listeners of the process before the last ones are taken. Connections that exist stay,
and the reserve is left for the process's own files.

gRPC's library cannot be paused. It tries again once a second and needs no help.

Not here: how many connections a port may have (`webservice/http1.py`), what a system needs (`deploy/preflight.py`).
"""

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

RESERVE: Final = 32
"""Free descriptors below which no connection is accepted. They are for files, pipes and the link to the broker."""

ENOUGH: Final = 48
"""Free descriptors from which connections are accepted again. It is more than the reserve, so that a single connection
that ends does not begin another episode."""

LOOK_EVERY_S: Final = 1.0
"""Seconds between two counts: up to so long a listener that ZeroMQ owns may spin before it is paused."""

ACCEPTED_MAX: Final = 128
"""Connections that are accepted before the loop does something else."""

LOG_EVERY_S: Final = 60.0
"""Least time between two log lines about a shortage. Episodes that begin sooner are not logged."""

REMEDY: Final = (
    "raise the limit (`ulimit -n`, LimitNOFILE= of a systemd unit, `--ulimit nofile=` of a container), "
    "or find what holds so many"
)
"""What an operator can do, as part of a log line."""

_SHORTAGE: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_ROOM: Final = _SHORTAGE | {errno.ENOBUFS, errno.ENOMEM}
"""Why the system may not accept a connection that is there. The connection stays, and the listener stays ready."""

_FEW: Final = "too few free file descriptors"
_FOLDER: Final = "/proc/self/fd"

_log = logging.getLogger("core.descriptors")


def descriptor_limit() -> int:
    """How many descriptors this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_descriptor_limit() -> int:
    """Raise the limit of this process, and of processes that it starts, as far as the system allows; what it is now.

    The usual limit of 1,024 is for programs that use `select`, and none of ours does.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):  # a system whose hard limit is "unlimited" may not take that as a soft one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return descriptor_limit()


def count_open_descriptors() -> int:
    """How many descriptors are open now. To count them takes one; without it they are as many as there may be."""
    try:
        return len(os.listdir(_FOLDER)) - 1
    except FileNotFoundError:
        return 0  # not Linux
    except OSError as error:
        if not is_shortage(error):
            raise
        return descriptor_limit()


def is_shortage(error: OSError) -> bool:
    """Whether the process, or the machine, has no free descriptor."""
    return error.errno in _SHORTAGE


class Listener(Protocol):
    """Where connections are accepted."""

    def pause(self) -> None:
        """Accept no connections until `resume`."""

    def resume(self) -> None:
        """Accept connections again.

        Raises:
            OSError: this is not possible now. It is tried again.
        """


class DescriptorGuard:
    """Pauses listeners while this process has few free descriptors. Needs a running loop."""

    def __init__(
        self,
        *,
        look_every_s: float = LOOK_EVERY_S,
        free: Callable[[], int] = lambda: descriptor_limit() - count_open_descriptors(),
    ) -> None:
        self._look_every_s = look_every_s
        self._free = free
        self._listeners: list[Listener] = []
        self._paused: list[Listener] = []
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self._is_logged = False
        self._logged_at = -LOG_EVERY_S
        self._timer = self._loop.call_later(look_every_s, self._look)

    def add(self, listener: Listener) -> None:
        """Pause this listener, too, when descriptors run out."""
        self._listeners.append(listener)

    def close(self) -> None:
        self._timer.cancel()

    def pause(self, cause: str) -> None:
        """Pause all listeners: a listener has noticed a shortage, or a count has found one."""
        if self._paused:
            return
        self._began = self._loop.time()
        self._paused = list(self._listeners)
        for listener in self._paused:
            listener.pause()
        self._is_logged = self._began - self._logged_at >= LOG_EVERY_S
        if self._is_logged:
            self._logged_at = self._began
            _log.warning(
                "no connections are accepted for now: %s (%d of %d file descriptors are free, %d have to be); %s",
                *(cause, max(0, self._free()), descriptor_limit(), ENOUGH, REMEDY),
            )

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._look_every_s, self._look)
        free = self._free()
        if free < RESERVE:
            self.pause(_FEW)
        elif self._paused and free >= ENOUGH:
            self._resume()

    def _resume(self) -> None:
        try:
            while self._paused:
                self._paused[-1].resume()
                self._paused.pop()
        except OSError as error:
            if self._loop.time() - self._logged_at >= LOG_EVERY_S:
                self._logged_at = self._loop.time()
                _log.warning("connections cannot be accepted again yet: %s", error)
            return
        if self._is_logged:
            _log.info("connections are accepted again, after %.0f s", self._loop.time() - self._began)


class Acceptor:
    """Accepts connections on a listening socket, and pauses before the process has no free descriptors."""

    def __init__(
        self, listener: socket.socket, accepted: Callable[[socket.socket], None], guard: DescriptorGuard
    ) -> None:
        """Each connection is passed to `accepted`, which owns it from then on. The listener stays the caller's."""
        self._listener = listener
        self._accepted = accepted
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        listener.settimeout(0)
        guard.add(self)
        self.resume()

    def pause(self) -> None:
        self._loop.remove_reader(self._listener.fileno())

    def resume(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more; the listener can be closed."""
        self.pause()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Accept a connection; whether there may be another one.

        The system gives out the lowest free number, so a number within the reserve says that all below it are taken.
        """
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except ConnectionAbortedError:
            return True
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._guard.pause((error.strerror or str(error)).lower())
            return False
        if connection.fileno() >= descriptor_limit() - RESERVE:
            connection.close()
            self._guard.pause(_FEW)
            return False
        self._accepted(connection)
        return True


# Memory ---------------------------------------------------------------------------------------------------------------

MEMORY_CHECK_S: Final = 0.25
"""How often a process looks at itself. What arrives meanwhile, up to a few hundred MiB, comes on top of the limit."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM_BYTES_MAX: Final = 256
"""`/proc/self/statm` is one line of seven numbers."""


class MemoryLimit:
    """Calls `exceeded` once, with what is used, when the process uses more than `most_bytes`; in a running loop."""

    def __init__(
        self,
        most_bytes: int,
        exceeded: Callable[[int], None],
        *,
        used_bytes: Callable[[], int] | None = None,
        look_every_s: float = MEMORY_CHECK_S,
    ) -> None:
        self._most_bytes = most_bytes
        self._exceeded = exceeded
        self._used_bytes = used_bytes or resident_bytes
        self._look_every_s = look_every_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(look_every_s, self._look)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        used = self._used_bytes()
        if used > self._most_bytes:
            self._exceeded(used)
        else:
            self._timer = self._loop.call_later(self._look_every_s, self._look)


def _opened(file: str) -> int | None:
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


_statm: Final = _opened("/proc/self/statm")
"""Stays open: a process that has no free descriptors must see its memory, too. None where the system has no such file.
"""


def resident_bytes() -> int:
    """Memory of this process that is in use now; 0 where the system does not say."""
    if _statm is None:
        return 0
    return int(os.pread(_statm, _STATM_BYTES_MAX, 0).split()[1]) * _PAGE_BYTES
