"""Worlds with a database and several hosts. Not here: worlds with files (`test_sim.py`)."""

import os
from collections import Counter

import pytest

from tests.sim import coverage
from tests.sim.cluster_defects import DEFECTS
from tests.sim.mutations import Defect, injected
from tests.sim.running import run, run_many

SEEDS = 25
SEEDS_FEW = 4
"""The first of them, which `make test` runs."""

DEADLINE = 60

FIRST_SEEDS = {
    "guess_that_it_was_committed": 9,
    "ignore_lost_links": 2,
    "lead_after_the_lease": 21,
    "lease_by_the_clock_of_the_host": 5,
    "omit_the_epoch": 63,
}
"""Where to begin with a defect that earlier seeds are known not to find; the others begin with 1."""


def test_a_few_clusters_find_nothing_wrong() -> None:
    assert [one.report for one in run_many(1, SEEDS_FEW, processes=1, cluster=True) if one.problem] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_wrong_is_ever_heard_of_a_cluster_and_everything_converges() -> None:
    failed: list[str] = []
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    first, count = 1 + SEEDS_FEW, SEEDS - SEEDS_FEW
    for outcome in run_many(first, count, processes=os.cpu_count() or 1, cluster=True):
        if outcome.problem:
            failed.append(outcome.report)
        kinds.update(outcome.kinds)
        faults.update(outcome.faults)
    assert not failed, f"{len(failed)} seeds failed; the first one:\n{failed[0]}"
    assert [one for one in coverage.missing(kinds, faults, cluster=True) if one.startswith("fault")] == []


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: str(defect.__name__))
def test_a_defect_of_a_cluster_is_found(defect: Defect) -> None:
    first = FIRST_SEEDS.get(str(defect.__name__), 1)
    with injected(defect):
        problems = (run(seed, cluster=True).problem for seed in range(first, first + DEADLINE))
        problem = next((one for one in problems if one), "")
    assert problem
    assert "Error:" not in problem, problem  # it does not fit any more
