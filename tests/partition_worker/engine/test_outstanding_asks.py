"""Asks that only a larger cluster would help, and when the RM is told of them (spec 4.10)."""

from itertools import pairwise

import pytest

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.rm_messages import SCHEDULING_FAILED, UpdateContainerSchedulingState
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine import outstanding_asks
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.amounts import name_types
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.outstanding_asks import OutstandingAsks
from yunishard.partition_worker.engine.state import PartitionState


def trial(queues: str = "root.a", *, memory: int = 10) -> Trial:
    """A node, and an application that has all of it."""
    one = Trial(queues).takes(nodes(f"n1 memory={memory}"), apps("app-0 root.a", "app-1 root.a", "app-2 root.a"))
    one.does(asks(f"app-0 full memory={memory} on=n1"))
    one.told()
    return one


def test_an_ask_that_no_node_can_take_is_told_half_a_second_later_and_once() -> None:
    one = trial().does(asks("app-1 a1 memory=4"))
    assert one.waits(0.4).scale_ups() == []
    assert one.waits(0.1).scale_ups() == ["a1"]
    assert one.waits(100).scale_ups() == []


def test_what_is_told_says_why() -> None:
    one = trial().does(asks("app-1 a1 memory=4")).waits(1)
    assert one.effects[-1].part == UpdateContainerSchedulingState(
        application_id="app-1",
        allocation_key="a1",
        state=SCHEDULING_FAILED,
        reason="request is waiting for cluster resources become available",
    )


def test_without_anything_to_tell_nobody_is_woken() -> None:
    one = trial().does(asks("app-1 a1 memory=4")).waits(1)
    assert one.partition.outstanding.deadline == NEVER
    one.does(released("app-1 a1"), released("app-0 full")).waits(1)
    assert one.partition.outstanding.deadline == NEVER


def test_many_changes_within_half_a_second_are_one_look() -> None:
    one = trial().does(asks("app-1 a1 memory=4")).waits(0.25).does(asks("app-1 a2 memory=4"))
    assert one.waits(0.25).scale_ups() == ["a1", "a2"]


def test_an_ask_that_was_not_tried_is_not_told() -> None:
    one = trial("root.a maxapps=1").does(asks("app-1 a1 memory=4")).waits(2)
    assert one.scale_ups() == []


def test_without_a_node_nothing_was_tried() -> None:
    one = Trial().takes(apps("app-1 root.a")).does(asks("app-1 a1 memory=1")).waits(2)
    assert one.scale_ups() == []


def test_an_ask_that_can_run_on_one_node_only_is_not_helped_by_others() -> None:
    assert trial().does(asks("app-1 a1 memory=4 required=n1")).waits(2).scale_ups() == []


def test_an_ask_that_is_larger_than_any_node_is_told() -> None:
    assert trial().does(asks("app-1 a1 memory=400")).waits(1).scale_ups() == ["a1"]


def test_an_ask_for_which_a_node_is_kept_is_not_told_again() -> None:
    one = trial().takes(nodes("n2 memory=10")).does(asks("app-0 most memory=7 on=n2", "app-1 a0 memory=1"))
    one.takes(nodes("n3 memory=3")).does(asks("app-1 a1 memory=4")).waits(10)
    assert one.app("app-1").reservations
    assert one.scale_ups() == ["a1"]
    assert one.app("app-1").asks.told == 1


# Quotas ---------------------------------------------------------------------------------------------------------------


def test_what_its_queue_would_not_let_it_have_is_not_told() -> None:
    one = trial("root.a max=memory:15").does(asks("app-1 a1 memory=6", "app-1 a2 memory=5"))
    assert one.waits(1).scale_ups() == ["a2"]


def test_the_room_of_queues_above_counts_and_the_size_of_the_cluster_does_not() -> None:
    one = trial("root.p max=memory:7; root.p.b max=memory:100; root.a").takes(apps("app-3 root.p.b"))
    one.does(asks("app-3 a1 memory=8", "app-3 a2 memory=7"))
    assert one.waits(1).scale_ups() == ["a2"]


def test_what_its_user_may_not_have_is_not_told() -> None:
    one = trial("root.a limit.user.bob=memory:14").does(asks("app-1 a1 memory=5"), asks("app-2 b1 memory=4"))
    assert one.waits(1).scale_ups() == ["b1"]


def test_as_many_of_one_kind_are_told_as_fit_the_first_ones() -> None:
    one = trial("root.a max=memory:20").does(asks(*(f"app-1 a{number} memory=4" for number in range(5))))
    assert one.waits(1).scale_ups() == ["a0", "a1"]
    assert one.waits(100).scale_ups() == []


def test_what_was_told_takes_room_from_the_asks_after_it_in_its_application() -> None:
    one = trial("root.a max=memory:20").does(asks("app-1 a1 memory=6")).waits(1)
    assert one.scale_ups() == ["a1"]
    one.does(asks("app-1 a2 memory=5", "app-1 a3 memory=4"))
    assert one.waits(1).scale_ups() == ["a3"]


def test_what_is_told_newly_takes_room_from_the_next_applications_and_queues() -> None:
    one = trial("root.p max=memory:10; root.p.a; root.p.b; root.a").takes(
        apps("app-3 root.p.a", "app-4 root.p.a", "app-5 root.p.b")
    )
    one.does(asks("app-3 a1 memory=5", "app-4 b1 memory=4", "app-5 c1 memory=4", "app-5 c2 memory=1"))
    assert one.waits(1).scale_ups() == ["a1", "b1", "c2"]


def test_more_is_told_once_there_is_room_in_the_quota() -> None:
    one = trial("root.a max=memory:12").does(asks("app-1 a1 memory=2", "app-1 a2 memory=2")).waits(5)
    assert one.scale_ups() == ["a1"]
    one.reconfigures("root.a max=memory:14")
    assert one.waits(1).scale_ups() == ["a2"]


def small_parent() -> Trial:
    """Ten applications below a parent with room for two of their asks."""
    one = trial("root.p max=memory:8; root.p.a; root.p.b; root.a")
    return one.takes(apps(*(f"small-{number} root.p.{'ab'[number % 2]}" for number in range(10))))


def test_asks_that_were_reported_and_still_wait_leave_no_room_for_others() -> None:
    one = small_parent()
    told = [
        key for number in range(10) for key in one.does(asks(f"small-{number} s{number} memory=4")).waits(2).scale_ups()
    ]
    assert told == ["s0", "s1"]
    assert one.does(released("small-0 s0")).waits(2).scale_ups() == ["s3"]


def test_the_limits_of_users_and_groups_are_filled_once_as_well() -> None:
    for limit in ("user.bob", "group.dev"):
        one = trial(f"root.b limit.{limit}=memory:8; root.a")
        one.takes(apps(*(f"small-{number} root.b groups=dev" for number in range(5))))
        told = [
            key
            for number in range(5)
            for key in one.does(asks(f"small-{number} s{number} memory=4")).waits(2).scale_ups()
        ]
        assert told == ["s0", "s1"]
        assert one.does(released("small-0 s0")).waits(2).scale_ups() == ["s2"]


def test_an_ask_that_was_reported_and_placed_takes_its_room_once() -> None:
    one = small_parent().does(asks(*(f"small-{number} s{number} memory=4" for number in range(5)))).waits(2)
    assert one.scale_ups() == ["s0", "s2"]
    assert one.does(nodes("n2 memory=4")).waits(2).scale_ups() == []
    assert name_types(one.app("small-0").asks.told_sum) == {}


def test_a_real_ask_that_waits_for_its_placeholder_does_not_count_twice() -> None:
    """Its placeholder was reported, and it takes the place of that one."""
    one = trial("root.p max=memory:8; root.p.a; root.a").takes(apps("gang root.p.a gang=memory:4", "small-1 root.p.a"))
    one.does(asks("gang p1 memory=4 placeholder group=g"), asks("gang g1 memory=4 group=g")).waits(2)
    assert one.scale_ups() == ["p1"]
    assert name_types(one.app("gang").asks.told_sum) == {"memory": 4}
    one.does(asks("small-1 s1 memory=4", "small-1 s2 memory=4"))
    assert one.waits(2).scale_ups() == ["s1"]


# Bounds ---------------------------------------------------------------------------------------------------------------


def test_no_more_are_told_at_once_than_the_bound_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outstanding_asks, "REPORTED_MAX", 2)
    one = trial().does(asks(*(f"app-1 a{number} memory=4" for number in range(3))), asks("app-2 b1 memory=4"))
    assert one.waits(0.5).scale_ups() == ["a0", "a1"]
    assert one.waits(0.5).scale_ups() == ["a2", "b1"]
    assert one.waits(0.5).partition.outstanding.deadline == NEVER


def test_applications_that_are_too_many_for_one_look_have_their_turn_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outstanding_asks, "APPLICATIONS_MAX", 1)
    one = trial("root.a max=memory:14").does(asks("app-1 a1 memory=5"), asks("app-2 b1 memory=4"))
    assert one.waits(0.5).scale_ups() == []
    assert one.waits(0.5).scale_ups() == ["b1"]
    assert one.waits(2).partition.outstanding.deadline == NEVER


def test_all_applications_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outstanding_asks, "APPLICATIONS_MAX", 2)
    one = trial().takes(apps(*(f"many-{number} root.a" for number in range(7))))
    one.does(asks(*(f"many-{number} m{number} memory=4" for number in range(7))))
    assert one.waits(5).scale_ups() == [f"m{number}" for number in range(7)]
    assert one.partition.outstanding.deadline == NEVER


def test_of_an_application_with_too_many_kinds_of_asks_the_first_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outstanding_asks, "GROUPS_MAX", 2)
    one = trial().does(asks(*(f"app-1 a{size} memory={size}" for size in range(1, 5))))
    assert one.waits(1).scale_ups() == ["a1", "a2"]


def test_a_report_counts_only_applications_with_changed_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial().takes(apps(*(f"many-{number} root.a" for number in range(30))))
    one.does(asks(*(f"many-{number} m{number} memory=4" for number in range(30)))).waits(9)
    counted: list[str] = []
    count = OutstandingAsks.count

    def noted(outstanding: OutstandingAsks, state: PartitionState, application: Application) -> None:
        counted.append(application.application_id)
        count(outstanding, state, application)

    monkeypatch.setattr(OutstandingAsks, "count", noted)
    one.does(asks("app-1 a1 memory=4")).waits(2)
    assert one.scale_ups()[-1] == "a1"
    assert set(counted) == {"app-1"}


def test_the_unreported_asks_of_a_group_are_found_without_a_look_at_the_reported_ones() -> None:
    one = trial().does(asks(*(f"app-1 a{number} memory=4" for number in range(30)))).waits(2)
    one.takes(asks("app-1 b memory=4", "app-1 c memory=4"))
    group, read = one.app("app-1").asks.first_group, list[str]()
    every = group._asks

    class Noted(list[Allocation]):
        def __getitem__(self, index: int) -> Allocation:  # type: ignore[override]
            read.append(every[index].key)
            return every[index]

    group._asks = Noted(every)
    assert [ask.key for ask in outstanding_asks.list_unreported(group, 1)] == read == ["b"]
    group._asks = every


def test_an_ask_that_comes_before_reported_ones_is_reported_too() -> None:
    one = trial("root.a max=memory:22").takes(apps("app-4 root.a"))
    one.does(asks("app-1 late memory=4 created=9")).waits(2).does(asks("app-1 early memory=4 created=5")).waits(2)
    assert one.scale_ups() == ["late", "early"]


def test_many_changed_applications_are_counted_in_several_turns_before_anything_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outstanding_asks, "CHANGED_MAX", 2)
    one = trial().takes(apps(*(f"many-{number} root.a" for number in range(5))))
    one.does(asks(*(f"many-{number} m{number} memory=4" for number in range(5))))
    one.now += 0.5
    left = []
    while one.partition.outstanding.deadline <= one.now:
        left.append(len(one.partition.readiness.changed_asks))
        one.effects += one.partition.step(one.now, 0)
    assert left[-1] <= 2 < left[0]
    assert all(before - after == 2 for before, after in pairwise(left))
    assert one.scale_ups() == [f"m{number}" for number in range(5)]


def test_reported_asks_of_an_application_that_was_moved_count_for_its_user_again() -> None:
    one = trial("root.a; root.b limit.user.bob=memory:8").does(asks("app-1 a1 memory=8")).waits(1)
    assert one.scale_ups() == ["a1"]
    partition = one.partition
    partition.move("app-1", "root.b", Actor("admin", scheduler_admin=True), one.now)
    partition.outstanding.report(partition)  # before an attempt opens its account in the other queue
    one.does(apps("app-3 root.b"), asks("app-3 b1 memory=4")).waits(2)
    assert one.scale_ups() == []
