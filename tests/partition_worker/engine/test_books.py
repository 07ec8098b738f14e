"""What is counted and remembered, and for how long."""

import pytest

from partition_worker.engine import state
from partition_worker.engine.application import RETENTION_S, STATE_LOG_MAX, AppState
from partition_worker.engine.state import Counters
from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial


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


def test_an_application_that_goes_to_and_fro_remembers_its_latest_states() -> None:
    one = Trial().does(nodes("n1 memory=1"), apps("app-1 root.a"))
    for _ in range(STATE_LOG_MAX):
        one.does(asks("app-1 a1 memory=1"), released("app-1 a1"))
    log = one.app("app-1").state_log
    assert (len(log), log[-1][1]) == (STATE_LOG_MAX, AppState.COMPLETING)
