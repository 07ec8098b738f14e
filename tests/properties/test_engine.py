"""Whatever a resource manager sends, in whatever order: the books agree, limits hold, and no ask is lost.

`make test` plays the same examples each time; PROPERTIES=long plays many more, other ones each time, and looks for the
simplest that fails, which takes minutes.
"""

import contextlib
import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.builders import PARTITION, PROVIDED_CREATE, apps, asks, config, foreign, gone, nodes, released
from tests.invariants import check
from tests.properties.searching import bounds, missed
from tests.properties.workload import NODE_ACTS, QUEUE_ACTIONS, TREES, change_node, change_queue
from tests.trial import ADMIN
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.query_messages import NodeAction, QueueAction
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    Allocation,
)
from yunishard.common.resources import is_zero
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.partition import Partition

LONG = os.environ.get("PROPERTIES") == "long"

OTHER_TREES = (
    "root.a.x max=memory:8; root.b application.sort.policy=fair; root.p maxapps=1",
    "root.p.a.z; root.new.x max=memory:8; root.new.y guaranteed=memory:4; root.a parent template.max=memory:6",
    """root limit.group.ops=memory:12 limit.group.*=memory:16,apps:3 limit.user.*=memory:12; root.b;
       root.p limit.user.eve=apps:1 limit.group.dev=memory:8; root.a.x limit.user.bob=memory:4""",
)
"""What a partition may come to: leaves that were parents and the other way, dynamic queues that are configured now."""

WHO = st.sampled_from(["user=bob", "user=eve", "user=bob groups=ops,dev", "user=eve groups=dev", "user=ann groups=ops"])
PREEMPTING_TREES = (
    """root.a preemption.delay=1s guaranteed=memory:8; root.b preemption.delay=1s guaranteed=memory:8;
       root.p.a preemption.delay=1s guaranteed=gpu:2 priority.offset=1; root.p.b preemption.delay=1s""",
    """root.p max=memory:16 quota.preemption.delay=5s; root.p.a guaranteed=memory:6 preemption.delay=1s;
       root.p.b preemption.delay=1s max=memory:8; root.a preemption.policy=fence; root.b guaranteed=memory:9,gpu:1""",
    """root.p max=memory:7 quota.preemption.delay=5s; root.p.a guaranteed=memory:6 preemption.delay=1s;
       root.p.b preemption.delay=1s max=memory:4; root.a preemption.policy=fence; root.b guaranteed=memory:9,gpu:1""",
)
"""Queues that take from each other; the last is the second with less."""

LEAVES = ("root.a", "root.b", "root.p.a", "root.p.b", "root.a.x", "root.new.x", "root.new.y")
"""Created if they are not configured."""

NODES = st.sampled_from([f"n{number}" for number in range(3)])
APPS = st.sampled_from([f"app-{number}" for number in range(5)])
NUMBERS = st.integers(0, 8)
NODE_ACTIONS = (
    *(NODE_CREATE, NODE_CREATE, NODE_CREATE_DRAIN, NODE_UPDATE, NODE_UPDATE),
    *(NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE, NODE_DRAIN_TO_SCHEDULABLE, NODE_DECOMMISSION),
)
FOREIGN = st.sampled_from(["f0", "f1"])
AMOUNTS = st.sampled_from(["memory=2", "memory=3", "memory=4 gpu=1", "memory=8", "memory=8", "gpu=1", "memory=25"])
CAPACITIES = st.sampled_from(["memory=10", "memory=5 gpu=2", "memory=10 gpu=1", "memory=30 gpu=3"])
DETAILS = st.sampled_from(
    [
        *("", "", "", "priority=2", "priority=-1", "created=100", "required=n0", "required=n1"),
        *("placeholder group=g", "placeholder group=g", "placeholder group=h priority=2"),
        *("group=g", "group=g", "group=h", "group=g priority=1"),
        *("victim", "victim preemptor", "victim preemptor priority=3", "originator", "preemptor created=100"),
        *("tag.yunishard/forbiddenNodes=n0", "tag.yunishard/forbiddenNodes=n1,n2 created=100"),
    ]
)
GANGS = st.sampled_from(["", "", "gang=memory:4 timeout=8000", "gang=memory:6 style=Hard timeout=8000"])
TYPES = st.sampled_from(
    [
        *("STOPPED_BY_RM", "UNKNOWN_TERMINATION", "TIMEOUT", "PREEMPTED_BY_SCHEDULER"),
        *("PLACEHOLDER_REPLACED", "SCHEDULING_FAILED_ON_RM"),
    ]
)
ONE_ASK = st.tuples(NUMBERS, AMOUNTS, DETAILS)


def key_of(app: str, number: int) -> str:
    """A key of this application, or one that all of them use."""
    return f"{app}-{number}" if number else "shared"


class EngineMachine(RuleBasedStateMachine):
    """One partition, one resource manager that does anything."""

    made: type[Partition] = Partition

    @initialize(
        tree=st.sampled_from((*TREES, *PREEMPTING_TREES)),
        policy=st.sampled_from(["fair", "binpacking"]),
        capacities=st.lists(CAPACITIES, min_size=1, max_size=3),
        leaves=st.lists(st.tuples(st.sampled_from(LEAVES), WHO), min_size=3, max_size=5),
        wanted=st.lists(ONE_ASK, min_size=3, max_size=6),
        eager=st.booleans(),
    )
    def begin(
        self,
        tree: str,
        policy: str,
        capacities: list[str],
        leaves: list[tuple[str, str]],
        wanted: list[tuple[int, str, str]],
        eager: bool,
    ) -> None:
        """`eager` decides after every command, so that it meets asks that have been tried in vain."""
        self.now = 1_700_000_000.0
        wanted_queues = config(tree, nodes=policy, rules=(PROVIDED_CREATE,), quota_preemption=True)
        self.partition = self.made(wanted_queues, name=PARTITION, now=self.now)
        self.eager = eager
        self.apply(nodes(*(f"n{number} {capacity}" for number, capacity in enumerate(capacities))))
        self.apply(apps(*(f"app-{number} {leaf} {who}" for number, (leaf, who) in enumerate(leaves))))
        for app in tuple(self.partition.applications):
            self.apply(asks(*(f"{app} {key_of(app, number)} {amount} {more}" for number, amount, more in wanted)))

    def apply(self, command: Command) -> None:
        self.partition.apply(command, self.now)
        if self.eager:
            check(self.partition)
            self.everything_is_decided()

    # What an RM does ------------------------------------------------------------------------------------------------

    @rule(node=NODES, capacity=CAPACITIES, action=st.sampled_from(NODE_ACTIONS))
    def node_comes_changes_or_goes(self, node: str, capacity: str, action: int) -> None:
        self.apply(nodes(f"{node} {capacity}", action=action))

    @rule(app=APPS, leaf=st.sampled_from(LEAVES), who=WHO, gang=GANGS)
    def application_comes(self, app: str, leaf: str, who: str, gang: str) -> None:
        self.apply(apps(f"{app} {leaf} {who} {gang}"))

    @precondition(lambda self: self.partition.applications)
    @rule(data=st.data(), wanted=st.lists(ONE_ASK, min_size=1, max_size=6))
    def application_asks(self, data: st.DataObject, wanted: list[tuple[int, str, str]]) -> None:
        app = data.draw(st.sampled_from(list(self.partition.applications)))
        self.apply(asks(*(f"{app} {key_of(app, number)} {amount} {more}" for number, amount, more in wanted)))

    @rule(app=APPS, number=NUMBERS, amount=AMOUNTS, node=NODES)
    def allocation_is_reported(self, app: str, number: int, amount: str, node: str) -> None:
        self.apply(asks(f"{app} {key_of(app, number)} {amount} on={node}"))

    @precondition(lambda self: self.partition.allocations)
    @rule(data=st.data(), amount=AMOUNTS)
    def something_is_resized(self, data: st.DataObject, amount: str) -> None:
        self.apply(asks(f"{self.known(data)} {amount}"))

    @precondition(lambda self: self.partition.running_allocations)
    @rule(data=st.data(), kind=TYPES)
    def something_is_released(self, data: st.DataObject, kind: str) -> None:
        self.apply(released(f"{self.known(data)} type={kind}"))

    @precondition(lambda self: self.asked_to_go())
    @rule(data=st.data())
    def something_is_let_go(self, data: st.DataObject) -> None:
        """As the RM was asked to."""
        key, kind = data.draw(st.sampled_from(self.asked_to_go()))
        self.apply(released(f"{key} type={kind}"))

    @rule(app=APPS, entirely=st.booleans())
    def application_ends(self, app: str, entirely: bool) -> None:
        self.apply(gone(app) if entirely else released(app))

    @rule(key=FOREIGN, node=NODES, amount=AMOUNTS, ends=st.booleans())
    def something_foreign_runs_or_ends(self, key: str, node: str, amount: str, ends: bool) -> None:
        self.apply(released(f"- {key}") if ends else foreign(f"{key} {node} {amount}"))

    def asked_to_go(self) -> list[tuple[str, str]]:
        """What the RM was asked to let go and has not, as `application key`, and the type by which it confirms that."""
        return [
            (
                f"{application.application_id} {key}",
                "PREEMPTED_BY_SCHEDULER" if one.preempted else "PLACEHOLDER_REPLACED" if one.partner else "TIMEOUT",
            )
            for application in self.partition.applications.values()
            for key, one in application.allocations.items()
            if one.preempted or one.released
        ]

    def known(self, data: st.DataObject) -> str:
        """An ask or allocation, as `application key`."""
        one = self.partition.allocations[data.draw(st.sampled_from(list(self.partition.allocations)))]
        return f"{one.application_id} {one.key}"

    # What an operator does ------------------------------------------------------------------------------------------

    @rule(
        tree=st.sampled_from((*TREES, *OTHER_TREES, *PREEMPTING_TREES)), policy=st.sampled_from(["fair", "binpacking"])
    )
    def configuration_changes(self, tree: str, policy: str) -> None:
        wanted = config(tree, nodes=policy, rules=(PROVIDED_CREATE,), quota_preemption=True)
        assert self.partition.objections(wanted) == []
        self.partition.reconfigure(wanted, self.now)

    @precondition(lambda self: self.partition.applications)
    @rule(data=st.data())
    def application_is_killed(self, data: st.DataObject) -> None:
        self.partition.kill(data.draw(st.sampled_from(list(self.partition.applications))), ADMIN, self.now)

    @precondition(lambda self: self.partition.applications)
    @rule(data=st.data(), leaf=st.sampled_from(LEAVES))
    def application_is_moved(self, data: st.DataObject, leaf: str) -> None:
        app = data.draw(st.sampled_from(list(self.partition.applications)))
        with contextlib.suppress(NotDone):
            self.partition.move(app, leaf, ADMIN, self.now)
        self.partition.drain_effects()

    @rule(action=st.sampled_from(QUEUE_ACTIONS), queue=st.sampled_from((*LEAVES, "root.p", "root")))
    def queue_is_stopped_or_started(self, action: QueueAction, queue: str) -> None:
        change_queue(self.partition, action, queue, self.now)

    @rule(action=st.sampled_from(NODE_ACTS), node=NODES)
    def node_is_cordoned_or_drained(self, action: NodeAction, node: str) -> None:
        change_node(self.partition, action, node, self.now)

    # What the worker does -------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 2.5, 9.0, 31.0, 7300.0, 260_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.partition.step(self.now, 0)
        self.everything_is_decided()
        assert self.partition.next_timer > self.now, "what was due was done"

    @rule(budget=st.integers(min_value=1, max_value=4))
    def something_is_decided(self, budget: int) -> None:
        self.decide(budget)

    @rule()
    def everything_is_decided(self) -> None:
        while not self.partition.idle:
            self.decide(3)
        assert missed(self.partition) == [], "idle, although there is something to decide"

    def decide(self, budget: int) -> None:
        kept = {one.ask.key: one.node.node_id for one in self.partition.reservation_index.by_rank.values()}
        effects = self.partition.step(self.now, budget)
        decided = [effect.part for effect in effects if isinstance(effect.part, Allocation)]
        assert len(decided) <= budget
        for one in decided:
            self.check_within_limits(one, kept.get(one.allocation_key, ""))

    # What must hold -------------------------------------------------------------------------------------------------

    def check_within_limits(self, one: Allocation, kept: str) -> None:
        """Only decisions have been made since: none may have filled a node or a queue more than it can be. `kept` is
        the node that was kept for it.
        """
        node, application = self.partition.nodes.get(one.node_id), self.partition.applications[one.application_id]
        assert node is not None
        required = self.partition.allocations[one.allocation_key].shape.required_node
        assert node.schedulable or node.node_id in (required, kept), "a draining node takes nothing else"
        assert node.node_id not in self.partition.nodes.cordons or node.node_id == required, "nor a cordoned one"
        assert not {queue.path for queue in application.queue.ancestry()} & self.partition.tree.stops.keys()
        for kind in one.resource_per_alloc:
            assert node.available.get(kind, 0) >= 0, f"{node.node_id} has more {kind} on it than it has"
            for queue in application.queue.ancestry():
                most = (queue.maximum or {}).get(kind)
                assert most is None or queue.allocated[kind] <= most, f"{queue.path} is beyond its maximum of {kind}"
        for limit, used, *_ in bounds(self.partition, application):
            for kind, amount in one.resource_per_alloc.items():
                assert amount == 0 or used.get(kind, 0) <= limit.resources.get(kind, used.get(kind, 0)), limit

    @invariant()
    def books_agree(self) -> None:
        check(self.partition)

    @invariant()
    def timers_run_only_where_the_state_allows(self) -> None:
        for application in self.partition.applications.values():
            if "placeholders" in application.alarms:
                assert not is_zero(application.allocated_placeholder), application.application_id
        for application in self.partition.ended.values():
            assert not {"state", "placeholders"} & application.alarms.keys(), application.application_id


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(
    max_examples=2000 if LONG else 120,
    stateful_step_count=60 if LONG else 40,
    phases=tuple(Phase) if LONG else (Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
