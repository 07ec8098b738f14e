"""The replay while it runs: a live table on a terminal, else a line now and then, nothing when only JSON is wanted.

Not here: the summary (`report.py`).
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from yunishard.replay.machine import Replay, Tally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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
