"""`yunishard event` against a fake web service: pages of the list, and a follower that loses its connection."""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands.event import EventFollower, parse_since
from yunishard.cli.commands.rest import RequestFailed, Rest
from yunishard.cli.main import CommandFailed, CommandUnusable, main


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        yield fake


def event(number: int, name: str = "app-1") -> dict[str, object]:
    return {
        "type": 2,
        "objectID": name,
        "referenceID": f"task-{number}",
        "timestampNano": number + 1,
        "eventChangeType": 2,
        "eventChangeDetail": 201,
        "resource": {"resources": {"vcore": {"value": 1500}}},
    }


def keeps(fake: FakeWeb, first: int, end: int, *names: str) -> None:
    """The partition has these events, and returns them in the pages that a client requests."""
    known = {"InstanceUUID": "i", "LowestID": first, "HighestID": max(0, end - 1)}
    records = [event(number, names[number % len(names)] if names else "app-1") for number in range(first, end)]
    fake.says("GET events/batch?partition=default&start=0&count=1", {**known, "EventRecords": records[:1] or None})
    below = end
    while below > first:
        start = max(first, below - 1000)
        page = {**known, "EventRecords": records[start - first : below - first]}
        fake.says(f"GET events/batch?partition=default&start={start}&count={below - start}", page)
        below = start


def run(fake: FakeWeb, *words: str) -> int:
    return main(["event", words[0], "--rest", fake.url, *words[1:]])


def test_the_latest_events_are_listed_the_newest_last(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    keeps(fake, 3, 9)
    assert run(fake, "list", "--limit", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2:] for line in lines[1:]] == [
        ["app", "app-1", "ask", "added", f"task-{n}", "1.5", "vcore"] for n in (7, 8)
    ]


def test_a_filter_searches_page_by_page_until_it_has_enough(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    keeps(fake, 10, 3500, *["app-1"] * 999, "rare")
    assert run(fake, "list", "rare", "--limit", "2", "--json") == 0
    assert [one["number"] for one in json.loads(capsys.readouterr().out)] == [1999, 2999]
    assert len(fake.asked) == 4  # partitions, the range, and two of four pages


def test_events_before_the_given_time_are_not_requested(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    keeps(fake, 0, 3000)
    assert run(fake, "list", "--since", "1m") == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert len(fake.asked) == 3


def test_a_system_without_events_has_an_empty_list(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"InstanceUUID": "i", "LowestID": 0, "HighestID": 0, "EventRecords": None}
    fake.says("GET events/batch?partition=default&start=0&count=1", known)
    assert run(fake, "list") == 0
    assert capsys.readouterr().out.split()[:3] == ["TIME", "TYPE", "OBJECT"]


def test_of_several_partitions_one_has_to_be_named(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    assert run(fake, "follow") == 1
    assert "name one with --partition: default, gpu" in capsys.readouterr().err


def test_the_events_of_all_partitions_are_listed_by_time(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    keeps(fake, 0, 2)
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    records = [{**event(7), "timestampNano": 2}]
    known = {"InstanceUUID": "i", "LowestID": 0, "HighestID": 0, "EventRecords": records}
    fake.says("GET events/batch?partition=gpu&start=0&count=1", known)
    assert run(fake, "list", "--json") == 0
    found = [(one["partition"], one["number"], one["timestampNano"]) for one in json.loads(capsys.readouterr().out)]
    assert sorted(found) == [("default", 0, 1), ("default", 1, 2), ("gpu", 0, 2)]
    assert [at for *_, at in found] == [1, 2, 2]
    assert run(fake, "list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()].count("gpu") == 1


def test_a_caller_without_the_role_is_refused_with_status_1(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("GET events/batch?partition=default&start=0&count=1", 403, "not permitted")
    assert run(fake, "follow") == 1
    assert capsys.readouterr().err == "yunishard event follow: not permitted\n"


@pytest.mark.parametrize("text", ["soon", "2026-13-01", ""])
def test_a_time_that_is_none_is_wrong_usage(fake: FakeWeb, text: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(fake, "list", "--since", text)


def test_times_are_absolute_or_relative() -> None:
    assert parse_since("2026-01-31T12:00:00+00:00") == 1_769_860_800 * 10**9
    assert parse_since("-1h") - parse_since("2h") > 3599 * 10**9


# Follow ---------------------------------------------------------------------------------------------------------------


class Over(Exception):
    """The test has seen enough."""


class Follower:
    """A follower whose pauses run the next step of a script, and whose remarks are recorded."""

    def __init__(self, fake: FakeWeb, position: int) -> None:
        self.fake = fake
        self.remarks: list[str] = []
        self.pauses: list[float] = []
        rest = Rest(fake.url)
        self.events = EventFollower(rest, "default", position, report=self.remarks.append, sleep=self.pause)
        self.steps: list[tuple[str, str]] = []
        """Requests with what is answered from the next pause on."""

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if not self.steps:
            raise Over
        what, body = self.steps.pop(0)
        if what == "503":
            self.fake.refuses(f"GET events/stream?partition=default&start={body}", 503, "the partition is starting")
        else:
            self.fake.says(what, body)

    def read(self) -> list[str]:
        """The references of all events until the script is at its end."""
        found: list[str] = []
        with suppress(Over):
            found.extend(one.referenceID for one in self.events.follow())
        return found


def stream(start: int) -> str:
    return f"GET events/stream?partition=default&start={start}"


def lines(first: int, *numbers: int, instance: str = "i", end: str = "") -> str:
    found = [{"InstanceUUID": instance, "FirstID": first}, *(event(number) for number in numbers)]
    return "".join(json.dumps(one) + "\n" for one in found) + end


def test_a_follower_continues_at_the_next_event_after_each_end(fake: FakeWeb) -> None:
    follower = Follower(fake, 5)
    closed = '{"status_code":200,"message":"Event stream was closed by the producer"}\n'
    fake.says(stream(5), lines(5, 5, 6, end=closed))
    follower.steps = [("503", "7"), (stream(7), lines(7, 7, 8)), (stream(9), lines(9))]
    found = follower.read()
    assert found == ["task-5", "task-6", "task-7", "task-8"]
    assert follower.remarks[:2] == [
        "the server ended the stream; connecting again at event 7",
        "the partition is starting; connecting again at event 7",
    ]
    assert follower.pauses == [0.5, 1.0, 0.5, 1.0]


def test_missing_events_are_reported(fake: FakeWeb) -> None:
    follower = Follower(fake, 5)
    fake.says(stream(5), lines(9, 9))
    follower.read()
    assert follower.remarks[0] == "4 events are missing: they are not kept any more"
    assert follower.events.position == 10


def test_a_new_sequence_is_read_from_its_beginning(fake: FakeWeb) -> None:
    follower = Follower(fake, 5)
    fake.says(stream(5), lines(5, 5))
    fake.says(stream(0), lines(0, 0, 1, instance="j"))
    follower.steps = [(stream(6), lines(2, instance="j")), (stream(9), "")]
    found = follower.read()
    assert found == ["task-5", "task-0", "task-1"]
    assert any("new sequence of events" in remark for remark in follower.remarks)


def test_a_refusal_at_the_start_or_for_good_ends_it(fake: FakeWeb) -> None:
    fake.refuses(stream(5), 500, "Event tracking is disabled")
    with pytest.raises(RequestFailed, match="tracking is disabled"):
        next(Follower(fake, 5).events.follow())
    fake.says(stream(5), lines(5, 5))
    fake.refuses(stream(6), 404, "Partition not found")
    follower = Follower(fake, 5)
    follower.steps = [("unused", "")]
    with pytest.raises(RequestFailed, match="Partition not found"):
        list(islice(follower.events.follow(), 2))


def test_something_else_at_the_port_is_reported(fake: FakeWeb) -> None:
    fake.says(stream(5), "hello\n")
    with pytest.raises(CommandUnusable, match="is this the web service"):
        next(Follower(fake, 5).events.follow())
    with pytest.raises(CommandFailed, match="connection refused"):
        next(EventFollower(Rest("http://127.0.0.1:1"), "default", 5).follow())
