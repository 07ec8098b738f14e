"""Node sort policies, sort keys, and the node order that an application uses."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.builders import apps, asks, nodes
from tests.recorded import Recorded
from tests.trial import Trial
from yunishard.common.config.model import PROPERTIES
from yunishard.common.config.validation import load
from yunishard.common.messages.kinds import Resources
from yunishard.common.node_sort_policies import NODE_SORT_POLICIES, ScoreNode, score_bin_packing, score_fair
from yunishard.partition_worker.engine.amounts import Sum, amounts_of, name_types
from yunishard.partition_worker.engine.nodes.node_index import BEFORE_ALL, BEHIND_ALL, Node, sort_key_of
from yunishard.partition_worker.engine.nodes.nodes import node_choice_of, weigh

EVENLY = {"vcore": 1.0, "memory": 1.0}


def node(capacity: Resources, used: Resources) -> Node:
    one = Node("n1", 0, capacity, {})
    one.resize_allocation(amounts_of(used))
    return one


def scored(one: Node, score: ScoreNode, weights: dict[str, float]) -> float:
    return score(one.available_sum, one.capacity_sum, weigh(weights))


def test_vector_18_types_without_a_weight_do_not_count() -> None:
    one = node({"vcore": 10, "memory": 100, "gpu": 2}, {"vcore": 9, "memory": 50})
    assert scored(one, score_fair, EVENLY) == pytest.approx(0.7)
    assert scored(one, score_bin_packing, EVENLY) == pytest.approx(0.3)
    assert scored(one, score_fair, {"vcore": 4.0, "memory": 1.0}) == pytest.approx(0.82)


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
    assert scored(node(capacity, used), score_fair, weights) == pytest.approx(expected)


@pytest.mark.parametrize("weights", [{"memory": math.inf}, {"memory": 1e308, "vcore": 1e308}])
def test_a_score_is_a_number_whatever_the_weights(weights: dict[str, float]) -> None:
    """Spec 4.6: NaN is skipped. A score that is not equal to itself cannot be kept in order."""
    assert not math.isnan(scored(node({"memory": 10, "vcore": 10}, {"vcore": 10}), score_fair, weights))
    assert not math.isnan(scored(node({"memory": 10, "vcore": 10}, {}), score_fair, weights))


SCORES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 0.5, 5e-324, -5e-324])
IDS = st.text(max_size=4)


@given(SCORES, IDS, SCORES, IDS)
@example(-0.0, "b", 0.0, "a")
@example(1.0, "n1", 1.0, "n10")
@example(0.5, "\uffff", 0.5, "\U0001f600")
def test_places_sort_as_score_and_id_do(score: float, node_id: str, other: float, other_id: str) -> None:
    place, another = sort_key_of(score, node_id), sort_key_of(other, other_id)
    assert (place < another) == ((score, node_id) < (other, other_id))
    assert (place == another) == ((score, node_id) == (other, other_id))


@given(SCORES, IDS)
def test_all_places_are_between_the_ends(score: float, node_id: str) -> None:
    assert BEFORE_ALL < sort_key_of(score, node_id) < BEHIND_ALL


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
    assert node_choice_of(one.app("app-1")) == expected


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


def test_a_policy_is_one_function_and_one_line_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    def score_small_first(available: Sum, capacity: Sum, weights: list[tuple[int, float]]) -> float:
        return float(name_types(capacity).get("memory", 0))

    monkeypatch.setitem(NODE_SORT_POLICIES, "small", score_small_first)
    text = "partitions: [{name: default, nodesortpolicy: {type: small}, queues: [{name: root}]}]"
    assert load(text).partitions[0].node_sort_policy.policy == "small"
    assert not PROPERTIES["node.sort.policy"].misreads("Small")
    one = Trial("root.a; root.b node.sort.policy=small", made=Recorded)
    one.does(nodes("n1 memory=20", "n2 memory=10", "n3 memory=15"), apps("app-1 root.a", "app-2 root.b")).told()
    assert one.does(asks("app-2 b1 memory=9")).placed() == ["b1 on n2"]
    assert isinstance(one.partition, Recorded)
    one.partition = one.partition.restored()
    assert one.does(asks("app-2 b2 memory=9")).placed() == ["b2 on n3"]
    other = Trial("root.a", nodes="small").does(nodes("n1 memory=20", "n2 memory=10"), apps("app-1 root.a"))
    other.told()
    assert other.does(asks("app-1 a1 memory=9")).placed() == ["a1 on n2"]
