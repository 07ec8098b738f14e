"""The partition state: counters, ended applications and timers."""

import pytest

from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine import application, state
from yunishard.partition_worker.engine.application import RETENTION_S, Alarm, Application, AppState
from yunishard.partition_worker.engine.state import Counters, Timers


def test_counts_of_queues_that_are_gone_go_to_the_queue_above_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "REACHED_MAX", 1)
    counters = Counters()
    counters.reached.update({("root.a.x", AppState.COMPLETED): 3, ("root.a", AppState.COMPLETED): 1})
    counters.fold("root.a.x", "root.a")
    assert counters.reached == {("root.a", AppState.COMPLETED): 4}


def test_few_counts_stay_where_they_are() -> None:
    counters = Counters()
    counters.reached["root.a.x", AppState.COMPLETED] = 3
    counters.fold("root.a.x", "root.a")
    assert counters.reached == {("root.a.x", AppState.COMPLETED): 3}


def test_what_is_to_be_forgotten_is_forgotten_at_its_deadline() -> None:
    one = Trial().does(nodes("n1 memory=1"), apps("app-1 root.a"), asks("app-1 a1 memory=1"), released("app-1 a1"))
    one.does(apps("no-such root.nowhere")).waits(31)
    assert (list(one.partition.rejections), len(one.partition.ended)) == (["no-such"], 1)
    one.waits(RETENTION_S)
    assert (one.partition.rejections, one.partition.ended) == ({}, {})


def test_two_that_end_in_the_same_second_are_both_remembered() -> None:
    one = Trial().does(nodes("n1 memory=1"), apps("app-1 root.a"), asks("app-1 a1 memory=1"), released("app-1 a1"))
    one.waits(30)
    one.does(apps("app-1 root.a"), asks("app-1 a1 memory=1"), released("app-1 a1"), gone("app-1"))
    assert len(one.partition.ended) == 1


def test_an_application_that_goes_to_and_fro_remembers_its_latest_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "STATE_LOG_MAX", 50)
    one = Trial().does(nodes("n1 memory=1"), apps("app-1 root.a"))
    for _ in range(50):
        one.does(asks("app-1 a1 memory=1"), released("app-1 a1"))
    log = one.app("app-1").state_log
    assert (len(log), log[-1][1]) == (50, AppState.COMPLETING)


# Timers ---------------------------------------------------------------------------------------------------------------


TRIAL = Trial().takes(apps("app-1 root.a", "app-2 root.a"))
ONE, OTHER = TRIAL.app("app-1"), TRIAL.app("app-2")


def pop(timers: Timers, now: float) -> tuple[Application, Alarm] | None:
    timer = timers.pop_due(now)
    return None if timer is None else (timer.application, timer.alarm)


def test_without_timers_there_is_no_deadline() -> None:
    assert Timers().deadline == NEVER
    assert pop(Timers(), 1e18) is None


def test_the_earliest_is_due_first_and_each_only_once() -> None:
    timers = Timers()
    timers.start(ONE, "state", 20.0)
    timers.start(OTHER, "state", 10.0)
    assert timers.deadline == 10.0
    assert pop(timers, 9.9) is None
    assert pop(timers, 30.0) == (OTHER, "state")
    assert pop(timers, 30.0) == (ONE, "state")
    assert pop(timers, 30.0) is None
    assert (ONE.alarms, OTHER.alarms) == ({}, {})


def test_timers_of_the_same_time_go_off_in_the_order_they_were_started() -> None:
    timers = Timers()
    timers.start(OTHER, "state", 10.0)
    timers.start(ONE, "state", 10.0)
    assert [pop(timers, 10.0), pop(timers, 10.0)] == [(OTHER, "state"), (ONE, "state")]


def test_a_new_timer_replaces_the_old_one() -> None:
    timers = Timers()
    timers.start(ONE, "state", 10.0)
    timers.start(ONE, "state", 20.0)
    assert timers.deadline == 20.0
    assert pop(timers, 15.0) is None
    assert pop(timers, 20.0) == (ONE, "state")


def test_an_application_may_be_woken_for_several_things() -> None:
    timers = Timers()
    timers.start(ONE, "look", 10.0)
    timers.start(ONE, "state", 20.0)
    assert pop(timers, 10.0) == (ONE, "look")
    assert pop(timers, 20.0) == (ONE, "state")


def test_a_stopped_timer_never_goes_off() -> None:
    timers = Timers()
    timers.start(ONE, "state", 10.0)
    timers.stop(ONE, "state")
    assert timers.deadline == NEVER
    assert pop(timers, 10.0) is None


def test_alarms_that_were_replaced_do_not_pile_up() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.start(ONE, "look", 1e9 + number)
    assert len(list(timers)) == 1
    assert timers.deadline == 1e9 + 9999
    assert pop(timers, 2e9) == (ONE, "look")


def test_an_application_that_ended_is_not_woken() -> None:
    trial = Trial("root.a max=memory:1").does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=1"))
    trial.does(asks("app-1 a2 memory=1"))
    application = trial.app("app-1")
    assert "look" in application.alarms
    trial.kills("app-1")
    assert not application.alarms.keys() & {"look", "placeholders"}
