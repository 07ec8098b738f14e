"""The web service of the simulation: it asks, lists, kills, moves, changes configurations, and counts the answers.

As the real one it takes no notice of a second answer. Not here: HTTP, and what the answers say.
"""

from typing import TYPE_CHECKING, Final

from common.control_messages import Hello
from common.messages import Header, Message
from common.names import BROKER
from common.query_messages import (
    Actor,
    Answer,
    ChangeConfig,
    ChangeHosts,
    KillApplication,
    ListPartitions,
    MoveApplication,
    Query,
    ReadConfig,
    ReadHosts,
    Schedule,
)
from common.rm_messages import Heartbeat
from common.wire import LINK_LOST, Incoming, Outgoing, decode_body, make_outgoing
from tests.sim.auditor import Violation
from tests.sim.configurations import LEAVES
from tests.sim.site import Site

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

QUESTIONS: Final = ("applications", "nodes", "queues", "users", "preemptions", "account", "metrics")
PAUSE_MAX_S: Final = 0.6
BEAT_S: Final = 1.0
ADMIN: Final = Actor(user="root", scheduler_admin=True)


class Asker:
    """One life of it."""

    def __init__(self, world: "World", process: "Process", number: int) -> None:
        self.open: dict[str, str] = {}
        """Questions without an answer, by their references."""
        self.answers = 0
        self._world = world
        self._rng = world.rng
        self._number = number
        self._asked = 0
        self._ask_at = self._beat_at = process.now

    @property
    def _changes(self) -> bool:
        """Whether it also asks for changes."""
        return self._world.faults.on and not self._world.options.calm

    @property
    def deadline(self) -> float:
        return min(self._ask_at, self._beat_at)

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        if header.kind in ("Answer", "PartitionList", "Refused"):
            if self.open.pop(header.ref, None) is not None:
                self.answers += 1
            if header.kind == "Answer" and decode_body(Answer, incoming.body).status == 500:
                raise Violation("an answer with a defect", f"{incoming}", (header.ref,))
        elif header.kind == LINK_LOST:
            self.open.clear()
        return []

    def tick(self, now: float) -> list[Outgoing]:
        sends: list[Outgoing] = []
        if self._beat_at <= now:
            sends.append(
                make_outgoing(BROKER, Heartbeat()) if self._asked else make_outgoing(BROKER, Hello(role="webservice"))
            )
            self._beat_at = now + BEAT_S
        if self._ask_at <= now:
            self._ask_at = now + self._rng.uniform(0.05, PAUSE_MAX_S)
            sends += self._question()
        return sends

    def _question(self) -> list[Outgoing]:
        rms = list(self._world.clusters.values())
        cluster = self._rng.choice(rms)
        sites = list(cluster.sites.values())
        self._asked += 1
        if self._world.options.watched and self._changes and self._rng.random() < 0.03:
            self._world.file.edit(self._rng.choice(self._world.texts))
        if len(self._world.hosts) > 1 and self._rng.random() < 0.05:
            return [self._to(message := self._about_hosts(), Header(kind=type(message).__name__))]
        if not sites or self._rng.random() < 0.2:
            whole = self._rng.choice((ListPartitions(), Query(what="metrics")))
            return [self._to(whole, Header(kind=type(whole).__name__))]
        site = self._rng.choice(sites)
        message = self._chosen(cluster.rm_id, site)
        rm = cluster.rm_id if isinstance(message, ChangeConfig | ReadConfig) else ""
        return [self._to(message, Header(kind=type(message).__name__, rm=rm, partition="" if rm else site.partition))]

    def _about_hosts(self) -> Message:
        chance, host = self._rng.random(), self._rng.choice(list(self._world.hosts))
        if not self._changes or chance < 0.2:
            return ReadHosts()
        if chance < 0.3:
            return ChangeHosts(action="rebalance")
        return ChangeHosts(action="drain" if chance < 0.6 else "undrain", host=host)

    def _chosen(self, rm: str, site: Site) -> Message:
        applications = list(site.applications) or ["nobody"]
        chance = self._rng.random()
        if self._changes and chance < 0.1:
            return Query(what="rm-state", name=site.partition)  # not at rest: its answer acknowledges, too
        if not self._changes or chance < 0.6:
            return Query(what=self._rng.choice(QUESTIONS), name=site.partition, args={})
        if chance < 0.7:
            return KillApplication(application_id=self._rng.choice(applications), actor=ADMIN)
        if chance < 0.8:
            return MoveApplication(
                application_id=self._rng.choice(applications), queue=self._rng.choice(LEAVES), actor=ADMIN
            )
        if chance < 0.87:
            return Schedule(steps=self._rng.randint(1, 5))
        if chance < 0.95:
            return ReadConfig(what=self._rng.choice(("current", "history", "version")), version=1)
        return ChangeConfig(config=self._rng.choice(self._world.texts), author="the simulation")

    def _to(self, message: Message, header: Header) -> Outgoing:
        ref = f"{self._number}-{self._asked}"
        self.open[ref] = type(message).__name__
        asked = Header(kind=header.kind, rm=header.rm, partition=header.partition, ref=ref)
        return make_outgoing(BROKER, message, asked)
