"""A shape is what it says, for any number of nodes and asks, and everything that is timed gets to run."""

import pytest

from benchmarks.engine import Engine
from benchmarks.shapes import SHAPES, SORTINGS, batches, latency, nearly_full, two_queues
from common.config.validation import find_build_problems, load
from partition_worker.engine.invariants import check

EVERY = {**SHAPES, "latency": latency, "nearly-full": nearly_full}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("nodes", "asks"), [(10, 100), (30, 40), (7, 61)])
def test_everything_that_is_timed_runs(name: str, nodes: int, asks: int) -> None:
    workload = EVERY[name](nodes, asks)
    engine = Engine(workload)
    engine.run()
    check(engine.partition)
    assert (len(engine.partition.fleet), workload.timed) == (nodes, asks)
    running = workload.running if workload.released else workload.running + asks
    assert engine.partition.running_allocations == running


@pytest.mark.parametrize("name", EVERY)
def test_it_is_the_same_each_time_and_without_mistakes(name: str) -> None:
    workload = EVERY[name](20, 50)
    assert workload == EVERY[name](20, 50)
    assert find_build_problems(load(workload.config).partitions[0]) == []
    keys = [ask.allocation_key for ask in (*workload.before, *workload.asks)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("name", "queues"), [("two-queues", 2), ("many-queues", 500), ("many-apps", 1), ("mixed", 20)])
def test_the_leaves_are_as_many_as_the_shape_says(name: str, queues: int) -> None:
    partition = Engine(SHAPES[name](5, 10)).partition
    assert sum(queue.leaf for queue in partition.tree) == queues


@pytest.mark.parametrize(
    ("name", "applications", "needs", "priorities"),
    [
        ("two-queues", 2, 1, 1),
        ("many-queues", 500, 1, 1),
        ("many-apps", 1000, 1, 1),
        ("mixed", 200, 12, 5),
        ("backlog", 1, 1, 1),
    ],
)
def test_asks_are_spread_as_the_shape_says(name: str, applications: int, needs: int, priorities: int) -> None:
    asks = SHAPES[name](10, 3000).asks
    assert len({ask.application_id for ask in asks}) == applications
    assert len({tuple(ask.resource_per_alloc.items()) for ask in asks}) == needs
    assert len({ask.priority for ask in asks}) == priorities


@pytest.mark.parametrize("sorting", SORTINGS)
def test_nodes_are_taken_as_it_is_asked_for(sorting: str) -> None:
    for shape in (two_queues, nearly_full):
        assert load(shape(5, 10, sorting=sorting).config).partitions[0].node_sort_policy.type == sorting


def test_a_nearly_full_cluster_has_2_percent_of_each_type_free_and_that_on_one_node_in_ten() -> None:
    partition = Engine(nearly_full(100, 1000)).partition
    nodes = list(partition.fleet)
    for kind in ("memory", "vcore"):
        free, whole = sum(node.available[kind] for node in nodes), sum(node.capacity[kind] for node in nodes)
        assert 0.015 < free / whole < 0.03
    need = {"memory": 10, "vcore": 1000}
    opened = [node for node in nodes if all(node.available[kind] >= amount for kind, amount in need.items())]
    assert len(opened) == 10
    assert len({node.available["vcore"] for node in opened}) > 1
    assert len({node.capacity["vcore"] for node in nodes}) == 3


def test_pieces_have_everything_once_and_are_no_larger_than_they_may_be() -> None:
    pieces = list(batches(range(11), 5))
    assert [len(piece) for piece in pieces] == [5, 5, 1]
    assert [item for piece in pieces for item in piece] == list(range(11))
