"""Nodes in order, and the first of them with room; with what a plain sorted list would have said beside it."""

import random

import pytest

from partition_worker.engine.needs import shape_of
from partition_worker.engine.nodes.blocks import BRANCHES, LACKING_MAX, LOAD, Block, Branch
from partition_worker.engine.nodes.lineup import Lineup
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.place import place_of

MANY = 2 * LOAD * BRANCHES

GROWING = ("put", "put", "put", "gain", "lose", "drop")
SHRINKING = ("put", "gain", "lose", "drop", "drop", "drop")


def node(number: int, **capacity: int) -> Node:
    return Node(f"n{number}", number, capacity, {})


def lineup(*nodes: Node) -> Lineup:
    one = Lineup()
    for rank, each in enumerate(nodes):
        one.put(each, place_of(float(rank), each.node_id))
    return one


def with_room(one: Lineup, **amounts: int) -> list[str]:
    return [each.node_id for each in one.having_room(shape_of(amounts))]


def test_nodes_are_in_the_order_of_their_places() -> None:
    first, second, third = node(1), node(2), node(3)
    one = Lineup()
    one.put(third, place_of(0.5, "n3"))
    one.put(second, place_of(0.5, "n2"))
    one.put(first, place_of(0.1, "n1"))
    assert list(one) == [first, second, third]
    assert one.first() is first
    one.put(first, place_of(0.9, "n1"))
    assert list(one) == [second, third, first]
    assert one.place(first) == place_of(0.9, "n1")


def test_a_node_that_is_dropped_is_in_no_longer_and_may_be_dropped_again() -> None:
    first, second = node(1), node(2)
    one = lineup(first, second)
    one.drop(first)
    one.drop(first)
    assert (list(one), len(one), one.place(first)) == ([second], 1, None)
    one.drop(second)
    assert one.first() is None
    assert with_room(one) == []


def test_only_nodes_with_room_for_every_type_are_found() -> None:
    one = lineup(node(1, memory=9), node(2, memory=9, gpu=1), node(3, memory=2, gpu=9), node(4, memory=5, gpu=5))
    assert with_room(one, memory=4) == ["n1", "n2", "n4"]
    assert with_room(one, memory=4, gpu=1) == ["n2", "n4"]
    assert with_room(one, memory=9, gpu=9) == []
    assert with_room(one, disk=1) == []
    assert with_room(one, disk=0, memory=-1) == ["n1", "n2", "n3", "n4"]


def test_what_was_sought_in_vain_is_found_once_a_node_has_gained() -> None:
    full, other = node(1, memory=4, gpu=1), node(2, memory=1, gpu=4)
    one = lineup(full, other)
    for _ in range(2):
        assert with_room(one, memory=2, gpu=2) == []
        assert with_room(one, memory=9) == []
    full.resize({"memory": 9, "gpu": 3})
    one.gained(full)
    assert with_room(one, memory=2, gpu=2) == ["n1"]
    assert with_room(one, memory=9) == ["n1"]


def test_a_node_that_is_not_in_may_gain_without_being_found() -> None:
    one, stranger = lineup(node(1, memory=1)), node(2, memory=9)
    one.gained(stranger)
    assert with_room(one, memory=2) == []


def test_a_node_that_lost_is_not_found_although_nobody_said_so() -> None:
    shrinking = node(1, memory=9)
    one = lineup(shrinking, node(2, memory=9))
    assert with_room(one, memory=5) == ["n1", "n2"]
    shrinking.resize({"memory": 1})
    assert with_room(one, memory=5) == ["n2"]


def test_not_more_than_so_many_failures_are_remembered() -> None:
    one = lineup(node(1, memory=MANY), node(2, gpu=MANY))
    for amount in range(1, 3 * LACKING_MAX):
        assert with_room(one, memory=amount, gpu=amount) == []
    assert 0 < len(one._root.lacking) <= LACKING_MAX


def test_a_search_passes_over_what_is_full() -> None:
    """However many full nodes are in front, after the first search only the way to the node with room is looked at."""
    looked_at: list[str] = []

    class Watched(Node):
        def has_room(self, shape: tuple[tuple[str, int], ...]) -> bool:
            looked_at.append(self.node_id)
            return super().has_room(shape)

    one = lineup(
        *(Watched(f"n{number:05d}", number, {"memory": 1 + number // (MANY - 1)}, {}) for number in range(MANY))
    )
    for _ in range(2):
        looked_at.clear()
        assert with_room(one, memory=2) == [f"n{MANY - 1:05d}"]
    assert len(looked_at) <= LOAD


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_a_sorted_list_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [node(number, **amounts(chance)) for number in range((5, 200, MANY, MANY)[seed])]
    one, plain = Lineup(), dict[str, tuple[float, str]]()
    for step in range(4 * len(nodes) + 200):
        each = chance.choice(nodes)
        match chance.choice(GROWING if step < 2 * len(nodes) else SHRINKING):
            case "put":
                each.resize(amounts(chance))
                score = chance.randrange(-20, 20) / 16
                one.put(each, place_of(score, each.node_id))
                plain[each.node_id] = score, each.node_id
            case "gain":
                each.resize({kind: 2 * amount for kind, amount in each.capacity.items()} | {"memory": 20})
                one.gained(each)
            case "lose":
                each.resize({kind: amount // 2 for kind, amount in each.capacity.items()})
            case "drop":
                one.drop(each)
                plain.pop(each.node_id, None)
        shape = shape_of(amounts(chance))
        if step % 50 == 0 or len(nodes) < 9:
            by_id = {each.node_id: each for each in nodes}
            expected = [by_id[name] for _, name in sorted(plain.values())]
            assert list(one) == expected
            assert list(one.having_room(shape)) == [each for each in expected if each.has_room(shape)]
            is_sound(one._root, list(one))
        else:
            next(one.having_room(shape), None)
    assert len(one) == len(plain)


def amounts(chance: random.Random) -> dict[str, int]:
    return {kind: chance.randrange(20) for kind in ("memory", "vcore", "gpu")}


def is_sound(block: Block, nodes: list[Node]) -> int:
    """What a block knows is true of its nodes, and no block is too large; how deep it is."""
    assert list(block) == nodes
    assert len(block.places) <= block.load
    for each in nodes:
        assert all(amount <= block.most.get(kind, 0) for kind, amount in each.available.items() if amount > 0)
        assert not any(each.has_room(shape) for shape in block.lacking)
    if not isinstance(block, Branch):
        return 1
    assert len(block.places) == len(block.blocks) > 0
    assert all(len(below.places) >= below.load // 4 for below in block.blocks)
    depths = [is_sound(below, list(below)) for below in block.blocks]
    assert len(set(depths)) == 1
    return 1 + depths[0]
