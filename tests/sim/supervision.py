"""The supervisor of the simulation: the real machine (`deploy/supervisor.py`), and what its shell does with children.

Its children hold lifelines to it: those that live say so each second, and all leave when it is gone; one that stands
still leaves when it goes on. Whoever started the supervisor (an init system) starts another one after a while.

Not here: what a process of each role is (`roles.py`).
"""

from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.sim.host import Host
from yunishard.common.messages import wire
from yunishard.common.messages.control_messages import Figures, WorkersWanted
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import NEVER, BrokerAddress, Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import BROKER, OFF, RMPROXY, SUPERVISOR, WEBSERVICE, peer_name
from yunishard.common.process.metrics import encode_families, report_process_up
from yunishard.common.settings import Settings
from yunishard.deploy.children import (
    Alive,
    Connect,
    Died,
    Disconnect,
    Event,
    Failed,
    HelloWanted,
    HostCapacity,
    Instruction,
    Kill,
    Ready,
    Start,
    Tell,
    Terminate,
)
from yunishard.deploy.supervisor import Supervisor

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

LIFELINE: Final = "@lifeline"
BEAT_S: Final = 1.0
ANEW_S: Final = 1.0
"""How long whoever starts the supervisor takes to start another one."""

SETTINGS: Final = Settings(native="tcp://n:1", grpc="g:1", rest="r:1", silence_s=2.0)

_FIGURES: Final = Figures(families=encode_families([report_process_up(SUPERVISOR)]))


class Keeper:
    """The supervisor's process: its machine between events of the lifelines, instructions, and the broker."""

    def __init__(self, world: "World", process: "Process", host: Host, *, spares: int) -> None:
        settings = replace(SETTINGS, spare_workers=spares, host_name=host.name)
        if len(world.hosts) > 1:
            settings = replace(settings, store="postgresql://db", cluster_address=host.remote.address)
        self.host = host
        self.supervisor = Supervisor(
            settings,
            broker=host.own.address,
            file="settings.json",
            instance=str(world.number_supervisor()),
            capacity=HostCapacity("release", host.cores),
        )
        self.children: dict[str, Process] = {}
        self._world = world
        self._process = process
        self._events: deque[Event] = deque()
        self._is_connected = False
        self._incarnation = ""
        self._beat_at = NEVER

    @property
    def ready(self) -> bool:
        """Whether everybody who should run does."""
        return all(role in self.children for role in (BROKER, RMPROXY, WEBSERVICE))

    # The machine ----------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        return min(self.supervisor.deadline, self._beat_at)

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        match incoming.header.kind:
            case "lifeline" if self._events:
                return self._done(self.supervisor.handle(self._events.popleft(), now))
            case "WorkersWanted":
                return self._done(self.supervisor.handle(decode_body(WorkersWanted, incoming.body), now))
            case wire.LINK_LOST:
                return self._done(self.supervisor.handle(HelloWanted(), now))
            case "Heartbeat":
                before, self._incarnation = self._incarnation, decode_body(Heartbeat, incoming.body).incarnation
                return [] if before in ("", self._incarnation) else [self.supervisor.make_hello()]
        return []

    def tick(self, now: float) -> list[Outgoing]:
        sends: list[Outgoing] = []
        if self._beat_at <= now:
            self._beat_at = now + BEAT_S
            sends += [make_outgoing(BROKER, Heartbeat()), make_outgoing(BROKER, _FIGURES)]
        if self.supervisor.deadline <= now:
            sends += self._done(self.supervisor.tick(now))
        return sends

    def _done(self, instructions: list[Instruction]) -> list[Outgoing]:
        if self.supervisor.status is not None:
            self._world.timeline.after(0, partial(self._world.kill, self._process, "it ends"))
        return self._do(instructions)

    # Lifelines ------------------------------------------------------------------------------------------------------

    def report(self, event: Event) -> None:
        """Something came over a lifeline."""
        if self._process.alive:
            self._events.append(event)
            self._process.take(Incoming(LIFELINE, Header(kind="lifeline"), b""))

    def ended(self, child: "Process") -> None:
        """A child is gone."""
        for name, one in list(self.children.items()):
            if one is child:
                del self.children[name]
                self._world.timeline.after(0.002, partial(self.report, Died(name, "SIGKILL")))

    def failed(self, child: "Process", reason: str) -> None:
        """A child says why it cannot start, and ends."""
        for name in [name for name, one in self.children.items() if one is child]:
            self.report(Failed(name, reason))

    def ready_is(self, child: "Process", name: str) -> None:
        """A child has opened everything; from now on it says that it lives."""
        if child.alive:
            self.report(Ready(name))
            self._world.timeline.after(BEAT_S, partial(self._beat, child, name))

    def _beat(self, child: "Process", name: str) -> None:
        if child.alive and self._process.alive:
            if not child.stopped:
                self.report(Alive(name))
            self._world.timeline.after(BEAT_S, partial(self._beat, child, name))

    # Instructions ---------------------------------------------------------------------------------------------------

    def _do(self, instructions: list[Instruction]) -> list[Outgoing]:
        world = self._world
        sends: list[Outgoing] = []
        for one in instructions:
            match one:
                case Start():
                    world.note(self._process, "starts", f"{one.name} {' '.join(one.arguments)}")
                    self.children[one.name] = world.roles.start(one, self)
                case Terminate(name) if name in self.children:
                    world.roles.terminate(self.children[name])
                case Kill(name) if name in self.children:
                    world.timeline.after(0.001, partial(world.kill, self.children[name], "the supervisor killed it"))
                case Tell(name, leader) if name in self.children:
                    self._tell(self.children[name], leader)
                case Connect(leader):
                    self._connect(leader)
                case Disconnect():
                    self._disconnect()
                case Outgoing() if self._is_connected:
                    sends.append(one)
        return sends

    def _tell(self, child: "Process", leader: BrokerAddress) -> None:
        """A child reads on its lifeline where the leading broker is, some time later."""
        child.leader = leader
        self._world.timeline.after(self._world.rng.uniform(0, 0.002), partial(self._move, child))

    def _move(self, child: "Process") -> None:
        if child.alive and child.stopped:
            self._world.timeline.after(0.05, partial(self._move, child))
        elif child.alive and child.link is not None and child.link.to != child.leader.address:
            self._world.network.move(child.link, child.leader.address)

    def _connect(self, leader: BrokerAddress) -> None:
        self._disconnect()
        self._process.leader = leader
        self._process.peer = peer_name(SUPERVISOR, self.host.name)
        self._world.connect_to_broker(self._process)
        self._is_connected = True
        if self.supervisor._settings.cluster_address == OFF:
            self._beat_at = self._process.now + BEAT_S
        self._incarnation = ""

    def _disconnect(self) -> None:
        if self._process.link is not None:
            self._world.network.close(self._process.link)
        self._process.link, self._is_connected, self._beat_at = None, False, NEVER
