"""Traces are read within bounds, and what the scheduler would refuse is refused with file and line before the run."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from yunishard.cli.main import CommandUnusable
from yunishard.partition_worker.engine.state import TEXT_MAX
from yunishard.workloads.replay import workload
from yunishard.workloads.simulator import traces
from yunishard.workloads.simulator.traces import load_traces, read_json_lines, read_openb

OPENB = ",".join(traces._OPENB).encode() + b"\n"


def job(number: int = 1, **fields: object) -> dict[str, object]:
    return {"id": f"j{number}", "submit": 0, "run_time": 1, "resources": {"vcore": 1}, **fields}


class EndlessFile(io.RawIOBase):
    """A file with a head, and then a line that `make` returns for each number, for ever."""

    def __init__(self, head: bytes, make: Callable[[int], bytes]) -> None:
        self._rest, self._make, self._number = head, make, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]  # any buffer
        while len(self._rest) < len(buffer):
            self._number += 1
            self._rest += self._make(self._number)
        piece, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize(
    ("read", "head", "make", "problem"),
    [
        (read_json_lines, b"", lambda n: json.dumps(job(n)).encode() + b"\n", "line 101: more than 100 jobs"),
        (read_json_lines, b"", lambda n: b"\n", "more than 200 lines"),
        (read_json_lines, b"", lambda n: b"x", "line 1: longer than 1,048,576 bytes"),
        (
            read_json_lines,
            b"",
            lambda n: json.dumps(job(n, tasks=100)).encode() + b"\n",
            "line 11: more than 1,000 tasks of all jobs",
        ),
        (read_openb, OPENB, lambda n: b"p%d,1,1,0,0,0,1,1\n" % n, "line 102: more than 100 jobs"),
        (read_openb, OPENB, lambda n: b"p%d,1,1,0,0,0,,\n" % n, "more than 200 lines"),
        (read_openb, OPENB, lambda n: b"\n", "more than 200 lines"),
        (read_openb, OPENB, lambda n: b"x", "line 2: longer than 1,048,576 bytes"),
        (workload.parse_log, b"", lambda n: b"%d" % n + b" 1" * 17 + b"\n", "more than 100 jobs"),
        (workload.parse_log, b"", lambda n: b"; a comment\n", "more than 200 lines"),
        (workload.parse_log, b"", lambda n: b"x", "line 1: longer than 1048576 bytes"),
    ],
)
def test_a_file_without_end_is_refused_at_a_limit(
    read: Callable[[io.BufferedIOBase], object], head: bytes, make: Callable[[int], bytes], problem: str
) -> None:
    with (
        patch.multiple(traces, JOBS_MAX=100, LINES_MAX=200, TASKS_OF_ALL_MAX=1000),
        patch.multiple(workload, JOBS_MAX=100, LINES_MAX=200),
        pytest.raises(CommandUnusable) as refused,
    ):
        read(io.BufferedReader(EndlessFile(head, make)))  # type: ignore[type-var]  # not a FileIO
    assert str(refused.value) == problem


def test_the_limits_hold_for_all_files_together(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "missing.jsonl")]
    for file in files[:2]:
        file.write_text("".join(json.dumps(job(number)) + "\n" for number in range(60)))
    with patch.object(traces, "JOBS_MAX", 100), pytest.raises(CommandUnusable) as refused:
        load_traces(files, types=set(), one_task=False)
    assert str(refused.value) == f"{files[1]}: more than 100 jobs, with those of the files before it"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"user": "x" * 900_000}, "user: its texts have"),
        ({"id": "x" * 900_000}, "id: its texts have"),
        ({"queue": "x" * 900_000}, "queue: its texts have"),
        ({"groups": ["x" * 9_000] * 100}, "groups: its texts have"),
        ({"tags": {"x": "x" * 900_000}}, "job: its texts have"),
    ],
)
def test_texts_that_the_scheduler_refuses_are_refused_with_file_and_line(
    tmp_path: Path, fields: dict[str, object], problem: str
) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(f"{json.dumps(job())}\n{json.dumps(job(2, **fields))}\n")
    with pytest.raises(CommandUnusable) as refused:
        load_traces([file], types=set(), one_task=False)
    assert str(refused.value).startswith(f"{file}: line 2: {problem}")
    assert str(refused.value).endswith(f"at most {TEXT_MAX} are allowed")
