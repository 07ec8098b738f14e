"""What is measured is what the table says."""

from pathlib import Path

import pytest

from benchmarks.recovery import NAME, Shape, measured, shapes, written
from partition_worker.engine.invariants import check
from partition_worker.journal.files import Files
from partition_worker.journal.reader import open_recovery
from partition_worker.worker import Worker

SMALL = Shape("small", nodes=10, allocations=150, applications=7, tail=40)


def test_the_journal_has_the_shape_that_was_asked_for(tmp_path: Path) -> None:
    files = Files(tmp_path, NAME)
    size, steps = written(files, SMALL)
    worker = Worker(partition=NAME, epoch=2, journalled=True)
    with open_recovery(files) as found:
        assert found.snapshot is not None
        assert len(found.snapshot) == size
        worker.recover(found.snapshot, found.steps)
    assert worker.barrier is not None
    assert worker.barrier.last - found.snapshot_number == steps >= SMALL.tail
    assert worker.partition is not None
    check(worker.partition)
    assert (len(worker.partition.fleet), worker.partition.running_allocations) == (10, 150)
    assert len(worker.partition.applications) == 7


@pytest.mark.processes
def test_a_killed_worker_is_replaced_in_each_round() -> None:
    row = measured(SMALL, rounds=2)
    assert row.shape == "small"
    assert row.seconds > 0


def test_the_usual_shapes_differ_in_what_they_say() -> None:
    assert [(one.name, one.applications, one.tail) for one in shapes(10, 150, 40)] == [
        ("snapshot only", 100, 0),
        ("snapshot and 40 steps", 100, 40),
        ("many applications", 10, 0),
    ]
