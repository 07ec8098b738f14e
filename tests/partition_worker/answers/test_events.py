"""What `/ws/v1/events/batch` answers; errors and keys are those that the reference was recorded with."""

import json

import pytest

from common import event_codes
from common.extra_config import ExtraConfig
from common.query_messages import Answer
from partition_worker.answers import events
from partition_worker.engine.effects import Happening
from partition_worker.event_ring import EventRing

NOW = 1000.0
ALLOCATED = Happening(
    event_codes.NODE, "n1", "a1", event_codes.ADD, event_codes.NODE_ALLOC, "", {"memory": 10, "gpu": 0}
)
DRAINED = Happening(event_codes.NODE, "n1", "", event_codes.SET, event_codes.NODE_SCHEDULABLE, "schedulable: false", {})


def ring(*happenings: Happening) -> EventRing:
    one = EventRing("rm-1_default 1")
    one.add(happenings, NOW)
    return one


def ask(one: EventRing, *, bytes_max: int = 1 << 20, settings: ExtraConfig | None = None, **args: str) -> Answer:
    return events.answer(one, settings or ExtraConfig(), args, bytes_max=bytes_max)


def read(answer: Answer) -> dict[str, object]:
    assert answer.status == 200, answer.body
    found = json.loads(answer.body)
    assert isinstance(found, dict)
    return found


def records(answer: Answer) -> int:
    found = read(answer)["EventRecords"]
    assert isinstance(found, list)
    return len(found)


def test_a_record_has_the_keys_of_the_interface_without_what_is_empty() -> None:
    one = ring(ALLOCATED, DRAINED)
    assert ask(one).body.decode() == (
        f'{{"InstanceUUID":"{one.instance}","LowestID":0,"HighestID":1,"EventRecords":['
        '{"type":3,"objectID":"n1","timestampNano":1000000000000,"eventChangeType":2,"eventChangeDetail":303,'
        '"referenceID":"a1","resource":{"resources":{"gpu":{},"memory":{"value":10}}}},'
        '{"type":3,"objectID":"n1","message":"schedulable: false","timestampNano":1000000000001,"eventChangeType":1,'
        '"eventChangeDetail":302,"resource":{}}]}\n'
    )


def test_without_events_there_is_no_list() -> None:
    found = read(ask(ring()))
    assert (found["LowestID"], found["HighestID"], found["EventRecords"]) == (0, 0, None)


def test_a_start_that_is_not_there_has_no_list_and_says_what_is() -> None:
    found = read(ask(ring(ALLOCATED, DRAINED), start="2"))
    assert (found["LowestID"], found["HighestID"], found["EventRecords"]) == (0, 1, None)


@pytest.mark.parametrize(
    ("args", "expected"),
    [({}, 3), ({"start": "", "count": ""}, 3), ({"count": "2"}, 2), ({"start": "1"}, 2), ({"count": "99"}, 3)],
)
def test_start_and_count_choose(args: dict[str, str], expected: int) -> None:
    assert records(ask(ring(ALLOCATED, DRAINED, ALLOCATED), **args)) == expected


def test_no_answer_has_more_records_than_is_configured() -> None:
    few = ExtraConfig(event_rest_response_size=2)
    assert records(ask(ring(*[ALLOCATED] * 5), settings=few, count="4")) == 2


def test_an_answer_that_would_be_too_large_has_fewer_records() -> None:
    answer = ask(ring(*[ALLOCATED] * 100), bytes_max=2000)
    assert len(answer.body) <= 2000
    assert 1 <= records(answer) < 100


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"count": "0"}, '0 is not a valid value for "count"'),
        ({"count": "abc"}, 'strconv.ParseUint: parsing "abc": invalid syntax'),
        ({"count": "-1"}, 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ({"start": "xyz"}, 'strconv.ParseUint: parsing "xyz": invalid syntax'),
        ({"count": "abc", "start": "xyz"}, 'strconv.ParseUint: parsing "abc": invalid syntax'),
        ({"start": "18446744073709551616"}, 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
        ({"start": "9" * 5000}, f'strconv.ParseUint: parsing "{"9" * 5000}": value out of range'),
    ],
)
def test_what_is_no_number_is_refused_with_the_text_of_the_reference(args: dict[str, str], reason: str) -> None:
    answer = ask(ring(ALLOCATED), **args)
    assert (answer.status, answer.body.decode()) == (400, reason)


def test_the_largest_number_is_one() -> None:
    assert read(ask(ring(ALLOCATED), start="18446744073709551615"))["EventRecords"] is None


def test_without_tracking_there_is_nothing_to_ask_whatever_the_question() -> None:
    answer = ask(ring(ALLOCATED), settings=ExtraConfig(event_tracking_enabled=False), count="abc")
    assert (answer.status, answer.body) == (500, b"Event tracking is disabled")


@pytest.mark.parametrize(
    ("message", "shown"),
    [("x" * 1024, "x" * 1024), ("x" * 1025, "x" * 1021 + "..."), ("é" * 513, "é" * 510 + "...")],
)
def test_a_long_message_is_cut(message: str, shown: str) -> None:
    found = json.loads(ask(ring(ALLOCATED._replace(message=message))).body)
    assert found["EventRecords"][0]["message"] == shown


def test_amounts_beyond_64_bits_are_shown_as_the_most_there_is() -> None:
    found = json.loads(ask(ring(ALLOCATED._replace(resource={"memory": 1 << 70}))).body)
    assert found["EventRecords"][0]["resource"] == {"resources": {"memory": {"value": (1 << 63) - 1}}}


@pytest.mark.parametrize("count", ["", "18446744073709551615"])
def test_an_answer_has_so_many_records_whatever_is_configured(count: str) -> None:
    one = ring(*[DRAINED] * (events.ANSWERED_MAX + 1))
    settings = ExtraConfig(event_rest_response_size=2**64 - 1)
    assert records(ask(one, bytes_max=1 << 30, settings=settings, count=count)) == events.ANSWERED_MAX
