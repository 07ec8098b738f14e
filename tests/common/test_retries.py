"""Restart delays, and log lines about something that fails again and again."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from yunishard.common.retries import FIRST_S, LONGEST_S, REPEAT_S, STEADY_S, LogLimit, RepeatedFailure, RestartDelay


def test_pauses_double_up_to_the_longest() -> None:
    restarts = RestartDelay()
    pauses = [restarts.next_delay(lifetime_s=1.0) for _ in range(10)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_a_process_that_lived_long_enough_starts_at_once_and_is_well_again() -> None:
    restarts = RestartDelay()
    for _ in range(5):
        restarts.next_delay(lifetime_s=STEADY_S - 0.1)
    assert restarts.next_delay(lifetime_s=STEADY_S) == 0.0
    assert restarts.next_delay(lifetime_s=1.0) == FIRST_S
    assert restarts.next_delay(lifetime_s=1.0) == 2 * FIRST_S


@given(st.lists(st.floats(min_value=0, max_value=1e9)))
def test_every_pause_is_between_the_bounds_and_none_shrinks_without_a_long_life(lives: list[float]) -> None:
    restarts = RestartDelay()
    pauses = [restarts.next_delay(life) for life in lives]
    for life, pause in zip(lives, pauses, strict=True):
        assert pause == 0.0 if life >= STEADY_S else FIRST_S <= pause <= LONGEST_S
    for (before, after), life in zip(itertools.pairwise(pauses), lives[1:], strict=False):
        assert after >= before or life >= STEADY_S


def test_a_failure_is_logged_once_for_each_reason_and_at_most_once_a_minute() -> None:
    failure = RepeatedFailure()
    assert not failure.is_over()
    assert failure.is_news("full", 100.0)
    logged = [
        reason
        for second in range(1, round(REPEAT_S))
        for reason in ("full", "no right")
        if failure.is_news(reason, 100.0 + second)
    ]
    assert logged == []
    assert failure.is_news("no right", 100.0 + REPEAT_S)
    assert not failure.is_news("no right", 100.0 + 9 * REPEAT_S)


def test_the_end_of_a_failure_is_logged_once_and_success_in_turn_with_failures_does_not_repeat_them() -> None:
    failure = RepeatedFailure()
    lines = 0
    for second in range(round(REPEAT_S)):
        lines += failure.is_news("full", 100.0 + second)
        lines += failure.is_over()
    assert lines == 2
    assert failure.is_news("full", 100.0 + REPEAT_S)


def test_clients_do_not_fill_the_log_and_the_next_line_counts_what_was_left_out() -> None:
    limit = LogLimit(10)
    assert [limit.admit(100.0 + number / 1000) for number in range(15)] == [""] * 10 + [None] * 5
    assert [limit.admit(161.0), limit.admit(161.0)] == [" (and 5 more)", ""]
