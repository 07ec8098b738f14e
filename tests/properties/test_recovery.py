"""What is recovered from the records of a partition is what it was, field by field, whatever happened before; and the
recovered partition keeps all invariants when it goes on.
"""

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule

from tests.builders import PARTITION, config
from tests.invariants import check
from tests.properties.test_engine import EngineMachine
from tests.properties.test_predicates import Life
from tests.properties.workload import LEAVES, TREES, Workload
from tests.recorded import Recorded
from tests.trial import START_S

LONG = os.environ.get("PROPERTIES") == "long"
CLUSTERS = 500 if LONG else 25
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
    max_examples=2000 if LONG else 60,
    stateful_step_count=60 if LONG else 30,
    derandomize=not LONG,
    database=None,
    deadline=None,
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
        for _ in range(rng.choice((0, 1, 5))):
            one.step(now, rng.choice((1, 3)))
        now += rng.choice((0.0, 0.6, 2.7, 31.0))
        one.step(now, 0)
        if rng.random() < 0.3:
            other = one.restored()
            other.step(now, rng.choice((1, 3, 100)))
            check(other)
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
