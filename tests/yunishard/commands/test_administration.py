"""`yunishard schedule` and `settings` against a fake web service."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.main import main


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        yield fake


ALLOCATED = {"kind": "allocate", "applicationID": "app-1", "allocationKey": "a1", "nodeID": "n1"}
PREEMPTED = {
    "kind": "preempt",
    "applicationID": "app-2",
    "allocationKey": "a2",
    "nodeID": "",
    "releases": ["b1", "b2"],
}


def schedule(fake: FakeWeb, *words: str) -> int:
    return main(["schedule", "--rest", fake.url, *words])


def test_each_decision_is_a_line(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says(
        "POST partition/gpu/schedule?steps=5",
        {"partition": "gpu", "made": 2, "decisions": [ALLOCATED, PREEMPTED], "idle": True},
    )
    assert schedule(fake, "gpu", "--steps", "5") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["DECISION", "APPLICATION", "ASK", "NODE", "RELEASES"],
        ["allocate", "app-1", "a1", "n1", "-"],
        ["preempt", "app-2", "a2", "-", "b1,", "b2"],
    ]


def test_one_step_is_what_nothing_else_was_said_of(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"partition": "default", "made": 0, "decisions": [], "idle": True}
    fake.says("POST partition/default/schedule?steps=1", answer)
    assert schedule(fake, "default") == 0
    assert capsys.readouterr().out == "nothing to decide\n"
    assert schedule(fake, "default", "--json") == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_a_refused_schedule_prints_the_reason(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("POST partition/default/schedule?steps=1", 409, "partition default schedules automatically")
    assert schedule(fake, "default") == 1
    assert capsys.readouterr().err == "yunishard schedule: partition default schedules automatically\n"


def test_an_unknown_partition_of_schedule_is_reported_with_the_known_ones(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses("POST partition/nope/schedule?steps=1", 404, "Partition not found")
    fake.says("GET clusters", [{"partition": "rm-1_gpu"}, {"partition": "default"}])
    assert schedule(fake, "nope") == 1
    assert capsys.readouterr().err == "yunishard schedule: Partition not found: nope (partitions: rm-1_gpu, default)\n"


@pytest.mark.parametrize("steps", ["many", "0", "-1", "1.5", "", "1001", "9" * 5000])
def test_a_number_that_cannot_be_is_wrong_usage(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["schedule", "default", f"--steps={steps}"])
    assert ended.value.code == 2
    assert "--steps: expected a whole number from 1 to 1000" in capsys.readouterr().err


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[str, str]]:
    assert main(["settings", "--json", *words]) == 0
    entries = json.loads(capsys.readouterr().out)
    return {entry["name"]: (entry["value"], entry["source"]) for entry in entries}


def test_each_value_has_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("# ours\nconfig: queues.yaml\nqueues.same-hierarchy: enforce\n")
    monkeypatch.setenv("YUNISHARD_LOG_LEVEL", "debug")
    found = shown(capsys, "--settings", str(file), "--grpc", "127.0.0.1:1", "--rest", "127.0.0.1:2")
    assert found["config"] == (str(tmp_path / "queues.yaml"), f"{file}:2")
    assert found["queues.same-hierarchy"] == ("enforce", f"{file}:3")
    assert found["log-level"] == ("debug", "YUNISHARD_LOG_LEVEL")
    assert found["grpc"] == ("127.0.0.1:1", "--grpc")
    assert found["rest"] == ("127.0.0.1:2", "--rest")
    assert found["allowed-rms"] == ("*", "default")
    assert found["scheduler-admins"] == ("", "default")


def test_what_is_not_valid_is_refused_as_up_refuses_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--grpc", "nowhere"]) == 2
    assert capsys.readouterr().err == "yunishard settings: --grpc: expected HOST:PORT or off, got 'nowhere'\n"


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--ephemeral"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["ephemeral", "true", "--ephemeral"] in lines
    assert ["state", "-", "--ephemeral"] in lines


INVALID = "default (RM rm-1 sent 'soon', which is not valid)"


def test_a_running_system_is_asked_and_bad_values_are_seen_through(capsys: pytest.CaptureFixture[str]) -> None:
    with web() as fake:
        fake.says(
            "GET clusters",
            [
                {"partition": "a", "rmBuildInformation": [{"rmId": "rm-1"}]},
                {"partition": "b", "rmBuildInformation": [{"rmId": "rm-2"}]},
            ],
        )
        fake.says(
            "GET settings",
            [
                {"name": "rest", "value": "127.0.0.1:9", "source": "--rest"},
                {"name": "rm/event.maxStreams", "value": "7", "source": "RM rm-1"},
                {"name": "rm/health.checkInterval", "value": "30s", "source": INVALID},
                {"name": "rm/service.whatever", "value": "x", "source": "RM rm-1 (no effect)"},
            ],
        )
        assert main(["settings", "--json", "--rest", fake.url]) == 0
        entries = json.loads(capsys.readouterr().out)
    found = {entry["name"]: (entry["value"], entry["source"]) for entry in entries if "rm-2" not in entry["source"]}
    assert found["rest"] == ("127.0.0.1:9", "--rest")
    assert found["rm/event.maxStreams"] == ("7", "RM rm-1")
    assert found["rm/health.checkInterval"] == ("30s", INVALID)
    assert found["rm/event.maxStreamsPerHost"] == ("15", "default (RM rm-1)")
    assert {"name": "rm/log.level", "value": "info", "source": "default (RM rm-2)"} in entries, "it sent nothing"
    assert found["rm/service.whatever"] == ("x", "RM rm-1 (no effect)")
    assert [entry["name"] for entry in entries].count("rm/health.checkInterval") == 2


def test_where_nothing_answers_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--rest", "http://127.0.0.1:1"]) == 2
    assert "is the system running there" in capsys.readouterr().err
