"""Write the result folder of a run: `run.json`, `jobs.csv`, `usage.csv`, `preemptions.csv`.

The same input gives the same bytes: the files contain no clock, no duration of the simulation and nothing of the
machine. `run_folder.py` reads them, and docs/operating/simulate.md describes them for users.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from yunishard.common.messages.kinds import Resources
from yunishard.workloads.replay.result_folder import COLUMNS as JOB_COLUMNS
from yunishard.workloads.replay.result_folder import (
    PREEMPTION_COLUMNS,
    RUN_FILE,
    SLOWDOWN_S_MIN,
    USAGE_COLUMNS,
    Cell,
    write_run_file,
    write_table,
)
from yunishard.workloads.replay.usage import QueueLimits
from yunishard.workloads.simulator.recorder import JobRun, PreemptedTask, Recorder, list_types


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """The subject of a run, for `run.json`."""

    name: str
    configuration: str
    """Name of the file."""
    node_sort_policy: str
    partition: str
    traces: tuple[str, ...]
    nodes: int
    capacity: Resources
    left_out: dict[str, int]
    """Reason to number of entries of the trace that are not simulated."""


def write_results(folder: Path, head: RunHead, recorder: Recorder, jobs: Sequence[JobRun], *, span: float) -> None:
    """Write all files of a run; `run.json` last, so that a folder with it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RUN_FILE).unlink(missing_ok=True)
    write_table(folder / "jobs.csv", JOB_COLUMNS, map(_build_job_row, jobs))
    types = list_types(head.capacity, jobs)
    none = QueueLimits({}, {})
    rows = (
        (*row, limits.guaranteed.get(row.resource), limits.maximum.get(row.resource))
        for row in recorder.usage.average(span=span, types=types)
        for limits in (recorder.usage.limits.get(row.queue, none),)
    )
    write_table(folder / "usage.csv", USAGE_COLUMNS, rows)
    write_table(folder / "preemptions.csv", PREEMPTION_COLUMNS, map(_build_preemption_row, recorder.preemptions))
    states = [run.state for run in jobs]
    document: dict[str, object] = {
        "name": head.name,
        "configuration": head.configuration,
        "nodeSortPolicy": head.node_sort_policy,
        "partition": head.partition,
        "traces": list(head.traces),
        "jobs": len(jobs),
        "rejected": states.count("rejected"),
        "unfinished": len(jobs) - states.count("rejected") - states.count("completed"),
        "span": round(span, 3),
        "nodes": head.nodes,
        "capacity": head.capacity,
        "leftOut": head.left_out,
    }
    write_run_file(folder, document)


def _build_job_row(run: JobRun) -> tuple[Cell, ...]:
    job = run.job
    is_done = run.state == "completed"
    submit = job.submit if run.submitted is None else run.submitted
    wait = None if run.started is None else run.started - submit
    slowdown = None
    if is_done and wait is not None:
        slowdown = max((wait + job.run_time) / max(job.run_time, SLOWDOWN_S_MIN), 1.0)
    state = run.state if run.state in ("completed", "rejected") else "unfinished"
    return (
        *(job.name, run.application_id, job.user, job.groups[0] if job.groups else "", run.queue),
        *(submit, run.started, run.ended, wait, job.run_time),
        *(slowdown, len(job.tasks), run.node, state, run.preemptions, run.lost),
    )


def _build_preemption_row(one: PreemptedTask) -> tuple[Cell, ...]:
    return (one.at, one.job, one.task, one.queue, one.node, one.by, one.by_queue, one.lost)
