"""A node that is kept for an ask: who gets one, what it is good for, and how it ends."""

import json

import pytest
from msgspec.structs import replace

from tests.builders import PROVIDED_CREATE, apps, asks, foreign, gone, nodes, released
from tests.trial import Trial
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import (
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    AddApplicationRequest,
    AllocationRequest,
    ApplicationRequest,
)
from yunishard.partition_worker.engine.amounts import Amounts, amounts_of
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import RESERVATION_MAX_S, Tuning


def sharing(one: Trial, percent: int = 100) -> Trial:
    """Let an application reserve this percentage of the nodes."""
    one.partition.tuning = Tuning(reservation_share_percent=percent)
    return one


def fragmented(queues: str = "root.a; root.b") -> Trial:
    """Two nodes of 10 of which 6 are used, and an ask for 5 that no node has room for."""
    one = sharing(Trial(queues)).does(
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


def test_it_ends_after_two_hours_and_a_node_is_kept_anew_after_two_seconds() -> None:
    one = fragmented().waits(2.1)
    assert kept(one.waits(RESERVATION_MAX_S - 1)) == {"b1": "n1"}
    assert kept(one.waits(2)) == {}
    assert kept(one.waits(1.1)) == {"b1": "n1"}


def test_others_get_a_node_whose_reservation_has_ended_although_their_queue_comes_later() -> None:
    one = fragmented().waits(2.1).does(asks("small x1 memory=4", "small x2 memory=4"))
    assert one.placed() == ["x1 on n2"]
    one.waits(RESERVATION_MAX_S)
    assert (one.placed(), kept(one)) == (["x2 on n1"], {})


def test_others_get_a_required_node_whose_reservation_has_ended() -> None:
    one = fragmented().does(asks("big d1 memory=5 required=n1 priority=-1", "small x memory=4 priority=-1"))
    one.does(asks("small y memory=4 priority=-1"))
    assert (kept(one), one.placed()) == ({"d1": "n1"}, ["x on n2"])
    one.waits(RESERVATION_MAX_S)
    assert (kept(one), one.placed()) == ({}, ["y on n1"])
    one.does(released("small x"), released("small s2"))
    assert kept(one.waits(2.1)) == {"d1": "n1"}


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


# Giving way ---------------------------------------------------------------------------------------------------------


def test_it_ends_when_its_queue_has_become_full_and_the_node_takes_other_asks() -> None:
    one = fragmented("root.a; root.b max=memory:9").waits(2.1).does(nodes("n3 memory=10", action=NODE_CREATE_DRAIN))
    one.does(asks("small x1 memory=4", "small x2 memory=4"))
    assert one.placed() == ["x1 on n2"]
    one.does(asks("big own memory=5 on=n3"))
    assert (kept(one), one.placed()) == ({}, ["own on n3", "x2 on n1"])
    one.does(released("small s1"), released("big own"))
    assert one.placed() == ["b1 on n1"], "the queue has room again"


def test_it_ends_when_another_queue_has_filled_the_parent() -> None:
    one = fragmented("root.p max=memory:20; root.p.a; root.p.b")
    one.takes(gone("small"), gone("big")).does(
        apps("small root.p.a", "big root.p.b"),
        asks("small s1 memory=6 on=n1", "small s2 memory=6 on=n2", "big b1 memory=5"),
    )
    assert kept(one.waits(2.1)) == {"b1": "n1"}
    one.does(asks("small x memory=4"))
    assert kept(one) == {}


@pytest.mark.parametrize("limit", ["limit.user.eve=memory:9", "limit.group.ops=memory:9", "limit.user.eve=apps:1"])
def test_it_ends_when_its_user_or_group_has_no_room(limit: str) -> None:
    one = fragmented(f"root {limit}; root.a; root.b").takes(gone("big"))
    one.does(apps("large root.b user=eve groups=ops", "other root.a user=eve groups=ops"), asks("large b1 memory=5"))
    assert kept(one.waits(2.1)) == {"b1": "n1"}
    one.does(asks("other x memory=5 on=n2"))
    assert kept(one) == {}
    one.does(gone("other"))
    assert kept(one) == {"b1": "n1"}, "it has room again"


def test_it_ends_when_a_maximum_or_a_limit_is_lowered() -> None:
    one = fragmented().waits(2.1).reconfigures("root.a; root.b max=memory:4")
    assert kept(one) == {}
    assert kept(one.reconfigures("root.a; root.b")) == {"b1": "n1"}
    assert kept(one.reconfigures("root.a; root.b limit.user.*=memory:4")) == {}


def test_it_ends_when_the_quota_of_its_namespace_is_lowered() -> None:
    one = Trial("root.p parent", rules=(PROVIDED_CREATE,)).does(nodes("n1 memory=10", "n2 memory=10"))
    one.does(
        apps("small root.p.small", "big root.p.big"),
        asks("small s1 memory=6 on=n1", "small s2 memory=6 on=n2", "big b1 memory=5"),
    )
    assert kept(one.waits(2.1)) == {"b1": "n1"}
    quota = json.dumps({"resources": {"memory": {"value": 4}}})
    one.does(ApplicationRequest(new=[_with_quota("other", "root.p.big", quota)]))
    assert kept(one) == {}


def _with_quota(app: str, queue: str, quota: str) -> AddApplicationRequest:
    [new] = apps(f"{app} {queue}").new
    return replace(new, tags={"namespace.resourcequota": quota})


def test_it_ends_within_a_series_of_simple_decisions() -> None:
    one = fragmented("root.a; root.b max=memory:8").waits(2.1)
    one.does(apps("own root.b"), asks("own o1 memory=1 on=n2"), asks("own o2 memory=2")).told()
    one.takes(asks("own o3 memory=1", "own o4 memory=1", "own o5 memory=1", "own o6 memory=1")).settles()
    assert (kept(one), one.placed()) == ({}, ["o3 on n2", "o4 on n1", "o5 on n1", "o6 on n1"])


def test_it_stays_while_small_asks_fill_the_cluster() -> None:
    one = fragmented().waits(2.1).does(asks("small x memory=4"))
    assert (kept(one), one.queue("root").has_room(amounts_of({"memory": 5}))) == ({"b1": "n1"}, False)


# Priority -----------------------------------------------------------------------------------------------------------


def reserved(priority: int = -5, queues: str = "root.a; root.b") -> Trial:
    """Two nodes of 10 of which 6 and 10 are used; that with room is reserved for an ask of 5."""
    one = Trial(queues).does(
        nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"),
        nodes("n3", action=NODE_DRAIN),
        apps("small root.a", "big root.b"),
        asks("small s1 memory=6 on=n1", "small s2 memory=10 on=n2"),
        asks(f"big b1 memory=5 priority={priority}"),
    )
    one.waits(2.1).told()
    assert kept(one) == {"b1": "n1"}
    return one


@pytest.mark.parametrize(("priority", "expected"), [(-6, []), (-5, []), (-4, ["x on n1"]), (100, ["x on n1"])])
def test_it_gives_way_to_an_ask_of_higher_priority_that_fits_now(priority: int, expected: list[str]) -> None:
    one = reserved().does(asks(f"small x memory=4 priority={priority}"))
    assert (one.placed(), kept(one)) == (expected, {"b1": "n1"})


def test_an_ask_of_higher_priority_gets_an_unreserved_node_first() -> None:
    one = reserved().does(nodes("n0 memory=4", "n4 memory=4"), asks("small x memory=4 priority=1"))
    assert one.placed() == ["x on n0"]


def test_an_ask_that_waited_gets_the_room_of_a_reserved_node_once_it_fits() -> None:
    one = reserved().does(
        asks("small x memory=8 priority=-9", "small y memory=7 priority=1", "small z memory=7 priority=2")
    )
    one.does(foreign("f n2 memory=1")).told()
    assert one.does(asks("small s1 memory=1")).placed() == ["b1 on n1"], (
        "b1 fits as well, and its node is reserved for it"
    )
    one = reserved().does(asks("big b1 memory=10"), asks("small y memory=7 priority=-5", "small z memory=7"))
    assert one.does(asks("small s1 memory=3")).placed() == ["z on n1"]
    assert one.does(released("small s1")).placed() == []
    assert one.does(released("small z")).placed() == ["b1 on n1"]


def test_an_ask_with_a_reservation_gets_the_node_of_one_of_lower_priority() -> None:
    one = fragmented().does(apps("urgent root.b"), asks("urgent u1 memory=8 priority=1"), asks("big b1 memory=8"))
    one.waits(2.1).told()
    assert kept(one) == {"u1": "n1", "b1": "n2"}
    one.does(asks("small s2 memory=2"))
    assert (one.placed(), kept(one)) == (["u1 on n2"], {"b1": "n2"})


def test_the_highest_priority_uses_its_reservation_first() -> None:
    one = fragmented("root.a; root.b max=memory:9")
    one.does(asks("big b2 memory=5 priority=1")).waits(2.1).told()
    assert kept(one) == {"b2": "n1", "b1": "n2"}
    one.takes(released("small s2"), released("small s1")).settles()
    assert (one.placed()[0], kept(one)) == ("b2 on n1", {})


def test_a_fence_hides_the_priority_behind_it_and_an_offset_counts() -> None:
    fenced = "root.a priority.policy=fence priority.offset={}; root.b"
    one = reserved(0, fenced.format(0)).does(asks("small x memory=4 priority=100"))
    assert one.placed() == []
    one.reconfigures(fenced.format(1))
    assert one.placed() == ["x on n1"]


def test_it_gives_way_to_nothing_after_a_preemption() -> None:
    one = Trial("root.a; root.b guaranteed=memory:10 preemption.delay=1s").does(
        nodes("n1 memory=10"), apps("small root.a", "big root.b"), asks("small v1 memory=4 victim on=n1 priority=-9")
    )
    one.does(asks("small v2 memory=4 victim on=n1 priority=-9"), asks("big b1 memory=8 preemptor priority=-5"))
    one.waits(1.1).told()
    assert kept(one) == {"b1": "n1"}
    one.does(asks("small x memory=2 priority=100"))
    assert one.placed() == []


def test_a_node_that_drains_gives_way_to_nothing_until_it_is_open() -> None:
    one = reserved().does(nodes("n1", action=NODE_DRAIN), asks("small x memory=4 priority=1"))
    assert one.placed() == []
    assert one.does(nodes("n1", action=NODE_DRAIN_TO_SCHEDULABLE)).placed() == ["x on n1"]


def test_nodes_that_several_asks_require_give_way_if_all_have_a_lower_priority() -> None:
    one = fragmented().does(asks("big d1 memory=5 required=n1 priority=-2", "big d2 memory=5 required=n1 priority=-1"))
    one.does(asks("small y memory=4 priority=-1"), asks("small x memory=4 priority=-1")).told()
    assert kept(one) == {"d1": "n1", "d2": "n1"}
    assert one.does(asks("small z memory=4")).placed() == ["z on n1"]


# The share of an application ----------------------------------------------------------------------------------------


def greedy(count: int = 8, *, share: int = 25) -> Trial:
    """As many nodes of 10 of which 6 are used, and an application with six asks that no node has room for."""
    one = sharing(Trial("root.a; root.b"), share).does(
        nodes(*(f"n{number} memory=10" for number in range(count))),
        apps("small root.a", "big root.b"),
        asks(*(f"small s{number} memory=6 on=n{number}" for number in range(count))),
    )
    one.does(asks(*(f"big b{number} memory=10" for number in range(6)))).told()
    return one


def test_an_application_reserves_a_quarter_of_the_nodes_and_others_run_on_the_rest() -> None:
    one = greedy().waits(2.1)
    assert kept(one) == {"b0": "n0", "b1": "n1"}
    one.does(asks(*(f"small x{number} memory=4" for number in range(6))))
    assert one.placed() == [f"x{number} on n{number + 2}" for number in range(6)]


@pytest.mark.parametrize(("count", "share", "expected"), [(3, 25, 1), (1, 0, 1), (8, 0, 1), (8, 50, 4), (8, 100, 6)])
def test_the_share_is_a_setting_and_at_least_one_node(count: int, share: int, expected: int) -> None:
    one = greedy(count, share=share)
    one.does(foreign(*(f"f{number} n{number} memory=1" for number in range(count))))
    one.does(nodes("large memory=10", action=NODE_CREATE_DRAIN)).waits(2.1)  # or the cluster has no room for any
    assert len(kept(one)) == expected


def test_the_next_ask_reserves_when_one_has_got_its_node() -> None:
    one = greedy().waits(2.1).does(released("small s0"))
    assert (one.placed(), kept(one)) == (["b0 on n0"], {"b1": "n1", "b2": "n2"})


def test_the_newest_reservations_end_when_nodes_leave_and_more_are_made_when_nodes_join() -> None:
    one = greedy().waits(2.1).does(nodes("n7", action=NODE_DECOMMISSION))
    assert kept(one) == {"b0": "n0"}
    one.takes(*(nodes(f"n{number} memory=10", action=NODE_CREATE_DRAIN) for number in range(7, 12))).settles()
    assert kept(one) == {"b0": "n0", "b1": "n1", "b2": "n2"}


def test_an_application_at_its_share_leaves_the_next_node_to_others() -> None:
    one = greedy(4).does(apps("late root.b"), asks("late l1 memory=10")).waits(2.1)
    assert kept(one) == {"b0": "n0", "l1": "n1"}
    one.does(apps("daemon root.a"), asks("daemon d1 memory=5 required=n1"))
    assert kept(one) == {"b0": "n0", "d1": "n1", "l1": "n2"}


def test_reservations_of_required_nodes_do_not_count() -> None:
    one = greedy().does(asks(*(f"big d{number} memory=5 required=n{number} priority=1" for number in range(4, 8))))
    assert kept(one) == {f"d{number}": f"n{number}" for number in range(4, 8)}
    assert kept(one.waits(2.1)) == {"b0": "n0", "b1": "n1"} | {f"d{number}": f"n{number}" for number in range(4, 8)}


# One node only ------------------------------------------------------------------------------------------------------


def test_the_only_possible_node_is_kept_at_once_and_takes_the_place_of_others() -> None:
    one = fragmented().waits(2.1)
    one.does(apps("daemon root.a"), asks("daemon d1 memory=5 required=n1 priority=-1"))
    assert kept(one) == {"d1": "n1", "b1": "n2"}
    assert one.does(released("small s1")).placed() == ["b1 on n1", "d1 on n1"], "b1 has the higher priority"


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
    one = sharing(Trial(queues)).does(
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

    def has_room(self: Queue, amounts: Amounts, kept: Resources | None = None, end: Queue | None = None) -> bool:
        counted.extend([amounts] if kept is not None or end else [])
        return plain(self, amounts, kept or {}, end)

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


def test_the_reservations_of_a_queue_that_becomes_full_end_after_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    one = crowd(30, "root.a; root.b max=memory:20")
    assert looks(one, monkeypatch, asks("big own memory=11 on=n0")) == 1
    assert kept(one) == {}


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
