"""On which node, and what has to end there for it."""

import pytest

from common.rm_messages import NODE_DRAIN
from partition_worker.engine import reservations
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.preemption import guaranteed
from partition_worker.engine.preemption.guaranteed import NO_HELP, Plan
from tests.builders import asks, nodes
from tests.partition_worker.engine.preemption.clusters import cluster, plan, question
from tests.trial import Trial

QUEUES = "root.a; root.b guaranteed=memory:100; root.c"
OLD_S = 2 * 3600 + 3


def chosen(found: Plan | str) -> tuple[str, list[str]]:
    assert isinstance(found, Plan), found
    return found.node.node_id, [one.key for one in found.victims]


def kept(text: str, *, age_s: int = OLD_S) -> Trial:
    """A node whose only allocation may go, kept for an ask of these words."""
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=4")
    trial.takes(asks(f"root.c kept memory=1 created={int(trial.now) - age_s} {text}"))
    application = trial.app("root.c")
    reservations.reserve(trial.partition, application, application.requests["kept"], trial.node("n1"))
    return trial


def test_of_equal_nodes_the_first_by_id() -> None:
    parts = ("n2 memory=4", "n1 memory=4", "root.a r2 n2 memory=4", "root.a r1 n1 memory=4")
    assert chosen(plan(cluster(QUEUES, *parts), "root.b ask memory=4")) == ("n1", ["r1"])


def test_a_node_with_one_large_victim_comes_before_one_with_two_small_ones() -> None:
    """Extra victims apart: the queue of the ask is guaranteed no more than this."""
    trial = cluster(
        QUEUES.replace("100", "4"),
        *("n1 memory=4", "n2 memory=4", "root.a r1 n1 memory=2", "root.a r2 n1 memory=2", "root.a r3 n2 memory=4"),
    )
    assert chosen(plan(trial, "root.b ask memory=4")) == ("n2", ["r3"])


def test_those_who_gain_what_is_missing_go_before_newer_ones() -> None:
    trial = cluster(QUEUES, "n1 memory=4 gpu=5", "root.a r1 n1 memory=4", "root.a r2 n1 gpu=1")
    assert chosen(plan(trial, "root.b ask memory=4 gpu=1")) == ("n1", ["r1"])


def test_a_draining_node_is_no_place_for_the_ask() -> None:
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=4")
    trial.takes(nodes("n1", action=NODE_DRAIN))
    assert plan(trial, "root.b ask memory=4") == NO_HELP


def test_nor_is_one_that_is_too_small() -> None:
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=4")
    assert plan(trial, "root.b ask memory=5") == NO_HELP


def test_nor_is_one_where_all_candidates_together_are_too_small() -> None:
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=2", "root.b mine n1 memory=2")
    assert plan(trial, "root.b ask memory=3") == NO_HELP


def test_nor_is_one_that_is_kept_for_somebody_else() -> None:
    assert plan(kept("", age_s=60), "root.b ask memory=4 priority=1") == NO_HELP


def test_nodes_that_are_kept_for_the_ask_itself_are_like_others() -> None:
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=4")
    ask = question(trial, "root.b ask memory=4")
    reservations.reserve(trial.partition, trial.app("root.b"), ask, trial.node("n1"))
    found = guaranteed.plan(trial.partition, trial.app("root.b"), ask, nodes_tried=True)
    assert chosen(found) == ("n1", ["r1"])


def test_a_reservation_that_has_lasted_too_long_ends_for_a_more_important_ask() -> None:
    trial = kept("")
    found = plan(trial, "root.b ask memory=4 priority=1")
    assert chosen(found) == ("n1", ["r1"])
    assert isinstance(found, Plan)
    assert [one.ask.key for one in found.cancels] == ["kept"]
    assert list(trial.node("n1").reservations) == ["kept"]  # a plan changes nothing


@pytest.mark.parametrize("words", ["priority=1", "required=n1"])
def test_it_does_not_if_its_ask_is_as_important_or_can_run_nowhere_else(words: str) -> None:
    assert plan(kept(words), "root.b ask memory=4 priority=1") == NO_HELP


def test_it_does_not_if_somebody_had_to_go_for_its_ask() -> None:
    trial = kept("")
    trial.app("root.c").requests["kept"].preemption_triggered = True
    assert plan(trial, "root.b ask memory=4 priority=1") == NO_HELP


def test_it_does_not_until_its_ask_is_older_than_two_hours_and_two_seconds() -> None:
    assert plan(kept("", age_s=OLD_S - 1), "root.b ask memory=4 priority=1") == NO_HELP


# Where somebody else has a say --------------------------------------------------------------------------------------

FULL_QUEUE = "root.p max=memory:8; root.p.a; root.p.b guaranteed=memory:8"
ROOM = ("n1 memory=9", "n2 memory=9", "root.p.a r1 n1 memory=4", "root.p.a r2 n2 memory=4")


def test_a_node_that_does_not_admit_the_ask_is_passed_by() -> None:
    def admits(ask: Allocation, node: Node) -> bool:
        return node.node_id != "n1"

    assert chosen(plan(cluster(FULL_QUEUE, *ROOM), "root.p.b ask memory=4", tried=False))[0] == "n1"
    assert chosen(plan(cluster(FULL_QUEUE, *ROOM), "root.p.b ask memory=4", tried=False, admits=admits))[0] == "n2"


def test_if_none_does_nobody_goes() -> None:
    trial = cluster(FULL_QUEUE, *ROOM)
    assert plan(trial, "root.p.b ask memory=4", tried=False, admits=lambda ask, node: False) == NO_HELP


def test_originators_and_unwilling_ones_count_more_than_numbers() -> None:
    parts = (
        *("n1 memory=4", "n2 memory=4", "n3 memory=4"),
        *("root.a r1 n1 memory=4 originator", "root.a r2 n2 memory=4 unwilling"),
        *("root.a r3 n3 memory=2", "root.a r4 n3 memory=2"),
    )
    trial, ask = cluster(QUEUES.replace("100", "4"), *parts), "root.b ask memory=4"
    assert chosen(plan(trial, ask))[0] == "n3"
    two = cluster(QUEUES.replace("100", "4"), *parts[1:2], parts[0], *parts[3:5])
    assert chosen(plan(two, ask))[0] == "n1"


def test_a_node_where_more_go_is_better_than_any_number_of_nodes_with_originators() -> None:
    def best_of(first: str) -> str:
        ten = [part for n in range(10) for part in (f"n{n} memory=4", f"root.a r{n} n{n} memory=4 {first}")]
        last = ("nx memory=4", "root.a x1 nx memory=2", "root.a x2 nx memory=2")
        return chosen(plan(cluster(QUEUES.replace("100", "4"), *ten, *last), "root.b ask memory=4"))[0]

    assert best_of("") == "n0"
    assert best_of("originator") == "nx"


def test_many_small_ones_count_as_many_although_somebody_elsewhere_is_large() -> None:
    """The largest makes each node look as if one would do; of three and two that go, the two are fewer."""
    parts = (
        *("n1 memory=6", *(f"root.a a{n} n1 memory=2" for n in range(3))),
        *("n2 memory=6", "root.a b1 n2 memory=3", "root.a b2 n2 memory=3"),
        *("n3 memory=6", "root.c c1 n3 memory=6 priority=1"),
        *("n4 memory=3 gpu=1", "root.a d1 n4 memory=9"),
    )
    assert chosen(plan(cluster(QUEUES.replace("100", "6"), *parts), "root.b ask memory=6")) == ("n2", ["b2", "b1"])


@pytest.mark.parametrize("sort", ["", "unwilling", "originator", "unwilling originator"])
def test_fewer_of_the_same_sort_are_better_and_of_as_many_the_first_by_id(sort: str) -> None:
    parts: list[str] = []
    for name, sizes in (("n1", "112"), ("n3", "22"), ("n2", "22"), ("n0", "121")):
        parts.append(f"{name} memory=4")
        parts += (f"root.a {name}-{number} {name} memory={size} {sort}" for number, size in enumerate(sizes))
    trial = cluster(QUEUES.replace("100", "4"), *parts, "big memory=9", "root.a b big memory=5 " + sort)
    assert chosen(plan(trial, "root.b ask memory=4")) == ("n2", ["n2-1", "n2-0"])


def test_who_has_a_say_is_asked_only_as_far_as_it_matters() -> None:
    asked: list[str] = []

    def admits(ask: Allocation, node: Node) -> bool:
        asked.append(node.node_id)
        return node.node_id != "n10"

    room = [part for n in range(10, 22) for part in (f"n{n} memory=9", f"root.p.a r{n} n{n} memory=1")]
    trial = cluster(FULL_QUEUE.replace("8", "12"), *room)
    assert chosen(plan(trial, "root.p.b ask memory=1", tried=False, admits=admits))[0] == "n11"
    assert asked == ["n10", "n11"]


def test_a_node_without_any_candidate_counts_as_the_worst() -> None:
    """As in YuniKorn: the victims are then taken from where the ask is not going to run."""
    trial = cluster(FULL_QUEUE, "n0 memory=9", *ROOM)
    assert chosen(plan(trial, "root.p.b ask memory=4", tried=False))[0] == "n1"
