"""The connections between our own processes: streams at `ipc://PATH`, which the loop reads and writes itself.

The broker has `Links`, where all others connect, each under its name; they have a `Link` to it. The policy on overflow
is that of `sockets.py`: nothing waits in the kernel that we could not take, nothing here has a limit of its own, and a
message for a peer that is gone is dropped and counted. What a `Link` was given while nobody listens goes once somebody
does.

Not here: decisions (the machines), the bytes (`zmtp.py`), what comes from outside (`sockets.py`).
"""

import asyncio
import logging
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.descriptors import Acceptor, DescriptorGuard
from common.machine import Delivery, Send
from common.sockets import LINGER_MS, Dropping, delivery_of
from common.wire import encoded
from common.zmtp import Incoming, ZmtpError, head_of, hello

ROOM_BYTES: Final = 1 << 20
"""What the kernel should take of a connection before it is read, where it may: a large update in one go, so that the
rest of it does not wait until its sender has time again."""

READ_BYTES: Final = 256 << 10
"""What is read at a time."""

AGAIN_MIN_S: Final = 0.05
AGAIN_MAX_S: Final = 2.0
"""Pauses between attempts to connect, each twice as long as the one before."""

BACKLOG: Final = 128
"""Connections that may wait to be accepted."""

_log = logging.getLogger("core.rpc")
_room = memoryview(bytearray(READ_BYTES))
"""For what is being read, of any connection of the process."""


class _Line:
    """One connection, until it is `over`: what arrives on it, and what the kernel has not taken yet."""

    def __init__(
        self, raw: socket.socket, queue: deque[bytes], said: bytes, arrived: Callable[["_Line"], None]
    ) -> None:
        """What is in the queue goes once the other side has said who it is; we say it first."""
        raw.settimeout(0)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM_BYTES)
        self.over = False
        self.name: str | None = None
        """How the other side is called; None until that is known."""
        self.incoming = Incoming()
        self._raw = raw
        self._queue = queue
        self._sent = 0
        """Bytes of the first in the queue that the kernel has."""
        self.waiting = False
        """Whether there may be something to read, and nobody has come to the end of it."""
        self._paused = False
        """Whether the loop does not look any more, as nobody has come since it said so: it would say it all the time.
        """
        self._exhausted = False
        """Whether the latest look found less than it had room for: then the loop says when there is more."""
        self._arrived = arrived
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(raw.fileno(), self._readable)
        with suppress(ConnectionError):  # an end is noticed in reading
            raw.send(said)

    def _readable(self) -> None:
        """There is something to read, the end perhaps. Who the other side is we hear at once, as it waits for it."""
        if self.name is None:
            self._read()
            if self.incoming.name is not None:
                self.name = self.incoming.name.decode(errors="replace")
                self._write()
            elif not self.over:
                return
        if self.waiting:
            self._paused = True
            self._loop.remove_reader(self._raw.fileno())
            return
        self.waiting = True
        self._arrived(self)

    def _read(self) -> None:
        try:
            size = self._raw.recv_into(_room)
            self.incoming.feed(_room[:size])
            self.over = not size
            self.incoming.ready()
        except BlockingIOError:
            return
        except (ConnectionError, ZmtpError) as error:
            _log.debug("a connection ends: %s", error)
            self.over = True

    def next(self) -> list[bytes] | None:
        """The frames of the next message that is here; None if there is none, which may be because all is over."""
        frames: list[bytes] | None = None
        try:
            while self.name is not None and (frames := self.incoming.next()) is None and not self.over:
                if self._exhausted:
                    break
                size = self._raw.recv_into(_room)
                self.incoming.feed(_room[:size])
                self.over, self._exhausted = not size, size < READ_BYTES
        except BlockingIOError:
            frames = None
        except (ConnectionError, ZmtpError) as error:
            _log.debug("a connection ends: %s", error)
            self.over, frames = True, None
        if frames is None:
            self.waiting = self._exhausted = False
            if self._paused:
                self._paused = False
                self._loop.add_reader(self._raw.fileno(), self._readable)
        return frames

    def give(self, message: Send) -> None:
        head = head_of(encoded(message.header), len(message.body))
        sent = 0
        if not self._queue and self.name is not None:
            try:
                sent = self._raw.sendmsg((head, message.body))
            except (BlockingIOError, ConnectionError):
                sent = 0  # an end is noticed in reading
            if sent == len(head) + len(message.body):
                return
            self._sent = sent
            self._loop.add_writer(self._raw.fileno(), self._write)
        self._queue.append(head + message.body)

    def _write(self) -> None:
        """As much as the kernel takes."""
        queue = self._queue
        try:
            while queue:
                self._sent += self._raw.send(memoryview(queue[0])[self._sent :])
                if self._sent < len(queue[0]):
                    break
                queue.popleft()
                self._sent = 0
        except (BlockingIOError, ConnectionError):
            pass  # an end is noticed in reading
        if queue and not self.over:
            self._loop.add_writer(self._raw.fileno(), self._write)
        else:
            self._loop.remove_writer(self._raw.fileno())

    def linger(self, until: float) -> None:
        """Wait until the kernel has all of it, or until this time."""
        writable = select.poll()  # `select` fails at descriptors from 1,024 on
        writable.register(self._raw, select.POLLOUT)
        while self._queue and self.name is not None and (left := until - time.monotonic()) > 0:
            if not writable.poll(left * 1000):
                return
            before = len(self._queue), self._sent
            self._write()
            if (len(self._queue), self._sent) == before:
                return

    def close(self) -> None:
        self.over = True
        self._loop.remove_reader(self._raw.fileno())
        self._loop.remove_writer(self._raw.fileno())
        self._raw.close()


class Link:
    """A connection to one peer under a fixed name of our own, again and again."""

    def __init__(self, address: str, *, peer: str, name: str, wake: Callable[[], None]) -> None:
        self.peer = peer
        self._path = _path_of(address)
        self._said = hello("DEALER", name)
        self._wake = wake
        self._queue: deque[bytes] = deque()
        self._line: _Line | None = None
        self._pause_s = AGAIN_MIN_S
        self._again: asyncio.TimerHandle | None = None
        self._connect()

    def take(self) -> Delivery | None:
        line = self._line
        if line is None or not line.waiting:
            return None
        frames = line.next()
        if frames is not None:
            return delivery_of(self.peer, frames)
        if line.over:
            self._lost(line)
        return None

    def give(self, message: Send) -> None:
        if self._line is not None:
            self._line.give(message)
        else:
            self._queue.append(head_of(encoded(message.header), len(message.body)) + message.body)

    def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._line is not None:
            self._line.linger(time.monotonic() + LINGER_MS / 1000)
            self._line.close()

    def _connect(self) -> None:
        self._again = None
        raw: socket.socket | None = None
        try:
            raw = socket.socket(socket.AF_UNIX)
            raw.settimeout(0)
            raw.connect(self._path)
        except OSError:  # nobody listens (yet) or has time, or this process has no free descriptor
            if raw is not None:
                raw.close()
            self._again = asyncio.get_running_loop().call_later(self._pause_s, self._connect)
            self._pause_s = min(2 * self._pause_s, AGAIN_MAX_S)
            return
        self._pause_s = AGAIN_MIN_S
        self._line = _Line(raw, self._queue, self._said, self._arrived)

    def _arrived(self, _: _Line) -> None:
        self._wake()

    def _lost(self, line: _Line) -> None:
        """A message of which the kernel had a part goes again, as a whole."""
        line.close()
        self._line = None
        self._again = asyncio.get_running_loop().call_later(self._pause_s, self._connect)


class Links(Dropping):
    """Where our processes connect, each under its name, which is how it is called as a peer. Who comes under the name
    of another takes its place: it is the one that was restarted.
    """

    def __init__(self, address: str, *, wake: Callable[[], None]) -> None:
        super().__init__()
        self._path = _path_of(address)
        self._wake = wake
        self._said = hello("ROUTER", "")
        self._lines: set[_Line] = set()
        self._named: dict[str, _Line] = {}
        self._nameless = 0
        """How many have come that did not say a name: they are given one."""
        self._readable: dict[_Line, None] = {}
        """Those that may have something, in the order of their turns."""
        self._raw = socket.socket(socket.AF_UNIX)
        try:
            with suppress(FileNotFoundError):
                Path(self._path).unlink()  # of one that was killed
            self._raw.bind(self._path)
            self._raw.listen(BACKLOG)
        except OSError as error:
            self._raw.close()
            raise OSError(f"cannot listen on {address}: {error.strerror or error}") from error
        self._guard = DescriptorGuard()
        self._acceptor = Acceptor(self._raw, self._accepted, self._guard)

    def take(self) -> Delivery | None:
        while self._readable:
            line = next(iter(self._readable))
            del self._readable[line]
            frames = line.next()
            if frames is not None:
                self._readable[line] = None
                return delivery_of(line.name or "", frames)
            if line.over:
                self._forget(line)
        return None

    def give(self, message: Send) -> None:
        line = self._named.get(message.to)
        if line is None:
            self.dropped += 1
            _log.debug("dropped %s for %s: nobody of this name is connected", message.header.kind, message.to)
            return
        line.give(message)

    def close(self) -> None:
        self._acceptor.close()
        self._guard.close()
        self._raw.close()
        with suppress(FileNotFoundError):
            Path(self._path).unlink()
        until = time.monotonic() + LINGER_MS / 1000
        for line in self._lines:
            line.linger(until)
            line.close()

    def _accepted(self, raw: socket.socket) -> None:
        self._lines.add(_Line(raw, deque(), self._said, self._arrived))

    def _arrived(self, line: _Line) -> None:
        if line.name == "":
            self._nameless += 1
            line.name = f"nameless {self._nameless}"
        if line.name is not None and (before := self._named.get(line.name)) is not line:
            if before is not None:
                self._forget(before)
            self._named[line.name] = line
        self._readable[line] = None
        self._wake()

    def _forget(self, line: _Line) -> None:
        line.close()
        self._lines.discard(line)
        self._readable.pop(line, None)
        if line.name is not None and self._named.get(line.name) is line:
            del self._named[line.name]


def _path_of(address: str) -> str:
    """Of the socket.

    Raises:
        OSError: this is no address of ours.
    """
    scheme, _, path = address.partition("://")
    if scheme != "ipc" or not path:
        raise OSError(f"{address}: there are no keys between our processes, so they meet at ipc:// only")
    return path
