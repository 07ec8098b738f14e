"""A node that is kept for an ask: who gets one, what it is good for, and how it ends."""

import pytest

from common.rm_messages import (
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    AllocationRequest,
)
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.reservation_index import RESERVATION_MAX_S
from partition_worker.engine.state import Tuning
from tests.builders import apps, asks, foreign, gone, nodes, released
from tests.trial import Trial


def fragmented(queues: str = "root.a; root.b") -> Trial:
    """Two nodes of 10 of which 6 are used, and an ask for 5 that no node has room for."""
    one = Trial(queues).does(
        nodes("n1 memory=10", "n2 memory=10"),
        apps("small root.a", "big root.b"),
        asks("small s1 memory=6 on=n1", "small s2 memory=6 on=n2"),
        asks("big b1 memory=5"),
    )
    one.told()
    return one


def kept(one: Trial) -> dict[str, str]:
    """The node that is kept for each ask."""
    return {
        key: reservation.node.node_id
        for application in one.partition.applications.values()
        for key, reservation in application.reservations.items()
    }


# Getting one --------------------------------------------------------------------------------------------------------


def test_a_node_is_kept_for_an_ask_that_has_waited_for_two_seconds() -> None:
    one = fragmented()
    assert kept(one.waits(1.9)) == {}
    assert kept(one.waits(0.2)) == {"b1": "n1"}


def test_the_node_is_the_one_that_the_ask_would_fill_best() -> None:
    """Vector 17."""
    one = Trial().does(
        nodes("a vcore=4 memory=8", "b vcore=4 memory=40", "c vcore=4 memory=8 gpu=1"),
        apps("app-1 root.a"),
        asks("app-1 s1 vcore=1 memory=2 on=a", "app-1 s2 vcore=1 memory=8 on=b", "app-1 s3 vcore=4 memory=4 on=c"),
        asks("app-1 big vcore=4 memory=8"),
    )
    assert kept(one.waits(2.1)) == {"big": "a"}


def test_a_node_that_is_kept_takes_nothing_else() -> None:
    one = fragmented().waits(2.1)
    one.does(asks("small x1 memory=4", "small x2 memory=4"))
    assert one.placed() == ["x1 on n2"]


def test_a_node_is_kept_for_one_ask_and_the_next_ask_gets_the_next_node() -> None:
    one = fragmented()
    one.does(asks("big b2 memory=5", "big b3 memory=5")).waits(2.1)
    assert kept(one) == {"b1": "n1", "b2": "n2"}
    assert kept(one.does(nodes("n3 memory=4")).waits(3)) == {"b1": "n1", "b2": "n2"}, "n3 could never take it"
    one.does(asks("small s3 memory=6 on=n3"), nodes("n4 memory=10", action=NODE_CREATE_DRAIN))
    one.does(asks("small s4 memory=9 on=n4"), nodes("n4", action=NODE_DRAIN_TO_SCHEDULABLE))
    assert kept(one) == {"b1": "n1", "b2": "n2", "b3": "n4"}


def test_no_node_is_kept_for_what_its_queue_or_user_has_no_room_for() -> None:
    one = fragmented("root.a; root.b max=memory:4").waits(5)
    assert kept(one) == {}
    one = fragmented("root.a; root.b limit.user.*=memory:4").waits(5)
    assert kept(one) == {}


def test_an_ask_from_the_future_waits_for_its_time() -> None:
    one = fragmented()
    one.does(asks(f"big late memory=5 created={int(one.now) + 60}"))
    assert kept(one.waits(5)) == {"b1": "n1"}
    assert kept(one.waits(60)) == {"b1": "n1", "late": "n2"}


def test_nothing_is_kept_where_that_is_switched_off() -> None:
    one = fragmented()
    one.partition.tuning = Tuning(reservation_delay_s=float("inf"))
    one.does(asks("big b2 memory=5"))
    assert kept(one.waits(1000)) == {}


# Using it -----------------------------------------------------------------------------------------------------------


def test_it_is_used_as_soon_as_its_node_has_room() -> None:
    one = fragmented().waits(2.1)
    one.does(asks("small x1 memory=4 created=1"))
    one.told()
    assert one.does(released("small s1")).placed() == ["b1 on n1"]
    assert kept(one) == {}
    assert one.node("n1").reservations == {}


def test_it_comes_before_whoever_else_waits() -> None:
    one = fragmented("root.a application.sort.policy=fifo; root.b").waits(2.1)
    one.does(asks("small urgent memory=5 priority=9"))
    assert one.does(released("small s1")).placed() == ["b1 on n1", "urgent on n1"]


def test_another_node_that_has_room_first_is_taken() -> None:
    one = fragmented().waits(2.1)
    assert one.does(released("small s2")).placed() == ["b1 on n2"]
    one.does(asks("small x memory=5", "small y memory=4"))
    assert one.placed() == ["x on n2", "y on n1"], "nobody keeps it any more"


def test_a_draining_node_still_takes_the_ask_for_which_it_is_kept() -> None:
    one = fragmented().waits(2.1).does(nodes("n1", action=NODE_DRAIN))
    assert one.does(released("small s1")).placed() == ["b1 on n1"]


def test_room_that_something_foreign_leaves_is_used_too() -> None:
    one = Trial().does(nodes("n1 memory=10"), foreign("f1 n1 memory=6"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=5")).waits(2.1)
    assert kept(one) == {"a1": "n1"}
    assert one.does(released("- f1")).placed() == ["a1 on n1"]


def test_it_waits_for_room_in_its_queue_and_is_used_when_there_is_some() -> None:
    one = fragmented("root.a; root.b max=memory:9").waits(2.1)
    one.does(asks("big own memory=5 on=n2")).told()
    assert one.does(released("small s1")).placed() == []
    assert kept(one) == {"b1": "n1"}
    assert one.does(released("big own")).placed() == ["b1 on n1"]


def test_the_queue_that_deserves_it_most_uses_its_reservation_first() -> None:
    one = Trial("root.p max=memory:14; root.p.a; root.p.b; root.c").does(
        nodes("n1 memory=6", "n2 memory=6", "n3 memory=1"),
        apps("one root.p.a", "two root.p.b", "other root.c"),
        asks("one e1 memory=1 on=n3", "two h1 memory=2 on=n1", "other h2 memory=2 on=n2"),
        asks("one a1 memory=5", "two b1 memory=5"),
    )
    one.waits(2.1).told()
    assert kept(one) == {"a1": "n1", "b1": "n2"}
    one.takes(released("two h1"), released("other h2")).settles()
    assert one.placed() == ["b1 on n2", "a1 on n1"]


# The end of it ------------------------------------------------------------------------------------------------------


def test_it_goes_with_its_ask() -> None:
    one = fragmented().waits(2.1).does(released("big b1"))
    assert one.node("n1").reservations == {}
    assert one.does(asks("small x memory=4")).placed() == ["x on n1"]


def test_it_goes_with_its_application() -> None:
    one = fragmented().waits(2.1).does(gone("big"))
    assert one.does(asks("small x memory=4")).placed() == ["x on n1"]


def test_it_goes_with_its_node_and_another_one_is_kept() -> None:
    one = fragmented().waits(2.1).does(nodes("n3 memory=3"), nodes("n1", action=NODE_DECOMMISSION))
    assert kept(one) == {"b1": "n2"}


def test_it_ends_after_two_hours_and_a_node_is_kept_anew() -> None:
    one = fragmented().waits(2.1)
    assert kept(one.waits(RESERVATION_MAX_S - 1)) == {"b1": "n1"}
    before = one.node("n1").reservations["b1"]
    one.waits(2)
    assert kept(one) == {"b1": "n1"}
    assert one.node("n1").reservations["b1"] is not before


def test_an_ask_that_an_rm_places_elsewhere_keeps_no_node() -> None:
    one = fragmented().waits(2.1).does(asks("big b1 memory=5 on=n2"))
    assert kept(one) == {}


@pytest.mark.parametrize(("amount", "expected"), [("memory=7", {"b1": "n1"}), ("memory=11", {})])
def test_an_ask_that_grows_keeps_its_node_if_that_could_take_it(amount: str, expected: dict[str, str]) -> None:
    one = fragmented().waits(2.1).does(asks(f"big b1 {amount}"))
    assert kept(one) == expected


def test_an_ask_that_shrinks_is_placed_wherever_there_is_room_now() -> None:
    one = fragmented().waits(2.1).does(asks("small x memory=4 on=n1"))
    one.told()
    assert one.does(asks("big b1 memory=4")).placed() == ["b1 on n2"]


def test_a_move_gives_the_node_up_and_a_node_is_kept_anew() -> None:
    one = fragmented().waits(2.1).moves("big", "root.a")
    assert kept(one) == {"b1": "n1"}


# One node only ------------------------------------------------------------------------------------------------------


def test_the_only_possible_node_is_kept_at_once_and_takes_the_place_of_others() -> None:
    one = fragmented().waits(2.1)
    one.does(apps("daemon root.a"), asks("daemon d1 memory=5 required=n1 priority=-1"))
    assert kept(one) == {"d1": "n1", "b1": "n2"}
    assert one.does(released("small s1")).placed() == ["d1 on n1", "b1 on n1"]


def test_several_that_can_run_nowhere_else_share_a_node() -> None:
    one = fragmented().does(asks("big d1 memory=5 required=n1 priority=-1", "big d2 memory=5 required=n1 priority=-1"))
    assert kept(one) == {"d1": "n1", "d2": "n1"}
    assert one.does(released("small s1")).placed() == ["d1 on n1", "d2 on n1"]


def test_of_those_that_share_a_node_a_smaller_one_is_placed_first_if_it_fits() -> None:
    one = fragmented().does(asks("big d1 memory=5 required=n1 priority=-1"), asks("small d2 memory=1 required=n1"))
    assert one.placed() == ["d2 on n1"]
    assert kept(one) == {"d1": "n1"}


def test_a_node_that_does_not_exist_yet_is_waited_for() -> None:
    one = fragmented().does(asks("big d1 memory=5 required=n9 priority=1"))
    assert kept(one) == {}
    assert one.does(nodes("n9 memory=9")).placed() == ["d1 on n9"]


def test_a_node_that_is_too_small_is_kept_for_nobody_and_waited_for_to_grow() -> None:
    one = fragmented().does(asks("big d1 memory=11 required=n1 priority=1"), nodes("n3 memory=30"))
    assert kept(one.waits(1)) == {}
    assert kept(one.does(nodes("n1 memory=12", action=NODE_UPDATE))) == {"d1": "n1"}


# Many -----------------------------------------------------------------------------------------------------------------


def crowd(count: int, queues: str = "root.a; root.b", others: str = "") -> Trial:
    """So many nodes of 10 that are kept for asks of 10, as 9 of each is used."""
    one = Trial(queues).does(
        nodes(*(f"n{number} memory=10" for number in range(count))),
        apps("small root.a", "big root.b"),
        asks(*(f"small s{number} memory=9" for number in range(count))),
    )
    one.takes(asks(*(f"big b{number} memory=10" for number in range(count))), *([asks(others)] if others else []))
    one.waits(2.1)
    assert len(kept(one)) == count
    return one


def looks(one: Trial, monkeypatch: pytest.MonkeyPatch, *commands: AllocationRequest) -> int:
    """How often it is asked whether a queue has room for an ask with a reservation."""
    counted = []
    plain = Queue.has_room

    def has_room(*of: object) -> bool:
        counted.extend([of] if len(of) == 3 else [])  # with the room that is kept for the ask
        return plain(*of)

    monkeypatch.setattr(Queue, "has_room", has_room)
    one.takes(*commands)
    while not one.partition.idle:
        one.partition.step(one.now, 100)
    return len(counted)


def test_nodes_that_are_free_all_at_once_cost_a_look_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    one = crowd(30)
    assert looks(one, monkeypatch, released(*(f"small s{number}" for number in range(30)))) < 4 * 30
    assert sorted(one.running) == sorted(f"b{number} on {node}" for number, node in enumerate(_nodes_of(one)))


def _nodes_of(one: Trial) -> list[str]:
    return [one.partition.allocations[f"b{number}"].node_id for number in range(30)]


def test_what_waits_for_its_queue_costs_one_look_at_it_however_many_nodes_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = crowd(30, "root.a; root.b max=memory:19", "big first memory=9 priority=1")
    one.does(released("small s0"))
    assert "first on n0" in one.running
    for number in range(1, 20):
        one.takes(released(f"small s{number}")).settles()
    one.does(foreign("f1 n29 memory=1"))
    assert looks(one, monkeypatch, released("- f1")) < 5


def test_a_reservation_of_another_amount_is_as_old_as_it_was() -> None:
    one = crowd(12)
    before = [reservation.ask.key for reservation in one.partition.reservation_index.by_rank.values()]
    one.does(asks(f"big {before[0]} memory=9"))
    assert [reservation.ask.key for reservation in one.partition.reservation_index.by_rank.values()] == before


def test_a_node_that_became_too_small_is_kept_for_nobody_and_another_one_is() -> None:
    one = Trial("root.a; root.b").does(
        nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"),
        apps("small root.a", "big root.b"),
        asks(*(f"small s{number} memory=6 on=n{number}" for number in (1, 2, 3))),
        asks("big b1 memory=5"),
    )
    assert kept(one.waits(2.1)) == {"b1": "n1"}
    one.does(nodes("n1 memory=4", action=NODE_UPDATE))
    assert kept(one) == {"b1": "n2"}


def test_what_grows_where_it_runs_changes_which_node_is_kept() -> None:
    one = Trial().does(
        nodes("n1 memory=10 vcore=4", "n2 memory=10 vcore=4"),
        nodes("n3 memory=10 vcore=4", action=NODE_CREATE_DRAIN),
        apps("app-1 root.a"),
        asks("app-1 s1 memory=2 vcore=4 on=n1", "app-1 s2 memory=6 vcore=2 on=n2", "app-1 b1 memory=2 vcore=3"),
    )
    assert kept(one.waits(2.1)) == {"b1": "n2"}
    one.takes(released("app-1 b1")).takes(asks("app-1 s1 memory=7 vcore=4", "app-1 b2 memory=2 vcore=3"))
    assert kept(one.waits(2.1)) == {"b2": "n1"}


def test_an_ask_that_waits_for_a_say_about_its_only_node_makes_others_go_once_they_fill_it() -> None:
    one = Trial()
    one.partition.nodes.predicates.asks_manager = True
    one.does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a"))
    one.does(asks("app-1 d1 memory=8 required=n1 priority=1"))
    one.does(asks("app-1 x1 memory=5 on=n1"))
    assert [line for line in one.told() if "PREEMPTED" in line] == [
        "x1 released (PREEMPTED_BY_SCHEDULER: preempting allocations to free up resources to run daemon set ask: d1)"
    ]
