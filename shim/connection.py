"""The socket between a resource manager and the core: it connects, connects again, and says when it has.

ZeroMQ reconnects by itself but silently, and keeps messages for a peer that is away. Here neither is wanted: whoever
speaks the protocol must know of a new connection (it has to `Resume` first), and what was not acknowledged is sent
again anyway. So a message for which there is no connection is dropped; the socket's monitor tells when there is one.

No heartbeats of ZeroMQ's own: while we do not read, its answers would not reach us and it would hang up, although not
reading is only how we ask the core to slow down. TCP's keepalive notices a machine that is gone.

Not here: what is said, and when to stop reading (`manager.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

from common.wire import BODY_BYTES_MAX

READ_AT_ONCE: Final = 256
"""Messages that are read before the event loop gets its turn."""

LINGER_MS: Final = 1_000
"""What was sent last may take this long to leave when the connection is closed."""

OPTIONS: Final[Mapping[zmq.SocketOption, int]] = {
    zmq.SocketOption.IMMEDIATE: 1,  # nothing waits for a connection that is not there, see above
    zmq.SocketOption.SNDHWM: 0,  # bounded by the windows of the protocol (`common/outbox.py`), so sending never waits
    zmq.SocketOption.RCVHWM: 1_000,
    zmq.SocketOption.MAXMSGSIZE: BODY_BYTES_MAX,
    zmq.SocketOption.LINGER: LINGER_MS,
    zmq.SocketOption.RECONNECT_IVL: 200,
    zmq.SocketOption.RECONNECT_IVL_MAX: 10_000,
    zmq.SocketOption.TCP_KEEPALIVE: 1,
    zmq.SocketOption.TCP_KEEPALIVE_IDLE: 30,
    zmq.SocketOption.TCP_KEEPALIVE_INTVL: 10,
    zmq.SocketOption.TCP_KEEPALIVE_CNT: 3,
}


class Listener(Protocol):
    """Who speaks over a connection."""

    def connected(self) -> None:
        """There is a new connection: the first one, or the next after a break."""

    def received(self, frames: list[bytes]) -> None:
        """A message came."""

    @property
    def hungry(self) -> bool:
        """Whether to read on. Once it has been False, the listener calls `look` when it is True again."""


class Connection:
    """A DEALER socket in the running event loop.

    Raises:
        ConnectionError: the address cannot be one.
    """

    def __init__(self, address: str, listener: Listener) -> None:
        self._listener = listener
        self._connected = False
        self._looking = False
        """A look is already due in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in OPTIONS.items():
            self._socket.set(option, value)
        self._monitor = self._socket.get_monitor_socket(zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self._close_sockets()
            self._context.term()
            raise ConnectionError(f"{address!r} is no address ({error}): give one like tcp://127.0.0.1:9090") from None
        for socket in (self._socket, self._monitor):
            self._loop.add_reader(socket.fileno(), self._look)

    @property
    def closed(self) -> bool:
        return self._socket.closed

    def send(self, frames: Sequence[bytes]) -> None:
        """Send now or not at all: without a connection the message is dropped, `connected` tells when there is one."""
        if not self._connected or self.closed:
            return
        self.look()  # using the socket may swallow its descriptor's signal that something came
        if _readable(self._monitor):
            return  # the connection broke: what follows on the next one must begin with `connected`
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self._connected = False

    def look(self) -> None:
        """See soon what has come."""
        if not self._looking and not self.closed:
            self._looking = True
            self._loop.call_soon(self._look)

    async def close(self) -> None:
        """Close once the last messages have left, or after `LINGER_MS`."""
        if self.closed:
            return
        for socket in (self._socket, self._monitor):
            self._loop.remove_reader(socket.fileno())
        self._close_sockets()
        await asyncio.to_thread(self._context.term)

    # Private --------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take what has come. The descriptors only tell of changes, so this goes on until nothing is left."""
        self._looking = False
        self._watch()
        for _ in range(READ_AT_ONCE):
            if self.closed or not self._listener.hungry:
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._listener.received(frames)
        self.look()

    def _watch(self) -> None:
        while not self.closed and _readable(self._monitor):
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            self._connected = event == zmq.Event.HANDSHAKE_SUCCEEDED
            if self._connected:
                self._socket.get(zmq.EVENTS)  # makes the socket notice that it can send now
                self._listener.connected()

    def _close_sockets(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()


def _readable(socket: zmq.Socket[bytes]) -> bool:
    events = socket.get(zmq.EVENTS)
    assert isinstance(events, int), events
    return bool(events & zmq.POLLIN)
