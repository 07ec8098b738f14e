"""How used a node is, as a number."""

import math

import pytest

from common.messages import Resources
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.scoring import score, usage

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
