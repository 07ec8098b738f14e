"""The socket between a resource manager and the core: it connects, connects again, and says when it has.

ZeroMQ reconnects by itself but silently, and keeps messages for a peer that is away. Here neither is wanted: whoever
speaks the protocol must know of a new connection (it has to `Resume` first), and what was not acknowledged is sent
again anyway. So a message for which there is no connection is dropped; the socket's monitor tells when there is one.

No heartbeats of ZeroMQ's own: while we do not read, its answers would not reach us and it would hang up, although not
reading is only how we ask the core to slow down. TCP's keepalive notices a machine that is gone.

Not here: what is said (`dialogue.py`), and when to stop reading (`link.py`).
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

from common.keys import ClientKeys, fingerprint
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


HANG_UPS_MAX: Final = 3
"""Times that the first handshake with keys may break off; then the server's key is not what we think it is, as such a
server only hangs up."""

_EVENTS: Final = (
    zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.DISCONNECTED
    | zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
)


class KeyRefused(ConnectionError):
    """The core and this resource manager do not accept each other's keys; trying again is of no use."""


class Listener(Protocol):
    """Who speaks over a connection."""

    def connected(self) -> None:
        """There is a new connection: the first one, or the next after a break."""

    def received(self, frames: list[bytes]) -> None:
        """A message came."""

    def shut_out(self, reason: str) -> None:
        """The port does not take our key, or wants one, or is not the one whose key we have; nothing follows."""

    @property
    def hungry(self) -> bool:
        """Whether to read on. Once it has been False, the listener calls `look` when it is True again."""


class Connection:
    """A DEALER socket in the running event loop, with keys if there are any.

    Raises:
        ConnectionError: the address cannot be one.
    """

    def __init__(self, address: str, listener: Listener, keys: ClientKeys | None = None) -> None:
        self._address = address
        self._listener = listener
        self._keys = keys
        self._hang_ups: float = 0
        """Handshakes that broke off, none counts any more once one did not."""
        self._connected = False
        self._looking = False
        """A look is already due in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._open()
        except zmq.ZMQError as error:
            self._close_sockets()
            self._context.term()
            raise ConnectionError(f"{address!r} is no address ({error}): give one like tcp://127.0.0.1:9090") from None

    @property
    def closed(self) -> bool:
        return self._socket.closed

    def renew(self) -> None:
        """Begin again with another socket: the other end of this one says nothing, although it may still be there."""
        if self.closed:
            return
        self._unwatch()
        self._socket.set(zmq.LINGER, 0)
        self._close_sockets()
        self._open()

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
        self._unwatch()
        self._close_sockets()
        await asyncio.to_thread(self._context.term)

    # Private --------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._connected = False
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in OPTIONS.items():
            self._socket.set(option, value)
        if self._keys is not None:
            self._keys.apply(self._socket)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        self._socket.connect(self._address)
        for socket in (self._socket, self._monitor):
            self._loop.add_reader(socket.fileno(), self._look)

    def _unwatch(self) -> None:
        for socket in (self._socket, self._monitor):
            self._loop.remove_reader(socket.fileno())

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
            message = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            event = message["event"]
            self._connected = event == zmq.Event.HANDSHAKE_SUCCEEDED
            reason = self._shut_out(event, message["value"])
            if reason:
                self._listener.shut_out(reason)
            if self._connected:
                self._hang_ups = -math.inf
                self._socket.get(zmq.EVENTS)  # makes the socket notice that it can send now
                self._listener.connected()

    def _shut_out(self, event: int, value: int) -> str:
        """Why we will never get in, if this event says so. ZeroMQ itself would go on trying, or give up silently."""
        keys = self._keys
        if event == zmq.Event.HANDSHAKE_FAILED_AUTH and keys is not None:
            ours = fingerprint(keys.own.public)
            return f"our key {ours} is not on its allow-list (`yunishard keys allow` puts it there)"
        if event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL and value == zmq.Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return (
                "it takes only connections with keys (YUNISHARD_KEYS names the file of ours)"
                if keys is None
                else "it has no keys, and we want it to"
            )
        if event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL and keys is not None:
            self._hang_ups += 1
            if self._hang_ups == HANG_UPS_MAX:
                return f"it hangs up: its key is not {fingerprint(keys.server)}, as our file says, or it has none"
        return ""

    def _close_sockets(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()


def _readable(socket: zmq.Socket[bytes]) -> bool:
    events = socket.get(zmq.EVENTS)
    assert isinstance(events, int), events
    return bool(events & zmq.POLLIN)
