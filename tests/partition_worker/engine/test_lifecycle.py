"""What follows when an application enters or leaves a state."""

import pytest

from tests.builders import apps, asks, gone, nodes, released
from tests.trial import START_S, Trial
from yunishard.partition_worker.engine import lifecycle
from yunishard.partition_worker.engine.application import AppEvent, AppState


def trial(queues: str = "root.a") -> Trial:
    one = Trial(queues).does(nodes("n1 memory=10"), apps("app-1 root.a"))
    one.told()
    return one


def states(one: Trial) -> list[AppState]:
    return [state for _, state in one.app("app-1").state_log]


def test_the_first_ask_is_accepted_and_the_first_allocation_runs() -> None:
    one = trial()
    assert one.app("app-1").state is AppState.NEW
    assert one.does(asks("app-1 a1 memory=40")).told() == ["app-1 Accepted"]
    assert one.does(asks("app-1 a2 memory=4")).told() == ["app-1 Running", "a2 on n1"]
    assert one.does(asks("app-1 a3 memory=4")).told() == ["a3 on n1"]


def test_an_application_that_never_ran_completes_when_its_last_ask_goes() -> None:
    """Spec 2, rule 5."""
    one = trial().does(asks("app-1 a1 memory=40"))
    assert one.does(released("app-1 a1")).told()[-1] == "app-1 Completing"


def test_an_application_without_anything_stays_new() -> None:
    one = trial().does(released("app-1")).waits(1000)
    assert one.app("app-1").state is AppState.NEW


def test_an_application_that_still_waits_does_not_complete() -> None:
    """Spec 2, rule 6: pending is 0 and allocated is 0."""
    one = trial().does(asks("app-1 a1 memory=4"), asks("app-1 a2 memory=40"), released("app-1 a1"))
    assert one.app("app-1").state is AppState.RUNNING


def test_completing_takes_half_a_minute() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), released("app-1 a1"))
    one.told()
    assert one.waits(29.9).told() == []
    assert one.waits(0.1).told() == ["app-1 Completed"]
    assert "app-1" not in one.partition.applications
    assert one.queue("root.a").applications == {}
    (ended,) = one.partition.ended.values()
    assert (ended.state, ended.finished_ns // 10**9) == (AppState.COMPLETED, int(one.now))


def test_an_ask_brings_a_completing_application_back_to_running() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), released("app-1 a1"), asks("app-1 a2 memory=40"))
    assert states(one) == [AppState.ACCEPTED, AppState.RUNNING, AppState.COMPLETING, AppState.RUNNING]
    assert one.waits(100).app("app-1").state is AppState.RUNNING


@pytest.mark.parametrize("limit", ["maxapps=1", "limit.user.bob=apps:1", "limit.group.dev=apps:1"])
def test_a_completing_application_waits_if_another_one_has_taken_its_place(limit: str) -> None:
    one = Trial(f"root.a {limit}").does(nodes("n1 memory=10"), apps(*(f"app-{n} root.a groups=dev" for n in (1, 2))))
    one.does(asks("app-1 a1 memory=4"), asks("app-2 b1 memory=4"), released("app-1 a1"))
    assert one.placed() == ["a1 on n1", "b1 on n1"]
    one.does(asks("app-1 a2 memory=4")).waits(100)
    assert states(one) == [AppState.ACCEPTED, AppState.RUNNING, AppState.COMPLETING, AppState.ACCEPTED]
    assert one.queue("root.a").running == 1
    assert one.does(released("app-2 b1")).placed() == ["a2 on n1"]
    assert states(one)[-1] is AppState.RUNNING


def test_a_completing_application_with_placeholders_keeps_its_place() -> None:
    one = Trial("root.a maxapps=1").does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:4", "app-2 root.a"))
    one.does(asks("app-1 p1 memory=2 placeholder group=g", "app-1 p2 memory=2 placeholder group=g"))
    one.does(asks("app-1 a1 memory=2"), asks("app-2 b1 memory=4"), released("app-1 a1"))
    assert (states(one)[-1], one.placed()) == (AppState.COMPLETING, ["p1 on n1", "p2 on n1", "a1 on n1"])
    one.does(asks("app-1 a2 memory=2"))
    assert (states(one)[-1], one.placed()) == (AppState.RUNNING, ["a2 on n1"])


def test_each_completing_has_its_own_half_minute() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), released("app-1 a1")).waits(20)
    one.does(asks("app-1 a2 memory=4"), released("app-1 a2")).waits(29)
    assert one.app("app-1").state is AppState.COMPLETING
    one.waits(1)
    assert "app-1" not in one.partition.applications


def test_the_start_is_the_last_time_it_began_to_run() -> None:
    one = trial().does(asks("app-1 a1 memory=4"))
    assert one.app("app-1").started_ns // 10**9 == int(START_S)
    one.does(released("app-1 a1")).waits(5)
    one.does(asks("app-1 a2 memory=4"))
    assert one.app("app-1").started_ns // 10**9 == int(START_S) + 5


def test_only_running_applications_count_as_running() -> None:
    one = trial("root.a; root.b").does(asks("app-1 a1 memory=4"))
    assert [one.queue(path).running for path in ("root.a", "root.b", "root")] == [1, 0, 1]
    one.does(released("app-1 a1"))
    assert [one.queue(path).running for path in ("root.a", "root")] == [0, 0]


def test_an_application_that_stops_running_makes_place_for_another_even_if_it_frees_nothing() -> None:
    one = trial("root.a maxapps=1").does(apps("app-2 root.a"), asks("app-1 a1 memory=4"), asks("app-1 a2 memory=40"))
    one.does(released("app-1 a1"), asks("app-2 b1 memory=4"))
    assert one.placed() == ["a1 on n1"]
    assert one.does(released("app-1 a2")).told() == ["app-1 Completing", "app-2 Running", "b1 on n1"]


def test_what_has_ended_is_forgotten_after_three_days() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), released("app-1 a1")).waits(30)
    one.waits(3 * 24 * 3600 - 1)
    assert len(one.partition.ended) == 1
    one.told()
    assert one.waits(1).told() == ["app-1 Expired"]
    assert one.partition.ended == {}


def test_the_same_id_may_end_several_times() -> None:
    one = trial()
    for _ in range(3):
        one.does(asks("app-1 a1 memory=4"), released("app-1 a1")).waits(30)
        one.does(apps("app-1 root.a"))
    assert [ended.application_id for ended in one.partition.ended.values()] == ["app-1"] * 3
    assert one.app("app-1").state is AppState.NEW


def test_an_event_that_does_not_apply_changes_nothing_and_is_noted() -> None:
    one = trial()
    one.partition.begin_step(one.now)
    lifecycle.fire(one.partition, one.app("app-1"), AppEvent.EXPIRE)
    (effect,) = one.partition.drain_effects()
    assert str(effect.part.text) == "application app-1: event expireApplication inappropriate in current state New"
    assert one.app("app-1").state is AppState.NEW


def test_a_transition_carries_its_cause_or_a_better_reason() -> None:
    one = trial()
    one.partition.begin_step(one.now)
    lifecycle.fire(one.partition, one.app("app-1"), AppEvent.RUN)
    lifecycle.fire(one.partition, one.app("app-1"), AppEvent.FAIL, "PartitionRemoved")
    assert [effect.part.message for effect in one.partition.drain_effects()] == ["runApplication", "PartitionRemoved"]


def test_an_application_leaves_its_queue_only_with_nothing_left() -> None:
    one = trial().does(asks("app-1 a1 memory=4"))
    with pytest.raises(AssertionError, match="app-1"):
        lifecycle.leave_queue(one.partition, one.app("app-1"))


def test_a_removed_application_no_longer_completes_later() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), gone("app-1"))
    one.told()
    assert one.waits(100).told() == []
    assert one.partition.ended == {}
