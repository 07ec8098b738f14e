"""What is measured is a decision among all who could have to go."""

from benchmarks.victims import PER_NODE, crowded, measured
from partition_worker.engine.invariants import check


def test_all_nodes_are_full_of_those_who_may_have_to_go() -> None:
    partition = crowded(40)
    check(partition)
    assert partition.running_allocations == 40 * PER_NODE
    assert all(not any(node.available.values()) for node in partition.fleet)


def test_each_decision_makes_somebody_go() -> None:
    decided = measured(60)
    assert decided.candidates == 240
    assert decided.ms > 0
