"""ZeroMQ sockets (pyzmq) of the servers: the port for RMs, the broker's port, and each process's connection to it.

Processes on one machine connect over `ipc://` in a private directory. RMs connect over `tcp://`, with CURVE keys if the
operator sets them. pyzmq reconnects and queues; an event loop polls each socket's descriptor directly, without
`zmq.asyncio`, and one I/O thread per process moves the bytes.

Overflow policy. No message is dropped silently: sending to a peer that is not connected fails (ROUTER_MANDATORY), and
the message is counted as dropped. Its sender retransmits it when the peer resumes (`session.py`). Queues between our
processes have no length limit, because a limit either loses messages or blocks two processes on each other; the windows
of `session.py` bound what is in flight end to end. Queues towards RMs are limited to far more than all windows.

Not here: the event loop (`driver.py`), encoding (`wire.py`), authentication (`rmproxy`).
"""

import asyncio
import atexit
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import zmq
from msgspec.structs import replace

from common.driver import DroppingEndpoint
from common.process_limits import DescriptorGuard
from common.wire import BODY_BYTES_MAX, FORBIDDEN, MALFORMED, Incoming, Outgoing, decode_incoming, encode_frames

MESSAGE_BYTES_HARD_MAX: Final = 2 * BODY_BYTES_MAX
"""ZeroMQ closes a connection that sends a larger frame. Smaller frames over the limit are refused with a text."""

FRAMES_MAX: Final = 8
"""Frames kept of one message. A valid message has three; further frames of a longer one are only counted."""

GIVEN_ID_BYTES: Final = 5
"""Length of a routing id that ZeroMQ assigns; its first byte is 0."""

LINGER_MS: Final = 1000
"""Time that a closed socket still tries to send what is queued."""

RECONNECT_MIN_MS: Final = 50
RECONNECT_MAX_MS: Final = 2000
"""Pauses between attempts to connect; each is twice as long as the one before."""

RECEIVE_QUEUE_MAX: Final = 2_048
"""Unread messages of one RM connection, after which ZeroMQ stops reading from it."""

SEND_QUEUE_MAX: Final = 131_072
"""Unsent messages of one RM connection, after which further ones are dropped."""

HANDSHAKE_MAX_MS: Final = 5_000
"""Time that an RM connection may take for its handshake."""

COUNT_EVERY_S: Final = 0.1
"""Seconds between two counts of the broker's descriptors. ZeroMQ aborts the process if it cannot accept an `ipc://`
connection, so the broker's port has to pause in time."""

_NAMELESS: Final = "nameless "
CONTEXT: Final[zmq.Context["zmq.Socket[bytes]"]] = zmq.Context(io_threads=1)
"""Of all sockets of the process. At its end the process waits up to LINGER_MS until queued messages are sent."""
atexit.register(CONTEXT.destroy, LINGER_MS)

_log = logging.getLogger("core.rpc")


class Authenticator(Protocol):
    """Authenticates the connections of a socket, and authorizes each message."""

    def secure(self, socket: "zmq.Socket[bytes]") -> None:
        """Set the socket's CURVE options, before it is bound."""

    def fingerprint(self, key: str) -> str:
        """Return the short form of a public key that logs and peer names use."""

    def find_objection(self, key: str, rm: str) -> str:
        """Return why the owner of this public key may not act for this RM; empty if it may."""


class _Socket(DroppingEndpoint):
    """A ZeroMQ socket that calls `wake` when messages may have arrived; made and closed in a running event loop.

    The socket's descriptor signals changes of its state (edge-triggered), and any call on the socket may consume the
    signal. So `receive` reads until nothing is left, and `_look` checks the state after each send, too.
    """

    def __init__(self, kind: int, address: str, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake
        self._ready = False
        """Whether there may be a message to read; only then `receive` calls ZeroMQ."""
        try:
            self.raw: zmq.Socket[bytes] = CONTEXT.socket(kind)
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"cannot open a socket for {address}: {_text_of(error)}") from error
        self._set(
            (zmq.LINGER, LINGER_MS),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_HARD_MAX),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
        )

    def _set(self, *options: tuple[int, int]) -> None:
        for option, value in options:
            self.raw.setsockopt(option, value)

    def _open(self, action: Callable[[str], object], verb: str, address: str) -> None:
        """Bind or connect the socket, and start to watch it."""
        try:
            action(address)
        except zmq.ZMQError as error:
            self.raw.close()
            raise OSError(f"cannot {verb} {address}: {_text_of(error)}") from error
        asyncio.get_running_loop().add_reader(self.raw.FD, self._look)
        self._look()

    def _look(self) -> None:
        events = self.raw.getsockopt(zmq.EVENTS)
        assert isinstance(events, int)
        if events & zmq.POLLIN:
            self._ready = True
            self._wake()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.raw.FD)
        self.raw.close()

    def _frames(self) -> list[bytes] | None:
        """Read the next message; None if there is none."""
        if not self._ready:
            return None
        try:
            first = self.raw.recv(zmq.NOBLOCK)
        except zmq.Again:
            self._ready = False
            return None
        return [first, *self._other_frames()]

    def _other_frames(self) -> list[bytes]:
        """Read the frames after the first one. ZeroMQ delivers a message only when all of its frames are there."""
        frames: list[bytes] = []
        while self.raw.getsockopt(zmq.RCVMORE):
            frame = self.raw.recv(zmq.NOBLOCK)
            frames.append(frame if len(frames) < FRAMES_MAX else b"")
        return frames

    def _send_to(self, identity: bytes, message: Outgoing) -> None:
        """Send to one peer of a ROUTER socket; drop the message if the peer is not connected or its queue is full."""
        try:
            self.raw.send_multipart([identity, *encode_frames(message.header, message.body)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.dropped += 1
            _log.debug("dropped %s for %s: %s", message.header.kind, message.to, _text_of(error))
        self._look()


class BrokerConnection(_Socket):
    """A process's connection to the broker, under a fixed name. ZeroMQ reconnects, and queues while disconnected."""

    def __init__(self, address: str, *, peer: str, name: str, wake: Callable[[], None]) -> None:
        _path_of(address)
        super().__init__(zmq.DEALER, address, wake)
        self.peer = peer
        self.raw.setsockopt(zmq.ROUTING_ID, name.encode())
        self._set((zmq.RECONNECT_IVL, RECONNECT_MIN_MS), (zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS))
        self._open(self.raw.connect, "connect to", address)

    def receive(self) -> Incoming | None:
        frames = self._frames()
        return None if frames is None else decode_incoming(self.peer, frames)

    def send(self, message: Outgoing) -> None:
        self.raw.send_multipart(encode_frames(message.header, message.body), zmq.NOBLOCK)
        self._look()


class BrokerPort(_Socket):
    """The broker's port for our processes, each under its name. A restarted process takes over its name."""

    def __init__(self, address: str, *, wake: Callable[[], None]) -> None:
        self._path = _path_of(address)
        super().__init__(zmq.ROUTER, address, wake)
        self._set((zmq.ROUTER_MANDATORY, 1), (zmq.ROUTER_HANDOVER, 1))
        self._open(self.raw.bind, "listen on", address)
        self._guard = DescriptorGuard(check_every_s=COUNT_EVERY_S)
        self._guard.add(_Listener(self.raw, address))

    def receive(self) -> Incoming | None:
        frames = self._frames()
        if frames is None:
            return None
        identity = frames[0]
        name = f"{_NAMELESS}{identity.hex()}" if identity[:1] == b"\0" else identity.decode(errors="replace")
        return decode_incoming(name, frames[1:])

    def send(self, message: Outgoing) -> None:
        name = message.to
        identity = bytes.fromhex(name.removeprefix(_NAMELESS)) if name.startswith(_NAMELESS) else name.encode()
        self._send_to(identity, message)

    def close(self) -> None:
        self._guard.close()
        super().close()
        self._path.unlink(missing_ok=True)


class NativePort(_Socket):
    """The port for RMs. A peer's name is `prefix` plus its routing id in hex; with an authenticator, `@` and the
    fingerprint of its key follow.
    """

    def __init__(
        self,
        address: str,
        *,
        prefix: str,
        wake: Callable[[], None],
        authenticator: Authenticator | None = None,
    ) -> None:
        super().__init__(zmq.ROUTER, address, wake)
        self.prefix = prefix
        self._authenticator = authenticator
        if authenticator is not None:
            authenticator.secure(self.raw)
        self._set(
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MAX_MS),
            (zmq.RCVHWM, RECEIVE_QUEUE_MAX),
            (zmq.SNDHWM, SEND_QUEUE_MAX),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.IPV6, int("[" in address)),  # otherwise an IPv4 endpoint reports an IPv6 address
        )
        self._open(self.raw.bind, "listen on", address)
        self.address = bytes(self.raw.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        """The address with the port that the system chose if none was given."""
        self.listener = _Listener(self.raw, self.address)

    def receive(self) -> Incoming | None:
        if self._authenticator is not None:
            return self._authorized(self._authenticator)
        frames = self._frames()
        return None if frames is None else decode_incoming(self.prefix + frames[0].hex(), frames[1:])

    def send(self, message: Outgoing) -> None:
        identity = message.to[len(self.prefix) :].partition("@")[0]
        self._send_to(bytes.fromhex(identity), message)

    def _authorized(self, authenticator: Authenticator) -> Incoming | None:
        """Read the next message; as FORBIDDEN if its sender may not send it.

        A peer that chooses its own routing id could receive messages for another one, so only ids that ZeroMQ assigned
        are accepted.
        """
        if not self._ready:
            return None
        try:
            first = self.raw.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._ready = False
            return None
        key, identity = str(first.get("User-Id")), first.bytes
        source = f"{self.prefix}{identity.hex()}@{authenticator.fingerprint(key)}"
        incoming = decode_incoming(source, self._other_frames())
        if incoming.header.kind == MALFORMED:
            return incoming
        objection = authenticator.find_objection(key, incoming.header.rm)
        if not objection and (len(identity) != GIVEN_ID_BYTES or identity[0] != 0):
            objection = "at a port with keys a connection may not choose its routing id: leave it empty"
        if not objection:
            return incoming
        return Incoming(source, replace(incoming.header, kind=FORBIDDEN), objection.encode())


class _Listener:
    """The bound address of a socket, for the guard of descriptors."""

    def __init__(self, raw: "zmq.Socket[bytes]", address: str) -> None:
        self._raw = raw
        self._address = address

    def pause(self) -> None:
        """Stop listening until `resume`. Connections stay; the system refuses new ones."""
        self._raw.unbind(self._address)

    def resume(self) -> None:
        """Listen again.

        Raises:
            OSError: the address cannot be bound now.
        """
        try:
            self._raw.bind(self._address)
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"cannot listen on {self._address}: {_text_of(error)}") from error


def _path_of(address: str) -> Path:
    """Return the path of an `ipc://` address, over which alone our own processes connect.

    Raises:
        OSError: another transport, or no path.
    """
    scheme, _, path = address.partition("://")
    if scheme != "ipc" or not path:
        raise OSError(f"{address}: the broker's port has no keys, so it must be an ipc:// address")
    return Path(path)


def _text_of(error: zmq.ZMQError) -> str:
    return zmq.strerror(error.errno) if error.errno else str(error)
