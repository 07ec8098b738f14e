"""What a node has, and what is left of it."""

import pytest

from tests.builders import ask, foreign
from tests.partition_worker.engine.allocations import received
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.nodes.node_index import UNKNOWN_INSTANCE, Node


def node(**capacity: int) -> Node:
    return Node("n1", 0, capacity, {})


def allocation(words: str) -> Allocation:
    return received(ask(f"app-1 {words}"), stamp_ns=1)


def other(words: str) -> Allocation:
    return received(foreign(words).allocations[0], stamp_ns=1)


def test_a_new_node_has_all_of_its_capacity_available() -> None:
    assert node(memory=10, gpu=1).available == {"memory": 10, "gpu": 1}


def test_a_capacity_of_zero_is_a_type_that_the_node_lacks() -> None:
    assert node(memory=10, gpu=0).capacity == {"memory": 10}


def test_allocations_of_our_own_and_foreign_ones_are_kept_apart_and_both_take_room() -> None:
    one = node(memory=10)
    mine = allocation("a1 memory=4")
    one.add(mine)
    one.put_foreign(other("f1 n1 memory=3"))
    assert (one.allocated, one.occupied, one.available) == ({"memory": 4}, {"memory": 3}, {"memory": 3})
    one.remove(mine)
    assert one.remove_foreign("f1")
    assert one.available == {"memory": 10}
    assert (one.allocations, one.foreign) == ({}, {})


def test_a_foreign_allocation_reported_again_replaces_what_was_known() -> None:
    one = node(memory=10)
    one.put_foreign(other("f1 n1 memory=3"))
    one.put_foreign(other("f1 n1 memory=1 gpu=1"))
    assert one.available == {"memory": 9, "gpu": -1}


def test_an_unknown_foreign_allocation_cannot_be_removed() -> None:
    assert not node(memory=10).remove_foreign("f1")


def test_what_is_forced_on_a_node_may_leave_less_than_nothing() -> None:
    one = node(memory=10)
    one.add(allocation("a1 memory=12 gpu=1"))
    assert one.available == {"memory": -2, "gpu": -1}
    one.resize({"memory": 20})
    assert one.available == {"memory": 8, "gpu": -1}


def test_an_allocation_may_grow_and_shrink_in_place() -> None:
    one = node(memory=10)
    one.add(allocation("a1 memory=4"))
    one.resize_allocation(amounts_of({"memory": 3}))
    assert (one.allocated, one.available) == ({"memory": 7}, {"memory": 3})
    one.resize_allocation(amounts_of({"memory": -5}))
    assert (one.allocated, one.available) == ({"memory": 2}, {"memory": 8})


@pytest.mark.parametrize(
    ("attributes", "hostname", "instance"),
    [
        ({}, "", UNKNOWN_INSTANCE),
        ({"si/hostname": "h", "si/instance-type": "m5"}, "h", "m5"),
        ({"si.io/hostname": "h", "si/instance-type": ""}, "h", UNKNOWN_INSTANCE),
    ],
)
def test_attributes_in_either_spelling(attributes: dict[str, str], hostname: str, instance: str) -> None:
    one = Node("n1", 0, {}, attributes)
    assert (one.attribute("hostname"), one.instance_type) == (hostname, instance)
