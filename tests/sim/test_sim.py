import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim import coverage
from tests.sim.running import run, run_many

SEEDS = 40
SEEDS_FEW = 20
"""The first of them, which `make test` runs."""

FIRST = 1
"""Always the same seeds: what passes here passes everywhere. `make sim` runs many more."""


@pytest.mark.timeout(300)
def test_a_few_seeds_find_nothing_wrong() -> None:
    assert [one.report for one in run_many(FIRST, SEEDS_FEW, processes=1) if one.problem] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_wrong_is_ever_heard_and_everything_converges() -> None:
    failed: list[str] = []
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for outcome in run_many(FIRST + SEEDS_FEW, SEEDS - SEEDS_FEW, processes=os.cpu_count() or 1):
        if outcome.problem:
            failed.append(outcome.report)
        kinds.update(outcome.kinds)
        faults.update(outcome.faults)
    assert not failed, f"{len(failed)} seeds failed; the first one:\n{failed[0]}"
    assert not coverage.missing(kinds, faults)


def test_the_same_seed_tells_the_same_story_in_every_process() -> None:
    program = "from tests.sim.running import run; print(run(3).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {run(3).digest + "\n"}


def test_another_seed_tells_another_story() -> None:
    assert run(3).digest != run(4).digest
