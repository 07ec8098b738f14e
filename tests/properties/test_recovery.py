"""What is recovered from the records of a partition is what it was, field by field, whatever happened before; and the
recovered partition keeps all invariants when it goes on.
"""

import os
import random
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule
from msgspec import structs

from tests.builders import PARTITION, PROVIDED_CREATE, apps, asks, config, foreign, nodes, released
from tests.invariants import check
from tests.likeness import differences
from tests.properties.searching import missed
from tests.properties.test_engine import PREEMPTING_TREES, EngineMachine
from tests.properties.test_predicates import Life
from tests.properties.workload import LEAVES, TREES, Livelier, Workload, operate
from tests.recorded import Recorded
from tests.trial import START_S, Trial
from yunishard.common.messages.rm_messages import NODE_CREATE_DRAIN, AllocationRelease, AllocationRequest
from yunishard.partition_worker.engine import durable_records
from yunishard.partition_worker.engine.durable_records import Image, Record
from yunishard.partition_worker.engine.preemption.victim_choice import apply_preemption
from yunishard.partition_worker.engine.restoring import RecordsInvalid, restore_partition
from yunishard.partition_worker.engine.state import VICTIMS_LEAVE_MAX_S, Preempt

LONG = os.environ.get("PROPERTIES") == "long"
CLUSTERS = 500 if LONG else 16
STEPS = 40


class RecordedMachine(EngineMachine):
    """One partition, and what is recovered of it from time to time."""

    made = Recorded

    @rule()
    def it_is_recovered(self) -> None:
        assert isinstance(self.partition, Recorded)
        if self.partition.image is not None:
            check(self.partition.restored())


TestRecovery = RecordedMachine.TestCase
TestRecovery.settings = settings(
    max_examples=2000 if LONG else 40,
    stateful_step_count=60 if LONG else 30,
    phases=tuple(Phase) if LONG else (Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_a_recovered_partition_has_every_field(seed: int) -> None:
    rng = random.Random(seed)
    tree, policy, now = rng.choice(TREES), rng.choice(("fair", "binpacking")), START_S
    one = Recorded(config(tree, nodes=policy), name=PARTITION, now=now)
    workload = Workload(rng, leaves=tuple(path for path in LEAVES if one.tree.find(path) is not None))
    for command in [*workload.start(), *(workload.next() for _ in range(STEPS))]:
        one.apply(command, now)
        if rng.random() < 0.1:
            operate(one, rng, now)
        for _ in range(rng.choice((0, 1, 5))):
            one.step(now, rng.choice((1, 3)))
        now += rng.choice((0.0, 0.6, 2.7, 31.0))
        one.step(now, 0)
        if rng.random() < 0.3:
            other = one.restored()
            other.step(now, rng.choice((1, 3, 100)))
            check(other)
            while not other.idle:
                other.step(now, 100)
            assert missed(other) == [], "idle, although there is something to decide"
    assert one.restorations > 0


@pytest.mark.parametrize("asks_manager", [False, True])
@pytest.mark.parametrize("seed", range(CLUSTERS // 4))
def test_a_recovered_partition_has_every_field_with_predicates(seed: int, asks_manager: bool) -> None:
    life, rng = Life(seed, asks_manager=asks_manager, made=Recorded), random.Random(seed)
    one = life.trial.partition
    assert isinstance(one, Recorded)
    for _ in range(60):
        life.happens()
        if rng.random() < 0.3:
            check(one.restored())
    life.ends()


def test_without_any_field_of_a_record_a_recovered_partition_differs() -> None:
    found: set[tuple[str, str]] = set()
    useless: set[tuple[str, str]] = set()
    for seed in range(20):
        rng, now, told = random.Random(seed), START_S, list[AllocationRelease]()
        tree = rng.choice((*TREES, *PREEMPTING_TREES))
        one = Recorded(config(tree, rules=(PROVIDED_CREATE,), quota_preemption=True), name=PARTITION, now=now)
        workload = Livelier(rng, leaves=("root.a", "root.b", "root.p.a", "root.new.x"), told=told)
        for step in [*workload.start(), *(workload.next_step() for _ in range(60))]:
            if isinstance(step, float):
                now += step
            else:
                one.apply(step, now)
            if rng.random() < 0.05:
                operate(one, rng, now)
            one.step(now, rng.choice((0, 3)))
            if rng.random() < 0.1:
                for kind, name, differs in without_each_field(one, found):
                    (found if differs else useless).add((kind, name))
    for trial in rare_trials():
        assert isinstance(trial.partition, Recorded)
        for kind, name, differs in without_each_field(trial.partition, found):
            (found if differs else useless).add((kind, name))
    assert not useless - found
    kinds = get_args(durable_records.AnyRecord)
    optional = {(one.__name__, field.name) for one in kinds for field in structs.fields(one) if not field.required}
    assert found == optional


def rare_trials() -> Iterator[Trial]:
    """Partitions with the fields that random sessions seldom have."""
    trial = Trial("root.a; root.b", made=Recorded).does(nodes("n1 memory=10"), apps("app-1 root.b tag.namespace=x"))
    known = foreign("f1 n1 memory=1").allocations[0]
    trial.does(AllocationRequest(allocations=[structs.replace(known, priority=3)]), asks("app-1 b1 memory=1"))
    trial.reconfigures("root.a")
    yield trial
    trial.partition.retire(trial.now)
    trial.partition.drain_effects()
    yield trial
    trial = Trial("root.a; root.b guaranteed=memory:4 preemption.delay=5s", made=Recorded)
    trial.does(nodes("n1 memory=4"), nodes("n2 memory=4", action=NODE_CREATE_DRAIN))
    trial.does(apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=4 victim", "app-2 b1 memory=4 preemptor"))
    yield trial.waits(9)  # it reserved the node before it preempted there
    yield trial.waits(VICTIMS_LEAVE_MAX_S)
    trial = Trial("root.a max=memory:8 quota.preemption.delay=5s", made=Recorded, quota_preemption=True)
    trial.does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=6"))
    trial.reconfigures("root.a max=memory:2 quota.preemption.delay=5s", quota_preemption=True)
    yield trial
    trial = Trial(made=Recorded).does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:6 timeout=5000"))
    trial.does(asks("app-1 p1 memory=3 group=g placeholder", "app-1 p2 memory=3 group=g placeholder"))
    yield trial.does(asks("app-1 a1 memory=3 group=g"), released("app-1 p1 type=PLACEHOLDER_REPLACED"))
    yield Trial(made=Recorded, resolver="os").does(
        apps("app-1 root.a"), asks("app-1 a1 memory=1"), released("app-1 a2")
    )
    trial = Trial("root.a guaranteed=memory:4; root.b guaranteed=memory:4", made=Recorded).does(nodes("n1 memory=5"))
    trial.does(apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=5")).takes(asks("app-2 b1 memory=4"))
    ask, victim = trial.partition.allocations["b1"], trial.partition.allocations["a1"]
    apply_preemption(trial.partition, Preempt(trial.app("app-2"), ask, trial.node("n1"), (victim,)))
    trial.partition.drain_effects()
    yield trial
    trial = Trial(made=Recorded)
    trial.partition.nodes.predicates.asks_manager = True
    yield trial.does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=1"))


def without_each_field(one: Recorded, known: set[tuple[str, str]]) -> Iterator[tuple[str, str, bool]]:
    """For each kind of records and each field with another value than its default: whether the partition differs that
    is recovered without this value.
    """
    assert one.image is not None
    everything = list(one.image)
    chosen: dict[tuple[str, str], Record] = {}
    for record in everything:
        for field in structs.fields(record):
            key = (type(record).__name__, field.name)
            if not field.required and key not in known and getattr(record, field.name) != default_of(field):
                chosen.setdefault(key, record)
    for (kind, name), record in chosen.items():
        default = next(default_of(field) for field in structs.fields(record) if field.name == name)
        image = Image()
        image.apply([structs.replace(other, **{name: default}) if other is record else other for other in everything])
        try:
            other = restore_partition(image, name=one.name, now=one.now, tuning=one.tuning)
        except RecordsInvalid:
            yield kind, name, True
        else:
            other.nodes.predicates.asks_manager = one.nodes.predicates.asks_manager
            yield kind, name, any(True for _ in differences(one, other))


def default_of(field: structs.FieldInfo) -> object:
    return field.default_factory() if callable(field.default_factory) else field.default
