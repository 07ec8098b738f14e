"""Worlds with a database and several hosts. Not here: worlds with files (`test_sim.py`)."""

import os
from collections import Counter

import pytest

from tests.sim import coverage
from tests.sim.cluster_defects import DEFECTS
from tests.sim.mutations import Defect
from tests.sim.running import Outcome, run_many
from tests.sim.test_mutations import seeds_until_found

SEEDS = 12
SEEDS_FEW = 4
"""The first of them, which `make test` runs."""


@pytest.fixture(scope="module")
def few() -> list[Outcome]:
    return list(run_many(1, SEEDS_FEW, processes=1, cluster=True))


def test_a_few_clusters_find_nothing_wrong(few: list[Outcome]) -> None:
    assert [one.report for one in few if one.problem] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_wrong_is_ever_heard_of_a_cluster_and_everything_converges(few: list[Outcome]) -> None:
    failed: list[str] = []
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    first, count = 1 + SEEDS_FEW, SEEDS - SEEDS_FEW
    for outcome in [*few, *run_many(first, count, processes=os.cpu_count() or 1, cluster=True)]:
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
    assert seeds_until_found(defect, cluster=True, traits=DEFECTS[defect])
