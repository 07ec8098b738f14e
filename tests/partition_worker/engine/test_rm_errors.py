"""Errors of the resource manager are counted by cause, and shown for ten minutes."""

from tests.trial import START_S
from yunishard.partition_worker.engine.rm_errors import SHOWN_S, SLOT_S, RmError, RmErrors


def test_errors_are_counted_by_cause() -> None:
    errors = RmErrors()
    for cause in (RmError.UNKNOWN_NODE, RmError.NO_RESOURCES, RmError.UNKNOWN_NODE):
        errors.count(cause, START_S)
    assert errors.total == 3
    assert errors.counts == {**dict.fromkeys(RmError, 0), RmError.UNKNOWN_NODE: 2, RmError.NO_RESOURCES: 1}


def test_each_error_is_shown_for_ten_minutes() -> None:
    errors = RmErrors()
    for minute in range(20):
        errors.count(RmError.UNKNOWN_APPLICATION, START_S + 60 * minute)
    now = START_S + 60 * 19
    assert errors.count_recent(now) == {"unknown-application": 10}
    assert errors.count_recent(now + SHOWN_S - SLOT_S) == {"unknown-application": 1}
    assert errors.count_recent(now + SHOWN_S) == {}
    assert errors.total == 20


def test_a_flood_of_errors_takes_no_memory() -> None:
    errors = RmErrors()
    for number in range(100_000):
        errors.count(RmError.NEGATIVE_RESOURCES, START_S + number)
    assert len(errors._slots) == SHOWN_S / SLOT_S
    assert errors.count_recent(START_S + 100_000) == {"negative-resources": 590}
