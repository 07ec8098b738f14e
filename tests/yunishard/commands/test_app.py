"""`yunishard app` and `ask` against a fake web service."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.main import main

APPLICATIONS = [
    {
        "application": "app-1", "state": "running", "queue": "root.a", "user": "alice", "groups": ["dev"],
        "pending": {"vcore": 2500}, "asks": 3, "used": {"vcore": 1000, "memory": 1 << 30}, "allocations": 1200,
        "submitted": 1_700_000_000 * 10**9, "started": 0, "finished": 0, "priority": 5, "reason": "", "message": "",
    },
    {
        "application": "app-2", "state": "accepted", "queue": "root.b", "user": "bob", "groups": [], "pending": {},
        "asks": 0, "used": {}, "allocations": 0, "submitted": 0, "started": 0, "finished": 0, "priority": None,
        "reason": "", "message": "",
    },
]  # fmt: skip


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        yield fake


def app(fake: FakeWeb, *words: str) -> int:
    return main(["app", words[0], "--rest", fake.url, *words[1:]])


# list -----------------------------------------------------------------------------------------------------------------


def test_a_list_shows_units_for_operators(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says_table("applications", APPLICATIONS)
    assert app(fake, "list") == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:-1] == [
        "APPLICATION",
        "STATE",
        "QUEUE",
        "USER",
        "PENDING",
        "ASKS",
        "USED",
        "ALLOCS",
        "SUBMITTED",
    ]
    assert first.startswith("app-1        running   root.a  alice  2.5 vcore     3  1 vcore, 1 GiB   1,200  ")
    assert re.search(r" d ago +-$", first)
    assert second.split() == ["app-2", "accepted", "root.b", "bob", "0", "0", "0", "0", "-", "-"]


def test_filters_and_order_are_requested(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    query = "text=spark&state=running&queue=root.a&subtree=true&user=alice&node=n1&sort=-used.memory&limit=20"
    fake.says_table("applications", APPLICATIONS, query=query)
    words = "spark --state running --queue root.a --user alice --node n1 --sort -used.memory --limit 20 -o name"
    assert app(fake, "list", *words.split()) == 0
    assert capsys.readouterr().out == "app-1\napp-2\n"


def test_a_wrong_state_is_reported_with_the_nearest_one(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app(fake, "list", "--state", "runing")
    assert "unknown state 'runing': did you mean 'running'?" in capsys.readouterr().err


def test_several_partitions_are_one_list_with_a_column(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    fake.says_table("applications", APPLICATIONS[:1], query="sort=-user&limit=10000")
    fake.says_table("applications", APPLICATIONS[1:], partition="gpu", query="sort=-user&limit=10000")
    assert app(fake, "list", "--sort", "-user") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [
        ("APPLICATION", "PARTITION"),
        ("app-2", "gpu"),
        ("app-1", "default"),
    ]


def test_a_queue_may_be_missing_in_some_partitions(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    where = "queue=root.a&subtree=true&limit=10000"
    fake.refuses(f"GET partition/gpu/table/applications?{where}", 404, "Queue not found: root.a")
    fake.says_table("applications", APPLICATIONS[:1], query=where)
    assert app(fake, "list", "--queue", "root.a", "-o", "name") == 0
    assert capsys.readouterr().out == "app-1\n"
    fake.refuses(f"GET partition/default/table/applications?{where}", 404, "Queue not found: root.a")
    assert app(fake, "list", "--queue", "root.a") == 1
    assert capsys.readouterr().err == "yunishard app list: Queue not found: root.a\n"


def test_a_partition_that_does_not_answer_is_reported_and_the_others_are_listed(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    fake.says_table("applications", APPLICATIONS[:1])
    fake.refuses("GET partition/gpu/table/applications?limit=10000", 503, "Partition gpu did not answer")
    assert app(fake, "list", "-o", "name") == 1
    told = capsys.readouterr()
    assert told.out == "app-1\n"
    assert told.err == "yunishard app list: partition gpu is missing: Partition gpu did not answer\n"


# show -----------------------------------------------------------------------------------------------------------------

APPLICATION = {
    "applicationID": "app-1", "usedResource": {"vcore": 1000}, "pendingResource": {"vcore": 500}, "queueName": "root.a",
    "submissionTime": 1_700_000_000 * 10**9, "applicationState": "Running", "user": "alice", "groups": ["dev", "ops"],
    "requests": [{"allocationKey": "ask-1", "resource": {"vcore": 500}, "priority": "3", "schedulingAttempted": True,
                  "requestTime": 1_700_000_000 * 10**9, "allocationLog": [
                      {"message": "Not enough queue quota", "lastOccurrence": 1_700_000_100 * 10**9, "count": 12}]}],
    "allocations": [{"allocationKey": f"al-{n}", "nodeId": "n1", "resource": {"vcore": 1}, "priority": "0",
                     "allocationTime": 1} for n in range(30)],
    "stateLog": [{"time": 1_700_000_000 * 10**9, "applicationState": "Accepted"},
                 {"time": 1_700_000_090 * 10**9, "applicationState": "Running"}],
}  # fmt: skip
ASKS = [{"key": "ask-1", "application": "app-1", "count": 1, "resource": {"vcore": 500}, "state": "pending",
         "priority": 3, "created": 1, "reason": "queue-maximum", "message": "Not enough queue quota"}]  # fmt: skip


def test_an_application_is_shown_with_its_asks_and_allocations(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("GET partition/default/application/app-1", APPLICATION)
    fake.says_table("applications", APPLICATIONS[:1], query="application=app-1&limit=10000")
    fake.says_table("asks", ASKS, query="application=app-1&limit=10000")
    assert app(fake, "show", "app-1") == 0
    out = capsys.readouterr().out
    assert "state        running\n" in out
    assert "groups       dev\n" in out
    assert "vcore         2.5      1\n" in out
    assert "Pending asks (1)\n" in out
    assert "Allocations (30, the first 20)\n" in out
    assert "2023-11-14T22:13:20Z  accepted     for 1 min 30 s\n" in out
    assert out.count(" n1 ") == 20
    assert app(fake, "show", "app-1", "--all") == 0
    assert capsys.readouterr().out.count(" n1 ") == 30
    assert app(fake, "show", "app-1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == APPLICATION


def test_an_ended_application_is_shown_too(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("GET partition/default/application/app-9", 404, "Application not found")
    row = {**APPLICATIONS[0], "application": "app-9", "state": "failed", "message": "killed"}
    fake.says_table("applications", [row], query="application=app-9&state=ended&limit=10000")
    assert app(fake, "show", "app-9") == 0
    assert "state        failed\n" in (out := capsys.readouterr().out)
    assert "message      killed\n" in out


def test_a_missing_application_is_reported_with_the_nearest_one(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses("GET partition/default/application/ap-1", 404, "Application not found")
    fake.says_table("applications", APPLICATIONS, query="limit=2000")
    assert app(fake, "show", "ap-1") == 1
    assert capsys.readouterr().err == "yunishard app show: Application not found: did you mean 'app-1'?\n"


def test_an_ask_is_shown_with_the_reasons_why_it_waits(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET partition/default/application/app-1", APPLICATION)
    fake.says_table("asks", ASKS, query="text=ask-1&limit=10000")
    for words in (["ask-1"], ["ask-1", "--app", "app-1"]):
        assert main(["ask", "show", "--rest", fake.url, *words]) == 0
        out = capsys.readouterr().out
        assert "resource     0.5 vcore\n" in out
        assert "     12  Not enough queue quota\n" in out
    assert main(["ask", "show", "--rest", fake.url, "al-3", "--app", "app-1"]) == 0
    assert "node         n1\n" in capsys.readouterr().out


def test_an_ask_that_does_not_exist_is_status_1(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET partition/default/application/app-1", APPLICATION)
    fake.says_table("asks", [], query="text=x&limit=10000")
    assert main(["ask", "show", "--rest", fake.url, "x", "--app", "app-1"]) == 1
    assert capsys.readouterr().err.endswith("has no ask x; `yunishard app show app-1` lists them\n")
    assert main(["ask", "show", "--rest", fake.url, "x"]) == 1
    assert capsys.readouterr().err.endswith(": name its application with --app\n")


def test_asks_are_listed(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says_table("asks", ASKS, query="application=app-1&limit=10000")
    assert main(["ask", "list", "--rest", fake.url, "--app", "app-1"]) == 0
    assert "  queue-maximum\n" in capsys.readouterr().out


# kill and move --------------------------------------------------------------------------------------------------------

KILLED = {"applicationID": "app-1", "state": "Failing", "outcome": "app-1 in partition default is failing"}


def test_kill_says_what_became_of_it(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("POST partition/default/application/app-1/kill", KILLED)
    assert app(fake, "kill", "app-1") == 0
    assert capsys.readouterr().out == "app-1 in partition default is failing\n"


def test_move_names_the_queue(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"applicationID": "app-1", "queue": "root.b", "outcome": "app-1 in partition gpu is in root.b"}
    fake.says("POST partition/gpu/application/app-1/move?queue=root.b", answer)
    assert app(fake, "move", "app-1", "root.b", "--partition", "gpu") == 0
    assert capsys.readouterr().out == "app-1 in partition gpu is in root.b\n"
    assert app(fake, "move", "app-1", "root.b", "--partition", "gpu", "--json") == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_names_are_written_into_the_path_so_that_they_stay_names(fake: FakeWeb) -> None:
    fake.says("POST partition/default/application/a%2F..%2Fb%3Fc/kill", KILLED)
    assert app(fake, "kill", "a/../b?c") == 0


def test_the_partition_that_has_it_is_found(fake: FakeWeb) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    fake.says("GET partition/gpu/application/app-1", {})
    fake.says("POST partition/gpu/application/app-1/kill", KILLED)
    assert app(fake, "kill", "app-1") == 0


def test_an_application_that_nobody_has_is_status_1(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    assert app(fake, "kill", "app-1") == 1
    assert capsys.readouterr().err.endswith("no partition has an active application app-1 (partitions: default, gpu)\n")


def test_a_partition_that_is_not_there_is_told_with_those_there_are(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses("POST partition/nope/application/app-1/kill", 404, "Partition not found")
    assert app(fake, "kill", "app-1", "--partition", "nope") == 1
    assert capsys.readouterr().err == "yunishard app kill: Partition not found: nope (partitions: default)\n"


@pytest.mark.parametrize(
    ("message", "listed"), [("queue root.b does not exist", "queue list"), ("application x ...", "app list")]
)
def test_what_is_not_there_is_told_with_where_to_look(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], message: str, listed: str
) -> None:
    fake.refuses("POST partition/default/application/app-1/move?queue=root.b", 404, message)
    assert app(fake, "move", "app-1", "root.b") == 1
    told = capsys.readouterr().err
    assert told == f"yunishard app move: {message}: `yunishard {listed}` shows those there are\n"


def test_one_that_several_have_needs_the_partition(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    for partition in ("default", "gpu"):
        fake.says(f"GET partition/{partition}/application/app-1", {})
    assert app(fake, "kill", "app-1") == 1
    assert "--partition: default, gpu" in capsys.readouterr().err


def test_a_partition_that_does_not_answer_is_not_passed_over(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    fake.refuses("GET partition/default/application/app-1", 503, "Partition default did not answer")
    fake.says("GET partition/gpu/application/app-1", {})
    assert app(fake, "kill", "app-1") == 1
    assert capsys.readouterr().err == "yunishard app kill: Partition default did not answer\n"


def test_a_refusal_is_told_in_the_systems_words(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("POST partition/default/application/app-1/kill", 403, "you may not")
    assert app(fake, "kill", "app-1") == 1
    assert capsys.readouterr().err == "yunishard app kill: you may not\n"
