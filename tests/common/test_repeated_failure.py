"""Log lines about something that fails again and again."""

from yunishard.common.process.repeated_failure import REPEAT_S, RepeatedFailure


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
