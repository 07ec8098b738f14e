"""The format of log lines, and that every process of a system uses the one that is set."""

import json
import logging
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, up
from yunishard.common.process.logs import JsonFormatter, log_lines
from yunishard.sdk.blocking import BlockingResourceManager

DEFECTIVE = """
import logging, sys, threading, warnings
from yunishard.common.process.logs import configure_logging
configure_logging("broker", "info", sys.argv[1])
logging.getLogger("core.broker").info("one\\ntwo %s", "\\udcff")
warnings.warn("an old call")
thread = threading.Thread(target=lambda: {}["gone"], name="journal")
thread.start()
thread.join()
raise OSError("no room")
"""


def format_line(record: logging.LogRecord) -> dict[str, object]:
    line = JsonFormatter("webservice").format(record)
    assert "\n" not in line
    found: dict[str, object] = json.loads(line)
    return found


def make_record(message: str, *values: object) -> logging.LogRecord:
    record = logging.LogRecord("core.rest", logging.WARNING, "api.py", 1, message, values, None)
    record.created, record.process = 1_700_000_000.25, 7
    return record


def test_a_line_is_one_object_with_its_fields_in_order() -> None:
    assert [*format_line(make_record("%d of %s", 3, "four")).items()] == [
        ("time", "2023-11-14T22:13:20.250Z"),
        ("level", "warning"),
        ("process", "webservice"),
        ("pid", 7),
        ("logger", "core.rest"),
        ("message", "3 of four"),
    ]


def test_a_message_of_several_lines_stays_one_line() -> None:
    assert format_line(make_record("one\ntwo\r\nthree\u2028"))["message"] == "one\ntwo\r\nthree\u2028"


def test_bytes_that_are_no_text_are_escaped() -> None:
    assert format_line(make_record("file %s", "\udcff"))["message"] == "file \\udcff"


def test_an_exception_has_its_traceback_in_its_own_field() -> None:
    record = make_record("it failed")
    try:
        raise ValueError("bad \udcff")
    except ValueError:
        record.exc_info = sys.exc_info()
    found = format_line(record)
    assert found["message"] == "it failed"
    assert str(found["exception"]).startswith("Traceback (most recent call last):\n")
    assert str(found["exception"]).endswith("ValueError: bad \\udcff")


def test_the_stack_of_a_line_is_in_the_same_field() -> None:
    record = make_record("here")
    record.stack_info = "Stack (most recent call last):\n  at home"
    assert format_line(record)["exception"] == "Stack (most recent call last):\n  at home"


def run_defective(line_format: str) -> list[str]:
    command = [sys.executable, "-P", "-c", DEFECTIVE, line_format]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_warnings_and_what_ends_a_process_or_thread_are_lines_too() -> None:
    found = [json.loads(line) for line in run_defective("json")]
    assert [(one["level"], one["logger"]) for one in found] == [
        ("info", "core.broker"),
        ("warning", "py.warnings"),
        ("error", "core.process"),
        ("critical", "core.process"),
    ]
    assert found[0]["message"] == "one\ntwo \\udcff"
    assert "an old call" in found[1]["message"]
    assert found[2]["message"] == "the thread journal ends: KeyError"
    assert found[3]["message"] == "the process ends: OSError: no room"
    assert found[3]["exception"].endswith("OSError: no room")


def test_text_is_for_people() -> None:
    lines = run_defective("text")
    assert lines[0].endswith("INFO    broker core.broker: one\\x0atwo \\udcff")
    assert lines[-1] == "OSError: no room"


def test_the_lines_of_a_machine_are_logged_and_cleared(caplog: pytest.LogCaptureFixture) -> None:
    lines = {logging.INFO: ["a"], logging.WARNING: ["b", "c"]}
    with caplog.at_level(logging.INFO):
        log_lines(logging.getLogger("core.test"), lines, "p: ")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", "p: a"),
        ("WARNING", "p: b"),
        ("WARNING", "p: c"),
    ]
    assert lines == {logging.INFO: [], logging.WARNING: []}


@pytest.mark.processes
def test_every_process_of_a_system_writes_one_object_for_each_line(tmp_path: Path) -> None:
    with up("--ephemeral", "--log-level", "debug", "--log-format", "json", *FREE_PORTS, folder=tmp_path) as system:
        found = system.announced()
        with BlockingResourceManager(found["native"], rm_id="rm-1"):
            urllib.request.urlopen(f"{found['rest']}/ws/v1/livez").close()
            assert system.stop() == 0
        lines = [json.loads(line) for line in system.errors.splitlines()]
    assert all([*one][:6] == ["time", "level", "process", "pid", "logger", "message"] for one in lines)
    assert {one["process"] for one in lines} >= {"supervisor", "broker", "webservice"}
