"""Write the jobs of a replay as CSV, with the columns of `jobs.csv` of `yunishard simulate`.

Times are seconds of the log since its first job. `start` is when the last task of the job got its first node. The waits
of a replay depend on its speed and on the machine, see `report.py`.
"""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from yunishard.cli import CommandUnusable
from yunishard.replay.workload import Job

COLUMNS: Final = (
    *("job", "application", "user", "group", "queue", "submit", "start", "end", "wait", "run_time"),
    *("bounded_slowdown", "tasks", "node", "state", "preemptions", "lost"),
)

SLOWDOWN_S_MIN: Final = 10
"""Run times below it count as this long in the slowdown: short jobs would determine every mean otherwise."""


def check_writable(path: Path) -> None:
    """Create the file, so that a long replay does not end with the news that it cannot be written.

    Raises:
        CommandUnusable: it cannot be written.
    """
    try:
        path.touch()
        with path.open("a"):
            pass
    except OSError as error:
        raise CommandUnusable(f"--jobs-csv {path}: cannot be written: {error.strerror or error}") from None


def write_jobs(path: Path, jobs: Iterable[Job], *, has_rules: bool) -> None:
    """Write a line for each job, in the order of submission.

    `has_rules` leaves the queues empty: placement rules of the user's own chose them, and the RM is not told.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_build_row(job, queue="" if has_rules else job.queue) for job in jobs)


def _build_row(job: Job, *, queue: str) -> tuple[str | int, ...]:
    is_done = job.state == "done"
    wait_s = job.wait_s if job.start_s is not None else None
    slowdown = (job.wait_s + job.run_s) / max(job.run_s, SLOWDOWN_S_MIN) if is_done else None
    state = "completed" if is_done else "rejected" if job.is_refused else "unfinished"
    return (
        *(job.number, job.application_id, job.user, job.group, queue),
        *map(_format, (job.submit_s, job.start_s, job.end_s, wait_s, job.run_s)),
        _format(None if slowdown is None else max(1.0, slowdown)),
        *(len(job.split_tasks()), job.node_id, state, job.preemptions, _format(job.lost_s)),
    )


def _format(number: float | None) -> str:
    """Format with at most three decimals, without an exponent; empty for None."""
    if number is None:
        return ""
    text = f"{number:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
