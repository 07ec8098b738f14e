"""A plan says what then happens: each change is made for real on a twin of a generated cluster, and the report matches.

The twin is built from the same seed, gets the change as its RM or an operator would make it, and is played by the RM of
`virtual_time.py`; what is expected is read from the twin itself.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from tests.builders import apps, ask, nodes
from tests.invariants import check
from tests.properties.remedying import change_queue
from tests.properties.test_remedies import cluster
from tests.trial import ADMIN
from yunishard.common.config.model import PartitionConfig, QueueConfig
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION
from yunishard.common.rest.plan import (
    RUN_TIME_TAG,
    ConfigChange,
    NewJob,
    NewNodes,
    NodeDrain,
    NodeRemoval,
    PlanOrder,
    PlanView,
)
from yunishard.common.rm_player import Eviction, Observer, Submission, Task, task_name
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.plan_views import build_plan_view
from yunishard.partition_worker.planning import play
from yunishard.partition_worker.virtual_time import VirtualTime

LONG = os.environ.get("PROPERTIES") == "long"
CLUSTERS = 1000 if LONG else 50
HORIZON_S = 1800.0
RUN_TIMES = {"": None, "40s": 40.0, "5m": 300.0, "1h30m": 5400.0, "soon": None}
"""The tag, and the seconds that it stands for."""


def estimated_cluster(seed: int) -> Partition:
    """A generated cluster; some of its asks and allocations have an estimate of their run time, some a wrong one."""
    one, rng = cluster(seed), random.Random(f"run times {seed}")
    for known in one.allocations.values():
        tag = rng.choice(list(RUN_TIMES))
        if tag:
            known.tags = {**known.tags, RUN_TIME_TAG: tag}
    return one


# What then happens ----------------------------------------------------------------------------------------------------


@dataclass
class Seen(Observer):
    """What the twin's RM saw."""

    starts: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    """By application and name of the task: when and where it ran first."""
    evictions: list[tuple[str, str, float]] = field(default_factory=list)
    ends: int = 0
    rejections: int = 0
    known: set[str] = field(default_factory=set)
    """Tasks that have run."""

    def started(self, key: str, application_id: str, node_id: str, at: float) -> None:
        if task_name(key) not in self.known:
            self.starts[application_id, key] = (at, node_id)
        self.known.add(task_name(key))

    def ended(self, key: str, application_id: str, at: float) -> None:
        self.ends += 1

    def evicted(self, eviction: Eviction, at: float) -> None:
        self.known.add(task_name(eviction.key))
        self.evictions.append((eviction.application_id, eviction.key, at))

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        self.rejections += 1


class Twin:
    """A cluster to which a change really happens."""

    def __init__(self, seed: int) -> None:
        self.partition = estimated_cluster(seed)
        self.seen = Seen()
        self.began = self.partition.now
        self.time = VirtualTime(self.partition, self.seen, now=self.began)
        for key, known in tuple(self.partition.allocations.items()):
            if key not in self.time.tasks or known.placeholder:
                continue
            run_s = RUN_TIMES[known.tags.get(RUN_TIME_TAG, "")]
            self.time.tasks[key].run_s = run_s
            since = (known.bound_ns or known.created_ns) / 1e9 or self.began
            if run_s is not None and self.time.tasks[key].node_id and since + run_s > self.began:
                self.time.end_at(key, since + run_s)

    def pass_time(self) -> None:
        self.time.run(until=self.began)
        check(self.partition)
        self.time.run(until=self.began + HORIZON_S)
        check(self.partition)

    def waiting(self) -> dict[str, int]:
        return {name: len(one.requests) for name, one in self.partition.applications.items() if one.requests}


Change = Callable[[Twin], None]
"""Makes a change for real."""


def lower_maximum(one: Partition, rng: random.Random) -> PartitionConfig:
    """A configuration in which a leaf may use little."""

    def lower(queue: QueueConfig) -> QueueConfig:
        return replace(queue, resources=replace(queue.resources, max={"memory": str(rng.randrange(1, 9))}))

    leaves = [queue.path for queue in one.tree if queue.leaf and queue.managed]
    return change_queue(one.config, rng.choice(leaves), lower)


def choose_change(seed: int) -> tuple[PlanOrder, Change]:
    """A change: what is planned, and what makes it for real."""
    rng, sample = random.Random(f"change {seed}"), estimated_cluster(seed)
    node = rng.choice([one.node_id for one in sample.nodes])
    leaf = rng.choice([queue.path for queue in sample.tree if queue.leaf and queue.managed])
    match seed % 6:
        case 0:
            return PlanOrder([NodeDrain(node)], HORIZON_S), lambda twin: twin.time.act(
                lambda: twin.partition.drain_node(node, "for repair", ADMIN, twin.began)
            )
        case 1:
            return PlanOrder([NodeRemoval(node)], HORIZON_S), lambda twin: twin.time.act(
                lambda: twin.partition.apply(nodes(node, action=NODE_DECOMMISSION), twin.began)
            )
        case 2:
            size = {"memory": rng.choice((8, 20)), "gpu": 2}
            text = f"memory={size['memory']} gpu=2"
            return PlanOrder([NewNodes(2, size, {})], HORIZON_S), lambda twin: twin.time.act(
                lambda: twin.partition.apply(nodes(f"planned-1 {text}", f"planned-2 {text}"), twin.began)
            )
        case 3:
            wanted = lower_maximum(sample, rng)
            assert not sample.objections(wanted)
            return PlanOrder([ConfigChange(wanted, "other limits")], HORIZON_S), lambda twin: twin.time.act(
                lambda: twin.partition.reconfigure(wanted, twin.began)
            )
        case 4:
            job = NewJob("new", leaf, "bob", ["dev"], {RUN_TIME_TAG: "2m"}, {}, {"memory": 3}, 3, None, 0, False)
            tasks = tuple(Task(ask(f"new new-{number} memory=3"), 120.0) for number in (1, 2, 3))
            submission = apps(f"new {leaf} user=bob groups=dev tag.{RUN_TIME_TAG}=2m").new[0]
            return PlanOrder([job], HORIZON_S), lambda twin: twin.time.schedule(
                twin.began, lambda: Submission(submission, tasks)
            )
        case _:
            return PlanOrder([], HORIZON_S), lambda twin: None


# The property ---------------------------------------------------------------------------------------------------------


def plan(seed: int, order: PlanOrder) -> PlanView:
    baseline, planned = estimated_cluster(seed), estimated_cluster(seed)
    without = play(baseline, PlanOrder([], order.horizon_s), now=baseline.now)
    course = play(planned, order, now=planned.now)
    check(planned)
    return build_plan_view(planned, order, without, course, name="default")


def is_ready(one: Partition) -> bool:
    return one.report is None and not one.pending_submissions.running_count and len(list(one.nodes)) > 0


@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_a_plan_is_what_then_happens(seed: int) -> None:
    if not is_ready(estimated_cluster(seed)):
        return
    order, change = choose_change(seed)
    view = plan(seed, order)
    twin = Twin(seed)
    change(twin)
    twin.pass_time()
    seen = twin.seen
    assert {(one.application, one.ask): (one.at, one.node) for one in view.asks if one.at} == {
        task: (round(at * 1e9), node) for task, (at, node) in seen.starts.items()
    }
    assert Counter((one.application, one.allocation, one.at) for one in view.evictions) == Counter(
        (application, key, round(at * 1e9)) for application, key, at in seen.evictions
    )
    assert {one.application: one.waiting for one in view.applications if one.waiting} == twin.waiting()
    assert {one.resource: one.used for one in view.utilisation if one.used} == {
        kind: amount for kind, amount in twin.partition.tree.root.allocated.items() if amount
    }
    assert (view.planned.ended, view.planned.rejected) == (seen.ends, seen.rejections)
    assert view.planned.running == twin.partition.running_allocations
    over = {(one.queue, one.resource): one.used_at_end for one in view.excesses if not (one.user or one.group)}
    assert {place: used for place, used in over.items() if used and place[1]} == {
        (queue.path, kind): queue.allocated[kind]
        for queue in twin.partition.tree
        if queue.parent is not None
        for kind, most in (queue.maximum or {}).items()
        if queue.allocated.get(kind, 0) > most
    }


@pytest.mark.parametrize("seed", range(0, CLUSTERS, 5))
def test_a_plan_without_a_change_is_its_own_baseline(seed: int) -> None:
    if not is_ready(estimated_cluster(seed)):
        return
    view = plan(seed, PlanOrder([], HORIZON_S))
    assert view.planned == view.baseline
    assert all(one.at == one.at_baseline and one.node == one.node_baseline for one in view.asks)
    assert all(one.in_baseline for one in view.evictions)
    assert not any(one.is_new for one in view.excesses)
