"""A partition that is restored goes on as the one that was written would have, whatever happened before and happens
then: the same effects, for the same causes, at the same times.

`make test` plays the same histories each time; PROPERTIES=long plays many more, other ones each time.
"""

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule

from tests.builders import PARTITION, config
from tests.properties.test_engine import EngineMachine
from tests.properties.test_predicates import Life
from tests.properties.workload import LEAVES, TREES, Workload
from tests.trial import START_S
from tests.twins import Twins

LONG = os.environ.get("PROPERTIES") == "long"
CLUSTERS = 500 if LONG else 25
STEPS = 40


class ForgetfulMachine(EngineMachine):
    """One partition, beside what is restored of it."""

    made = Twins

    @rule()
    def it_is_forgotten_and_remembered(self) -> None:
        assert isinstance(self.partition, Twins)
        self.partition.remember()


TestMemory = ForgetfulMachine.TestCase
TestMemory.settings = settings(
    max_examples=2000 if LONG else 60,
    stateful_step_count=60 if LONG else 30,
    derandomize=not LONG,
    database=None,
    deadline=None,
    phases=tuple(Phase) if LONG else (Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_generated_clusters_go_on_as_before(seed: int) -> None:
    rng = random.Random(seed)
    tree, policy, now = rng.choice(TREES), rng.choice(("fair", "binpacking")), START_S
    one = Twins(config(tree, nodes=policy), name=PARTITION, now=now)
    workload = Workload(rng, leaves=tuple(path for path in LEAVES if one.tree.find(path) is not None))
    for command in [*workload.start(), *(workload.next() for _ in range(STEPS))]:
        one.apply(command, now)
        if rng.random() < 0.3:
            one.remember()
        for _ in range(rng.choice((0, 1, 5))):
            one.step(now, rng.choice((1, 3)))
        now += rng.choice((0.0, 0.6, 2.7, 31.0))
        one.step(now, 0)
    assert one.restorations > 0


@pytest.mark.parametrize("asks_manager", [False, True])
@pytest.mark.parametrize("seed", range(CLUSTERS // 4))
def test_what_is_known_about_nodes_is_known_after_a_restoration(seed: int, asks_manager: bool) -> None:
    life, rng = Life(seed, asks_manager=asks_manager, made=Twins), random.Random(seed)
    one = life.trial.partition
    assert isinstance(one, Twins)
    for _ in range(60):
        life.happens()
        if rng.random() < 0.3:
            one.remember()
    life.ends()
