"""Progress and summary of a replay: a live table or lines while it runs; then a table or one JSON document.

Waiting times are in seconds of the log, from the logged submission to the last allocation of the job. One real second
is `speed` log seconds, so waiting times include the scaled time that messages and ticks take; `tick_log_s` is the
length of one tick. Utilisation is the processor time of finished jobs over that of the whole partition, from the first
submission of the replay to the last end in the partition.
"""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from math import ceil
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from yunishard.replay.machine import Replay, Run, Tally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MISSING_SHOWN_MAX: Final = 20
QUEUES_SHOWN_MAX: Final = 5
"""Of each partition, in the table; the others share a line. The JSON document has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The jobs of one queue, one partition, or all."""

    name: str
    jobs: int
    done: int
    wait_median_s: float | None
    """Of the jobs that are done; None if none is."""
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
    left_out: dict[str, int]
    malformed: int
    missing: tuple[str, ...]
    """The first `MISSING_SHOWN_MAX` things that are in the way of `complete`."""
    missing_count: int


def report(replay: Replay, *, elapsed_s: float, speed: float, tick_s: float, malformed: int) -> Report:
    """Sum up a replay that is over or was broken off."""
    runs: dict[str, list[Run]] = {site.partition: [] for site in replay.plan.sites}
    for run in replay.runs.values():
        runs[run.job.partition].append(run)
    missing = replay.missing()
    shown = tuple(islice(missing, MISSING_SHOWN_MAX))
    partitions = []
    for site in replay.plan.sites:
        capacity_s = site.processors * replay.tallies[site.partition].end_s
        queues: dict[str, list[Run]] = {}
        for run in runs[site.partition]:
            queues.setdefault(run.job.queue, []).append(run)
        rows = [_row(name, part, capacity_s) for name, part in queues.items()]
        partitions.append(
            PartitionReport(
                total=_row(site.partition, runs[site.partition], capacity_s),
                nodes=site.nodes,
                processors=site.processors,
                queues=tuple(sorted(rows, key=lambda row: (-row.jobs, row.name))),
            )
        )
    return Report(
        complete=replay.complete,
        total=_row("all", replay.runs.values(), None),
        partitions=tuple(partitions),
        allocations=sum(tally.allocations for tally in replay.tallies.values()),
        elapsed_s=round(elapsed_s, 3),
        log_s=round(max(tally.end_s for tally in replay.tallies.values()), 1),
        speed=round(speed, 3),
        tick_log_s=round(tick_s * speed, 1),
        left_out=replay.plan.left_out,
        malformed=malformed,
        missing=shown,
        missing_count=len(shown) + sum(1 for _ in missing),
    )


def as_json(summary: Report) -> str:
    """The report as one JSON document; the field names are those of the classes above."""
    return json.dumps(asdict(summary), indent=2)


def as_text(summary: Report) -> str:
    """The report for people: a table, then totals, then what is missing."""
    lines = _table(summary)
    per_second = summary.allocations / max(summary.elapsed_s, 1e-9)
    lines.append("")
    lines.append(
        f"{summary.total.done:,} of {summary.total.jobs:,} jobs done, {summary.allocations:,} allocations in "
        f"{summary.elapsed_s:.1f} s ({per_second:,.0f} a second); {summary.log_s / 3600:.1f} hours of log at "
        f"{summary.speed:,.0f} times its speed."
    )
    lines.append(
        f"Waiting times are seconds of the log; one tick of the replay is {summary.tick_log_s:,.0f} of them. "
        "Utilisation is of the partition's processors."
    )
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


def _row(name: str, runs: Iterable[Run], capacity_s: float | None) -> Row:
    runs = list(runs)
    done = [run for run in runs if run.state == "done"]
    waits = sorted(run.wait_s for run in done)
    used_s = sum(run.job.work_s for run in done)
    return Row(
        name=name,
        jobs=len(runs),
        done=len(done),
        wait_median_s=round(median(waits), 1) if waits else None,
        # nearest rank: the smallest wait that at least 95 of 100 jobs do not exceed
        wait_p95_s=round(waits[ceil(0.95 * len(waits)) - 1], 1) if waits else None,
        utilisation=round(used_s / capacity_s, 4) if capacity_s else None,
    )


def _table(summary: Report) -> list[str]:
    cells = [("partition, queue", "jobs", "done", "wait median", "wait 95 %", "utilisation")]
    for partition in summary.partitions:
        cells.append(_cells(f"{partition.total.name} ({partition.processors:,} processors)", partition.total))
        cells += [_cells(f"  {row.name}", row) for row in partition.queues[:QUEUES_SHOWN_MAX]]
        if rest := partition.queues[QUEUES_SHOWN_MAX:]:
            jobs, done = sum(row.jobs for row in rest), sum(row.done for row in rest)
            share = sum(row.utilisation or 0.0 for row in rest)
            cells.append((f"  {len(rest)} more queues", f"{jobs:,}", f"{done:,}", "", "", f"{share:.0%}"))
    cells.append(_cells("all", summary.total))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in cells
    ]
    rule = "-" * len(lines[0])
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]


def _cells(name: str, row: Row) -> tuple[str, str, str, str, str, str]:
    used = "" if row.utilisation is None else f"{row.utilisation:.0%}"
    return name, f"{row.jobs:,}", f"{row.done:,}", _seconds(row.wait_median_s), _seconds(row.wait_p95_s), used


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.0f}"


# Progress while the replay runs ---------------------------------------------------------------------------------------

LIVE_EVERY_S: Final = 0.25
LINE_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A moment of the replay."""

    phase: str
    partitions: dict[str, Tally]
    jobs: int
    submitted: int
    running: int
    done: int
    failed: int
    allocations_per_s: float
    elapsed_s: float
    remaining_s: float | None
    """At least; None before the start."""


def progress(replay: Replay, *, log_s: float, elapsed_s: float, allocations_per_s: float) -> Progress:
    """Where the replay is."""
    tallies = replay.tallies.values()
    jobs, planned = len(replay.runs), sum(tally.jobs["planned"] for tally in tallies)
    return Progress(
        phase=replay.phase,
        partitions=replay.tallies,
        jobs=jobs,
        submitted=jobs - planned,
        running=sum(tally.jobs["running"] for tally in tallies),
        done=sum(tally.jobs["done"] for tally in tallies),
        failed=sum(tally.jobs["failed"] for tally in tallies),
        allocations_per_s=allocations_per_s,
        elapsed_s=elapsed_s,
        remaining_s=_remaining_s(replay, log_s=log_s, elapsed_s=elapsed_s),
    )


class View(Protocol):
    """Where progress goes. A context: what it draws is finished at the end, also after an error."""

    every_s: float

    def show(self, now: Progress) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def view_for(*, json: bool) -> View:
    """The view that fits where the output goes."""
    if json:
        return LineView(lambda line: None)
    if sys.stdout.isatty():
        return LiveView()
    return LineView(lambda line: print(line, flush=True))  # noqa: T201 - this is the output


class LineView:
    """A line for each moment."""

    every_s = LINE_EVERY_S

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def show(self, now: Progress) -> None:
        self._write(line_of(now))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass


class LiveView:
    """A table that is drawn over itself."""

    every_s = LIVE_EVERY_S

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.live import Live  # here: it takes longer to import than all the rest of the command line

        self._live = Live(console=console, auto_refresh=False, transient=True)

    def show(self, now: Progress) -> None:
        self._live.update(table_of(now), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._live.stop()


def line_of(now: Progress) -> str:
    """Progress in a line."""
    failed = f", {now.failed:,} failed" if now.failed else ""
    return (
        f"{now.elapsed_s:5.1f} s  {now.phase}: {now.submitted:,} of {now.jobs:,} jobs submitted, "
        f"{now.running:,} running, {now.done:,} done{failed}; "
        f"{now.allocations_per_s:,.0f} allocations/s{_remaining(now)}"
    )


def table_of(now: Progress) -> "Table":
    """Progress as a table of partitions."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=f"{now.phase}, {now.elapsed_s:.0f} s{_remaining(now)}",
        caption=f"{now.allocations_per_s:,.0f} allocations/s",
        show_footer=True,
    )
    table.add_column("partition", footer="all", no_wrap=True)
    for name, value in (
        ("jobs", now.jobs),
        ("submitted", now.submitted),
        ("waiting", now.submitted - now.running - now.done - now.failed),
        ("running", now.running),
        ("done", now.done),
        ("failed", now.failed),
    ):
        table.add_column(name, footer=f"{value:,}", justify="right", min_width=7)
    for name, tally in now.partitions.items():
        jobs = tally.jobs
        total = jobs.total()
        counts = (total, total - jobs["planned"], jobs["waiting"], jobs["running"], jobs["done"], jobs["failed"])
        table.add_row(name, *(f"{count:,}" for count in counts))
    return table


def _remaining_s(replay: Replay, *, log_s: float, elapsed_s: float) -> float | None:
    """As if from now on no processor idled: until the log's own end, and until each partition has done its work."""
    if log_s <= 0:
        return None
    work = [
        (replay.tallies[site.partition].work_wanted_s - replay.tallies[site.partition].work_s(log_s)) / site.processors
        for site in replay.plan.sites
    ]
    return max(0.0, replay.plan.span_s - log_s, *work) * elapsed_s / log_s


def _remaining(now: Progress) -> str:
    return "" if now.remaining_s is None else f", at least {now.remaining_s:.0f} s to go"
