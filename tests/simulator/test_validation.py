"""The waits of simulated logs against computations from first principles, which know nothing of the engine.

The logs are slices of the Parallel Workloads Archive: LCG-2005-1 (provided by Hui Li; one processor a job) and
NASA-iPSC-1993-3.1-cln (provided by Bill Nitzberg; 1 to 128 processors a job), both kept by Dror Feitelson. The submit
times of the latter are start times, so that no job would wait: they are compressed to half, except where the recorded
schedule itself is the expected result.
"""

import csv
import gzip
import json
from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from pathlib import Path
from typing import NamedTuple

import pytest

from yunishard.workloads.simulator.simulation import RunSpec, simulate

ROOT = Path(__file__).parents[2]
LCG = ROOT / "examples" / "lcg-2005.swf.gz"
NASA = Path(__file__).parent / "data" / "nasa-1993.swf.gz"

FIFO = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: all, properties: {application.sort.policy: fifo}}]
"""


class LogJob(NamedTuple):
    """A line of a log, read without the project's reader."""

    number: str
    submit: int
    run_time: int
    processors: int


def read_lines(path: Path, *, as_recorded: bool = False) -> list[list[str]]:
    """Return the columns of all jobs by submission, that of NASA compressed unless `as_recorded`."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    rows = [line.split() for line in lines if line.strip() and not line.startswith(";")]
    if path == NASA and not as_recorded:
        rows = [[row[0], str(int(row[1]) // 2), *row[2:]] for row in rows]
    return sorted(rows, key=lambda row: int(row[1]))


def read_log(path: Path, *, as_recorded: bool = False) -> list[LogJob]:
    rows = read_lines(path, as_recorded=as_recorded)
    return [LogJob(row[0], int(row[1]), int(row[3]), int(row[4])) for row in rows]


def compute_fcfs(jobs: Sequence[LogJob], processors: int) -> dict[str, int]:
    """First come, first served: no job starts before an earlier one. Return the wait of each job.

    A job starts when it is submitted, the job before it has started, and enough processors are free. `free_at` has the
    time from which each processor is free.
    """
    free_at = [0] * processors
    waits = {}
    before = 0
    for job in jobs:
        earliest = sorted(free_at)[job.processors - 1] if job.processors > 1 else free_at[0]
        start = max(job.submit, before, earliest)
        waits[job.number] = start - job.submit
        before = start
        for _ in range(job.processors):
            heapreplace(free_at, start + job.run_time)
    return waits


def compute_first_fit(jobs: Sequence[LogJob], processors: int) -> dict[str, int]:
    """First come, first served with backfilling, without a reservation for the first job: whenever processors become
    free or a job is submitted, each waiting job starts that fits, the earliest first. Return the wait of each job.
    """
    times = sorted({job.submit for job in jobs})
    ends: list[tuple[int, int]] = []
    waiting: list[LogJob] = []
    waits: dict[str, int] = {}
    coming = list(jobs)
    free = processors
    while coming or waiting:
        now = min([coming[0].submit] if coming else [], default=times[-1] + 10**9)
        now = min(now, ends[0][0]) if ends else now
        while ends and ends[0][0] <= now:
            free += heappop(ends)[1]
        while coming and coming[0].submit <= now:
            waiting.append(coming.pop(0))
        for job in tuple(waiting):
            if job.processors <= free:
                free -= job.processors
                waits[job.number] = now - job.submit
                heappush(ends, (now + job.run_time, job.processors))
                waiting.remove(job)
    return waits


def compute_easy(jobs: Sequence[LogJob], processors: int) -> dict[str, int]:
    """EASY backfilling with exact run times: the first job that waits has a reservation at the earliest time at which
    enough processors are free, and a later job starts before it only without delaying it. Return the wait of each job.
    """
    ends: list[tuple[int, int]] = []
    waiting: list[LogJob] = []
    waits: dict[str, int] = {}
    coming = list(jobs)
    free = processors

    def start(job: LogJob) -> None:
        nonlocal free
        free -= job.processors
        waits[job.number] = now - job.submit
        heappush(ends, (now + job.run_time, job.processors))
        waiting.remove(job)

    while coming or waiting:
        now = min([*(job.submit for job in coming[:1]), *(end for end, _ in ends[:1])])
        while ends and ends[0][0] <= now:
            free += heappop(ends)[1]
        while coming and coming[0].submit <= now:
            waiting.append(coming.pop(0))
        while waiting and waiting[0].processors <= free:
            start(waiting[0])
        if not waiting:
            continue
        reserved_at, at_that_time = now, free
        for end, released in sorted(ends):
            if at_that_time >= waiting[0].processors and end > reserved_at:
                break
            reserved_at, at_that_time = end, at_that_time + released
        spare = at_that_time - waiting[0].processors
        for job in waiting[1:]:
            if job.processors <= free and now + job.run_time <= reserved_at:
                start(job)
            elif job.processors <= min(free, spare):
                spare -= job.processors
                start(job)
    return waits


def simulate_waits(
    folder: Path, log: Path, nodes: str, *, jobs: int = 10**9, as_recorded: bool = False, **options: object
) -> dict[str, int]:
    """Simulate the first jobs of a log; return the wait of each."""
    rows = read_lines(log, as_recorded=as_recorded)[:jobs]
    (folder / "log.swf").write_text("".join(f"{' '.join(row)}\n" for row in rows))
    (folder / "nodes.csv").write_text(nodes)
    fields: dict[str, object] = {
        "name": "run",
        "config": "queues.yaml",
        "config_text": FIFO,
        "nodes": str(folder / "nodes.csv"),
        "traces": [str(folder / "log.swf")],
        "output": str(folder / "run"),
        **options,
    }
    simulate(RunSpec(**fields), lambda done, jobs, time: None)  # type: ignore[arg-type]
    rows = csv.DictReader((folder / "run" / "jobs.csv").read_text().splitlines())
    return {row["job"]: int(row["wait"]) for row in rows}


def test_a_fifo_queue_is_first_come_first_served_on_a_log_of_small_jobs(tmp_path: Path) -> None:
    expected = compute_fcfs(read_log(LCG)[:1500], 100)
    assert simulate_waits(tmp_path, LCG, "name,count,vcore\nn,10,10\n", jobs=1500) == expected
    assert sum(wait > 0 for wait in expected.values()) > 500  # it was busy


@pytest.mark.parametrize("node_sort", ["fair", "binpacking"])
def test_the_order_of_nodes_does_not_change_the_waits_of_small_jobs(tmp_path: Path, node_sort: str) -> None:
    expected = compute_fcfs(read_log(LCG)[:500], 30)
    waits = simulate_waits(tmp_path, LCG, "name,count,vcore\nn,3,10\n", jobs=500, node_sort=node_sort)
    assert waits == expected


def test_gangs_in_a_fifo_queue_are_first_come_first_served_on_a_log_of_parallel_jobs(tmp_path: Path) -> None:
    """The first gang gets each processor that becomes free until it is complete, so that no later one starts."""
    expected = compute_fcfs(read_log(NASA)[:250], 128)
    nodes = "name,count,vcore\nn,128,1\n"
    waits = simulate_waits(tmp_path, NASA, nodes, jobs=250, parallel="gang", gang_timeout_s=1e8)
    assert waits == expected
    assert sum(wait > 0 for wait in expected.values()) > 50


def test_without_reservations_a_fifo_queue_backfills_whatever_fits(tmp_path: Path) -> None:
    expected = compute_first_fit(read_log(NASA), 128)
    waits = simulate_waits(tmp_path, NASA, "name,vcore\nn,128\n", parallel="task", reserves=False)
    assert waits == expected
    strict = compute_fcfs(read_log(NASA), 128)
    assert sum(expected.values()) < sum(strict.values()) / 2


def test_the_schedule_that_a_log_records_is_reproduced_to_the_second(tmp_path: Path) -> None:
    """The log has the start of each job as its submission, so the machine as it was, 128 processors, delays none."""
    waits = simulate_waits(tmp_path, NASA, "name,vcore\nn,128\n", as_recorded=True, parallel="task")
    assert waits == {job.number: 0 for job in read_log(NASA, as_recorded=True)}
    used = sum(job.run_time * job.processors for job in read_log(NASA, as_recorded=True))
    usage = csv.DictReader((tmp_path / "run" / "usage.csv").read_text().splitlines())
    root = [row for row in usage if row["queue"] == "root" and row["resource"] == "vcore"]
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    mean = sum(float(row["used"]) for row in root) / len(root) / 1000
    assert mean * run["span"] == pytest.approx(used, rel=0.001)


def test_without_run_times_backfilling_waits_little_longer_than_easy_and_has_a_longer_worst_wait() -> None:
    """The figures of docs/operating/simulate.md; the second and the third are computed without the engine only."""
    waits = [compute(read_log(NASA), 128).values() for compute in (compute_fcfs, compute_easy, compute_first_fit)]
    assert [sum(one) // len(one) for one in waits] == [54_097, 17_298, 18_000]
    assert [max(one) for one in waits] == [140_087, 109_058, 181_284]
