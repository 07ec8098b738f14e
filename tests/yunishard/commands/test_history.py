"""`yunishard history` against a fake web service, and the usage of a queue in intervals."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands import history as command
from yunishard.cli.commands.history import summarize_usage
from yunishard.cli.main import main
from yunishard.common.rest.records import PastQueueView

NOW = 1_800_000_000
S = 10**9

ROW = {
    "partition": "rm-1_default",
    "rmId": "rm-1",
    "applicationID": "app-1",
    "queueName": "root.a",
    "user": "alice",
    "applicationState": "Failed",
    "submissionTime": (NOW - 4000) * S,
    "startTime": (NOW - 3900) * S,
    "finishedTime": (NOW - 300) * S,
    "allocationCount": 3,
    "message": "killed",
    "resourceHistory": {"resourceUsage": {"x": {"vcore": 7_200_000}}},
}
RUNNING = {
    "partition": "rm-1_default",
    "allocationKey": "task-1",
    "applicationID": "app-2",
    "nodeId": "node-1",
    "resource": {"vcore": 1000},
    "startTime": (NOW - 60) * S,
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWeb]:
    monkeypatch.setattr(command.time, "time_ns", lambda: NOW * S)
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        yield fake


def run(fake: FakeWeb, *words: str) -> int:
    return main(["history", words[0], "--rest", fake.url, *words[1:]])


def test_ended_applications_are_shown_with_times_usage_and_outcome(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    query = f"queue=root&subtree=true&state=failed&since={NOW - 3600}&order=newest&limit=100"
    fake.says(f"GET history/applications?{query}", {"rows": [ROW]})
    words = ("app", "--queue", "root", "--state", "failed", "--since", "1h")
    assert run(fake, *words) == 0
    heading, line = capsys.readouterr().out.splitlines()
    cells = dict(zip(re.split(r"  +", heading), re.split(r"  +", line), strict=True))
    assert (cells.pop("SUBMITTED"), cells.pop("ENDED")) == ("1 h ago", "5 min ago")
    assert cells == {
        "APPLICATION": "app-1",
        "QUEUE": "root.a",
        "USER": "alice",
        "STATE": "failed",
        "WAITED": "1 min 40 s",
        "RAN": "1 h",
        "ALLOCS": "3",
        "USED": "2 vcore·h",
        "MESSAGE": "killed",
    }
    assert run(fake, *words, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["applicationID"] == "app-1"


def test_pages_are_read_from_the_newest_until_there_are_enough(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    first = f"GET history/applications?since={NOW - 86400}&order=newest"
    fake.says(f"{first}&limit=3", {"rows": [{**ROW, "applicationID": "c"}, {**ROW, "applicationID": "b"}], "next": "X"})
    fake.says(f"{first}&limit=1&after=X", {"rows": [{**ROW, "applicationID": "a"}], "next": "Y"})
    assert run(fake, "app", "--limit", "3") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["a", "b", "c"]


def test_without_a_history_the_partitions_remember(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    query = f"since={NOW - 86400}&order=newest&limit=100"
    fake.refuses(
        f"GET history/applications?{query}", 503, "No history is recorded: start with the setting history=true"
    )
    one = {
        "applicationID": "app-9",
        "partition": "default",
        "queueName": "root.a",
        "applicationState": "Completed",
        "finishedTime": (NOW - 10) * S,
        "startTime": (NOW - 70) * 1000,
        "resourceHistory": {},
    }
    fake.says("GET partition/default/applications/completed", [one, {**one, "finishedTime": (NOW - 90_000) * S}])
    fake.says("GET partition/default/applications/rejected", [])
    assert run(fake, "app") == 0
    [line] = capsys.readouterr().out.splitlines()[1:]
    assert re.split(r"  +", line)[:7] == ["app-9", "root.a", "-", "completed", "-", "-", "1 min"]


def test_one_application_is_shown_with_its_allocations_also_while_it_runs(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("GET history/applications?application=app-2&order=newest&limit=100", {"rows": []})
    fake.says("GET history/allocations?application=app-2&order=newest&limit=10000", {"rows": [RUNNING]})
    active = {
        "applicationID": "app-2",
        "partition": "default",
        "queueName": "root.a",
        "applicationState": "Running",
        "startTime": 0,
        "resourceHistory": {},
    }
    fake.says("GET partition/default/application/app-2", active)
    assert run(fake, "app", "app-2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "app-2 is running in root.a (partition default)"
    assert re.split(r"  +", lines[-1])[-2:] == ["1 min", "still runs"]


def test_an_unknown_application_and_an_unknown_queue_are_status_1(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("GET history/applications?application=x&order=newest&limit=100", {"rows": []})
    fake.says("GET history/allocations?application=x&order=newest&limit=10000", {"rows": []})
    fake.says(f"GET history/queues?queue=root.x&since={NOW - 90_000}&order=newest&limit=10000", {"rows": []})
    assert run(fake, "app", "x") == 1
    assert run(fake, "queue", "root.x") == 1
    assert capsys.readouterr().err.splitlines() == [
        "yunishard history app: the history has no application x that you may see",
        "yunishard history queue: the history has no usage of queue root.x in this time that you may see",
    ]


def usage(at: int, vcore: int, *, pending: int = 0, running: int = 1) -> PastQueueView:
    return PastQueueView(
        partition="default",
        timestamp=at,
        queue_name="root",
        running_apps=running,
        allocated_resource={"vcore": vcore},
        pending_resource={"vcore": pending},
    )


def test_the_usage_of_an_interval_is_weighted_by_time() -> None:
    rows = [usage(0, 10), usage(150, 20, pending=5, running=3), usage(175, 40)]
    first, second, third = summarize_usage(rows, 100, 220, 50)
    assert (first.average, first.peak, first.pending, first.running) == ({"vcore": 10}, {"vcore": 10}, {"vcore": 0}, 1)
    assert (second.average, second.peak, second.pending, second.running) == (
        {"vcore": 30},
        {"vcore": 40},
        {"vcore": 5},
        3,
    )
    assert (third.begin_ns, third.end_ns, third.average) == (200, 220, {"vcore": 40})


def test_what_is_not_known_does_not_count() -> None:
    first, second = summarize_usage([usage(175, 40)], 100, 200, 50)
    assert (first.known_ns, second.known_ns, second.average) == (0, 25, {"vcore": 40})


def test_the_usage_of_a_queue_is_shown_by_interval(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"partition": "default", "timestamp": (NOW - 500) * S, "queueName": "root", "runningApps": 2}
    row["allocatedResource"] = {"vcore": 1500}
    since = NOW - 600 - 3600
    fake.says(f"GET history/queues?queue=root&since={since}&order=newest&limit=10000", {"rows": [row]})
    assert run(fake, "queue", "root", "--since", "10m", "--interval", "5m") == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["FROM", "RUNNING", *["VCORE", "AVERAGE", "VCORE", "PEAK", "VCORE", "PENDING"]]
    assert [line.split()[-4:] for line in lines] == [["2", "1.5", "1.5", "0"]] * 2


def test_more_lines_than_anyone_reads_are_refused(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake, "queue", "root", "--since", "24h", "--interval", "1s") == 1
    assert "--interval is too short: there would be more than 10,000 lines" in capsys.readouterr().err
    assert fake.asked == []
