"""Write the jobs of a replay as CSV, or as a result folder like those of `yunishard simulate`: `run.json`, `jobs.csv`,
`usage.csv`, `preemptions.csv`. docs/operating/simulate.md describes the files for users.

Times are seconds of the log since its first job. `start` is when the last task of the job got its first node. The waits
of a replay depend on its speed and on the machine, see `report.py`.
"""

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from yunishard.cli.main import CommandUnusable
from yunishard.common.messages.kinds import Resources
from yunishard.workloads.replay.usage import ROOT, QueueLimits, UsageLog, list_levels
from yunishard.workloads.replay.workload import Job, Plan

FORMAT: Final = 1
"""Version of the files. Folders with another one are refused."""

RUN_FILE: Final = "run.json"
COLUMNS: Final = (
    *("job", "application", "user", "group", "queue", "submit", "start", "end", "wait", "run_time"),
    *("bounded_slowdown", "tasks", "node", "state", "preemptions", "lost"),
)

USAGE_COLUMNS: Final = ("time", "queue", "resource", "used", "pending", "guaranteed", "maximum")
PREEMPTION_COLUMNS: Final = ("time", "job", "task", "queue", "node", "by", "by_queue", "lost")

Cell = str | int | float | None

SLOWDOWN_S_MIN: Final = 10
"""Run times below it count as this long in the slowdown: short jobs would determine every mean otherwise."""


def check_writable(option: str, path: Path) -> None:
    """Create the file, so that a long replay does not end with the news that it cannot be written.

    Raises:
        CommandUnusable: it cannot be written.
    """
    try:
        if path.name == RUN_FILE:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a"):
            pass
    except OSError as error:
        raise CommandUnusable(f"{option} {path}: cannot be written: {error.strerror or error}") from None


def write_jobs(path: Path, jobs: Iterable[Job], *, has_rules: bool) -> None:
    """Write a line for each job, in the order of submission.

    `has_rules` leaves the queues empty: placement rules of the user's own chose them, and the RM is not told.
    """
    write_table(path, COLUMNS, (_build_row(job, queue="" if has_rules else job.queue) for job in jobs))


def _build_row(job: Job, *, queue: str) -> tuple[Cell, ...]:
    is_done = job.state == "done"
    wait_s = job.wait_s if job.start_s is not None else None
    slowdown = max((job.wait_s + job.run_s) / max(job.run_s, SLOWDOWN_S_MIN), 1.0) if is_done else None
    state = "completed" if is_done else "rejected" if job.is_refused else "unfinished"
    return (
        *(job.number, job.application_id, job.user, job.group, queue),
        *(job.submit_s, job.start_s, job.end_s, wait_s, job.run_s, slowdown),
        *(len(job.split_tasks()), job.node_id, state, job.preemptions, job.lost_s),
    )


# A whole folder -------------------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """The log and the configuration of a replay, and its speed."""

    log: str
    """File name of the log."""
    config: str
    """File name of the configuration; empty without one of the user's own."""
    speed: float
    """Seconds of the log in one second."""


def write_folder(folder: Path, plan: Plan, jobs: Sequence[Job], source: Source, *, has_rules: bool) -> None:
    """Write the result folder of a replay. Its partitions count as one.

    The usage follows from the jobs: one uses its processors from the start of its last task to its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUN_FILE).unlink(missing_ok=True)
    usage, span = UsageLog(), float(plan.span_s)
    amounts: dict[int, Resources] = {}
    for job in jobs:
        queue = ROOT if has_rules else job.queue
        usage.limits |= dict.fromkeys(list_levels(queue), QueueLimits({}, {}))
        cores = amounts.setdefault(job.processors, {"vcore": 1000 * job.processors})
        if job.state != "planned" and not job.is_refused:
            usage.note(queue, cores, job.submit_s, used=0, pending=1)
        if job.start_s is not None:
            usage.note(queue, cores, job.start_s, used=1, pending=-1)
        if job.start_s is not None and job.end_s is not None:
            usage.note(queue, cores, job.end_s, used=-1, pending=0)
        span = max(span, job.end_s or 0.0)
    capacity = sum(site.processors for site in plan.sites) * 1000
    write_jobs(folder / "jobs.csv", jobs, has_rules=has_rules)
    rows = ((*row, None, capacity if row.queue == ROOT else None) for row in usage.average(span=span, types=["vcore"]))
    write_table(folder / "usage.csv", USAGE_COLUMNS, rows)
    write_table(folder / "preemptions.csv", PREEMPTION_COLUMNS, ())
    write_run_file(
        folder,
        {
            "name": folder.name,
            "configuration": source.config,
            "nodeSortPolicy": "",
            "partition": ", ".join(site.partition for site in plan.sites),
            "traces": [source.log],
            "jobs": len(jobs),
            "rejected": sum(job.is_refused for job in jobs),
            "unfinished": sum(job.state != "done" and not job.is_refused for job in jobs),
            "span": round(span, 3),
            "nodes": sum(site.nodes for site in plan.sites),
            "capacity": {"vcore": capacity},
            "leftOut": plan.left_out,
            "replaySpeed": round(source.speed, 3),
        },
    )


def write_run_file(folder: Path, document: dict[str, object]) -> None:
    """Write `run.json`, last of all files, so that a folder with it is complete."""
    text = json.dumps({"format": FORMAT, **document}, indent=2, ensure_ascii=False)
    (folder / RUN_FILE).write_text(f"{text}\n", encoding="utf-8", newline="\n")


# Tables ---------------------------------------------------------------------------------------------------------------


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([format_cell(cell) for cell in row] for row in rows)


def format_cell(cell: Cell) -> str:
    """Format a number with at most three decimals and without an exponent; empty for None."""
    if cell is None:
        return ""
    if not isinstance(cell, float):
        return str(cell)
    text = f"{cell:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
