"""Nodes in order, and the first of them with room; with what a plain sorted list would have said beside it."""

import random
from random import Random

import pytest

from yunishard.partition_worker.engine.amounts import Amounts, amounts_of, name_types
from yunishard.partition_worker.engine.nodes.node_index import (
    BRANCH_MAX,
    LACKING_MAX,
    LEAF_MAX,
    STARTS_MAX,
    Block,
    Node,
    NodeIndex,
    sort_key_of,
)

MANY = 2 * LEAF_MAX * BRANCH_MAX

GROWING = ("put", "put", "put", "gain", "lose", "drop")
SHRINKING = ("put", "gain", "lose", "drop", "drop", "drop")


def node(number: int, **capacity: int) -> Node:
    return Node(f"n{number}", number, capacity, {})


def index(*nodes: Node) -> NodeIndex:
    one = NodeIndex()
    for rank, each in enumerate(nodes):
        one.put(each, sort_key_of(float(rank), each.node_id))
    return one


def with_room(one: NodeIndex, **amounts: int) -> list[str]:
    return [each.node_id for each in one.having_room(amounts_of(amounts))]


def test_nodes_are_in_the_order_of_their_places() -> None:
    first, second, third = node(1), node(2), node(3)
    one = NodeIndex()
    one.put(third, sort_key_of(0.5, "n3"))
    one.put(second, sort_key_of(0.5, "n2"))
    one.put(first, sort_key_of(0.1, "n1"))
    assert list(one) == [first, second, third]
    assert one.first() is first
    one.put(first, sort_key_of(0.9, "n1"))
    assert list(one) == [second, third, first]
    assert one.key(first) == sort_key_of(0.9, "n1")


def test_a_node_that_is_dropped_is_in_no_longer_and_may_be_dropped_again() -> None:
    first, second = node(1), node(2)
    one = index(first, second)
    one.remove(first)
    one.remove(first)
    assert (list(one), len(one), one.key(first)) == ([second], 1, None)
    one.remove(second)
    assert one.first() is None
    assert with_room(one) == []


def test_only_nodes_with_room_for_every_type_are_found() -> None:
    one = index(node(1, memory=9), node(2, memory=9, gpu=1), node(3, memory=2, gpu=9), node(4, memory=5, gpu=5))
    assert with_room(one, memory=4) == ["n1", "n2", "n4"]
    assert with_room(one, memory=4, gpu=1) == ["n2", "n4"]
    assert with_room(one, memory=9, gpu=9) == []
    assert with_room(one, disk=1) == []
    assert with_room(one, disk=0, memory=-1) == ["n1", "n2", "n3", "n4"]


def test_what_was_sought_in_vain_is_found_once_a_node_has_gained() -> None:
    full, other = node(1, memory=4, gpu=1), node(2, memory=1, gpu=4)
    one = index(full, other)
    for _ in range(2):
        assert with_room(one, memory=2, gpu=2) == []
        assert with_room(one, memory=9) == []
    full.resize({"memory": 9, "gpu": 3})
    one.note_room(full)
    assert with_room(one, memory=2, gpu=2) == ["n1"]
    assert with_room(one, memory=9) == ["n1"]


def test_a_node_that_is_not_in_may_gain_without_being_found() -> None:
    one, stranger = index(node(1, memory=1)), node(2, memory=9)
    one.note_room(stranger)
    assert with_room(one, memory=2) == []


def test_a_node_that_lost_is_not_found_although_nobody_said_so() -> None:
    shrinking = node(1, memory=9)
    one = index(shrinking, node(2, memory=9))
    assert with_room(one, memory=5) == ["n1", "n2"]
    shrinking.resize({"memory": 1})
    assert with_room(one, memory=5) == ["n2"]


def test_not_more_than_so_many_failures_are_remembered() -> None:
    one = index(node(1, memory=MANY), node(2, gpu=MANY))
    for amount in range(1, 3 * LACKING_MAX):
        assert with_room(one, memory=amount, gpu=amount) == []
    assert 0 < len(one._root.lacking) <= LACKING_MAX


def test_a_search_passes_over_what_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many full nodes are in front, after the first search only the way to the node with room is looked at."""
    one = index(*(Node(f"n{number:05d}", number, {"memory": 1 + number // (MANY - 1)}, {}) for number in range(MANY)))
    assert with_room(one, memory=2) == [f"n{MANY - 1:05d}"]
    searched: list[Block] = []
    search = Block.having_room
    monkeypatch.setattr(Block, "having_room", lambda block, *args: searched.append(block) or search(block, *args))
    assert next(one.having_room(amounts_of({"memory": 2}))).node_id == f"n{MANY - 1:05d}"
    assert len(searched) == 3


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_a_sorted_list_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [node(number, **random_amounts(chance)) for number in range((5, 200, MANY // 2)[seed])]
    one, plain = NodeIndex(), dict[str, tuple[float, str]]()
    for step in range(4 * len(nodes) + 200):
        each = chance.choice(nodes)
        match chance.choice(GROWING if step < 2 * len(nodes) else SHRINKING):
            case "put":
                each.resize(random_amounts(chance))
                score = chance.randrange(-20, 20) / 16
                one.put(each, sort_key_of(score, each.node_id))
                plain[each.node_id] = score, each.node_id
            case "gain":
                each.resize({kind: 2 * amount for kind, amount in each.capacity.items()} | {"memory": 20})
                one.note_room(each)
            case "lose":
                each.resize({kind: amount // 2 for kind, amount in each.capacity.items()})
            case "drop":
                one.remove(each)
                plain.pop(each.node_id, None)
        amounts = amounts_of(random_amounts(chance))
        if step % 50 == 0 or len(nodes) < 9:
            by_id = {each.node_id: each for each in nodes}
            expected = [by_id[name] for _, name in sorted(plain.values())]
            assert list(one) == expected
            assert list(one.having_room(amounts)) == [each for each in expected if each.has_room(amounts)]
            is_sound(one._root, list(one))
        else:
            next(one.having_room(amounts), None)
    assert len(one) == len(plain)


def random_amounts(chance: random.Random) -> dict[str, int]:
    return {kind: chance.randrange(20) for kind in ("memory", "vcore", "gpu")}


def is_sound(block: Block, nodes: list[Node]) -> int:
    """What a block knows is true of its nodes, and no block is too large; how deep it is."""
    assert list(block) == nodes
    assert len(block.keys) <= block.size_max
    most = name_types(block.most)
    for each in nodes:
        assert all(amount <= most.get(kind, 0) for kind, amount in each.available.items() if amount > 0)
        assert not any(each.has_room(amounts) for amounts in block.lacking)
    assert len(block.keys) == len(block.nodes) + len(block.blocks)
    if not block.blocks:
        return 1
    assert not block.nodes
    assert all(len(below.keys) >= below.size_max // 4 for below in block.blocks)
    depths = [is_sound(below, list(below)) for below in block.blocks]
    assert len(set(depths)) == 1
    return 1 + depths[0]


SHAPES = [amounts_of({"memory": amount, "vcore": cores}) for amount, cores in ((1, 1), (3, 1), (1, 3), (6, 6))]


def sized_node(number: int, memory: int = 0, vcore: int = 0) -> Node:
    return Node(f"n{number}", number, {"memory": memory, "vcore": vcore}, {})


def plainly(index: NodeIndex, amounts: Amounts) -> Node | None:
    return next((each for each in index if each.has_room(amounts)), None)


def crowded(random: Random, nodes: list[Node]) -> NodeIndex:
    """Most have room for nothing, so that a search from the first one is dear."""
    index = NodeIndex()
    for each in nodes:
        index.put(each, sort_key_of(random.random(), each.node_id))
    return index


@pytest.mark.parametrize("seed", range(6))
def test_the_first_node_with_room_is_found_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("CHEAP_STEPS", 2), ("STARTS_MAX", len(SHAPES) - seed % 2)):
        monkeypatch.setattr(f"yunishard.partition_worker.engine.nodes.node_index.{name}", value)
    random = Random(seed)
    nodes = [sized_node(number) for number in range(600)]
    index = crowded(random, nodes)
    for step in range(3000):
        one = random.choice(nodes)
        match random.choice(["move", "move", "fill", "empty", "gain", "drop"]):
            case "move":
                index.put(one, sort_key_of(random.random(), one.node_id))
            case "fill":
                one.resize({})
                index.put(one, sort_key_of(random.random(), one.node_id))
            case "empty":
                one.resize({"memory": random.randint(0, 7), "vcore": random.randint(0, 7)})
                index.put(one, sort_key_of(random.random(), one.node_id))
            case "gain" if (place := index.key(one)) is not None:
                one.resize({"memory": 4, "vcore": random.randint(0, 4)})
                index.note_room(one) if random.random() < 0.5 else index.put(one, place)
            case _:
                index.remove(one)
        amounts = random.choice(SHAPES)
        assert index.find(amounts) is plainly(index, amounts), step
    assert index._starts


def test_a_costly_search_need_not_begin_at_the_first_node_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [sized_node(number, memory=number % 2 * 9, vcore=(number + 1) % 2 * 9) for number in range(99 * LEAF_MAX)]
    nodes.append(sized_node(len(nodes), memory=9, vcore=9))
    index = NodeIndex()
    for rank, each in enumerate(nodes):
        index.put(each, sort_key_of(float(rank), each.node_id))
    assert index.find(SHAPES[0]) is nodes[-1]
    assert index.find(SHAPES[0]) is nodes[-1]
    starts = []
    find = Block.find
    monkeypatch.setattr(Block, "find", lambda *args: starts.append(args[2]) or find(*args))
    index.put(nodes[-1], sort_key_of(float(len(nodes)), nodes[-1].node_id))
    assert index.find(SHAPES[0]) is nodes[-1]
    assert all(start > sort_key_of(1.0, "") for start in starts), starts


def every_search_is_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yunishard.partition_worker.engine.nodes.node_index.CHEAP_STEPS", 0)


def test_of_those_that_gained_the_first_with_room_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every_search_is_costly(monkeypatch)
    nodes = [sized_node(number) for number in range(4)]
    index = NodeIndex()
    for rank, each in enumerate(nodes):
        index.put(each, sort_key_of(float(rank), each.node_id))
    last = nodes[3]
    last.resize({"memory": 9, "vcore": 9})
    index.note_room(last)
    for _ in range(2):
        assert index.find(SHAPES[0]) is last
    for each in (nodes[2], nodes[1]):
        each.resize({"memory": 9, "vcore": 9})
        index.note_room(each)
        assert index.find(SHAPES[0]) is each
    nodes[1].resize({})
    assert index.find(SHAPES[0]) is nodes[2]
    index.remove(nodes[2])
    assert index.find(SHAPES[0]) is last


def test_the_amounts_with_a_stored_start_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    every_search_is_costly(monkeypatch)
    one = index(node(1, memory=MANY))
    for amount in range(1, 3 * STARTS_MAX):
        assert one.find(amounts_of({"memory": amount})) is not None
    assert len(one._starts) == STARTS_MAX
