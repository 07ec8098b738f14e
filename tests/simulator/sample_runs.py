"""Writes result folders of runs as `yunishard simulate` does, from jobs that a small model of a cluster has run.

The model is first come, first served on one pool of cores, with one reserved part for each queue that has a guarantee.
It is no scheduler: it only makes folders whose figures make sense.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

JOB_COLUMNS: Final = (
    *("job", "application", "user", "group", "queue", "submit", "start", "end", "wait", "run_time"),
    *("bounded_slowdown", "tasks", "node", "state", "preemptions", "lost"),
)
USAGE_COLUMNS: Final = ("time", "queue", "resource", "used", "pending", "guaranteed", "maximum")
PREEMPTION_COLUMNS: Final = ("time", "job", "task", "queue", "node", "by", "by_queue", "lost")

INTERVALS: Final = 200


@dataclass
class SampleJob:
    """A job of the sample: one core, or several."""

    name: str
    user: str
    queue: str
    submit: float
    run_time: float
    cores: int = 1
    start: float | None = None

    @property
    def end(self) -> float | None:
        return None if self.start is None else self.start + self.run_time


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def write_run(
    folder: Path,
    *,
    rows: Iterable[Mapping[str, object]] = (),
    usage: Iterable[Mapping[str, object]] = (),
    preemptions: Iterable[Mapping[str, object]] = (),
    **info: object,
) -> Path:
    """Write a folder with these lines and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {
        "format": 1,
        "name": folder.name,
        "configuration": "queues.yaml",
        "nodeSortPolicy": "fair",
        "traces": ["log.swf"],
        "jobs": 0,
        "rejected": 0,
        "unfinished": 0,
        "span": 100,
        "nodes": 1,
        "capacity": {"vcore": 1000},
        "partition": "default",
        **info,
    }
    (folder / "run.json").write_text(json.dumps(written, indent=2) + "\n")
    defaults = {"tasks": 1, "state": "completed", "preemptions": 0, "lost": 0}
    write_table(folder / "jobs.csv", JOB_COLUMNS, ({**defaults, **row} for row in rows))
    write_table(folder / "usage.csv", USAGE_COLUMNS, usage)
    write_table(folder / "preemptions.csv", PREEMPTION_COLUMNS, preemptions)
    return folder


def make_jobs(seed: int, amount: int = 400) -> list[SampleJob]:
    """Make jobs of five users in three queues."""
    random = Random(seed)
    queues = ("root.batch", "root.research.language", "root.research.vision")
    return [
        SampleJob(
            name=f"job-{number}",
            user=f"user-{random.randrange(5)}",
            queue=random.choice(queues),
            submit=round(random.random() ** 2 * 40_000),
            run_time=round(random.expovariate(1 / 900)),
            cores=random.choice((1, 1, 2, 4)),
        )
        for number in range(amount)
    ]


def play(jobs: Sequence[SampleJob], cores: int, *, is_shortest_first: bool = False) -> None:
    """Start each job when there are cores for the first one that waits."""
    arrivals = sorted(jobs, key=lambda job: job.submit)
    order = count()
    waiting: list[tuple[float, int, SampleJob]] = []
    running: list[tuple[float, int]] = []
    free, at, now = cores, 0, 0.0
    while at < len(arrivals) or waiting:
        if waiting and waiting[0][2].cores <= free:
            job = heappop(waiting)[2]
            job.start = max(now, job.submit)
            free -= job.cores
            heappush(running, (job.start + job.run_time, job.cores))
            continue
        next_end = running[0][0] if running else float("inf")
        if at < len(arrivals) and arrivals[at].submit <= next_end:
            job = arrivals[at]
            now, at = job.submit, at + 1
            heappush(waiting, (job.run_time if is_shortest_first else job.submit, next(order), job))
        else:
            now, released = heappop(running)
            free += released


def describe_job(job: SampleJob) -> dict[str, object]:
    assert job.start is not None
    wait = job.start - job.submit
    return {
        "job": job.name,
        "application": job.name,
        "user": job.user,
        "group": "staff",
        "queue": job.queue,
        "submit": job.submit,
        "start": job.start,
        "end": job.end,
        "wait": wait,
        "run_time": job.run_time,
        "bounded_slowdown": round(max(1.0, (wait + job.run_time) / max(10, job.run_time)), 3),
        "tasks": job.cores,
        "node": "node-1",
    }


def measure_usage(
    jobs: Sequence[SampleJob], span: float, guaranteed: Mapping[str, int], cores: int
) -> list[dict[str, object]]:
    """The mean use and demand of each queue, its parents included, for each interval."""
    width = span / INTERVALS
    queues = {"root", *(job.queue for job in jobs), *(job.queue.rpartition(".")[0] for job in jobs)}
    amounts = {(queue, kind): [0.0] * INTERVALS for queue in queues for kind in ("used", "pending")}

    def add(queue: str, kind: str, begin: float, end: float, amount: float) -> None:
        for index in range(int(begin / width), min(INTERVALS, int(end / width) + 1)):
            part = min(end, (index + 1) * width) - max(begin, index * width)
            amounts[queue, kind][index] += max(0.0, part) / width * amount

    for job in jobs:
        assert job.start is not None
        assert job.end is not None
        for queue in queues:
            if job.queue == queue or job.queue.startswith(f"{queue}."):
                add(queue, "pending", job.submit, job.start, job.cores * 1000)
                add(queue, "used", job.start, job.end, job.cores * 1000)
    return [
        {
            "time": round(index * width, 3),
            "queue": queue,
            "resource": resource,
            "used": round(amounts[queue, "used"][index] * factor, 3),
            "pending": round(amounts[queue, "pending"][index] * factor, 3),
            "guaranteed": guaranteed[queue] * factor if queue in guaranteed else "",
            "maximum": cores * 1000 * factor if queue == "root" else "",
        }
        for index in range(INTERVALS)
        for queue in sorted(queues)
        for resource, factor in (("vcore", 1), ("memory", 1 << 20))
    ]


def write_sample_run(folder: Path, *, seed: int = 1, cores: int = 16, is_shortest_first: bool = False) -> Path:
    """Write a run of a few hundred jobs, with some that were preempted, rejected and unfinished."""
    jobs = make_jobs(seed)
    play(jobs, cores, is_shortest_first=is_shortest_first)
    span = max(job.end or 0.0 for job in jobs)
    rows = [describe_job(job) for job in jobs]
    rows[5] |= {"state": "rejected", "start": "", "end": "", "wait": "", "bounded_slowdown": "", "node": ""}
    rows[6] |= {"state": "unfinished", "start": "", "end": "", "wait": "", "bounded_slowdown": "", "node": ""}
    victims = jobs[10:14]
    for job in victims:
        rows[jobs.index(job)] |= {"preemptions": 1, "lost": 30}
    preemptions = [
        {
            "time": job.start,
            "job": job.name,
            "task": f"{job.name}.1",
            "queue": job.queue,
            "node": "node-1",
            "by": "job-20.1",
            "by_queue": "root.research.vision",
            "lost": 30,
        }
        for job in victims
    ]
    return write_run(
        folder,
        rows=rows,
        usage=measure_usage(jobs, span, {"root.batch": 8000, "root.research": 8000}, cores),
        preemptions=preemptions,
        nodeSortPolicy="binpacking" if is_shortest_first else "fair",
        jobs=len(jobs),
        rejected=1,
        unfinished=1,
        span=span,
        nodes=cores // 4,
        capacity={"vcore": cores * 1000, "memory": cores * 1000 << 20},
    )
