"""A search that goes on where it ended finds the node that a search from the first one would have found."""

from random import Random

import pytest

from partition_worker.engine.needs import Shape, shape_of
from partition_worker.engine.nodes.lineup import ENOUGH, Lineup
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.place import BEHIND_ALL, place_of
from partition_worker.engine.nodes.seeker import Seeker, Trail

SHAPES = [shape_of({"memory": amount, "vcore": cores}) for amount, cores in ((1, 1), (3, 1), (1, 3), (6, 6))]


def node(number: int, memory: int = 0, vcore: int = 0) -> Node:
    return Node(f"n{number}", number, {"memory": memory, "vcore": vcore}, {})


def plainly(lineup: Lineup, shape: Shape) -> Node | None:
    return next((each for each in lineup if each.has_room(shape)), None)


def crowded(random: Random, nodes: list[Node]) -> Lineup:
    """Most have room for nothing, so that a search from the first one is dear."""
    lineup = Lineup()
    for each in nodes:
        lineup.put(each, place_of(random.random(), each.node_id))
    return lineup


@pytest.mark.parametrize("seed", range(6))
def test_the_first_node_with_room_is_found_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, looks in (("CHEAP", 2), ("ENOUGH", 20)):
        monkeypatch.setattr(f"partition_worker.engine.nodes.lineup.{name}", looks)
    random = Random(seed)
    nodes = [node(number) for number in range(600)]
    lineup = crowded(random, nodes)
    for step in range(3000):
        one = random.choice(nodes)
        match random.choice(["move", "move", "fill", "empty", "gain", "drop"]):
            case "move":
                lineup.put(one, place_of(random.random(), one.node_id))
            case "fill":
                one.resize({})
                lineup.put(one, place_of(random.random(), one.node_id))
            case "empty":
                one.resize({"memory": random.randint(0, 7), "vcore": random.randint(0, 7)})
                lineup.put(one, place_of(random.random(), one.node_id))
            case "gain" if (place := lineup.place(one)) is not None:
                one.resize({"memory": 4, "vcore": random.randint(0, 4)})
                lineup.gained(one) if random.random() < 0.5 else lineup.put(one, place)
            case _:
                lineup.drop(one)
        shape = random.choice(SHAPES)
        assert lineup.find(shape) is plainly(lineup, shape), step
    assert lineup._seekers


def test_a_dear_search_need_not_begin_at_the_first_node_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node(number, memory=number % 2 * 9, vcore=(number + 1) % 2 * 9) for number in range(3 * ENOUGH)]
    nodes.append(node(len(nodes), memory=9, vcore=9))
    lineup = Lineup()
    for rank, each in enumerate(nodes):
        lineup.put(each, place_of(float(rank), each.node_id))
    assert lineup.find(SHAPES[0]) is nodes[-1]
    assert lineup.find(SHAPES[0]) is nodes[-1]
    starts = []
    find = type(lineup._root).find
    monkeypatch.setattr(type(lineup._root), "find", lambda *args: starts.append(args[2]) or find(*args))
    lineup.put(nodes[-1], place_of(float(len(nodes)), nodes[-1].node_id))
    assert lineup.find(SHAPES[0]) is nodes[-1]
    assert all(start > place_of(1.0, "") for start in starts), starts


def test_of_those_that_moved_the_first_with_room_is_found_and_stale_ones_are_forgotten() -> None:
    trail, places = Trail(), {}
    seeker = Seeker(SHAPES[0], trail)
    seeker.start = BEHIND_ALL
    one, other, full = node(1, 9, 9), node(2, 9, 9), node(3)
    for rank, each in enumerate((full, other, one)):
        places[each.rank] = place_of(float(rank), each.node_id)
        trail.moved(each)
    assert seeker.first_opened(trail, places) is other
    other.resize({})
    assert seeker.first_opened(trail, places) is one
    del places[one.rank]
    assert seeker.first_opened(trail, places) is None
    assert seeker.entries == 0


def test_a_node_that_is_gone_leaves_no_trail() -> None:
    trail, one = Trail(), node(1, 9, 9)
    trail.moved(one)
    trail.gone(one)
    assert list(trail.since(0)) == []
