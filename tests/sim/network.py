"""The network of the simulation, which does what ZeroMQ does between our processes.

A *router* (ROUTER) is where peers connect, by name; a *dealer* (DEALER) is a connection to one router that is made
again for as long as its process lives. On a link messages stay in order and none is lost while both ends live and the
connection holds. When it breaks,

- of what the dealer had sent, the first part arrived, the next is lost, and the rest has not left: a dealer of our own
  processes keeps it and sends it on the next connection, the dealer of an RM's SDK drops it (`zmq.IMMEDIATE`);
- of what the router had sent, the first part arrived and the rest is lost;
- until there is another one a router drops what is for that peer, a dealer of our own keeps what it is given.

With several hosts, connections break although both ends live, and dealers of our own keep nothing either: they are told
of each new connection (`BrokerConnection` in `common/transport/event_loop.py`). A cut between two hosts holds up what
is sent in one direction; after SILENT_MAX_S the connection breaks, and no new one is made. The other end of a
connection with a host that crashes notices as late.

A process that is stopped (SIGSTOP) takes nothing and connects to nobody, but its connections hold and what is sent to
it waits. Not here: which faults happen when (`faults.py`).
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from tests.sim.timeline import Timeline

DELAY_MAX_S: Final = 0.004
CONNECT_MAX_S: Final = 0.030
"""How long the making of a connection takes."""

RETRY_MAX_S: Final = 0.5
"""How long until a connection that could not be made is tried again."""

SILENT_MAX_S: Final = 3.0
"""How long a connection between hosts may be silent until both ends take it for broken."""

REMOTE: Final = "tcp://"
"""With what an address on another host begins."""

Frames = list[bytes]


class Host(Protocol):
    """A process, as the network sees it."""

    @property
    def alive(self) -> bool: ...

    @property
    def stopped(self) -> bool: ...

    @property
    def host(self) -> str: ...

    def arrived(self, source: str, frames: Frames) -> None:
        """A message came from this peer."""


@dataclass(slots=True)
class _Packet:
    arrival: float
    frames: Frames


@dataclass(slots=True)
class Lane:
    """One direction of a connection."""

    source: str
    """What the receiver calls the sender."""
    receiver: Host
    packets: deque[_Packet] = field(default_factory=deque)
    """On their way, oldest first."""
    clear_at: float = 0.0
    """What is sent now arrives no earlier: nothing overtakes, and a clogged link is clogged."""
    hosts: tuple[str, str] = ("", "")
    """From which host to which it leads."""


class Dealer:
    """One process's end of a connection that is made again whenever it breaks."""

    def __init__(
        self, owner: Host, name: str, to: str, *, keeps: bool, connected: Callable[[], None], peer: str = ""
    ) -> None:
        self.owner = owner
        self.name = name
        """What the router calls this end."""
        self.to = to
        """The address of the router; empty for nowhere."""
        self.peer = peer or to
        """What this end calls the router."""
        self.keeps = keeps
        """Whether what it is given waits for a connection."""
        self.connected = connected
        """Called when there is a new connection."""
        self.connection: Connection | None = None
        self.names: Callable[[], str] | None = None
        """What it is called on the next connection, if that is not the same each time."""
        self.targets: Callable[[], str] | None = None
        """Where to it tries to connect, if that is not the same each time."""
        self.failed: Callable[[], None] | None = None
        """Called when an attempt fails and when the connection breaks, in place of another attempt."""
        self.attempts = 0
        self.closed = False
        self.waiting: deque[Frames] = deque()


class Connection:
    """Between a dealer and a router, as long as it holds."""

    def __init__(self, dealer: Dealer, router: "Router") -> None:
        self.dealer = dealer
        self.router = router
        self.is_remote = dealer.to.startswith(REMOTE)
        here, there = dealer.owner.host, router.owner.host
        self.up = Lane(dealer.name, router.owner, hosts=(here, there))
        self.down = Lane(dealer.peer, dealer.owner, hosts=(there, here))


class Router:
    """Where peers of one process connect."""

    def __init__(self, owner: Host) -> None:
        self.owner = owner
        self.connections: dict[str, Connection] = {}
        """By the name of the peer."""


class Network:
    """All routers, dealers, and what is on its way between them."""

    def __init__(self, timeline: Timeline, rng: random.Random) -> None:
        self.dropped = 0
        """Messages of routers for peers that were gone."""
        self.blocked: dict[tuple[str, str], int] = {}
        """From which host to which nothing gets through, with the number of the cut."""
        self._timeline = timeline
        self._rng = rng
        self._routers: list[Router] = []
        self._addresses: dict[str, Router] = {}
        self._cuts = 0

    @property
    def connections(self) -> list[Connection]:
        """All that hold, in a fixed order."""
        return [one for router in self._routers for one in router.connections.values()]

    # Making and ending ----------------------------------------------------------------------------------------------

    def listen(self, owner: Host, *addresses: str) -> Router:
        """From now on peers may connect to this process at these addresses."""
        router = Router(owner)
        self._routers.append(router)
        self._addresses.update(dict.fromkeys(addresses, router))
        return router

    def pause(self, address: str) -> None:
        """Connections that are there stay; nobody makes another one here."""
        self._addresses.pop(address, None)

    def resume(self, address: str, router: Router) -> None:
        self._addresses[address] = router

    def connect(self, dealer: Dealer) -> None:
        """Make a connection, and another one whenever it breaks."""
        dealer.attempts += 1
        self._timeline.after(self._rng.uniform(0.0005, CONNECT_MAX_S), partial(self._try, dealer, dealer.attempts))

    def close(self, dealer: Dealer) -> None:
        """This end is not wanted any more."""
        dealer.closed = True
        if dealer.connection is not None:
            self.cut(dealer.connection)

    def move(self, dealer: Dealer, to: str) -> None:
        """A dealer connects to another address: all that is queued or on its way is dropped."""
        before, dealer.to, failed, dealer.failed = dealer.connection, to, dealer.failed, None
        if before is not None:
            self._end(before)
        else:
            self.connect(dealer)
        dealer.failed = failed
        dealer.waiting.clear()

    def died(self, host: Host, *, silently: bool = False) -> None:
        """All that a process had is gone. If its machine is gone with it, other machines notice later."""
        routers = [one for one in self._routers if one.owner is host]
        self._routers = [one for one in self._routers if one.owner is not host]
        self._addresses = {name: one for name, one in self._addresses.items() if one.owner is not host}
        for connection in [one for router in routers for one in router.connections.values()]:
            if silently and connection.is_remote and connection.dealer.owner.host != host.host:
                connection.up.packets.clear()
                connection.down.packets.clear()
                self._timeline.after(self._rng.uniform(0.1, SILENT_MAX_S), partial(self._end_if_held, connection))
            else:
                self._end(connection)
        for connection in [one for one in self.connections if one.dealer.owner is host]:
            self._end(connection)

    def _end_if_held(self, connection: Connection) -> None:
        if connection.dealer.connection is connection:
            self._end(connection)

    def block(self, source: str, target: str) -> None:
        """Nothing gets through from one host to another, until `unblock`."""
        self._cuts += 1
        self.blocked[source, target] = self._cuts
        after = self._rng.uniform(SILENT_MAX_S / 2, SILENT_MAX_S)
        self._timeline.after(after, partial(self._break_silent, source, target, self._cuts))

    def unblock(self, source: str, target: str) -> None:
        """What was held up arrives, if its connection still holds."""
        if self.blocked.pop((source, target), None) is None:
            return
        for lane in [lane for one in self.connections for lane in (one.up, one.down)]:
            if lane.hosts == (source, target):
                for _ in lane.packets:
                    self._timeline.after(0, partial(self._deliver, lane))

    def _break_silent(self, source: str, target: str, number: int) -> None:
        if self.blocked.get((source, target)) == number:
            for connection in self.connections:
                if set(connection.up.hosts) == {source, target}:
                    self._end(connection)

    def cut(self, connection: Connection) -> None:
        """A connection breaks, with both ends alive."""
        self._end(connection)

    def clog(self, connection: Connection, seconds: float) -> None:
        """Nothing gets through for a while, in either direction."""
        until = self._timeline.now + seconds
        for lane in (connection.up, connection.down):
            lane.clear_at = max(lane.clear_at, until)
            for packet in lane.packets:
                packet.arrival = max(packet.arrival, until)
                self._timeline.at(packet.arrival, partial(self._deliver, lane))

    def _try(self, dealer: Dealer, attempt: int) -> None:
        if dealer.closed or not dealer.owner.alive or dealer.connection is not None or attempt != dealer.attempts:
            return
        if dealer.targets is not None:
            dealer.to = dealer.targets()
        router = self._addresses.get(dealer.to)
        if router is None or router.owner.stopped or dealer.owner.stopped or self._is_cut(dealer, router):
            if dealer.failed is not None and router is None:
                dealer.failed()
            else:
                self._timeline.after(self._rng.uniform(0.02, RETRY_MAX_S), partial(self._try, dealer, attempt))
            return
        if dealer.names is not None:
            dealer.name = dealer.names()
        before = router.connections.get(dealer.name)
        if before is not None:  # the name is taken over, as with ROUTER_HANDOVER
            self._end(before)
        dealer.connection = router.connections[dealer.name] = Connection(dealer, router)
        waiting, dealer.waiting = dealer.waiting, deque()
        for frames in waiting:
            self._carry(dealer.connection, dealer.connection.up, frames)
        dealer.connected()

    def _is_cut(self, dealer: Dealer, router: Router) -> bool:
        """A new connection needs both directions."""
        here, there = dealer.owner.host, router.owner.host
        return (here, there) in self.blocked or (there, here) in self.blocked

    def _end(self, connection: Connection) -> None:
        dealer, router = connection.dealer, connection.router
        if router.connections.get(dealer.name) is connection:
            del router.connections[dealer.name]
        dealer.connection = None
        up = [one.frames for one in connection.up.packets]
        down = [one.frames for one in connection.down.packets]
        connection.up.packets.clear()
        connection.down.packets.clear()
        here, there = connection.up.hosts
        arrived = 0 if (here, there) in self.blocked else self._cut_at(up, router.owner)
        kept = self._rng.randint(arrived, len(up)) if dealer.keeps and dealer.owner.alive else len(up)
        dealer.waiting.extendleft(reversed(up[kept:]))
        if dealer.owner.alive and not dealer.closed:
            self.connect(dealer) if dealer.failed is None else dealer.failed()
        for frames in up[:arrived]:
            self._timeline.after(0, partial(router.owner.arrived, dealer.name, frames))
        for frames in down[: 0 if (there, here) in self.blocked else self._cut_at(down, dealer.owner)]:
            self._timeline.after(0, partial(dealer.owner.arrived, dealer.peer, frames))

    def _cut_at(self, packets: list[Frames], receiver: Host) -> int:
        """How many of these have arrived."""
        return self._rng.randint(0, len(packets)) if receiver.alive and packets else 0

    # Carrying -------------------------------------------------------------------------------------------------------

    def up(self, dealer: Dealer, frames: Frames) -> None:
        """A dealer sends."""
        if dealer.connection is not None:
            self._carry(dealer.connection, dealer.connection.up, frames)
        elif dealer.keeps:
            dealer.waiting.append(frames)

    def down(self, router: Router, to: str, frames: Frames) -> None:
        """A router sends, or drops what is for a peer that is gone."""
        connection = router.connections.get(to)
        if connection is None:
            self.dropped += 1
            return
        self._carry(connection, connection.down, frames)

    def _carry(self, connection: Connection, lane: Lane, frames: Frames) -> None:
        lane.clear_at = max(lane.clear_at, self._timeline.now + self._rng.uniform(0, DELAY_MAX_S))
        lane.packets.append(_Packet(lane.clear_at, frames))
        self._timeline.at(lane.clear_at, partial(self._deliver, lane))

    def _deliver(self, lane: Lane) -> None:
        """What is first on its way arrives, unless it was held up or lost since this was planned."""
        if lane.packets and lane.packets[0].arrival <= self._timeline.now and lane.hosts not in self.blocked:
            lane.receiver.arrived(lane.source, lane.packets.popleft().frames)
