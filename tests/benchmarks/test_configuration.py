"""What is measured is what the table says."""

import pytest

from benchmarks.configuration import busy, measured, text_of
from common.config.model import PartitionConfig
from common.config.validation import find_build_problems, load
from partition_worker.engine.invariants import check
from partition_worker.engine.queues.tree import Tree
from partition_worker.engine.reconfiguration import AddQueue, DrainQueue, SetQueue, compare_configs, list_changes


def of(text: str) -> PartitionConfig:
    partition = load(text).partitions[0]
    assert find_build_problems(partition) == []
    return partition


def test_the_configuration_has_about_as_many_queues_as_asked_for() -> None:
    assert len(list(Tree(of(text_of(1000))))) == 1001


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (text_of(1000, changed=1), {SetQueue: 1}),
        (text_of(1000, maximum=200), {SetQueue: 990}),
        (text_of(1000, renamed=0.1), {AddQueue: 100, DrainQueue: 100}),
        (text_of(1000), {}),
    ],
)
def test_each_change_is_as_large_as_it_says(text: str, kinds: dict[type, int]) -> None:
    before = of(text_of(1000))
    tree = Tree(before)
    found = list_changes(tree, compare_configs(tree, before.root, of(text).root))
    assert {kind: sum(isinstance(one, kind) for one in found) for kind in {type(one) for one in found}} == kinds


def test_every_tenth_leaf_of_the_busy_partition_runs_something() -> None:
    partition = busy(of(text_of(1000)))
    check(partition)
    assert partition.running_allocations == 99


def test_every_step_is_measured() -> None:
    assert [row.step for row in measured(100, 1) if row.seconds >= 0] == [
        "checksum",
        "validate",
        "begin with it",
        "apply: one maximum of all",
        "apply: every maximum",
        "apply: a tenth of the leaves replaced",
    ]
