"""In which order nodes are tried, and what changes it. Seen from outside: where the next ask goes."""

import pytest

from common.messages import NODE_DECOMMISSION, NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE, NODE_UPDATE, Command
from partition_worker.engine.nodes.fleet import HOPELESS_MAX, Fleet
from tests.builders import apps, asks, foreign, nodes, released
from tests.trial import Trial


def trial(policy: str = "fair", **weights: float) -> Trial:
    """Two nodes alike, and an application."""
    one = Trial(nodes=policy, weights=weights).does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a"))
    one.told()
    return one


def next_node(one: Trial) -> str:
    """Where one more small ask goes."""
    one.told()
    (placed,) = one.does(asks("app-1 probe memory=1")).placed()
    one.does(released("app-1 probe"))
    return placed.removeprefix("probe on ")


def test_of_equal_nodes_the_smaller_id_is_tried_first() -> None:
    assert next_node(trial()) == "n1"


def test_fair_tries_the_least_used_and_binpacking_the_most_used_first() -> None:
    assert next_node(trial("fair").does(asks("app-1 a1 memory=2 on=n1"))) == "n2"
    assert next_node(trial("binpacking").does(asks("app-1 a1 memory=2 on=n2"))) == "n2"


def test_weights_decide_which_types_count() -> None:
    one = Trial(weights={"gpu": 1.0}).does(nodes("n1 memory=9 gpu=1", "n2 memory=9 gpu=1"), apps("app-1 root.a"))
    assert next_node(one.does(asks("app-1 a1 memory=5 on=n1"))) == "n1"
    assert next_node(one.does(asks("app-1 a2 gpu=1 on=n1"))) == "n2"


def test_a_draining_node_is_not_tried_until_it_is_schedulable_again() -> None:
    one = trial().does(nodes("n1", action=NODE_DRAIN))
    assert next_node(one) == "n2"
    assert next_node(one.does(nodes("n1", action=NODE_DRAIN_TO_SCHEDULABLE))) == "n1"


def test_a_node_that_left_is_not_tried() -> None:
    assert next_node(trial().does(nodes("n1", action=NODE_DECOMMISSION))) == "n2"


def test_a_release_moves_a_node() -> None:
    one = trial().does(asks("app-1 a1 memory=2 on=n1", "app-1 a2 memory=1 on=n2"))
    assert next_node(one) == "n2"
    assert next_node(one.does(released("app-1 a1"))) == "n1"


def test_another_capacity_moves_a_node() -> None:
    one = trial().does(asks("app-1 a1 memory=2 on=n1", "app-1 a2 memory=1 on=n2"))
    assert next_node(one.does(nodes("n1 memory=100", action=NODE_UPDATE))) == "n1"


# Spec 4.6: scores are not refreshed on foreign changes nor on in-place updates ----------------------------------------


def test_foreign_allocations_do_not_move_a_node() -> None:
    one = trial().does(foreign("f1 n1 memory=5"))
    one.told()
    assert one.does(asks("app-1 a1 memory=1")).placed() == ["a1 on n1"]


@pytest.mark.parametrize("amount", [1, 8])
def test_resizing_in_place_does_not_move_a_node(amount: int) -> None:
    one = trial().does(asks("app-1 a1 memory=3 on=n1", "app-1 a2 memory=2 on=n2"))
    one.told()
    resized = one.does(asks(f"app-1 a1 memory={amount}"))
    assert resized.does(asks("app-1 a3 memory=1")).placed() == ["a3 on n2"]


@pytest.mark.parametrize(("words", "action"), [("n1", NODE_DRAIN_TO_SCHEDULABLE), ("n1 memory=10", NODE_UPDATE)])
def test_an_update_that_changes_nothing_does_not_move_a_node(words: str, action: int) -> None:
    """Spec 7: unchanged capacity is ignored, the flag is flipped if different. Nothing is scored anew then."""
    one = trial().does(foreign("f1 n1 memory=5"), nodes(words, action=action))
    one.told()
    assert one.does(asks("app-1 a1 memory=1")).placed() == ["a1 on n1"]


# What failed is remembered only as long as it would fail again --------------------------------------------------------


@pytest.mark.parametrize(
    "relief",
    [
        nodes("n3 memory=9"),
        nodes("n1 memory=20", action=NODE_UPDATE),
        released("app-1 a1"),
        released("- f1"),
        asks("app-1 a1 memory=1"),
        foreign("f1 n2 memory=1"),
        foreign("f1 n1 memory=6"),
        nodes("n9", action=NODE_DRAIN_TO_SCHEDULABLE),
    ],
    ids=[
        "new node",
        "larger node",
        "release",
        "foreign release",
        "shrink",
        "foreign shrink",
        "foreign move",
        "undrain",
    ],
)
def test_what_found_no_node_is_tried_again_when_one_gains_room(relief: Command) -> None:
    one = trial().does(asks("app-1 a1 memory=6 on=n1"), foreign("f1 n2 memory=6"), nodes("n9 memory=9"))
    one.does(nodes("n9", action=NODE_DRAIN), asks("app-1 waits memory=9"))
    assert not [line for line in one.placed() if line.startswith("waits")]
    assert [line.split()[0] for line in one.does(relief).placed()] == ["waits"]


def test_a_large_ask_that_found_no_node_does_not_hold_up_a_small_one() -> None:
    one = trial().does(asks("app-1 big memory=11 priority=1"))
    assert one.does(asks("app-1 small memory=10")).placed() == ["small on n1"]


def test_the_total_counts_draining_nodes_and_no_zeros() -> None:
    one = trial().does(nodes("n1", action=NODE_DRAIN))
    assert one.partition.fleet.total == {"memory": 20}
    one.does(nodes("n1", action=NODE_DECOMMISSION), nodes("n2", action=NODE_DECOMMISSION))
    assert one.partition.fleet.total == {}
    assert len(one.partition.fleet) == 0


def test_not_more_than_so_many_failures_are_remembered() -> None:
    one = Fleet("fair", {"memory": 1.0})
    one.add("n1", {"memory": 1}, {}, schedulable=True)
    for amount in range(2, 2 * HOPELESS_MAX):
        assert one.first_fit((("memory", amount),)) is None
    assert len(one._hopeless) <= HOPELESS_MAX


# Another policy -------------------------------------------------------------------------------------------------------


def test_another_policy_orders_the_nodes_anew_but_for_those_that_drain() -> None:
    one = trial("fair").does(asks("app-1 a1 memory=2 on=n2"), nodes("n3 memory=10"), nodes("n3", action=NODE_DRAIN))
    assert next_node(one) == "n1"
    one.partition.fleet.reorder("binpacking", one.partition.fleet.weights)
    assert next_node(one) == "n2"


def test_other_weights_order_the_nodes_anew() -> None:
    one = Trial(weights={"memory": 1.0}).does(nodes("n1 memory=9 gpu=3", "n2 memory=9 gpu=3"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1 gpu=2 on=n1"), asks("app-1 a2 memory=2 gpu=1 on=n2"))
    assert next_node(one) == "n1"
    one.partition.fleet.reorder("fair", {"gpu": 1.0})
    assert next_node(one) == "n2"
