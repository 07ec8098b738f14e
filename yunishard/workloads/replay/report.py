"""Progress and summary of a replay: a live table or lines while it runs; then a table or one JSON document.

Waiting times are in seconds of the log, from the logged submission to the last allocation of the job. One real second
is `speed` log seconds, so waiting times include the scaled time that messages and ticks take, and all the time for
which other processes keep the machine busy; `tick_log_s` is the length of one tick. They measure this system on this
machine, and not a policy: for that, `yunishard simulate` runs the engine in virtual time. Utilisation is the processor
time of finished jobs over that of the whole partition, from the first submission of the replay to the last end in the
partition.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice
from math import ceil, inf
from statistics import median
from typing import TYPE_CHECKING, Final

from yunishard.common.process.terminal import build_table, find_raw_stream
from yunishard.workloads.replay.machine import Replay
from yunishard.workloads.replay.workload import Job, JobState

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MISSING_SHOWN_MAX: Final = 20
WAITS: Final = (
    "This is a load test in real time: its waits depend on --speed and on how busy this machine is. "
    "`yunishard simulate` gives waits that do not."
)
"""Stands before and after the figures."""

QUEUES_SHOWN_MAX: Final = 5
"""Queues of each partition in the table; the others share a line. The JSON document has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The jobs of one queue, one partition, or all."""

    name: str
    jobs: int
    done: int
    wait_median_s: float | None
    """Of the jobs that are done; None without such jobs."""
    wait_p95_s: float | None
    utilisation: float | None
    """Of the partition's processors, also in the row of a queue; None in the row of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition with its queues, busiest first."""

    total: Row
    nodes: int
    processors: int
    queues: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole replay."""

    complete: bool
    """Every job ran, everything was released and confirmed."""
    total: Row
    partitions: tuple[PartitionReport, ...]
    allocations: int
    elapsed_s: float
    """Real seconds from the first submission."""
    log_s: float
    """Log seconds from the first submission to the last end."""
    speed: float
    tick_log_s: float
    waits: str
    """States that the waiting times depend on speed and machine."""
    left_out: dict[str, int]
    malformed: int
    missing: tuple[str, ...]
    """The first `MISSING_SHOWN_MAX` problems, unfinished jobs and missing answers."""
    missing_count: int


def summarize(replay: Replay, *, elapsed_s: float, speed: float, tick_s: float, malformed: int) -> Report:
    """Summarize a replay that has ended or was interrupted."""
    queues: defaultdict[str, defaultdict[str, list[Job]]] = defaultdict(lambda: defaultdict(list))
    for job in replay.jobs.values():
        queues[job.partition][job.queue].append(job)
    missing = replay.find_missing()
    shown = tuple(islice(missing, MISSING_SHOWN_MAX))
    partitions = []
    for site in replay.plan.sites:
        capacity_s = site.processors * replay.end_s[site.partition]
        rows = [_build_row(name, jobs, capacity_s) for name, jobs in queues[site.partition].items()]
        total = _build_row(site.partition, chain(*queues[site.partition].values()), capacity_s)
        busiest = tuple(sorted(rows, key=lambda row: (-row.jobs, row.name)))
        partitions.append(PartitionReport(total=total, nodes=site.nodes, processors=site.processors, queues=busiest))
    return Report(
        complete=replay.is_complete,
        total=_build_row("all", replay.jobs.values(), None),
        partitions=tuple(partitions),
        allocations=replay.allocations,
        elapsed_s=round(elapsed_s, 3),
        log_s=round(max(replay.end_s.values()), 1),
        speed=round(speed, 3),
        tick_log_s=round(tick_s * speed, 1),
        waits=WAITS,
        left_out=replay.plan.left_out,
        malformed=malformed,
        missing=shown,
        missing_count=len(shown) + sum(1 for _ in missing),
    )


def format_json(summary: Report) -> str:
    """Format the report as one JSON document; the field names are those of the classes above."""
    return json.dumps(asdict(summary), indent=2)


def format_text(summary: Report) -> str:
    """Format the report as text: a table, totals, and what is missing."""
    per_second = summary.allocations / max(summary.elapsed_s, 1e-9)
    totals = (
        f"{summary.total.done:,} of {summary.total.jobs:,} jobs done, {summary.allocations:,} allocations in "
        f"{summary.elapsed_s:.1f} s ({per_second:,.0f} a second); {summary.log_s / 3600:.1f} hours of log at "
        f"{summary.speed:,.0f} times its speed."
    )
    units = (
        f"Waiting times are seconds of the log; one tick of the replay is {summary.tick_log_s:,.0f} of them. "
        "Utilisation is of the partition's processors."
    )
    lines = [*_format_table(summary), "", totals, units, summary.waits]
    lines += [f"Left out: {count:,} jobs ({reason})." for reason, count in summary.left_out.items()]
    if summary.malformed:
        lines.append(f"Skipped: {summary.malformed:,} malformed lines.")
    if summary.complete:
        lines.append("Every job ran, every allocation was released and confirmed, no application is left.")
    else:
        lines.append(f"INCOMPLETE, {summary.missing_count:,} things are missing:")
        lines += [f"  {name}" for name in summary.missing]
        if more := summary.missing_count - len(summary.missing):
            lines.append(f"  and {more:,} more")
    return "\n".join(lines)


# Private ------------------------------------------------------------------------------------------------------------


def _build_row(name: str, jobs: Iterable[Job], capacity_s: float | None) -> Row:
    jobs = list(jobs)
    done = [job for job in jobs if job.state == "done"]
    waits = sorted(job.wait_s for job in done)
    used_s = sum(job.work_s for job in done)
    return Row(
        name=name,
        jobs=len(jobs),
        done=len(done),
        wait_median_s=round(median(waits), 1) if waits else None,
        # nearest rank: the shortest wait that at least 95 of 100 jobs do not exceed
        wait_p95_s=round(waits[ceil(0.95 * len(waits)) - 1], 1) if waits else None,
        utilisation=round(used_s / capacity_s, 4) if capacity_s else None,
    )


def _format_table(summary: Report) -> list[str]:
    cells: list[tuple[str, ...]] = [("partition, queue", "jobs", "done", "wait median", "wait 95 %", "utilisation")]
    for partition in summary.partitions:
        cells.append(_format_row(f"{partition.total.name} ({partition.processors:,} processors)", partition.total))
        cells += [_format_row(f"  {row.name}", row) for row in partition.queues[:QUEUES_SHOWN_MAX]]
        if rest := partition.queues[QUEUES_SHOWN_MAX:]:
            jobs, done = sum(row.jobs for row in rest), sum(row.done for row in rest)
            share = sum(row.utilisation or 0.0 for row in rest)
            cells.append((f"  {len(rest)} more queues", f"{jobs:,}", f"{done:,}", "", "", f"{share:.0%}"))
    cells.append(_format_row("all", summary.total))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers in cells:
        aligned = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))
        lines.append("  ".join([name.ljust(widths[0]), *aligned]).rstrip())
    rule = "-" * len(lines[0])
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]


def _format_row(name: str, row: Row) -> tuple[str, ...]:
    waits = (_format_seconds(row.wait_median_s), _format_seconds(row.wait_p95_s))
    return (name, f"{row.jobs:,}", f"{row.done:,}", *waits, "" if row.utilisation is None else f"{row.utilisation:.0%}")


def _format_seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.0f}"


# Progress while the replay runs ---------------------------------------------------------------------------------------

LIVE_EVERY_S: Final = 1.0
LINE_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a replay at one moment."""

    replay: Replay
    log_s: float
    elapsed_s: float
    """Real seconds from the first submission."""
    allocations_per_s: float

    def __str__(self) -> str:
        """Format it as a line."""
        jobs = Counter(job.state for job in self.replay.jobs.values())
        failed = f", {jobs['failed']:,} failed" if jobs["failed"] else ""
        left_log_s = max(0.0, self.replay.plan.span_s - self.log_s)
        left_s = round(left_log_s * self.elapsed_s / self.log_s) if self.log_s else 0
        remaining = f", at least {left_s} s to go" if left_s else ""
        return (
            f"{self.elapsed_s:5.1f} s  {self.replay.phase}: {jobs.total() - jobs['planned']:,} of {jobs.total():,}"
            f" jobs submitted, {jobs['running']:,} running, {jobs['done']:,} done{failed}; "
            f"{self.allocations_per_s:,.0f} allocations/s{remaining}"
        )

    def build_table(self) -> "Table":
        """Format it as a table of partitions."""
        states: tuple[JobState, ...] = ("waiting", "running", "done", "failed")
        rows = []
        partitions = {site.partition: Counter[JobState]() for site in self.replay.plan.sites}
        for job in self.replay.jobs.values():
            partitions[job.partition][job.state] += 1
        for name, jobs in (*partitions.items(), ("all", sum(partitions.values(), Counter[JobState]()))):
            counts = (jobs.total(), jobs.total() - jobs["planned"], *(jobs[state] for state in states))
            rows.append((name, *(f"{count:>7,}" for count in counts)))
        return build_table(("partition", "jobs", "submitted", *states), rows, title=str(self))


@contextmanager
def open_view(*, in_json: bool, console: "Console | None" = None) -> Iterator[tuple[float, Callable[[Progress], None]]]:
    """Give the interval in seconds at which to show progress, and the function that shows it.

    A terminal has a live table, which is removed at the end; other outputs get lines. With JSON nothing is shown.
    """
    if in_json:
        yield inf, lambda progress: None
    elif console is None and not sys.stdout.isatty():
        yield LINE_EVERY_S, lambda progress: print(progress, flush=True)  # noqa: T201 - this is the output
    else:
        from rich.console import Console  # imported here, as it takes longer than everything else in the command
        from rich.live import Live

        console = console or Console(file=find_raw_stream(sys.stdout))
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield LIVE_EVERY_S, lambda progress: live.update(progress.build_table(), refresh=True)
