"""How used a node is, as a number."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.messages import Resources
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.sort_policies import (
    BEFORE_ALL,
    BEHIND_ALL,
    node_choice_of,
    place_of,
    score,
    score_of,
    usage,
)
from tests.builders import apps, asks, nodes
from tests.trial import Trial

EVENLY = {"vcore": 1.0, "memory": 1.0}


def node(capacity: Resources, used: Resources) -> Node:
    one = Node("n1", 0, capacity, {})
    one.resize_allocation(used)
    return one


def test_vector_18_types_without_a_weight_do_not_count() -> None:
    one = node({"vcore": 10, "memory": 100, "gpu": 2}, {"vcore": 9, "memory": 50})
    assert score(one, "fair", EVENLY) == pytest.approx(0.7)
    assert score(one, "binpacking", EVENLY) == pytest.approx(0.3)
    assert score(one, "fair", {"vcore": 4.0, "memory": 1.0}) == pytest.approx(0.82)


@pytest.mark.parametrize(
    ("capacity", "used", "weights", "expected"),
    [
        ({}, {}, EVENLY, 0.0),
        ({"gpu": 2}, {"gpu": 1}, EVENLY, 0.0),
        ({"memory": 10}, {"memory": 5}, EVENLY, 0.5),  # only the types that the node has
        ({"memory": 10, "vcore": 10}, {"memory": 5}, {"memory": 1.0, "vcore": 0.0}, 0.5),
        ({"memory": 10}, {"memory": 15}, EVENLY, 1.5),
        ({"memory": 10}, {"memory": 5}, {"memory": math.nan}, 0.0),
        ({"memory": 10, "vcore": 10}, {"memory": 5}, {"memory": 1.0, "vcore": math.nan}, 0.5),
    ],
)
def test_usage(capacity: Resources, used: Resources, weights: dict[str, float], expected: float) -> None:
    assert usage(node(capacity, used), weights) == pytest.approx(expected)


@pytest.mark.parametrize("weights", [{"memory": math.inf}, {"memory": 1e308, "vcore": 1e308}])
def test_a_score_is_a_number_whatever_the_weights(weights: dict[str, float]) -> None:
    """Spec 4.6: NaN is skipped. A score that is not equal to itself cannot be kept in order."""
    assert not math.isnan(score(node({"memory": 10, "vcore": 10}, {"vcore": 10}), "fair", weights))
    assert not math.isnan(score(node({"memory": 10, "vcore": 10}, {}), "fair", weights))


SCORES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 0.5, 5e-324, -5e-324])
IDS = st.text(max_size=4)


@given(SCORES, IDS, SCORES, IDS)
@example(-0.0, "b", 0.0, "a")
@example(1.0, "n1", 1.0, "n10")
@example(0.5, "\uffff", 0.5, "\U0001f600")
def test_places_sort_as_score_and_id_do(score: float, node_id: str, other: float, other_id: str) -> None:
    place, another = place_of(score, node_id), place_of(other, other_id)
    assert (place < another) == ((score, node_id) < (other, other_id))
    assert (place == another) == ((score, node_id) == (other, other_id))


@given(SCORES, IDS)
def test_all_places_are_between_the_ends(score: float, node_id: str) -> None:
    assert BEFORE_ALL < place_of(score, node_id) < BEHIND_ALL


@given(SCORES, IDS)
def test_a_place_gives_its_score_back(score: float, node_id: str) -> None:
    assert score_of(place_of(score, node_id)) == score


@pytest.mark.parametrize(
    ("queue", "tag", "expected"),
    [
        ("", "", None),
        ("node.sort.policy=pack", "", "pack"),
        ("node.sort.policy=pack", "tag.node.sort.policy=fair", "fair"),
        ("node.sort.policy=pack", "tag.node.sort.policy=BinPacking", "binpacking"),
        ("node.sort.policy=pack", "tag.node.sort.policy=packed", "pack"),
        ("node.sort.policy=packed", "", None),
    ],
)
def test_the_tag_counts_then_the_queue(queue: str, tag: str, expected: str | None) -> None:
    one = Trial(f"root.a {queue}").does(apps(f"app-1 root.a {tag}"))
    assert node_choice_of(one.app("app-1").tags, one.app("app-1").queue) == expected


def test_applications_side_by_side_try_nodes_in_orders_of_their_own() -> None:
    """The partition's is fair. A second order begins when it is first asked for, and follows every change from then."""
    one = Trial("root.a; root.b node.sort.policy=binpacking").does(nodes("n1 memory=20", "n2 memory=20"))
    one.does(apps("fair root.a", "full root.b"), asks("fair a0 memory=1 on=n2"))
    one.told()
    assert one.does(asks("full b1 memory=1")).placed() == ["b1 on n2"]
    assert one.does(asks("fair a1 memory=5")).placed() == ["a1 on n1"]
    assert one.does(asks("full b2 memory=1"), asks("fair a2 memory=1")).placed() == ["b2 on n1", "a2 on n2"]


def test_a_queue_that_is_configured_anew_counts_at_once() -> None:
    one = Trial("root.a").does(nodes("n1 memory=20", "n2 memory=20"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1"))
    one.reconfigures("root.a node.sort.policy=binpacking").told()
    assert one.does(asks("app-1 a2 memory=1")).placed() == ["a2 on n1"]
    one.reconfigures("root.a").told()
    assert one.does(asks("app-1 a3 memory=1")).placed() == ["a3 on n2"]
