import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim import coverage
from tests.sim.running import Outcome, run_many

SEEDS = 30
SEEDS_FEW = 20
"""The first of them, which `make test` runs."""

FIRST = 1
"""Always the same seeds: what passes here passes everywhere. `make sim` runs many more."""


@pytest.fixture(scope="module")
def few() -> list[Outcome]:
    return list(run_many(FIRST, SEEDS_FEW, processes=1))


@pytest.mark.timeout(300)
def test_a_few_seeds_find_nothing_wrong(few: list[Outcome]) -> None:
    assert [one.report for one in few if one.problem] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_wrong_is_ever_heard_and_everything_converges(few: list[Outcome]) -> None:
    failed: list[str] = []
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for outcome in [*few, *run_many(FIRST + SEEDS_FEW, SEEDS - SEEDS_FEW, processes=os.cpu_count() or 1)]:
        if outcome.problem:
            failed.append(outcome.report)
        kinds.update(outcome.kinds)
        faults.update(outcome.faults)
    assert not failed, f"{len(failed)} seeds failed; the first one:\n{failed[0]}"
    assert not coverage.missing(kinds, faults)


def test_the_same_seed_tells_the_same_story_in_a_process_with_other_hashes(few: list[Outcome]) -> None:
    program = f"from tests.sim.running import run; print(run({FIRST}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert told.stdout == few[0].digest + "\n"


def test_another_seed_tells_another_story(few: list[Outcome]) -> None:
    assert len({one.digest for one in few}) == SEEDS_FEW
