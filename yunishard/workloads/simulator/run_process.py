"""The process of one run: reads the `RunSpec` from standard input, and writes lines of JSON to standard output.

    {"done": 500, "jobs": 188041, "time": 3600.0}      progress
    {"problem": "nodes.csv: no node in it"}            it cannot be simulated; then the process ends with status 2

`command.py` starts it, with the packages of the compiled engine, if there is one.
"""

import sys
import time
from typing import Final

import msgspec

from yunishard.cli.main import UNUSABLE, CommandUnusable
from yunishard.common.process import gc_tuning
from yunishard.workloads.simulator.simulation import RunSpec, simulate

REPORT_EVERY_S: Final = 0.1
"""Seconds of real time between two lines of progress."""


class Line(msgspec.Struct, omit_defaults=True):
    """A line of output."""

    done: int = 0
    jobs: int = 0
    time: float = 0.0
    problem: str = ""


def main() -> int:
    """Run the simulation."""
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=RunSpec)
    reported = -REPORT_EVERY_S

    def report(done: int, jobs: int, at: float) -> None:
        nonlocal reported
        now = time.monotonic()
        if now >= reported + REPORT_EVERY_S or done == jobs:
            reported = now
            _write(Line(done=done, jobs=jobs, time=at))

    gc_tuning.collect_rarely()
    try:
        simulate(spec, report)
    except CommandUnusable as error:
        _write(Line(problem=str(error)))
        return UNUSABLE
    except OSError as error:
        _write(Line(problem=f"{error.filename}: {(error.strerror or str(error)).lower()}"))
        return UNUSABLE
    return 0


def _write(line: Line) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
