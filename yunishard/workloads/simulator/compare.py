"""Compare runs: figures side by side with differences, what became better and worse, and the jobs that wait longer.

The first run is the baseline. A difference counts as better or worse from `NOTEWORTHY_MIN` on, so that a run is not
praised for a thousandth. Jobs are the same if their names are, so runs of different traces have no jobs to compare.

Figures can mislead: a run that leaves the longest jobs unfinished has shorter waits. `find_notes` states such
differences in words, and they stand beside the figures.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final, Literal

from yunishard.cli.main import CommandUnusable, parse_whole
from yunishard.common.process.terminal import print_table, write
from yunishard.common.text_formats import format_seconds
from yunishard.workloads.simulator.run_folder import Run, load_runs
from yunishard.workloads.simulator.summary import (
    ABSENT,
    Figure,
    Summary,
    format_value,
    list_figures,
    summarize,
    to_json,
)

NOTEWORTHY_MIN: Final = 0.01
"""Part of the baseline's figure by which a figure has to differ to count as better or worse."""

SAME_WAIT_MAX: Final = 1.0
"""Seconds by which two waits of a job may differ and still count as the same."""

JOBS_SHOWN: Final = 5
"""Jobs in each list of those that start earlier and later, without --limit."""

JOBS_SHOWN_MAX: Final = 100_000

Verdict = Literal["better", "worse", "same", ""]


@dataclass(frozen=True, slots=True)
class FigureChange:
    """A figure of a run beside that of the baseline."""

    figure: str
    label: str
    unit: str
    baseline: float | None
    value: float | None
    difference: float | None
    """None if one of them lacks the figure."""
    verdict: Verdict
    """Empty if neither more nor less is better, or if there is no difference to evaluate."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job that started in both runs."""

    job: str
    user: str
    queue: str
    submit: float
    baseline_wait: float
    wait: float

    @property
    def difference(self) -> float:
        return self.wait - self.baseline_wait


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanges:
    """The jobs that started in both runs, and how many started in one only."""

    compared: int
    earlier: int
    later: int
    same: int
    only_in_baseline: int
    only_in_run: int
    difference_mean: float | None
    difference_median: float | None
    changes: tuple[JobChange, ...]
    """All of them, those with the longest additional wait first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A run compared with the baseline."""

    baseline: str
    run: str
    figures: tuple[FigureChange, ...]
    jobs: JobChanges
    notes: tuple[str, ...]
    """Reasons to read the figures with care."""

    def list_labels(self, verdict: Verdict) -> list[str]:
        """Return the figures with this verdict."""
        return [one.label for one in self.figures if one.verdict == verdict]


def compare(baseline: Run, run: Run) -> Comparison:
    """Compare a run with the baseline."""
    return compare_summaries(baseline, summarize(baseline), run, summarize(run))


def compare_summaries(baseline: Run, before: Summary, run: Run, after: Summary) -> Comparison:
    """Compare two runs whose figures are computed already."""
    jobs = compare_jobs(baseline, run)
    return Comparison(
        baseline=baseline.name,
        run=run.name,
        figures=tuple(compare_figure(figure, before, after) for figure in list_figures([before, after])),
        jobs=jobs,
        notes=tuple(find_notes(before, after, jobs)),
    )


def compare_figure(figure: Figure, before: Summary, after: Summary) -> FigureChange:
    """Return a figure of both runs with the difference and its verdict."""
    old, new = figure.read(before), figure.read(after)
    if old is None or new is None:
        return FigureChange(figure.key, figure.label, figure.unit, old, new, None, "")
    difference = new - old
    verdict: Verdict = ""
    if figure.better:
        is_noteworthy = abs(difference) >= NOTEWORTHY_MIN * abs(old) and difference != 0
        is_better = (difference < 0) == (figure.better == "less")
        verdict = ("better" if is_better else "worse") if is_noteworthy else "same"
    return FigureChange(figure.key, figure.label, figure.unit, old, new, difference, verdict)


def compare_jobs(baseline: Run, run: Run) -> JobChanges:
    """Compare the waits of the jobs that started in both runs."""
    old = {job.job: job.wait for job in baseline.jobs if job.wait is not None}
    changes: list[JobChange] = []
    only_in_run = 0
    for job in run.jobs:
        if job.wait is None:
            continue
        wait = old.get(job.job)
        if wait is None:
            only_in_run += 1
        else:
            changes.append(JobChange(job.job, job.user, job.queue, job.submit, wait, job.wait))
    changes.sort(key=lambda one: (-one.difference, one.submit, one.job))
    differences = [one.difference for one in changes]
    earlier = sum(one < -SAME_WAIT_MAX for one in differences)
    later = sum(one > SAME_WAIT_MAX for one in differences)
    return JobChanges(
        compared=len(changes),
        earlier=earlier,
        later=later,
        same=len(changes) - earlier - later,
        only_in_baseline=len(old) - len(changes),
        only_in_run=only_in_run,
        difference_mean=fmean(differences) if differences else None,
        difference_median=median(differences) if differences else None,
        changes=tuple(changes),
    )


def find_notes(before: Summary, after: Summary, jobs: JobChanges) -> list[str]:
    """Return what makes the figures of two runs hard to compare."""
    notes = [
        f"{one.name} is a replay in real time, at {one.replay_speed:g} times the speed of the log: its waits depend on "
        "the speed and the machine."
        for one in (before, after)
        if one.replay_speed
    ]
    if before.traces != after.traces:
        notes.append(f"The runs have different traces: {', '.join(before.traces)} and {', '.join(after.traces)}.")
    if before.capacity != after.capacity:
        notes.append("The runs have different capacities, and utilisation is the share of the own capacity.")
    if {one.name for one in before.queues} != {one.name for one in after.queues}:
        notes.append("The runs have different queues, so that only their users can be compared, not their queues.")
    if before.total.unfinished != after.total.unfinished:
        more, fewer = sorted((before, after), key=lambda one: -one.total.unfinished)
        notes.append(
            f"{more.name} leaves {more.total.unfinished:,} jobs unfinished, {fewer.name} {fewer.total.unfinished:,}. "
            "Jobs that never started are in no wait, so that the waits look shorter than they are."
        )
    if before.total.rejected != after.total.rejected:
        notes.append(f"{after.name} rejects {after.total.rejected:,} jobs, {before.name} {before.total.rejected:,}.")
    if not jobs.compared and before.total.jobs and after.total.jobs:
        notes.append("No job started in both runs.")
    return notes


# The command ----------------------------------------------------------------------------------------------------------


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard simulate compare`."""
    parser.add_argument(
        "runs", metavar="DIR", nargs="+", type=Path, help="directory of a run, or one that contains runs"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--jobs", metavar="FILE", type=Path, help="also write the waits of each job in all runs as CSV")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=parse_whole(0, JOBS_SHOWN_MAX),
        default=JOBS_SHOWN,
        help="jobs in each list of those that start earlier and later (default: %(default)s)",
    )


def run_compare(args: argparse.Namespace) -> int:
    """Compare simulated runs: figures side by side, differences, and the jobs that wait longer.

    The first run is the baseline. A directory that contains runs stands for all of them, by name.
    A figure counts as better or worse from a difference of 1 % on.

    yunishard simulate compare results/fifo results/fair
    yunishard simulate compare results --jobs waits.csv
    """
    runs = load_runs(args.runs)
    if len(runs) < 2:
        raise CommandUnusable(f"only one run in {args.runs[0]}; expected two or more")
    summaries = [summarize(run) for run in runs]
    comparisons = [
        compare_summaries(runs[0], summaries[0], run, summary)
        for run, summary in zip(runs[1:], summaries[1:], strict=True)
    ]
    if args.jobs is not None:
        write_jobs(args.jobs, runs)
    if args.json:
        write(json.dumps(build_document(summaries, comparisons, limit=args.limit), indent=2, ensure_ascii=False))
    else:
        _print_comparisons(summaries, comparisons, limit=args.limit)
    return 0


def build_document(summaries: Sequence[Summary], comparisons: Sequence[Comparison], *, limit: int) -> dict[str, object]:
    """Return the JSON document of `--json`."""
    return {
        "format": 1,
        "runs": [to_json(summary) for summary in summaries],
        "comparisons": [_describe_comparison(one, limit) for one in comparisons],
    }


def _describe_comparison(comparison: Comparison, limit: int) -> dict[str, object]:
    jobs = comparison.jobs
    return {
        "baseline": comparison.baseline,
        "run": comparison.run,
        "figures": [asdict(one) for one in comparison.figures],
        "better": comparison.list_labels("better"),
        "worse": comparison.list_labels("worse"),
        "notes": comparison.notes,
        "jobs": {
            **{name: value for name, value in asdict(jobs).items() if name != "changes"},
            "most_delayed": [_describe_job(one) for one in find_delayed(jobs, limit)],
            "most_advanced": [_describe_job(one) for one in find_advanced(jobs, limit)],
        },
    }


def _describe_job(change: JobChange) -> dict[str, object]:
    return {**asdict(change), "difference": change.difference}


def find_delayed(jobs: JobChanges, limit: int) -> list[JobChange]:
    """Return the jobs whose wait grew most, at most `limit`."""
    return [one for one in jobs.changes[:limit] if one.difference > SAME_WAIT_MAX]


def find_advanced(jobs: JobChanges, limit: int) -> list[JobChange]:
    """Return the jobs whose wait shrank most, at most `limit`."""
    last = reversed(jobs.changes[-limit:]) if limit else ()
    return [one for one in last if one.difference < -SAME_WAIT_MAX]


def write_jobs(path: Path, runs: Sequence[Run]) -> None:
    """Write a line for each job of any run, with its wait in each of them."""
    waits = [{job.job: job for job in run.jobs} for run in runs]
    names = dict.fromkeys(job.job for run in runs for job in run.jobs)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["job", "user", "queue", "submit", *(f"wait:{run.name}" for run in runs)])
        for name in names:
            found = [one.get(name) for one in waits]
            first = next(job for job in found if job is not None)
            cells = ["" if job is None or job.wait is None else f"{job.wait:.10g}" for job in found]
            table.writerow([name, first.user, first.queue, f"{first.submit:.10g}", *cells])


def _print_comparisons(summaries: Sequence[Summary], comparisons: Sequence[Comparison], *, limit: int) -> None:
    headings = ["FIGURE", summaries[0].name]
    for summary in summaries[1:]:
        headings += [summary.name, "DIFFERENCE"]
    rows = []
    for figure in list_figures(summaries):
        row = [figure.label, format_value(figure.unit, figure.read(summaries[0]))]
        for comparison, summary in zip(comparisons, summaries[1:], strict=True):
            change = next((one for one in comparison.figures if one.figure == figure.key), None)
            row += [format_value(figure.unit, figure.read(summary)), format_change(figure, change)]
        rows.append(row)
    print_table(headings, rows)
    for comparison in comparisons:
        _print_words(comparison, limit)


def format_change(figure: Figure, change: FigureChange | None) -> str:
    """Return a difference with its verdict in words: `-2 min (better)`."""
    if change is None or change.difference is None:
        return ABSENT
    size = format_value(figure.unit, abs(change.difference))
    if size == format_value(figure.unit, 0.0):
        return "="
    verdict = f" ({change.verdict})" if change.verdict in ("better", "worse") else ""
    return f"{'-' if change.difference < 0 else '+'}{size}{verdict}"


def _print_words(comparison: Comparison, limit: int) -> None:
    jobs = comparison.jobs
    write("")
    write(f"{comparison.run} compared with {comparison.baseline}:")
    write(f"  better: {', '.join(comparison.list_labels('better')) or 'nothing'}")
    write(f"  worse: {', '.join(comparison.list_labels('worse')) or 'nothing'}")
    write(
        f"  of {jobs.compared:,} jobs that started in both, {jobs.earlier:,} start earlier, {jobs.later:,} later, "
        f"and {jobs.same:,} at the same time"
    )
    for note in comparison.notes:
        write(f"  note: {note}")
    for title, found in (("later", find_delayed(jobs, limit)), ("earlier", find_advanced(jobs, limit))):
        if found:
            write("")
            print_table(
                [f"STARTS {title.upper()}", "USER", "QUEUE", "WAIT BEFORE", "WAIT", "DIFFERENCE"],
                [
                    [
                        one.job,
                        one.user,
                        one.queue,
                        format_seconds(one.baseline_wait),
                        format_seconds(one.wait),
                        f"{'+' if one.difference > 0 else '-'}{format_seconds(abs(one.difference))}",
                    ]
                    for one in found
                ],
            )
