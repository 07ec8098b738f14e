"""The event loop of every server process: receives messages from all endpoints, runs the machine, sends its replies.

    endpoints (sockets, gRPC port, journal) --> Transport.receive --> drive --> machine --> Transport.send --> endpoints

At most READ_MAX messages and READ_BYTES_MAX bytes of an endpoint are received at a time, so that one busy peer does not
starve the process's own work. Not here: ZeroMQ sockets (`transport.py`), decisions (the machines).
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Final, Protocol

from common.wire import Incoming, Machine, Outgoing

READ_MAX: Final = 256
"""Messages received from an endpoint before the machine runs."""

READ_BYTES_MAX: Final = 256 << 10
"""Bytes of bodies after which no further message of an endpoint is received before the machine runs. So many asks keep
a worker busy for a quarter of a second; a whole window of them would delay its heartbeats.
"""

_STARTED_WALL: Final = time.time()
_STARTED_MONOTONIC: Final = time.monotonic()

Turn = Callable[[list[Incoming]], float]
"""Processes received messages; returns the seconds until the machine's deadline."""


def clock() -> float:
    """Return Unix seconds that never go back: the wall clock at the start of the process, plus monotonic time."""
    return _STARTED_WALL + (time.monotonic() - _STARTED_MONOTONIC)


class Endpoint(Protocol):
    """A source and destination of messages: a socket, the gRPC port, the journal."""

    def receive(self) -> Incoming | None:
        """Return the next message that is already here, without waiting."""

    def send(self, message: Outgoing) -> None:
        """Pass a message on, without waiting."""


class DroppingEndpoint:
    """An endpoint that drops messages for peers that are not connected, and counts them."""

    def __init__(self) -> None:
        self.dropped = 0


class Inbox:
    """An endpoint for messages that arise inside the process, such as the requests of the gRPC port."""

    def __init__(self, *, wake: Callable[[], None]) -> None:
        self.deliver: Callable[[Outgoing], None] | None = None
        """Called with each message that is sent to this endpoint."""
        self._waiting: deque[Incoming] = deque()
        self._wake = wake

    def put(self, incoming: Incoming) -> None:
        self._waiting.append(incoming)
        self._wake()

    def receive(self) -> Incoming | None:
        return self._waiting.popleft() if self._waiting else None

    def send(self, message: Outgoing) -> None:
        assert self.deliver is not None, message
        self.deliver(message)


@dataclass(slots=True)
class Traffic:
    """Counts of the messages of a process."""

    received: int = 0
    sent: int = 0
    waiting: int = 0
    """Messages that the latest call of `receive` found."""


async def drive(
    machine: Machine,
    transport: "Transport",
    stopping: asyncio.Event,
    *,
    notes: Sequence[Sized] = (),
    write_notes: Callable[[], None] = lambda: None,
) -> None:
    """Run a machine until `stopping` is set. An exception in a machine is a defect and ends the process.

    `write_notes` is called after each turn that leaves something in one of the collections `notes` of the machine.
    """

    def turn(batch: list[Incoming]) -> float:
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
        self.traffic = Traffic()
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
        return sum(endpoint.dropped for _, endpoint in self._endpoints if isinstance(endpoint, DroppingEndpoint))

    def follow(self, turn: Turn) -> None:
        """While `receive` waits, call this with messages that have `arrived`."""
        self._turn = turn

    def wake(self, prefix: str | None = None) -> None:
        """End the wait of `receive`, as the endpoint with this prefix may have messages, or any endpoint if there is no
        prefix; call this in the loop's thread only.
        """
        self._mark_ready(prefix)
        self._end_wait()

    def _mark_ready(self, prefix: str | None) -> None:
        if prefix is None:
            self._ready.update(one for one, _ in self._endpoints)
        else:
            self._ready.add(prefix)

    def _end_wait(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def arrived(self, prefix: str | None = None) -> None:
        """Process messages that arrived at this endpoint: at once, if `receive` waits; else at its next call.

        To end the wait instead would take another turn of the event loop for each message, in each process it passes.
        """
        self._mark_ready(prefix)
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

    async def receive(self, timeout_s: float) -> list[Incoming]:
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

    def send(self, message: Outgoing) -> None:
        for prefix, endpoint in self._endpoints:
            if message.to.startswith(prefix):
                endpoint.send(message)
                self.traffic.sent += 1
                return
        raise LookupError(f"no endpoint leads to {message.to!r}")

    def _read(self) -> list[Incoming]:
        ready, self._ready = self._ready, set()
        received: list[Incoming] = []
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
        self.traffic.waiting = len(received)
        self.traffic.received += len(received)
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
