"""`yunishard plan` against a fake web service: the requests, the report, and the exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.main import main

AT = 1_700_000_000_000_000_000
MINUTE = 60_000_000_000
REPORT: dict[str, object] = {
    "partition": "default",
    "changes": ["drain node n1"],
    "summary": ["1 allocation of 1 application is evicted (bob 1); 0 of them get another node."],
    "at": AT,
    "horizon": 3600.0,
    "baseline": {"running": 2},
    "planned": {"running": 1, "evicted": 1, "waiting": 1},
    "evictions": [
        {
            "allocation": "a1",
            "application": "app",
            "queue": "root.a",
            "user": "bob",
            "node": "n1",
            "at": AT,
            "reason": "",
        }
    ],
    "utilisation": [
        {
            "resource": "vcore",
            "capacityBefore": 4000,
            "usedBefore": 2000,
            "usedBaseline": 2000,
            "capacity": 4000,
            "used": 1000,
        }
    ],
    "assumptions": ["Nothing else arrives."],
}


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        fake.says("GET partition/default/node/n1", {"nodeID": "n1"})
        fake.says("GET partition/default/queue/root.a", {"queuename": "root.a"})
        fake.says("POST partition/default/plan", REPORT)
        yield fake


def run(fake: FakeWeb, *words: str) -> int:
    return main(["plan", *words, "--rest", fake.url])


def sent(fake: FakeWeb) -> dict[str, object]:
    """The body of the request for a plan."""
    [body] = [body for what, _, body in fake.heard if what.startswith("POST")]
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


def test_the_report_begins_with_the_summary(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake, "drain", "n1", "--horizon", "2h") == 0
    assert sent(fake) == {"changes": [{"kind": "drain-node", "node": "n1"}], "horizon": 7200.0}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "plan: drain node n1 · partition default · 1 h ahead · nothing was changed"
    assert lines[2] == "1 allocation of 1 application is evicted (bob 1); 0 of them get another node."
    assert "vcore     2 of 4 (50 %)  2 of 4 (50 %)  1 of 4 (25 %)" in lines
    assert lines[-1] == "  - Nothing else arrives."


def test_json_is_the_report_of_the_system(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake, "drain", "n1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == REPORT


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("remove n1", {"kind": "remove-node", "node": "n1"}),
        (
            "add-nodes 2 --resources vcore=4,memory=1Gi --attribute zone=a",
            {
                "kind": "add-nodes",
                "count": 2,
                "resources": {"vcore": "4", "memory": "1Gi"},
                "attributes": {"zone": "a"},
            },
        ),
        (
            "limit root.a --max vcore=4 --max memory=none --max-applications 3",
            {"kind": "limit-queue", "queue": "root.a", "max": {"vcore": "4", "memory": None}, "maxApplications": 3},
        ),
        (
            "submit --queue root.a --user bob --groups x,y --resources vcore=1 --tasks 2 --run-time 2h --gang",
            {
                "kind": "submit",
                "job": {
                    "queue": "root.a",
                    "user": "bob",
                    "groups": ["x", "y"],
                    "resources": {"vcore": "1"},
                    "tasks": 2,
                    "runTime": "2h",
                    "gang": True,
                },
            },
        ),
    ],
)
def test_each_action_is_one_change(fake: FakeWeb, words: str, change: dict[str, object]) -> None:
    assert run(fake, *words.split()) == 0
    assert sent(fake)["changes"] == [change]


def test_a_configuration_is_sent_as_it_is_written(fake: FakeWeb, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions: []\n")
    assert run(fake, "config", str(file)) == 0
    assert sent(fake)["changes"] == [{"kind": "config", "config": "partitions: []\n"}]


def test_a_line_of_a_trace_is_a_job_and_options_override_it(fake: FakeWeb, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"id": "j1", "submit": 5, "user": "eve", "resources": {"vcore": 2}, "tasks": 3, "run_time": 90.5}')
    assert run(fake, "submit", str(file), "--tasks", "1") == 0
    assert sent(fake)["changes"] == [
        {
            "kind": "submit",
            "job": {"id": "j1", "user": "eve", "resources": {"vcore": 2}, "runTime": "90.500000s"},
        }
    ]


@pytest.mark.parametrize(
    ("verdict", "status"), [("now", 0), ("later", 0), ("partly", 3), ("never", 3), ("rejected", 3)]
)
def test_the_exit_status_of_a_job_is_whether_it_runs(
    fake: FakeWeb, verdict: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"application": "planned-job", "verdict": verdict, "text": "A verdict.", "tasks": 1, "queue": "root.a"}
    after = {"allocation": "a1", "application": "app", "node": "n1", "at": AT + 5 * MINUTE}
    fake.says("POST partition/default/plan", {**REPORT, "jobs": [{**job, "after": [after]}], "summary": ["A verdict."]})
    assert run(fake, "submit", "--resources", "vcore=1") == status
    output = capsys.readouterr().out
    assert "A verdict." in output
    assert "a1 of app on n1, in 5 min" in output


def test_a_refusal_and_wrong_usage_have_their_own_status(
    fake: FakeWeb, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses("POST partition/default/plan", 409, "the partition cannot take it")
    assert run(fake, "drain", "n1") == 1
    assert "the partition cannot take it" in capsys.readouterr().err
    assert run(fake, "submit") == 2
    assert run(fake, "limit", "root.a") == 2
    (tmp_path / "job.json").write_text("[]")
    assert run(fake, "submit", str(tmp_path / "job.json")) == 2
    assert "no JSON object" in capsys.readouterr().err
    fake.says("GET clusters", [{"partition": "p1"}, {"partition": "p2"}])
    assert run(fake, "submit", "--resources", "vcore=1") == 1
    assert "name one with --partition: p1, p2" in capsys.readouterr().err
