"""The simulation is worth something only if it finds what is wrong: each deliberate defect, within so many seeds."""

import pytest

from tests.sim.faults import ANY, Traits
from tests.sim.mutations import DEFECTS, Defect, injected
from tests.sim.running import run

DEADLINE = 100
"""Seeds. Other seeds find a defect when something else changes the course of the worlds, so most need only a few: see
the traits of a defect that `pytest --durations` shows to take many.
"""


def seeds_until_found(defect: Defect, *, compares: bool = True, cluster: bool = False, traits: Traits = ANY) -> int:
    """How many seeds it takes; 0 if DEADLINE are not enough."""
    with injected(defect):
        for seed in range(1, DEADLINE + 1):
            problem = run(seed, compares=compares, cluster=cluster, traits=traits).problem
            unfit = any(error in problem for error in ("TypeError", "AttributeError"))
            assert not unfit, problem  # that is a method which the defect does not fit any more
            if problem:
                return seed
    return 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: str(defect.__name__))
def test_a_defect_is_found(defect: Defect) -> None:
    assert seeds_until_found(defect, traits=DEFECTS[defect])
