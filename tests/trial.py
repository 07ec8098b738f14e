"""A trial: a partition with a clock that the test moves. Every step is checked, what is told is collected as lines.

trial = Trial("root.a max=memory:5")
trial.does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=5"))
assert trial.told() == ["node n1 accepted", "app-1 accepted", "app-1 Accepted", "app-1 Running", "a1 on n1"]
"""

from collections.abc import Callable, Mapping, Sequence

from tests.builders import PARTITION, TYPE_NAMES, config
from tests.invariants import check
from yunishard.common.config.model import PartitionConfig, PlacementRuleConfig
from yunishard.common.messages.control_messages import GroupsFound, GroupsWanted
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.rm_messages import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    EventRecord,
    PredicatesAnswered,
    PredicatesAsked,
    PreemptionVerdict,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    SyncDone,
    UpdateContainerSchedulingState,
    UpdatedApplication,
    Verdict,
)
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.effects import Effect, IgnoredRelease, LogLine, Part
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.predicates.predicate import Predicate
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.queues.tree import Settings, Tree, compare_configs

ADMIN = Actor(user="op", scheduler_admin=True)
START_S = 1_700_000_000.0
BUDGET = 7  # small and odd, so that settling takes several calls


def read_all_settings(wanted: PartitionConfig) -> dict[str, Settings]:
    """The settings of every queue of a configuration, by path."""
    return compare_configs(Tree(wanted), None, wanted.root).wanted


def line(part: Part) -> str:
    """An effect as a test reads it."""
    match part:
        case AcceptedNode():
            return f"node {part.node_id} accepted"
        case RejectedNode():
            return f"node {part.node_id} rejected: {part.reason}"
        case AcceptedApplication():
            return f"{part.application_id} accepted"
        case RejectedApplication():
            return f"{part.application_id} rejected: {part.reason}"
        case UpdatedApplication():
            return f"{part.application_id} {part.state}"
        case Allocation():
            return f"{part.allocation_key} on {part.node_id}"
        case AllocationRelease():
            return f"{part.allocation_key} released ({TYPE_NAMES[part.termination_type]}: {part.message})"
        case RejectedAllocation():
            return f"{part.allocation_key} rejected: {part.reason}"
        case GroupsWanted():
            return f"the groups of {part.user} are wanted"
        case PredicatesAsked():
            pairs = [f"{one.allocation_key} run on {one.node_id}" for one in part.asked]
            pairs += [
                f"{one.allocation_key} run on {one.node_id} without {' '.join(one.preempt_allocation_keys)} "
                f"from {one.start_index}"
                for one in part.preemptions
            ]
            return "may " + ", ".join(pairs) + "?"
        case EventRecord():
            return f"event about {part.object_id}: {part.message}"
        case UpdateContainerSchedulingState():
            return f"{part.allocation_key} waits for a larger cluster"
        case SyncDone(problem=problem) if problem:
            return f"not in sync: {problem}"
        case SyncDone():
            return f"in sync without {' '.join([*part.nodes, *part.applications, *part.allocations]) or 'loss'}"
        case LogLine() | IgnoredRelease():
            return f"note: {part.text}"


class Trial:
    """One partition, its time, and what it told; its books are checked after every step."""

    made: type[Partition] = Partition
    """The class of partitions; the tests of the engine record theirs."""

    def __init__(
        self,
        queues: str = "root.a",
        *,
        nodes: str = "fair",
        weights: Mapping[str, float] | None = None,
        rules: tuple[PlacementRuleConfig, ...] = (),
        resolver: str = "",
        preemption: bool | None = None,
        quota_preemption: bool | None = None,
        plugins: Sequence[Predicate] = (),
        made: type[Partition] | None = None,
    ) -> None:
        self.now = START_S
        wanted = config(
            queues,
            nodes=nodes,
            weights=weights,
            rules=rules,
            resolver=resolver,
            preemption=preemption,
            quota_preemption=quota_preemption,
        )
        self.partition = (made or self.made)(wanted, name=PARTITION, now=self.now, plugins=plugins)
        self.effects: list[Effect] = []
        self._read = 0

    # Steps ----------------------------------------------------------------------------------------------------------

    def does(self, *commands: Command) -> "Trial":
        """Take commands, and after each of them make every decision that can be made."""
        for command in commands:
            self.takes(command).settles()
        return self

    def takes(self, *commands: Command) -> "Trial":
        """Take commands and decide nothing."""
        for command in commands:
            self._step(self.partition.apply(command, self.now))
        return self

    def reconfigures(
        self,
        queues: str,
        *,
        nodes: str = "",
        weights: Mapping[str, float] | None = None,
        rules: tuple[PlacementRuleConfig, ...] | None = None,
        quota_preemption: bool | None = None,
    ) -> "Trial":
        """Take another configuration, and make every decision that can be made then; what is not said stays."""
        now = self.partition.config
        wanted = config(
            queues,
            nodes=nodes or now.node_sort_policy.type,
            weights=now.node_sort_policy.resource_weights if weights is None else weights,
            rules=now.placement_rules if rules is None else rules,
            quota_preemption=now.preemption.quota_preemption_enabled if quota_preemption is None else quota_preemption,
        )
        assert self.partition.objections(wanted) == []
        self._step(self.partition.reconfigure(wanted, self.now))
        self.settles()
        return self

    def finds(self, user: str, *groups: str, problem: str = "") -> "Trial":
        """Let a look-up end."""
        self._step(self.partition.apply_groups(GroupsFound(user=user, groups=list(groups), problem=problem), self.now))
        self.settles()
        return self

    def answers(
        self, *refusals: str, question: PredicatesAsked | None = None, needed: Mapping[str, int] | None = None
    ) -> "Trial":
        """Let the RM answer what it was asked last: everything may run but `a1 on n1: why not`. Of the victims for an
        ask, those go that have to, or up to an index by `needed`, by node.
        """
        asked = question or self.asked[-1]
        reasons = dict(one.split(": ") for one in refusals)
        verdicts = [
            Verdict(
                allocation_key=one.allocation_key,
                node_id=one.node_id,
                allocate=one.allocate,
                refusal=reasons.get(f"{one.allocation_key} on {one.node_id}", ""),
            )
            for one in asked.asked
        ]
        preemptions = [
            PreemptionVerdict(
                allocation_key=one.allocation_key,
                node_id=one.node_id,
                index=(needed or {}).get(one.node_id, one.start_index),
                refusal=reasons.get(f"{one.allocation_key} on {one.node_id}", ""),
            )
            for one in asked.preemptions
        ]
        answered = PredicatesAnswered(question=asked.question, verdicts=verdicts, preemptions=preemptions)
        self._step(self.partition.apply_verdicts(answered, self.now))
        self.settles()
        return self

    @property
    def asked(self) -> list[PredicatesAsked]:
        """All that the RM was asked."""
        return [effect.part for effect in self.effects if isinstance(effect.part, PredicatesAsked)]

    def kills(self, application_id: str, by: Actor = ADMIN) -> "Trial":
        """Let somebody kill an application. Raises NotDone, after a look at the books."""
        return self._acts(lambda: self.partition.kill(application_id, by, self.now))

    def moves(self, application_id: str, queue: str, by: Actor = ADMIN) -> "Trial":
        """Let somebody move an application. Raises NotDone, after a look at the books."""
        return self._acts(lambda: self.partition.move(application_id, queue, by, self.now))

    def stops(self, queue: str, reason: str = "", by: Actor = ADMIN) -> "Trial":
        """Let somebody stop a queue. Raises NotDone, after a look at the books; so do the next ones."""
        return self._acts(lambda: self.partition.stop_queue(queue, reason, by, self.now))

    def starts(self, queue: str, by: Actor = ADMIN) -> "Trial":
        return self._acts(lambda: self.partition.start_queue(queue, by, self.now))

    def cordons(self, node: str, reason: str = "") -> "Trial":
        return self._acts(lambda: self.partition.cordon_node(node, reason, ADMIN, self.now))

    def uncordons(self, node: str) -> "Trial":
        return self._acts(lambda: self.partition.uncordon_node(node, ADMIN, self.now))

    def drains(self, node: str, reason: str = "") -> "Trial":
        return self._acts(lambda: self.partition.drain_node(node, reason, ADMIN, self.now))

    def _acts(self, action: Callable[[], list[Effect]]) -> "Trial":
        try:
            self._step(action())
        except NotDone:
            self._step([])
            raise
        self.settles()
        return self

    def settles(self) -> None:
        while not self.partition.idle:
            self._step(self.partition.step(self.now, BUDGET))

    def decides(self) -> list[str]:
        """Make one decision; what was allocated, as lines."""
        self._step(self.partition.step(self.now, 1))
        return [text for text in self.told() if " on " in text]

    def attends(self) -> None:
        """Fire the timers that are due, and decide nothing."""
        self._step(self.partition.step(self.now, 0))

    def waits(self, seconds: float) -> "Trial":
        """Let time pass, with every timer at its own moment, and decide whatever can be decided then."""
        until = self.now + seconds
        while self.partition.next_timer <= until:
            assert self.partition.next_timer < NEVER
            self.now = max(self.now, self.partition.next_timer)
            due = self.partition.next_change <= self.now
            self._step(self.partition.step(self.now, 0) if due else self.partition.audit(self.now))
            self.settles()
        self.now = until
        self.settles()
        return self

    def _step(self, effects: list[Effect]) -> None:
        self.effects += effects
        check(self.partition)

    # What came of it ------------------------------------------------------------------------------------------------

    def told(self) -> list[str]:
        """What was told since this was last asked, without what is told to make the cluster larger, and without the
        summaries of applications.
        """
        lines = [line(part) for part in self._new() if not isinstance(part, UpdateContainerSchedulingState)]
        return [text for text in lines if not text.startswith("note: summary of application")]

    def scale_ups(self) -> list[str]:
        """Of what was told since this was last asked the asks that only a larger cluster would help."""
        return [part.allocation_key for part in self._new() if isinstance(part, UpdateContainerSchedulingState)]

    def _new(self) -> list[Part]:
        new = self.effects[self._read :]
        self._read = len(self.effects)
        return [effect.part for effect in new]

    def placed(self) -> list[str]:
        """As `told`, but only what runs on a node now."""
        return [text for text in self.told() if " on " in text and not text.startswith("note")]

    def app(self, application_id: str) -> Application:
        return self.partition.applications[application_id]

    def node(self, node_id: str) -> Node:
        node = self.partition.nodes.get(node_id)
        assert node is not None, node_id
        return node

    def queue(self, path: str) -> Queue:
        queue = self.partition.tree.find(path)
        assert queue is not None, path
        return queue

    @property
    def running(self) -> list[str]:
        """What runs, as `key on node`, in the order of keys."""
        return sorted(f"{key} on {one.node_id}" for key, one in self.partition.allocations.items() if one.node_id)
