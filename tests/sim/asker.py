"""The web service of the simulation: it asks, lists, kills, moves, stops queues, cordons nodes, ends sessions, changes
configurations, and counts the answers.

As the real one it takes no notice of a second answer. Not here: HTTP, what the answers say, except to changes by
operators, and what follows from those (`operator_changes.py`).
"""

from typing import TYPE_CHECKING, Final

from tests.sim.auditor import Violation
from tests.sim.configurations import LEAVES
from tests.sim.operator_changes import Drain
from tests.sim.rm import Cluster
from tests.sim.site import Phase, Site
from yunishard.common.messages.control_messages import Hello
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import (
    Actor,
    Answer,
    ChangeConfig,
    ChangeHosts,
    ChangeNode,
    ChangeQueue,
    EndSession,
    KillApplication,
    ListPartitions,
    MoveApplication,
    NodeAction,
    Query,
    QueueAction,
    ReadConfig,
    ReadHosts,
    Schedule,
)
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import LINK_LOST, Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import BROKER

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

QUESTIONS: Final = ("applications", "nodes", "queues", "users", "preemptions", "account", "metrics")
PAUSE_MAX_S: Final = 0.6
BEAT_S: Final = 1.0
ADMIN: Final = Actor(user="root", scheduler_admin=True)
QUEUES: Final = (*LEAVES, "root.made", "root")
QUEUE_ACTIONS: Final[tuple[QueueAction, ...]] = ("stop", "stop", "start")
NODE_ACTIONS: Final[tuple[NodeAction, ...]] = ("cordon", "cordon", "drain", "uncordon")
AGAIN: Final = 0.4
"""The share of requests about a queue or node that an earlier one was about; half of them take it back."""


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
            what = self.open.pop(header.ref, None)
            self.answers += what is not None
            answer = decode_body(Answer, incoming.body) if header.kind == "Answer" else None
            if answer is not None and answer.status == 500:
                raise Violation("an answer with a defect", f"{incoming}", (header.ref,))
            if what is not None and answer is not None:
                for problem in self._world.changes.receive_answer(header.ref, answer):
                    raise Violation("an answer does not say what was asked for", problem, (header.ref,))
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
        if self._changes and self._rng.random() < 0.015:
            return [self._end_session(cluster)]
        if not sites or self._rng.random() < 0.2:
            whole = self._rng.choice((ListPartitions(), Query(what="metrics")))
            return [self._to(whole, Header(kind=type(whole).__name__))]
        site = self._rng.choice(sites)
        if self._changes and self._rng.random() < 0.14:
            return [self._mark(cluster.rm_id, site)]
        message = self._chosen(cluster.rm_id, site)
        rm = cluster.rm_id if isinstance(message, ChangeConfig | ReadConfig) else ""
        return [self._to(message, Header(kind=type(message).__name__, rm=rm, partition="" if rm else site.partition))]

    def _about_hosts(self) -> Message:
        chance, host = self._rng.random(), self._rng.choice(list(self._world.hosts))
        if not self._changes or chance < 0.2:
            return ReadHosts()
        if chance < 0.3:
            return ChangeHosts(action="rebalance")
        return ChangeHosts(action="drain" if chance < 0.55 else "undrain" if chance < 0.9 else "remove", host=host)

    def _end_session(self, cluster: Cluster) -> Outgoing:
        """End the session of an RM, of which none that is connected, unless by force; or of no RM."""
        chance, rm = self._rng.random(), cluster.rm_id
        if chance < 0.1:
            return self._to(EndSession(actor=ADMIN), Header(kind=EndSession.__name__))
        begun = self._world.auditor.latest_sessions.get(rm, 0)
        self._world.changes.note_end_sent(self._next_ref, rm, begun)
        return self._to(EndSession(actor=ADMIN, force=chance < 0.25), Header(kind=EndSession.__name__, rm=rm))

    def _mark(self, rm: str, site: Site) -> Outgoing:
        """Stop or start a queue; or cordon, drain or uncordon a node."""
        rng, ref, changes = self._rng, self._next_ref, self._world.changes
        is_node = bool(site.nodes) and rng.random() < 0.6
        earlier = changes.list_names(site.partition, are_nodes=is_node) if rng.random() < AGAIN else []
        takes_back = bool(earlier) and rng.random() < 0.5
        name = rng.choice(earlier or (list(site.nodes) if is_node else QUEUES))
        message: ChangeNode | ChangeQueue
        if is_node:
            action = "uncordon" if takes_back else rng.choice(NODE_ACTIONS)
            message = ChangeNode(node_id=name, action=action, reason=ref, actor=ADMIN)
            if action == "drain":
                keys = tuple(pod.key for pod in site.pods.values() if pod.phase is Phase.BOUND and pod.node == name)
                changes.note_drain(Drain(ref, site.partition, name, self._world.rms[rm].session.session, keys))
        else:
            queue_action = "start" if takes_back else rng.choice(QUEUE_ACTIONS)
            message = ChangeQueue(queue=name, action=queue_action, reason=ref, actor=ADMIN)
        changes.note_sent(ref, site.partition, message)
        return self._to(message, Header(kind=type(message).__name__, partition=site.partition))

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

    @property
    def _next_ref(self) -> str:
        """The reference of the question that is being made."""
        return f"{self._number}-{self._asked}"

    def _to(self, message: Message, header: Header) -> Outgoing:
        ref = self._next_ref
        self.open[ref] = type(message).__name__
        asked = Header(kind=header.kind, rm=header.rm, partition=header.partition, ref=ref)
        return make_outgoing(BROKER, message, asked)
