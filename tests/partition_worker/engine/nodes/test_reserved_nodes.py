"""The nodes that are reserved for asks of lower priority: which they are, and what finding them costs."""

import pytest

from tests.builders import config
from yunishard.partition_worker.engine.allocation import Allocation, make_shape
from yunishard.partition_worker.engine.amounts import Amounts, amounts_of
from yunishard.partition_worker.engine.nodes import node_index
from yunishard.partition_worker.engine.nodes.node_index import (
    OUTRANKED_MAX,
    Node,
    Reservation,
    ReservedNodes,
    sort_key_of,
)
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.queues.tree import Tree

TWO = amounts_of({"memory": 2})
NINE = amounts_of({"memory": 9})


def leaf(queues: str = "root.a") -> Queue:
    found = Tree(config(queues)).find("root.a")
    assert found is not None
    return found


def node(number: int, leaf: Queue, *priorities: int, memory: int = 8, required: bool = False) -> Node:
    """A node that is reserved for asks of these priorities."""
    one = Node(f"n{number}", number, {"memory": memory}, {})
    for key, priority in enumerate(priorities):
        tags = {"yunikorn.apache.org/requiredNode": one.node_id} if required else {}
        ask = Allocation(f"k{number}-{key}", "app-1", make_shape(amounts_of({"memory": 99}), tags, None), 0, priority)
        one.reservations[ask.key] = Reservation(ask, one, leaf, 0.0, number)
    return one


def filled(*nodes: Node) -> ReservedNodes:
    """These nodes, in their order."""
    reserved = ReservedNodes()
    for place, one in enumerate(nodes):
        reserved.put(one, sort_key_of(float(place), one.node_id))
    return reserved


def found(reserved: ReservedNodes, leaf: Queue, priority: int, amounts: Amounts = TWO) -> list[str]:
    return [one.node_id for one in reserved.find_outranked(leaf, priority, amounts)]


def test_the_nodes_of_lower_priorities_are_found_in_their_order() -> None:
    at = leaf()
    reserved = filled(node(1, at, 3), node(2, at, 1), node(3, at, 2), node(4, at, 1), node(5, at, 0, memory=1))
    assert found(reserved, at, 1) == []
    assert found(reserved, at, 2) == ["n2", "n4"]
    assert found(reserved, at, 9) == ["n1", "n2", "n3", "n4"]


def test_of_several_asks_that_require_a_node_the_highest_priority_counts() -> None:
    at = leaf()
    reserved = filled(node(1, at, 0, 5, required=True))
    assert (found(reserved, at, 1), found(reserved, at, 6)) == ([], ["n1"])


def test_a_node_on_which_victims_were_preempted_for_the_ask_is_not_found() -> None:
    at = leaf()
    one = node(1, at, 0)
    reserved = filled(one)
    next(iter(one.reservations.values())).keeps_since = 1.0
    reserved.put(one, sort_key_of(0.0, one.node_id))
    assert (found(reserved, at, 9), one in reserved, reserved.may_have_room(TWO)) == ([], False, False)


def test_a_node_is_found_again_when_it_has_gained_room() -> None:
    at = leaf()
    one = node(1, at, 0)
    reserved = filled(one)
    assert (found(reserved, at, 1, NINE), reserved.may_have_room(NINE)) == ([], False)
    one.resize({"memory": 9})
    reserved.note_room(one)
    assert (found(reserved, at, 1, NINE), reserved.may_have_room(NINE)) == (["n1"], True)


def test_a_node_that_is_reserved_for_another_ask_changes_its_priority() -> None:
    at = leaf()
    one = node(1, at, 0)
    reserved = filled(one)
    assert found(reserved, at, 1) == ["n1"]
    one.reservations = node(1, at, 1).reservations
    reserved.put(one, sort_key_of(0.0, one.node_id))
    assert (found(reserved, at, 1), found(reserved, at, 2)) == ([], ["n1"])
    reserved.remove(one)
    reserved.remove(one)
    assert (found(reserved, at, 2), one in reserved) == ([], False)


def test_which_asks_are_outranked_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def outranks(leaf: Queue, priority: int, other: Queue, other_priority: int) -> bool:
        compared.append(priority)
        return priority > other_priority

    monkeypatch.setattr(node_index, "outranks", outranks)
    at = leaf()
    reserved = filled(*(node(number, at, 7) for number in range(100)))
    for _ in range(50):
        assert found(reserved, at, 5) == []
    assert compared == [5]
    reserved.forget_order()
    assert (found(reserved, at, 5), compared) == ([], [5, 5])
    for priority in range(-OUTRANKED_MAX - 9, 0):
        assert found(reserved, at, priority) == []
    assert found(reserved, at, 5) == []
    assert compared.count(5) == 3, "the cache is bounded"
