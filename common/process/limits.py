"""Limits of this process: free file descriptors and memory, and the capacity of its host.

Each connection uses a descriptor, so clients could use all that a process may have. Then the process cannot open files,
and a loop that waits for connections never sleeps: `accept` fails, and the connection that it could not accept makes
the listener ready again. So every process that accepts connections has a `DescriptorGuard`, which counts descriptors
and pauses the listeners of the process before the last ones are used. Existing connections of REST and gRPC stay;
ZeroMQ ends those of a paused port, and the peers connect again. gRPC's library cannot be paused; it retries once a
second.

Most input is bounded where it arrives. But ZeroMQ delivers a message of many frames only when its last frame is here,
and until then the message grows without limit. So a process with a `MemoryLimit` stops in order when it has grown too
large, and the supervisor starts it again.

Not here: the number of connections of a port (`yunishard/webservice/http1.py`), limits on single messages
(`common/messages/wire.py`).
"""

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from yunishard.common.retries import LogLimit

RESERVE: Final = 32
"""Free descriptors below which no connection is accepted: the reserve is for files, pipes and the broker."""

ENOUGH: Final = 48
"""Free descriptors from which connections are accepted again. More than the reserve, so that a single closed connection
does not start another shortage."""

CHECK_EVERY_S: Final = 1.0
"""Seconds between two counts, and so the time that a listener of ZeroMQ may spin before it is paused."""

ACCEPTED_MAX: Final = 128
"""Connections that are accepted before the event loop runs other callbacks."""

MEMORY_CHECK_S: Final = 0.25
"""Seconds between two checks of the memory. Messages that arrive meanwhile, up to a few hundred MiB, add to the limit.
"""

REMEDY: Final = (
    "raise the limit (`ulimit -n`, LimitNOFILE= of a systemd unit, `--ulimit nofile=` of a container), "
    "or find what holds so many"
)
"""The advice to an operator in a log line."""

_SHORTAGE: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_ROOM: Final = _SHORTAGE | {errno.ENOBUFS, errno.ENOMEM}
"""Errors of `accept` that leave the connection waiting and the listener ready."""

_FEW: Final = "too few free file descriptors"

_log = logging.getLogger("core.descriptors")
_memory_log = logging.getLogger("core.memory")


def descriptor_limit() -> int:
    """Return the number of descriptors that this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_descriptor_limit() -> int:
    """Raise the limit of this process and its children to the hard limit; return the limit.

    The usual limit of 1,024 is for programs that use `select`, which ours do not.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):  # a system whose hard limit is "unlimited" may refuse that as a soft limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return descriptor_limit()


def count_open_descriptors() -> int:
    """Return the number of open descriptors; 0 on systems other than Linux. Without a free one it is the limit."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # listing uses one
    except FileNotFoundError:
        return 0
    except OSError as error:
        if not is_shortage(error):
            raise
        return descriptor_limit()


def count_free_descriptors() -> int:
    """Return how many more descriptors this process may open."""
    return descriptor_limit() - count_open_descriptors()


def is_shortage(error: OSError) -> bool:
    """Whether the process, or the machine, has no free descriptor."""
    return error.errno in _SHORTAGE


class Listener(Protocol):
    """A listening socket that can be paused."""

    def pause(self) -> None:
        """Accept no connections until `resume`."""

    def resume(self) -> None:
        """Accept connections again.

        Raises:
            OSError: this is not possible now; the guard tries again.
        """


class DescriptorGuard:
    """Pauses listeners while this process has few free descriptors. Needs a running event loop."""

    def __init__(self, *, check_every_s: float = CHECK_EVERY_S) -> None:
        self._check_every_s = check_every_s
        self._listeners: list[Listener] = []
        self._paused: list[Listener] = []
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self._log_limit = LogLimit(1)
        self._is_logged = False
        self._timer = self._loop.call_later(check_every_s, self._check)

    def add(self, listener: Listener) -> None:
        """Pause this listener, too, when descriptors run out."""
        self._listeners.append(listener)

    def close(self) -> None:
        self._timer.cancel()

    def pause(self, cause: str) -> None:
        """Pause all listeners: one of them has met a shortage, or a count has found one."""
        if self._paused:
            return
        self._began = self._loop.time()
        self._paused = list(self._listeners)
        for listener in self._paused:
            listener.pause()
        self._is_logged = self._log_limit.admit(self._began) is not None
        if self._is_logged:
            _log.warning(
                "no connections are accepted for now: %s (%d of %d file descriptors are free, %d have to be); %s",
                *(cause, max(0, count_free_descriptors()), descriptor_limit(), ENOUGH, REMEDY),
            )

    def _check(self) -> None:
        self._timer = self._loop.call_later(self._check_every_s, self._check)
        free = count_free_descriptors()
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
            if self._log_limit.admit(self._loop.time()) is not None:
                _log.warning("connections cannot be accepted again yet: %s", error)
            return
        if self._is_logged:
            _log.info("connections are accepted again, after %.0f s", self._loop.time() - self._began)


class Acceptor:
    """Accepts connections on a listening socket, and pauses before the process has no free descriptors."""

    def __init__(
        self, listener: socket.socket, on_connection: Callable[[socket.socket], None], guard: DescriptorGuard
    ) -> None:
        """Pass each connection to `on_connection`, which owns it from then on. The caller closes the listener."""
        self._listener = listener
        self._on_connection = on_connection
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        listener.settimeout(0)
        guard.add(self)
        self.resume()

    def pause(self) -> None:
        """Accept no connections until `resume`. After this call the listener can be closed."""
        self._loop.remove_reader(self._listener.fileno())

    close = pause

    def resume(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._guard.pause((error.strerror or str(error)).lower())
                return
            # The system assigns the lowest free number, so a number within the reserve means that all below are used.
            if connection.fileno() >= descriptor_limit() - RESERVE:
                connection.close()
                self._guard.pause(_FEW)
                return
            self._on_connection(connection)


# Memory ---------------------------------------------------------------------------------------------------------------


try:
    # Stays open: a process without free descriptors has to see its memory, too.
    _statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
except FileNotFoundError:
    _statm = -1  # not Linux


def resident_bytes() -> int:
    """Return the memory in use by this process; 0 on systems other than Linux."""
    if _statm < 0:
        return 0
    return int(os.pread(_statm, 256, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")


class MemoryLimit:
    """Logs an error and calls `stop`, once, when the process uses more than `most_bytes`. Needs a running event loop.

    `message` formats both numbers in MiB.
    """

    def __init__(self, most_bytes: int, stop: Callable[[], None], message: str) -> None:
        self._most_bytes = most_bytes
        self._stop = stop
        self._message = message
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(MEMORY_CHECK_S, self._check)

    def close(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        used = resident_bytes()
        if used > self._most_bytes:
            _memory_log.error(self._message, used >> 20, self._most_bytes >> 20)
            self._stop()
        else:
            self._timer = self._loop.call_later(MEMORY_CHECK_S, self._check)


# Capacity of the host -------------------------------------------------------------------------------------------------

CGROUP: Final = Path("/sys/fs/cgroup")
"""Limits of a container or service, in version 2 of the kernel's interface."""


def measure_capacity() -> tuple[int, int]:
    """Return the processors and the bytes of memory of this host, or of the container that this process runs in."""
    return _count_cores(), _count_memory()


def _count_cores() -> int:
    """Processors that this process may use, at least 1."""
    allowed = len(os.sched_getaffinity(0))
    quota, period = _read_limit("cpu.max") or ("max", "1")
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))


def _count_memory() -> int:
    """Bytes of memory that this process may use."""
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = (_read_limit("memory.max") or ("max",))[0]
    return present if limit == "max" else min(present, int(limit))


def _read_limit(name: str) -> tuple[str, ...]:
    """The words of a file of the kernel; none if it is not there."""
    try:
        return tuple((CGROUP / name).read_text(encoding="ascii").split())
    except OSError:
        return ()
