"""`yunishard settings`: what would be in force here, and what is in force in a system that runs."""

import json
from pathlib import Path

import pytest

from tests.yunishard.fake_web import web
from yunishard.cli import main


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


def test_a_running_system_is_asked_and_bad_values_are_seen_through(capsys: pytest.CaptureFixture[str]) -> None:
    with web() as fake:
        fake.says(
            "GET clusters", [{"rmBuildInformation": [{"rmId": "rm-1"}]}, {"rmBuildInformation": [{"rmId": "rm-2"}]}]
        )
        fake.says(
            "GET settings",
            [
                {"name": "rest", "value": "127.0.0.1:9", "source": "--rest"},
                {"name": "rm/event.maxStreams", "value": "7", "source": "RM rm-1"},
                {"name": "rm/health.checkInterval", "value": "soon", "source": "RM rm-1"},
                {"name": "rm/service.whatever", "value": "x", "source": "RM rm-1"},
            ],
        )
        assert main(["settings", "--json", "--rest", fake.url]) == 0
        entries = json.loads(capsys.readouterr().out)
    found = {entry["name"]: (entry["value"], entry["source"]) for entry in entries if "rm-2" not in entry["source"]}
    assert found["rest"] == ("127.0.0.1:9", "--rest")
    assert found["rm/event.maxStreams"] == ("7", "RM rm-1")
    assert found["rm/health.checkInterval"] == ("30s", "default (RM rm-1 sent 'soon', which means nothing)")
    assert found["rm/event.maxStreamsPerHost"] == ("15", "default (RM rm-1)")
    assert {"name": "rm/log.level", "value": "info", "source": "default (RM rm-2)"} in entries, "it sent nothing"
    assert "rm/service.whatever" not in found


def test_where_nothing_answers_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--rest", "http://127.0.0.1:1"]) == 2
    assert "is the system running there" in capsys.readouterr().err
