"""What is kept of what was told is what would be told anew."""

import random

import pytest

from common.families import encoded
from common.histogram import Histogram
from partition_worker.answers import figures
from partition_worker.answers.figure_memo import Memo
from partition_worker.engine.administration import NotDone
from tests.builders import nodes
from tests.properties.workload import LEAVES, TREES, Workload
from tests.trial import Trial


def told(trial: Trial, memo: Memo | None) -> bytes:
    return encoded(figures.families(trial.partition, Histogram(), trial.now, memo=memo))


@pytest.mark.parametrize("seed", range(len(TREES)))
def test_whatever_happens_the_same_is_told_as_by_somebody_who_sees_it_for_the_first_time(seed: int) -> None:
    rng = random.Random(seed)
    trial, workload, memo = Trial(TREES[seed], preemption=True), Workload(rng), Memo()
    trial.does(*workload.start())
    for _ in range(60):
        match rng.randrange(8):
            case 0:
                trial.waits(rng.choice((1.1, 31.0)))
            case 1 if trial.partition.applications:
                application = rng.choice(list(trial.partition.applications))
                try:
                    trial.moves(application, rng.choice(LEAVES))
                except NotDone:
                    trial.settles()
            case 2:
                trial.reconfigures(rng.choice(TREES))
            case _:
                trial.does(workload.next())
        if rng.random() < 0.7:
            assert told(trial, memo) == told(trial, None)


def test_what_is_as_it_was_is_not_looked_through_again() -> None:
    trial, memo = Trial(TREES[0]), Memo()
    trial.does(nodes("n1 memory=10"))
    before = memo.resources(trial.partition.tree)
    assert all(one is other for one, other in zip(memo.resources(trial.partition.tree), before, strict=True))
