"""A process of the simulation: a machine with a clock, endpoints and a life.

It does what `common/transport/event_loop.py` does: messages go to the machine one after the other, and when its
deadline has passed it gets a `tick`, a moment later, so that messages and ticks interleave. It can die before, in the
middle of, and after what it says because of a message; it can stand still and go on later, with everything that came
meanwhile.

Not here: what the roles are (`roles.py`), the network (`network.py`), and when it dies (`faults.py`).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.attempts import WorkerKilled
from tests.sim.network import Dealer, Frames
from yunishard.common.messages.wire import (
    NEVER,
    BrokerAddress,
    Incoming,
    Machine,
    Outgoing,
    decode_header,
    encode_frames,
)
from yunishard.common.names import FILE, JOURNAL, LEASE, RECORD
from yunishard.partition_worker.partition_host import GROUPS

if TYPE_CHECKING:
    from tests.sim.world import World

TURN_MAX_S: Final = 0.001
"""How long a process takes from one turn of its loop to the next."""

Endpoint = Callable[[Outgoing], None]


class Process:
    """One life of one process. `name` is what its supervisor calls it, `peer` what its messages are known by."""

    def __init__(self, world: "World", name: str, role: str, host: str = "") -> None:
        self.world = world
        self.host = host
        """The machine that it runs on; empty for an RM."""
        self.skew_s = world.hosts[host].skew_s if host else 0.0
        """How far its clock is ahead."""
        self.name = name
        self.role = role
        self.peer = name
        self.machine: Machine | None = None
        """None while it starts."""
        self.alive = True
        self.stopped = False
        self.leader = BrokerAddress("")
        """Where it is to reach the broker."""
        self.link: Dealer | None = None
        """Its connection to the broker."""
        self.endpoints: list[tuple[str, Endpoint]] = []
        """By the beginning of a peer's name, the longest first."""
        self.on_end: list[Callable[[], None]] = []
        self.after_turn: Callable[[], None] = lambda: None
        self._inbox: deque[Incoming] = deque()
        self._turn_at = NEVER
        self._busy = False

    def route(self, prefix: str, endpoint: Endpoint) -> None:
        self.endpoints = [one for one in self.endpoints if one[0] != prefix]
        self.endpoints.append((prefix, endpoint))
        self.endpoints.sort(key=lambda one: -len(one[0]))

    def run(self, machine: Machine) -> None:
        """It is up: from now on it hears and looks at the clock."""
        self.machine = machine
        self._turn_at = NEVER
        self.look()

    @property
    def now(self) -> float:
        """By the clock of its host."""
        return self.world.now + self.skew_s

    # Messages -------------------------------------------------------------------------------------------------------

    def arrived(self, source: str, frames: Frames) -> None:
        if self.alive:
            self.world.mark(self.name, source, frames[1], frames[2])
            self.take(Incoming(source, decode_header(frames), frames[2]))

    def take(self, incoming: Incoming) -> None:
        """A message, from outside or from inside the process."""
        if not self.alive:
            return
        self._inbox.append(incoming)
        if not self.stopped:
            self._work()

    def _work(self) -> None:
        if self._busy:
            return
        self._busy = True
        while self._inbox and self.alive and not self.stopped and self.machine is not None:
            incoming = self._inbox.popleft()
            self.world.delivered(self, incoming)
            if self.alive:
                self._handle(self.machine, incoming)
        self._busy = False
        self.look()

    def _handle(self, machine: Machine, incoming: Incoming) -> None:
        try:
            sends = machine.handle(incoming, self.now)
        except WorkerKilled:
            self.world.kill(self, f"{incoming.header.kind} {incoming.header.seq} is poison")
            return
        self.say(sends, f"{incoming.header.kind}")

    def say(self, sends: list[Outgoing], cause: str) -> None:
        """Send, unless it dies in the middle of that."""
        dies_after = self.world.faults.dies_after(self, sends)
        for count, one in enumerate(sends):
            if count == dies_after or not self.alive:
                break
            self._send(one)
        self.after_turn()
        if dies_after is not None and self.alive:
            self.world.kill(self, f"in the middle of {cause}" if sends else f"after {cause}")

    def _send(self, one: Outgoing) -> None:
        for prefix, endpoint in self.endpoints:
            if one.to.startswith(prefix):
                if one.to in (JOURNAL, RECORD, FILE, GROUPS, LEASE):
                    self.world.kinds[one.header.kind] = self.world.kinds.get(one.header.kind, 0) + 1
                endpoint(one)
                return
        raise LookupError(f"{self.name} knows no way to {one.to!r}: {one.header}")

    def frames(self, one: Outgoing) -> Frames:
        return encode_frames(one.header, one.body)

    # Time -----------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Plan the next look at the clock."""
        if not self.alive or self.machine is None or self.stopped:
            return
        deadline = self.machine.deadline
        if deadline == NEVER:
            return
        due = max(deadline - self.skew_s, self.world.now + self.world.rng.uniform(0, TURN_MAX_S))
        if due < self._turn_at:
            self._turn_at = due
            self.world.timeline.at(due, partial(self._turn, due))

    def _turn(self, due: float) -> None:
        if due != self._turn_at or not self.alive or self.machine is None:
            return
        self._turn_at = NEVER
        if self.stopped:
            return
        if self.machine.deadline <= self.now:
            self.world.note(self, "tick", "")
            self.say(self.machine.tick(self.now), "a tick")
        self.look()

    # Life -----------------------------------------------------------------------------------------------------------

    def end(self, *, silently: bool = False) -> None:
        """It is gone, with all that it had not sent; its whole host, if nobody on another one notices at once."""
        self.alive = False
        self._inbox.clear()
        for action in self.on_end:
            action()
        self.world.network.died(self, silently=silently)

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT: everything that came meanwhile is taken at once."""
        if self.alive and self.stopped:
            self.stopped = False
            self._turn_at = NEVER
            self._work()
