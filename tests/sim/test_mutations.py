"""The simulation is worth something only if it finds what is wrong: each deliberate defect, within DEADLINE seeds."""

import pytest

from tests.sim.mutations import DEFECTS, Defect, injected
from tests.sim.running import run

DEADLINE = 200


def seeds_until_found(defect: Defect) -> int:
    """How many seeds it takes; 0 if it is never found."""
    with injected(defect):
        for seed in range(1, DEADLINE + 1):
            problem = run(seed).problem
            assert "TypeError" not in problem, problem  # that is a method which the defect does not fit any more
            if problem:
                return seed
    return 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: str(defect.__name__))
def test_a_defect_is_found(defect: Defect) -> None:
    assert seeds_until_found(defect)
