"""Where messages come in and go out, the ZeroMQ port for programs of others, and the one written policy on overflow.

The policy: whoever can choose a peer is told if it is not there, so nothing is dropped in silence. Between our own
processes (`links.py`) queues have no limit, because a limit there either loses messages or lets two processes block on
each other; what may be on its way is bounded end to end instead, by the windows of each lane (`outbox.py`). A message
for a peer that is gone is dropped, counted, and sent again by whoever still holds it unacknowledged once the peer is
back. Towards other programs a queue does have an end, far beyond all windows: one that asks and does not listen loses
what it does not listen to, and what it sends too fast waits with itself.

Everything that arrives is at most READ_MAX messages and READ_BYTES_MAX at a time, so that one busy peer does not starve
the process's own work. Not here: decisions (the machines), waiting (`driver.py`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import zmq
from msgspec.structs import replace

from common.machine import FORBIDDEN, MALFORMED, Delivery, Send
from common.messages import Header
from common.wire import BODY_BYTES_MAX, WireError, check_size, frames_of, header_of

READ_MAX: Final = 256
"""Messages taken from the sockets before the machine gets its turn."""

READ_BYTES_MAX: Final = 256 << 10
"""Bytes of bodies after which no further message is taken from an endpoint until its next turn. So many asks keep a
worker busy for a quarter of a second; were it a whole window of them, its own heartbeats would be late.
"""

MESSAGE_BYTES_HARD_MAX: Final = 2 * BODY_BYTES_MAX
"""Beyond this ZeroMQ itself ends the connection; up to it a message over the limit is refused with a text."""

GIVEN_ID_BYTES: Final = 5
"""A routing id that ZeroMQ gave out has so many, and the first is 0."""

LINGER_MS: Final = 1000
"""How long a closing socket still tries to send."""

_log = logging.getLogger("core.rpc")


FRAMES_MAX: Final = 8
"""Frames of a message that are looked at. A message has three; of one with more the others only count."""

RECEIVE_QUEUE_MAX: Final = 2_048
"""Messages of one connection from outside that wait to be read; then we read no more of it."""

SEND_QUEUE_MAX: Final = 131_072
"""Messages that wait to be sent on one connection to the outside; what would be one more is dropped."""

HANDSHAKE_MAX_MS: Final = 5_000
"""How long a connection from outside may take to say who it is; then it is closed."""


class Doorkeeper(Protocol):
    """Who may connect to a socket, and whom they may speak for."""

    def secure(self, socket: "zmq.Socket[bytes]") -> None:
        """Set the socket up, before it listens."""

    def fingerprint(self, key: str) -> str:
        """How people call this public key."""

    def objection(self, key: str, rm: str) -> str:
        """Why whoever holds this public key may not speak for this resource manager; empty if they may."""


class Endpoint(Protocol):
    """A place where messages come in and go out: a socket, or the gRPC port."""

    def take(self) -> Delivery | None:
        """The next message that is already here, without waiting."""

    def give(self, message: Send) -> None:
        """Pass a message on, without waiting."""


class Dropping:
    """An endpoint that drops messages for peers that are gone, and counts them."""

    def __init__(self) -> None:
        self.dropped = 0


class _Socket(Dropping):
    """A socket of ZeroMQ's library: reading one message, and being woken when there may be more.

    Sending wakes too: ZeroMQ may take note of an arrival while it sends, and then its descriptor stays silent about it.
    """

    def __init__(self, kind: int, address: str, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake
        self._ready = True
        """Whether there may be something to read: to look costs a call into the kernel."""
        self.raw: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_HARD_MAX),
            (zmq.TCP_KEEPALIVE, 1),
            (zmq.IPV6, int("[" in address)),  # otherwise an IPv4 endpoint calls itself by an IPv6 name
        ):
            self.raw.setsockopt(option, value)

    def watch(self) -> None:
        """Wake the process when something arrives; needs a running loop."""
        asyncio.get_running_loop().add_reader(self.raw.FD, self._readable)

    def _readable(self) -> None:
        self._ready = True
        self._wake()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.raw.FD)
        self.raw.close()

    def _frames(self) -> list[bytes] | None:
        if not self._ready:
            return None
        try:
            first = self.raw.recv(zmq.NOBLOCK)
        except zmq.Again:
            self._ready = False
            return None
        return [first, *self._rest()]

    def _rest(self) -> list[bytes]:
        """The frames after the first one, which are here as soon as that is."""
        frames: list[bytes] = []
        while self.raw.rcvmore:
            frame = self.raw.recv(zmq.NOBLOCK)
            frames.append(frame if len(frames) < FRAMES_MAX else b"")
        return frames


def _why(error: zmq.ZMQError) -> str:
    return zmq.strerror(error.errno) if error.errno else str(error)


def delivery_of(source: str, frames: list[bytes]) -> Delivery:
    """What arrived in these frames."""
    try:
        header = header_of(frames)
        check_size(frames[2])
    except WireError as error:
        return Delivery(source, Header(kind=MALFORMED, ref=str(error)), b"")
    return Delivery(source, header, frames[2])


def _chosen(identity: bytes) -> str:
    if len(identity) == GIVEN_ID_BYTES and identity[0] == 0:
        return ""
    return "at a port with keys a connection may not choose its routing id: leave it empty"


class Router(_Socket):
    """Where many peers connect. A peer's name is `prefix` plus its routing id in hex; with a doorkeeper, `@` and the
    fingerprint of its key follow.
    """

    def __init__(
        self,
        address: str,
        *,
        prefix: str,
        wake: Callable[[], None],
        doorkeeper: Doorkeeper | None = None,
    ) -> None:
        super().__init__(zmq.ROUTER, address, wake)
        self.prefix = prefix
        self._doorkeeper = doorkeeper
        if doorkeeper is not None:
            doorkeeper.secure(self.raw)
        self.raw.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MAX_MS)
        self.raw.setsockopt(zmq.RCVHWM, RECEIVE_QUEUE_MAX)
        self.raw.setsockopt(zmq.SNDHWM, SEND_QUEUE_MAX)
        self.raw.setsockopt(zmq.ROUTER_MANDATORY, 1)
        try:
            self.raw.bind(address)
        except zmq.ZMQError as error:
            self.raw.close()
            raise OSError(f"cannot listen on {address}: {_why(error)}") from error
        self.address = bytes(self.raw.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        """Where it listens, with the port that was chosen if none was given."""

    def pause(self) -> None:
        """Listen no more until `resume`. Connections that there are stay, and new ones are refused by the system."""
        self.raw.unbind(self.address)

    def resume(self) -> None:
        """Listen again.

        Raises:
            OSError: the port cannot be opened now.
        """
        try:
            self.raw.bind(self.address)
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"cannot listen on {self.address}: {_why(error)}") from error

    def take(self) -> Delivery | None:
        if self._doorkeeper is not None:
            return self._checked(self._doorkeeper)
        frames = self._frames()
        if frames is None:
            return None
        return delivery_of(self.prefix + frames[0].hex(), frames[1:])

    def give(self, message: Send) -> None:
        identity = bytes.fromhex(message.to[len(self.prefix) :].partition("@")[0])
        try:
            self.raw.send_multipart([identity, *frames_of(message.header, message.body)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.dropped += 1
            _log.debug("dropped %s for %s: %s", message.header.kind, message.to, _why(error))
        self._readable()

    def _checked(self, doorkeeper: Doorkeeper) -> Delivery | None:
        """The next message, as FORBIDDEN if its sender may not say it.

        Who chose its routing id could wait under that of another for what is meant for the other, so only those that
        the socket gave out are good.
        """
        if not self._ready:
            return None
        try:
            first = self.raw.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._ready = False
            return None
        key, identity = str(first.get("User-Id")), first.bytes
        source = f"{self.prefix}{identity.hex()}@{doorkeeper.fingerprint(key)}"
        delivery = delivery_of(source, self._rest())
        if delivery.header.kind == MALFORMED:
            return delivery
        objection = doorkeeper.objection(key, delivery.header.rm) or _chosen(identity)
        if not objection:
            return delivery
        return Delivery(source, replace(delivery.header, kind=FORBIDDEN), objection.encode())


class Inbox:
    """An endpoint for what arises inside the process, such as the requests of the gRPC port."""

    def __init__(self, *, wake: Callable[[], None]) -> None:
        self.receive: Callable[[Send], None] | None = None
        """Who takes what is sent here."""
        self._waiting: deque[Delivery] = deque()
        self._wake = wake

    def put(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self._wake()

    def take(self) -> Delivery | None:
        return self._waiting.popleft() if self._waiting else None

    def give(self, message: Send) -> None:
        assert self.receive is not None, message
        self.receive(message)


@dataclass(slots=True)
class Traffic:
    """What a process reads and sends."""

    received: int = 0
    sent: int = 0
    waiting: int = 0
    """How many messages the latest look found."""


Turn = Callable[[list[Delivery]], float]
"""Deals with what has arrived, and says for how many seconds nothing else is to be done."""


class Wire:
    """All endpoints of a process; a message goes to the endpoint with the longest matching name prefix."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._endpoints: list[tuple[str, Endpoint]] = []
        self._waiting: asyncio.Future[None] | None = None
        """What `receive` waits for, while it does."""
        self._rested = True
        """Whether the loop has had its turn since something was received at once."""
        self._woken = True
        """Whether there may be something that no look has found."""
        self._turn: Turn | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        """When it wakes us, in the loop's time."""

    def wake(self) -> None:
        """There may be something to receive. Only in the loop's thread: nothing can come between a look and a wait."""
        self._woken = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def follow(self, turn: Turn) -> None:
        """While `receive` waits, call this with what has `arrived`."""
        self._turn = turn

    def arrived(self) -> None:
        """There is something to receive: whoever follows deals with it at once, if `receive` waits, and later if we are
        in the middle of a turn. To end the wait and go on from there takes the loop another turn, and every message
        passes several processes.
        """
        waiting, turn = self._waiting, self._turn
        self._woken = True
        if turn is None or waiting is None or waiting.done():
            self.wake()
            return
        self._waiting = None
        try:
            left_s = turn(self._drain())
            if self._woken:  # what this brought about in the process itself: a journal has written it at once
                left_s = turn(self._drain())
        except Exception as error:
            waiting.set_exception(error)  # a defect: `receive` raises it
            return
        self._waiting = waiting
        if self._woken or left_s <= 0:
            waiting.set_result(None)
        else:
            self._wait_at_most(left_s)

    def add(self, prefix: str, endpoint: Endpoint) -> None:
        """Let messages for peers whose name begins with the prefix go through this endpoint."""
        self._endpoints.append((prefix, endpoint))
        self._endpoints.sort(key=lambda entry: -len(entry[0]))
        self._woken = True

    @property
    def dropped(self) -> int:
        """Messages for peers that were gone."""
        return sum(endpoint.dropped for _, endpoint in self._endpoints if isinstance(endpoint, Dropping))

    async def receive(self, timeout_s: float) -> list[Delivery]:
        """What is here, as much as one turn may have of each endpoint; waits up to `timeout_s` while nothing is, and
        may come back with nothing before that.
        """
        arrived = self._drain()
        if arrived or timeout_s <= 0:
            if not self._rested:
                await asyncio.sleep(0)  # signals and the gRPC port get their turn
            self._rested = not self._rested
            return arrived
        self._rested = True
        await self._wakes(timeout_s)
        return self._drain()

    async def _wakes(self, timeout_s: float) -> None:
        """Until somebody wakes us, or the timeout. A future and a timer: `wait_for` starts a task for each wait, and
        takes several turns of the loop to come back, of which every message would have to wait at every process.
        """
        self._waiting = asyncio.get_running_loop().create_future()
        self._wait_at_most(timeout_s)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _wait_at_most(self, timeout_s: float) -> None:
        """A timer that goes off earlier will do: to wake for nothing once in a while costs less than a new one for each
        message.
        """
        loop = asyncio.get_running_loop()
        at = loop.time() + timeout_s
        if at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at, self._timer = at, loop.call_at(at, self._timed_out)

    def _timed_out(self) -> None:
        self._timer_at, self._timer = float("inf"), None
        self.wake()

    def send(self, message: Send) -> None:
        for prefix, endpoint in self._endpoints:
            if message.to.startswith(prefix):
                endpoint.give(message)
                self.traffic.sent += 1
                return
        raise LookupError(f"no endpoint leads to {message.to!r}")

    def _drain(self) -> list[Delivery]:
        if not self._woken:
            return []
        self._woken = False
        arrived: list[Delivery] = []
        for _, endpoint in self._endpoints:
            size = count = 0
            while (delivery := endpoint.take()) is not None:
                arrived.append(delivery)
                size, count = size + len(delivery.body), count + 1
                if count == READ_MAX or size >= READ_BYTES_MAX:
                    self._woken = True
                    break
        self.traffic.waiting = len(arrived)
        self.traffic.received += len(arrived)
        return arrived
