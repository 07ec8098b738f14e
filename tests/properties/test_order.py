"""The engine makes the decisions, one by one, that a plain scheduler makes which sorts everything every time."""

import random

import pytest

from tests.builders import apps, config
from tests.properties.plain_scheduler import PlainScheduler
from tests.properties.workload import LEAVES, TREES, Workload
from tests.trial import Trial

CLUSTERS_PER_TEST = 15
STEPS = 25


def agree(seed: int) -> int:
    """Play one cluster with both; how many decisions they agreed on."""
    rng = random.Random(seed)
    tree, policy = rng.choice(TREES), rng.choice(("fair", "binpacking"))
    trial = Trial(tree, nodes=policy)
    plain = PlainScheduler(config(tree).root, policy=policy)
    leaves = tuple(path for path in LEAVES if trial.partition.tree.find(path) is not None)
    workload = Workload(rng, leaves=leaves, tame=True)
    decisions = 0
    for command in [*workload.start(), *(workload.next() for _ in range(STEPS))]:
        trial.takes(command)
        plain.apply(command)
        for _ in range(rng.choice((0, 0, 1, 3, 100))):  # now and then asks pile up
            trial.told()
            expected = plain.decide()
            wanted = [f"{expected[0]} on {expected[1]}"] if expected else []
            assert trial.decides() == wanted, f"seed {seed}, decision {decisions}, after {command}"
            decisions += 1
            if expected is None:
                break
    return decisions


@pytest.mark.parametrize("first", range(0, 300, CLUSTERS_PER_TEST))
def test_engine_and_plain_scheduler_decide_the_same(first: int) -> None:
    decisions = sum(agree(seed) for seed in range(first, first + CLUSTERS_PER_TEST))
    assert decisions > CLUSTERS_PER_TEST, "the generated clusters decide something"


def test_the_plain_scheduler_can_tell_a_difference() -> None:
    plain = PlainScheduler(config("root.a").root, policy="fair")
    plain.apply(apps("app-1 root.a"))
    assert plain.decide() is None
    assert not plain.apps["app-1"].asks
