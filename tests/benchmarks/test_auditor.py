"""What is measured is a whole round over what the table says."""

from benchmarks.auditor import filled, measure
from partition_worker.engine.invariants import check


def test_the_partition_has_as_many_allocations_as_asked_for() -> None:
    partition = filled(300)
    check(partition)
    assert partition.running_allocations == 300


def test_a_round_has_slices_of_which_the_share_is_taken() -> None:
    row = measure(2000)
    assert row.allocations == 2000
    assert row.slices > 1
    assert 0 < row.share < 1
