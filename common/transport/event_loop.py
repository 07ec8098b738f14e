"""The event loop of every server process, and the ZeroMQ sockets (pyzmq) that it reads.

    endpoints (sockets, gRPC port, journal) --> Transport.receive --> drive --> machine --> Transport.send --> endpoints

An endpoint names itself when it has messages, and only then it is read. At most READ_MAX messages and READ_BYTES_MAX
bytes of an endpoint are received at a time, so that one busy peer does not starve the process's own work.

The sockets are the port for RMs, the broker's port, and each process's connection to it. Processes on one machine
connect over `ipc://` in a private directory. RMs connect over `tcp://`, with CURVE keys if the operator sets them.
pyzmq reconnects and queues; the event loop polls each socket's descriptor directly, without `zmq.asyncio`, and one I/O
thread per process moves the bytes. With several hosts, processes connect to the leading broker over `tcp://` with CURVE
keys, and a connection that breaks is made again by `cluster_connection.py`.

Overflow policy. No message is dropped silently: sending to a peer that is not connected fails (ROUTER_MANDATORY), and
the message is counted as dropped. Its sender retransmits it when the peer resumes (`common/messages/session.py`).
Queues between our processes have no length limit, because a limit either loses messages or blocks two processes on each
other; the windows of `common/messages/session.py` bound what is in flight end to end. Queues towards RMs are limited to
far more than all windows.

Not here: decisions (the machines), encoding (`common/messages/wire.py`), authentication (`rmproxy`).
"""

import asyncio
import atexit
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sized
from pathlib import Path
from typing import Final, Protocol

import zmq
from msgspec.structs import replace

from yunishard.common.messages import wire
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Refused
from yunishard.common.messages.wire import BrokerAddress
from yunishard.common.names import BROKER
from yunishard.common.process.limits import DescriptorGuard
from yunishard.common.transport.cluster_connection import ClusterConnection
from yunishard.common.transport.curve_keys import fingerprint
from yunishard.common.transport.inbox import Wake

READ_MAX: Final = 256
"""Messages received from an endpoint before the machine runs."""

READ_BYTES_MAX: Final = 256 << 10
"""Bytes of bodies after which no further message of an endpoint is received before the machine runs. So many asks keep
a worker busy for a quarter of a second; a whole window of them would delay its heartbeats.
"""

_STARTED_WALL: Final = time.time()
_STARTED_MONOTONIC: Final = time.monotonic()

Turn = Callable[[list[wire.Incoming]], float]
"""Processes received messages; returns the seconds until the machine's deadline."""


def clock() -> float:
    """Return Unix seconds that never go back: the wall clock at the start of the process, plus monotonic time."""
    return _STARTED_WALL + (time.monotonic() - _STARTED_MONOTONIC)


class Endpoint(Protocol):
    """A source and destination of messages: a socket, the gRPC port, the journal."""

    def receive(self) -> wire.Incoming | None:
        """Return the next message that is already here, without waiting."""

    def send(self, message: wire.Outgoing) -> None:
        """Pass a message on, without waiting."""


async def drive(
    machine: wire.Machine,
    transport: "Transport",
    stopping: asyncio.Event,
    *,
    notes: Collection[Sized] = (),
    write_notes: Callable[[], None] = lambda: None,
) -> None:
    """Run a machine until `stopping` is set. An exception in a machine is a defect and ends the process.

    `write_notes` is called after each turn that leaves something in one of the collections `notes` of the machine.
    """

    def turn(batch: list[wire.Incoming]) -> float:
        now = clock()
        for incoming in batch:
            for message in machine.handle(incoming, now):
                transport.send(message)
        deadline = machine.deadline
        if deadline <= now:
            for message in machine.tick(now):
                transport.send(message)
            deadline = machine.deadline
        if any(notes):
            write_notes()
        return deadline - clock()

    async def run() -> None:
        left_s = machine.deadline - clock()
        while not stopping.is_set():
            left_s = turn(await transport.receive(left_s))

    transport.follow(turn)
    await asyncio.create_task(run())  # in its own task a message does not resume each coroutine that awaits the end


class Transport:
    """All endpoints of a process. A message goes to the endpoint with the longest matching name prefix."""

    def __init__(self) -> None:
        self.received = self.sent = 0
        """Counts of messages."""
        self.waiting = 0
        """Messages that the latest call of `receive` found."""
        self._endpoints: list[tuple[str, Endpoint]] = []
        self._waiting: asyncio.Future[None] | None = None
        """The future that `receive` awaits; None while it does not wait."""
        self._yielded = True
        """Whether the event loop ran other callbacks since `receive` last returned messages at once."""
        self._ready: set[str] = set()
        """Prefixes of endpoints that may have messages that no call of `_read` has found."""
        self._turn: Turn | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        """When the timer ends, in the loop's time."""

    def add(self, prefix: str, endpoint: Endpoint) -> None:
        """Send messages for peers whose name begins with the prefix through this endpoint."""
        self._endpoints.append((prefix, endpoint))
        self._endpoints.sort(key=lambda entry: -len(entry[0]))
        self._ready.add(prefix)

    @property
    def dropped(self) -> int:
        """Messages for peers that were not connected."""
        return sum(endpoint.dropped for _, endpoint in self._endpoints if isinstance(endpoint, _Socket))

    def follow(self, turn: Turn) -> None:
        """While `receive` waits, call this with messages that have `arrived`."""
        self._turn = turn

    def wake(self, prefix: str | None = None) -> None:
        """End the wait of `receive`, as the endpoint with this prefix may have messages, or any endpoint if there is no
        prefix; call this in the loop's thread only.
        """
        if prefix is None:
            self._ready.update(one for one, _ in self._endpoints)
        else:
            self._ready.add(prefix)
        self._end_wait()

    def _end_wait(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def arrived(self, prefix: str) -> None:
        """Process messages that arrived at this endpoint: at once, if `receive` waits; else at its next call.

        To end the wait instead would take another turn of the event loop for each message, in each process it passes.
        """
        self._ready.add(prefix)
        waiting, turn = self._waiting, self._turn
        if turn is None or waiting is None or waiting.done():
            self._end_wait()
            return
        self._waiting = None
        try:
            left_s = turn(self._read())
            if self._ready:  # the turn caused a message inside the process: the journal has written something
                left_s = turn(self._read())
        except Exception as error:
            waiting.set_exception(error)  # a defect: `receive` raises it
            return
        self._waiting = waiting
        if self._ready or left_s <= 0:
            waiting.set_result(None)
        else:
            self._wait_at_most(left_s)

    async def receive(self, timeout_s: float) -> list[wire.Incoming]:
        """Return the messages that are here, within the limits of each endpoint; wait up to `timeout_s` while there are
        none. May return none before the timeout.
        """
        received = self._read()
        if received or timeout_s <= 0:
            if not self._yielded:
                await asyncio.sleep(0)  # lets signals and the gRPC port run
            self._yielded = not self._yielded
            return received
        self._yielded = True
        await self._wait(timeout_s)
        return self._read()

    def send(self, message: wire.Outgoing) -> None:
        for prefix, endpoint in self._endpoints:
            if message.to.startswith(prefix):
                endpoint.send(message)
                self.sent += 1
                return
        raise LookupError(f"no endpoint leads to {message.to!r}")

    def _read(self) -> list[wire.Incoming]:
        ready, self._ready = self._ready, set()
        received: list[wire.Incoming] = []
        for prefix, endpoint in self._endpoints if ready else ():
            if prefix not in ready:
                continue
            size = count = 0
            while (incoming := endpoint.receive()) is not None:
                received.append(incoming)
                size, count = size + len(incoming.body), count + 1
                if count == READ_MAX or size >= READ_BYTES_MAX:
                    self._ready.add(prefix)
                    break
        self.waiting = len(received)
        self.received += len(received)
        return received

    async def _wait(self, timeout_s: float) -> None:
        """Wait until `wake`, or the timeout. A future and a timer: `wait_for` starts a task for each wait and takes
        several turns of the loop to return.
        """
        self._waiting = asyncio.get_running_loop().create_future()
        self._wait_at_most(timeout_s)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _wait_at_most(self, timeout_s: float) -> None:
        """Start a timer, unless one ends earlier: a spurious wake costs less than a new timer for each message."""
        loop = asyncio.get_running_loop()
        at = loop.time() + timeout_s
        if at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at, self._timer = at, loop.call_at(at, self._time_out)

    def _time_out(self) -> None:
        self._timer_at, self._timer = float("inf"), None
        self._end_wait()


# Sockets --------------------------------------------------------------------------------------------------------------

MESSAGE_BYTES_HARD_MAX: Final = 2 * wire.BODY_BYTES_MAX
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

    def find_objection(self, key: str, rm: str) -> str:
        """Return why the owner of this public key may not act for this RM; empty if it may."""


_OPTIONS: Final = {zmq.LINGER: LINGER_MS, zmq.MAXMSGSIZE: MESSAGE_BYTES_HARD_MAX, zmq.SNDHWM: 0, zmq.RCVHWM: 0}
"""Of every socket that does not set its own."""


class _Socket:
    """A ZeroMQ socket that calls `wake` when messages may have arrived; made and closed in a running event loop.

    The socket's descriptor signals changes of its state (edge-triggered), and any call on the socket may consume the
    signal. So `receive` reads until nothing is left, and `_look` checks the state after each send, too.
    """

    raw: zmq.Socket[bytes]

    def __init__(self, wake: Wake) -> None:
        self.dropped = 0
        """Messages for peers that were not connected."""
        self._wake = wake
        self._ready = False
        """Whether there may be a message to read; only then `receive` calls ZeroMQ."""

    def _open(self, action: Callable[[str], object], verb: str, address: str) -> None:
        """Bind or connect the socket, and start to watch it."""
        try:
            action(address)
        except zmq.ZMQError as error:
            self.raw.close()
            raise OSError(f"cannot {verb} {address}: {_text_of(error)}") from error
        self._watch(self.raw)

    def _watch(self, raw: "zmq.Socket[bytes]") -> None:
        asyncio.get_running_loop().add_reader(raw.FD, self._look)
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

    def _read(self) -> tuple[zmq.Frame, list[bytes]] | None:
        """Read the next message: its first frame and the others. ZeroMQ delivers a message only when all of its frames
        are there.
        """
        if not self._ready:
            return None
        try:
            first = self.raw.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._ready = False
            return None
        others: list[bytes] = []
        while self.raw.getsockopt(zmq.RCVMORE):
            frame = self.raw.recv(zmq.NOBLOCK)
            others.append(frame if len(others) < FRAMES_MAX else b"")
        return first, others

    def _send_to(self, identity: bytes, message: wire.Outgoing) -> None:
        """Send to one peer of a ROUTER socket; drop the message if the peer is not connected or its queue is full."""
        try:
            self.raw.send_multipart([identity, *wire.encode_frames(message.header, message.body)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.dropped += 1
            _log.debug("dropped %s for %s: %s", message.header.kind, message.to, _text_of(error))
        self._look()


class BrokerConnection(_Socket):
    """A process's connection to the broker, under a fixed name.

    Without `keys`, the only broker of a machine: ZeroMQ reconnects, and queues while disconnected. With the `keys` of a
    host, the leading broker of several hosts: what is sent without a connection is dropped, and each new connection
    begins with LINK_LOST (`cluster_connection.py`).
    """

    def __init__(self, broker: BrokerAddress, *, name: str, wake: Wake, keys: Path | None) -> None:
        super().__init__(wake)
        self._name = name
        self._keys = keys
        self._cluster: ClusterConnection | None = None
        self._is_new = False
        """Whether LINK_LOST is the next message."""
        self._connect(broker)

    def move(self, broker: BrokerAddress) -> None:
        """Connect to another broker, which leads now; what is queued for the earlier one is dropped."""
        if broker != self._broker:
            if self._cluster is not None:
                self._cluster.close()
            else:
                super().close()
            self._connect(broker)

    @property
    def is_up(self) -> bool:
        """Whether the connection to the leading broker exists; always True for the only broker of a machine."""
        return self._cluster is None or self._cluster.is_up

    def _connect(self, broker: BrokerAddress) -> None:
        self._broker = broker
        if self._keys is not None:
            up, down = self._go_up, self._go_down
            self._cluster = ClusterConnection(broker, self._keys, new_socket=self._new, on_up=up, on_down=down)
            return
        _path_of(broker.address)
        self.raw = self._new()
        self._open(self.raw.connect, "connect to", broker.address)

    def _new(self) -> "zmq.Socket[bytes]":
        pauses = {zmq.RECONNECT_IVL: RECONNECT_MIN_MS, zmq.RECONNECT_IVL_MAX: RECONNECT_MAX_MS}
        raw = _new_socket(zmq.DEALER, self._broker.address, pauses)
        raw.setsockopt(zmq.ROUTING_ID, self._name.encode())
        return raw

    def _go_up(self, raw: "zmq.Socket[bytes]") -> None:
        self.raw, self._is_new = raw, True
        self._watch(raw)
        self._wake()

    def _go_down(self, raw: "zmq.Socket[bytes]") -> None:
        asyncio.get_running_loop().remove_reader(raw.FD)
        self._ready = self._is_new = False

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close(LINGER_MS)
        else:
            super().close()

    def receive(self) -> wire.Incoming | None:
        """Return the next message.

        Raises:
            OSError: the broker does not accept this process.
        """
        if self._is_new:
            self._is_new = False
            return wire.Incoming(BROKER, Header(kind=wire.LINK_LOST), b"")
        found = self._read()
        if found is None:
            return None
        incoming = wire.decode_incoming(BROKER, [found[0].bytes, *found[1]])
        if incoming.header.kind == "Refused" and not (incoming.header.rm or incoming.header.ref):
            raise OSError(wire.decode_body(Refused, incoming.body).reason)
        return incoming

    def send(self, message: wire.Outgoing) -> None:
        if self._cluster is not None and not self._cluster.is_up:
            self.dropped += 1
            return
        try:
            self.raw.send_multipart(wire.encode_frames(message.header, message.body), zmq.NOBLOCK)
        except zmq.Again:  # the connection has just broken
            self.dropped += 1
        self._look()


class _Port(_Socket):
    """A socket that listens, and that the guard of descriptors can pause."""

    def __init__(self, address: str, wake: Wake, options: Mapping[zmq.SocketOption, int]) -> None:
        super().__init__(wake)
        self.raw = _new_socket(zmq.ROUTER, address, options)

    def _listen(self, address: str) -> None:
        self._open(self.raw.bind, "listen on", address)
        self.address = bytes(self.raw.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        """The address with the port that the system chose if none was given."""
        self._is_listening = True

    def pause(self) -> None:
        """Stop listening until `resume`; the system refuses connections. ZeroMQ also ends those that there are."""
        if self._is_listening:
            self.raw.unbind(self.address)
            self._is_listening = False

    def resume(self) -> None:
        """Listen again.

        Raises:
            OSError: the address cannot be bound now.
        """
        if self._is_listening:
            return
        try:
            self.raw.bind(self.address)
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"cannot listen on {self.address}: {_text_of(error)}") from error
        self._is_listening = True


class BrokerPort(_Port):
    """The broker's port for our processes, each under its name. A restarted process takes over its name."""

    def __init__(self, address: str, *, wake: Wake) -> None:
        self._path = _path_of(address)
        super().__init__(address, wake, {zmq.ROUTER_MANDATORY: 1, zmq.ROUTER_HANDOVER: 1})
        self._listen(address)
        self._guard = DescriptorGuard(check_every_s=COUNT_EVERY_S)
        self._guard.add(self)

    def receive(self) -> wire.Incoming | None:
        found = self._read()
        if found is None:
            return None
        identity = found[0].bytes
        name = f"{_NAMELESS}{identity.hex()}" if identity[:1] == b"\0" else identity.decode(errors="replace")
        return wire.decode_incoming(name, found[1])

    def send(self, message: wire.Outgoing) -> None:
        name = message.to
        identity = bytes.fromhex(name.removeprefix(_NAMELESS)) if name.startswith(_NAMELESS) else name.encode()
        self._send_to(identity, message)

    def close(self) -> None:
        self._guard.close()
        super().close()
        self._path.unlink(missing_ok=True)


class NativePort(_Port):
    """The port for RMs. A peer's name is `prefix` plus its routing id in hex; with an authenticator, `@` and the
    fingerprint of its key follow.
    """

    def __init__(self, address: str, *, prefix: str, wake: Wake, authenticator: Authenticator | None = None) -> None:
        options = {
            zmq.HANDSHAKE_IVL: HANDSHAKE_MAX_MS,
            zmq.RCVHWM: RECEIVE_QUEUE_MAX,
            zmq.SNDHWM: SEND_QUEUE_MAX,
            zmq.ROUTER_MANDATORY: 1,
            zmq.TCP_KEEPALIVE: 1,
            zmq.IPV6: int("[" in address),  # otherwise an IPv4 endpoint reports an IPv6 address
        }
        super().__init__(address, wake, options)
        self.prefix = prefix
        self._authenticator = authenticator
        if authenticator is not None:
            authenticator.secure(self.raw)
        self._listen(address)

    def receive(self) -> wire.Incoming | None:
        """Return the next message; as FORBIDDEN if its sender may not send it.

        A peer that chooses its own routing id could receive messages for another one, so with an authenticator only ids
        that ZeroMQ assigned are accepted.
        """
        found = self._read()
        if found is None:
            return None
        identity, authenticator = found[0].bytes, self._authenticator
        source = f"{self.prefix}{identity.hex()}"
        if authenticator is None:
            return wire.decode_incoming(source, found[1])
        key = str(found[0].get("User-Id"))
        incoming = wire.decode_incoming(f"{source}@{fingerprint(key)}", found[1])
        if incoming.header.kind == wire.MALFORMED:
            return incoming
        objection = authenticator.find_objection(key, incoming.header.rm)
        if not objection and (len(identity) != GIVEN_ID_BYTES or identity[0] != 0):
            objection = "at a port with keys a connection may not choose its routing id: leave it empty"
        if not objection:
            return incoming
        return wire.Incoming(incoming.source, replace(incoming.header, kind=wire.FORBIDDEN), objection.encode())

    def send(self, message: wire.Outgoing) -> None:
        identity = message.to[len(self.prefix) :].partition("@")[0]
        self._send_to(bytes.fromhex(identity), message)


def _new_socket(kind: int, address: str, options: Mapping[zmq.SocketOption, int]) -> "zmq.Socket[bytes]":
    try:
        raw: zmq.Socket[bytes] = CONTEXT.socket(kind)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"cannot open a socket for {address}: {_text_of(error)}") from error
    for option, value in {**_OPTIONS, **options}.items():
        raw.setsockopt(option, value)
    return raw


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
