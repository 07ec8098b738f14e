"""Pieces of the history for those who pass it on."""

import msgspec
import pytest

from common import event_codes
from common.event_lines import COUNT_MAX, EventLines
from common.extra_config import ExtraConfig
from common.query_messages import Answer
from partition_worker.answers import event_lines
from partition_worker.engine.effects import Happening
from partition_worker.event_ring import EventRing

Lines = EventLines[dict[str, object]]


def ring(events: int, capacity: int = 10_000) -> EventRing:
    one = EventRing("rm-1_default 1", capacity)
    one.add(
        [Happening(event_codes.NODE, f"n{number}", "", event_codes.ADD, 0, "", {}) for number in range(events)], 1000.0
    )
    return one


def ask(one: EventRing, settings: ExtraConfig | None = None, *, bytes_max: int = 1 << 20, **args: str) -> Answer:
    return event_lines.answer(one, settings or ExtraConfig(), args, bytes_max=bytes_max)


def read(answer: Answer) -> Lines:
    assert answer.status == 200, answer.body
    return msgspec.json.decode(answer.body, type=Lines)


def test_without_a_start_it_says_where_the_history_is_and_gives_none_of_it() -> None:
    one = ring(7, capacity=5)
    found = read(ask(one))
    assert (found.instance, found.lowest, found.end, found.first) == (one.instance, 2, 7, 7)
    assert (found.tracking, found.streams_max, found.streams_per_host_max, found.records) == (True, 100, 15, [])


def test_it_says_what_the_resource_manager_allows() -> None:
    settings = ExtraConfig(event_tracking_enabled=False, event_max_streams=3, event_max_streams_per_host=0)
    found = read(ask(ring(0), settings))
    assert (found.tracking, found.streams_max, found.streams_per_host_max) == (False, 3, 0)


def test_events_are_given_from_the_start_on_as_they_are_shown() -> None:
    found = read(ask(ring(3), start="1", count="1"))
    shown = {"type": 3, "objectID": "n1", "timestampNano": 1_000_000_000_001, "eventChangeType": 2, "resource": {}}
    assert (found.first, found.end, found.records) == (1, 3, [shown])


def test_what_is_gone_is_passed_over() -> None:
    found = read(ask(ring(7, capacity=5), start="0", count="10"))
    assert (found.first, len(found.records)) == (2, 5)


@pytest.mark.parametrize("start", ["7", "8", "18446744073709551615"])
def test_there_is_nothing_yet_at_the_end_and_beyond(start: str) -> None:
    found = read(ask(ring(7), start=start, count="10"))
    assert (found.first, found.records) == (int(start), [])


@pytest.mark.parametrize("count", ["5000", "18446744073709551615"])
def test_an_answer_has_so_many_events_whatever_is_asked_for(count: str) -> None:
    assert len(read(ask(ring(5000), start="0", count=count)).records) == COUNT_MAX


def test_an_answer_that_would_be_too_long_has_fewer_events() -> None:
    answer = ask(ring(1000), start="0", count="1000", bytes_max=10_000)
    assert len(answer.body) <= 10_000
    assert 0 < len(read(answer).records) < 1000


def test_a_question_that_makes_no_sense_is_refused() -> None:
    assert ask(ring(0), start="x").status == 400
