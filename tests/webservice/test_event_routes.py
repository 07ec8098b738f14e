"""Which partition's events are meant, and what is said where there is none."""

import pytest

from common.query_messages import Answer, Query
from tests.webservice.fakes import FakeLink, partition, request
from tests.webservice.streams.worker import FakeWorker

PATHS = ["/ws/v1/events/batch", "/ws/v1/events/stream"]


def batch(query: Query) -> Answer:
    return Answer(status=200, body=b'{"start":"%s"}\n' % query.args["start"].encode())


@pytest.mark.parametrize("path", PATHS)
def test_of_several_partitions_of_the_first_rm_one_has_to_be_chosen(path: str) -> None:
    link = FakeLink(partition("rm-2"), partition("rm-2", "gpu"), partition("rm-1"))
    response = request(link, path)
    assert (response.status_code, response.json()["message"]) == (
        409,
        "There are several partitions, choose one with the parameter partition: default, gpu",
    )
    assert link.asked == []


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("?", "rm-1_default"),
        ("?partition=rm-2_default", "rm-2_default"),
        ("?partition=[rm-1]default", "rm-1_default"),
        ("?rm=rm-2", "rm-2_default"),
        ("?rm=rm-1&partition=default", "rm-1_default"),
    ],
)
def test_a_partition_is_chosen_by_its_name_or_whose_it_is(query: str, asked: str) -> None:
    link = FakeLink(partition("rm-1"), partition("rm-2"), worker=batch)
    assert request(link, f"/ws/v1/events/batch{query}&start=7").json() == {"start": "7"}
    assert [name for name, _ in link.asked] == [asked]
    link = FakeLink(partition("rm-1"), partition("rm-2"), worker=FakeWorker(streams_max=0).answer)
    assert request(link, f"/ws/v1/events/stream{query}").status_code == 503
    assert [name for name, _ in link.asked] == [asked]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", ["partition=nosuch", "rm=nosuch"])
def test_one_that_is_not_there_is_not_found(path: str, query: str) -> None:
    assert request(FakeLink(partition()), f"{path}?{query}").status_code == 404


def test_before_there_is_a_partition_nothing_has_happened() -> None:
    response = request(FakeLink(), "/ws/v1/events/batch?start=5&count=1")
    assert response.status_code == 200
    assert {**response.json(), "InstanceUUID": ""} == {
        "InstanceUUID": "",
        "LowestID": 0,
        "HighestID": 0,
        "EventRecords": None,
    }


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("count=0", '0 is not a valid value for "count"'),
        ("count=abc", 'strconv.ParseUint: parsing "abc": invalid syntax'),
        ("start=-1", 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ("count=18446744073709551616", 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
    ],
)
def test_numbers_that_are_none_are_refused_then_as_well(query: str, text: str) -> None:
    response = request(FakeLink(), f"/ws/v1/events/batch?{query}")
    assert (response.status_code, response.json()["message"]) == (400, text)


def test_there_is_nothing_to_follow_before_there_is_a_partition() -> None:
    response = request(FakeLink(), "/ws/v1/events/stream")
    assert response.status_code == 503
    assert "no partition yet" in response.json()["message"]


@pytest.mark.parametrize(
    ("tracking", "streams_max", "query", "status", "text"),
    [
        (False, 0, "?count=abc", 500, "Event tracking is disabled"),
        (True, 0, "?count=abc", 503, "Too many streaming connections"),
        (True, 1, "?count=abc", 400, 'strconv.ParseUint: parsing "abc": invalid syntax'),
    ],
)
def test_what_stands_in_the_way_of_a_stream_is_said_in_the_order_that_clients_know(
    tracking: bool, streams_max: int, query: str, status: int, text: str
) -> None:
    worker = FakeWorker(streams_max=streams_max)
    worker.tracking = tracking
    response = request(FakeLink(partition(), worker=worker.answer), f"/ws/v1/events/stream{query}")
    assert (response.status_code, response.json()) == (
        status,
        {"status_code": status, "message": text, "description": text},
    )
