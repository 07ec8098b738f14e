"""What the log of failed attempts has, and YuniKorn's messages that follow from it."""

from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.attempt_log import (
    NO_HELP,
    PRECONDITIONS,
    AttemptLog,
    LogEntry,
    WaitCause,
    find_latest,
    list_messages,
    log_attempt,
)


def log_of(*causes: WaitCause) -> AttemptLog:
    """The log of attempts that failed a second after each other, from second 1 on."""
    log: AttemptLog = {}
    for at, cause in enumerate(causes, 1):
        log_attempt(log, cause, float(at))
    return log


def test_messages_about_victims_come_before_that_of_the_queue() -> None:
    log = log_of(WaitCause(Reason.QUEUE_MAXIMUM, search=Reason.PREEMPTION_DELAY))
    assert list(list_messages(log)) == [PRECONDITIONS, NO_HELP, "Not enough queue quota"]


def test_a_message_of_several_checks_has_the_sum_and_the_last_time() -> None:
    log = log_of(WaitCause(Reason.CLUSTER_FULL), WaitCause(Reason.QUEUE_MAXIMUM), WaitCause(Reason.CLUSTER_FULL))
    assert list_messages(log) == {"Not enough queue quota": LogEntry(3, 3.0)}
    assert [(code, entry.times) for code, entry in log.items()] == [("cluster-full", 2), ("queue-maximum", 1)]


def test_checks_that_yunikorn_does_not_log_have_no_message() -> None:
    assert list_messages(log_of(WaitCause(Reason.NO_NODE_FITS), WaitCause(Reason.REQUIRED_NODE_MISSING))) == {}


def test_of_an_ask_with_a_reservation_only_messages_are_logged() -> None:
    log = log_of(
        WaitCause(Reason.REQUIRED_NODE_FULL),
        WaitCause(Reason.RESERVED_NODE_FULL, search=Reason.PREEMPTION_DELAY),
    )
    assert list(list_messages(log)) == ["No fit on required node, preemption does not help", PRECONDITIONS, NO_HELP]
    assert [entry.cause for entry in log.values()] == [None, None]
    assert find_latest(log) == NO_HELP  # the last of the two messages of the last attempt


def test_the_latest_is_a_cause_unless_only_messages_followed() -> None:
    cause = WaitCause(Reason.USER_LIMIT, "root.a", "bob")
    assert find_latest({}) == ""
    assert find_latest(log_of(WaitCause(Reason.QUEUE_MAXIMUM), cause)) is cause
    assert find_latest(log_of(cause, WaitCause(Reason.NO_NODE_FITS, nodes={"taint": 3}))) == "taint"
    assert list(list_messages(log_of(cause))) == ["Not enough user quota"]
