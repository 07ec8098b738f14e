"""Prepare the curves of a report from the data of its runs: small, aligned series that a page can draw.

A run has up to a thousand intervals of each queue and hundreds of thousands of jobs, but a chart shows about a thousand
points. Runs share the axis of each chart, so that one cursor reads all of them.

Not here: tables and HTML (`report.py`), figures (`summary.py`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import log10
from statistics import fmean
from typing import Final, TypedDict

from yunishard.common.text_formats import list_kinds
from yunishard.workloads.replay.usage import ROOT
from yunishard.workloads.simulator.run_folder import Run, SimulatedJob, UsageSeries

POINTS_MAX: Final = 500
"""Points of a curve over time. Runs with more intervals are averaged."""

DISTRIBUTION_POINTS: Final = 160
"""Points of the curve of a distribution, at equal distances on a logarithmic axis."""

SUBMIT_INTERVALS: Final = 60
"""Intervals of the trace whose jobs have one mean slowdown."""

QUEUES_MAX: Final = 30
"""Queues that the charts offer. Of more, those that used most are there, and the guaranteed ones first."""

QUEUES_TOGETHER_MAX: Final = 8
"""Queues of a run in one chart. Of more, those that used most are there."""

ALL: Final = ""
"""The name of all queues among those of a distribution."""

Curve = list[float | None]


class ReportData(TypedDict):
    """The JSON document of a page. Lists with an item for each run are in the order of `runs`."""

    runs: list[str]
    resources: list[str]
    capacity: list[dict[str, int]]
    queues: list[str]
    """Those that the charts offer."""
    compared: list[str]
    """Those in a chart of all queues of one run."""
    times: list[float]
    """The axis of the curves of `usage` and `jobs`."""
    usage: list[dict[str, dict[str, dict[str, Curve]]]]
    """Queue, resource type, and kind of amount to a curve; one of a single value is constant."""
    jobs: list[dict[str, Curve]]
    waits: "Distributions"
    slowdowns: "Distributions"
    slowdown: "SlowdownOverTime"


class Distributions(TypedDict):
    """Shares of jobs with at most each value, by queue; all jobs have the name `ALL`."""

    values: list[float]
    runs: list[dict[str, Curve]]


class SlowdownOverTime(TypedDict):
    """Mean bounded slowdown of the jobs that were submitted in each interval."""

    times: list[float]
    runs: list[Curve]


def build_data(runs: Sequence[Run]) -> ReportData:
    """Return what the script of the page draws, for one JSON document."""
    span = max((run.info.span for run in runs), default=0.0) or 1.0
    points = min(POINTS_MAX, max((len(run.times) for run in runs), default=0)) or 1
    times = [span / points * number for number in range(points)]
    queues = choose_queues(runs)
    return {
        "runs": [run.name for run in runs],
        "resources": list_kinds(*(run.info.capacity for run in runs), *(run.usage.get(ROOT) for run in runs)),
        "capacity": [run.info.capacity for run in runs],
        "queues": sorted(queues),
        "compared": choose_compared(queues, runs),
        "times": [_round(time) for time in times],
        "usage": [_build_usage(run, queues, times, span / points) for run in runs],
        "jobs": [_count_jobs(run, times) for run in runs],
        "waits": _build_distributions(runs, queues, lambda job: job.wait),
        "slowdowns": _build_distributions(runs, queues, lambda job: job.slowdown),
        "slowdown": _build_slowdown_over_time(runs, span),
    }


def choose_queues(runs: Sequence[Run]) -> list[str]:
    """Return the queues that the charts offer: the root, those with a guaranteed amount, those that used most."""
    weights: defaultdict[str, tuple[float, float, float]] = defaultdict(lambda: (0.0, 0.0, 0.0))
    for run in runs:
        for queue, types in run.usage.items():
            share = max((_compute_share(run, name, series) for name, series in types.items()), default=0.0)
            weight = (float(queue == ROOT), float(_has_guarantee(run, queue)), share)
            weights[queue] = max(weights[queue], weight)
    return sorted(weights, key=lambda queue: (*(-one for one in weights[queue]), queue))[:QUEUES_MAX]


def choose_compared(queues: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Return the queues that one chart of a run shows: those with a guaranteed amount, or else those below the root."""
    guaranteed = [queue for queue in queues if queue != ROOT and any(_has_guarantee(run, queue) for run in runs)]
    children = [queue for queue in queues if queue.count(".") == 1]
    return sorted((guaranteed or children)[:QUEUES_TOGETHER_MAX])


def _has_guarantee(run: Run, queue: str) -> bool:
    return any(any(series.guaranteed) for series in run.usage.get(queue, {}).values())


def _compute_share(run: Run, resource: str, series: UsageSeries) -> float:
    """Return the mean use as a share of the capacity, which makes resource types comparable."""
    return fmean(series.used) / max(1, run.info.capacity.get(resource, 0)) if series.used else 0.0


# Over time ------------------------------------------------------------------------------------------------------------


def _build_usage(
    run: Run, queues: Iterable[str], times: Sequence[float], step: float
) -> dict[str, dict[str, dict[str, Curve]]]:
    return {
        queue: {name: _build_curves(run, series, times, step) for name, series in run.usage[queue].items()}
        for queue in queues
        if queue in run.usage
    }


def _build_curves(run: Run, series: UsageSeries, times: Sequence[float], step: float) -> dict[str, Curve]:
    """Return the curves of a queue. A curve of one value is a constant; one without any value is left out."""
    curves = {
        "used": average(series.used, run.info.span, times, step),
        "pending": average(series.pending, run.info.span, times, step),
        "guaranteed": look_up(series.guaranteed, run.info.span, times),
        "maximum": look_up(series.maximum, run.info.span, times),
    }
    return {name: _shorten(curve) for name, curve in curves.items() if any(value is not None for value in curve)}


def _shorten(curve: Curve) -> Curve:
    return curve[:1] if all(value == curve[0] for value in curve) else curve


def average(values: Sequence[float], span: float, times: Sequence[float], step: float) -> Curve:
    """Return the means of equal intervals of a run over the intervals of a chart; None after the end of the run.

    >>> average([1.0, 3.0, 5.0, 7.0], 40.0, [0.0, 20.0, 40.0], 20.0)
    [2, 6, None]
    """
    if not values or not span:
        return [None for _ in times]
    width = span / len(values)
    sums = [0.0, *accumulate(value * width for value in values)]

    def integrate(time: float) -> float:
        index = min(len(values) - 1, int(time / width))
        return sums[index] + (time - index * width) * values[index]

    ends = (min(time + step, span) for time in times)
    return [
        _round((integrate(end) - integrate(time)) / (end - time)) if end - time > step / POINTS_MAX else None
        for time, end in zip(times, ends, strict=True)
    ]


def look_up(values: Sequence[float | None], span: float, times: Sequence[float]) -> Curve:
    """Return the value of a run at each time of a chart; None after the end of the run.

    >>> look_up([1.0, None], 10.0, [0.0, 4.0, 6.0, 10.0])
    [1, None, None, None]
    """
    found = [
        values[min(len(values) - 1, int(time / span * len(values)))] if values and time < span else None
        for time in times
    ]
    return [None if value is None else _round(value) for value in found]


def _round(value: float) -> float:
    """Return a number with six digits, as an integer if it is one: shorter in the file, and exact enough to draw."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def _count_jobs(run: Run, times: Sequence[float]) -> dict[str, Curve]:
    """Return how many jobs wait and run at these times; None after the end of the run."""
    never = float("inf")
    jobs = [job for job in run.jobs if job.state != "rejected"]
    submitted = _count_up(times, (job.submit for job in jobs))
    started = _count_up(times, (never if job.start is None else job.start for job in jobs))
    ended = _count_up(times, (never if job.end is None else job.end for job in jobs))
    live = [time <= run.info.span for time in times]
    return {
        "waiting": [one - other if on else None for one, other, on in zip(submitted, started, live, strict=True)],
        "running": [one - other if on else None for one, other, on in zip(started, ended, live, strict=True)],
    }


def _count_up(times: Sequence[float], events: Iterable[float]) -> list[int]:
    """Return how many events have occurred at each of these times."""
    ordered = sorted(events)
    return [bisect_right(ordered, time) for time in times]


def _build_slowdown_over_time(runs: Sequence[Run], span: float) -> SlowdownOverTime:
    """Return the mean bounded slowdown of the jobs that were submitted in each part of the trace."""
    step = max((job.submit for run in runs for job in run.jobs), default=span) / SUBMIT_INTERVALS or 1.0
    curves: list[Curve] = []
    for run in runs:
        groups: list[list[float]] = [[] for _ in range(SUBMIT_INTERVALS)]
        for job in run.jobs:
            if job.slowdown is not None:
                groups[min(SUBMIT_INTERVALS - 1, int(job.submit / step))].append(job.slowdown)
        curves.append([_round(fmean(group)) if group else None for group in groups])
    return {"times": [_round(step * number) for number in range(SUBMIT_INTERVALS)], "runs": curves}


# Distributions --------------------------------------------------------------------------------------------------------


def _build_distributions(
    runs: Sequence[Run], queues: Iterable[str], read: Callable[[SimulatedJob], float | None]
) -> Distributions:
    """Return the share of jobs with at most each value: of all jobs, and of those of each queue and below it."""
    found = [_sort_values(run.jobs, queues, read) for run in runs]
    largest = max((ordered[-1] for groups in found for ordered in groups.values() if ordered), default=1.0)
    edges = make_logarithmic(max(largest, 10.0), DISTRIBUTION_POINTS)
    curves = [
        {name: compute_distribution(ordered, edges) for name, ordered in groups.items() if ordered} for groups in found
    ]
    return {"values": [_round(edge) for edge in edges], "runs": curves}


def _sort_values(
    jobs: Iterable[SimulatedJob], queues: Iterable[str], read: Callable[[SimulatedJob], float | None]
) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {name: [] for name in (ALL, *queues)}
    lists: dict[str, list[list[float]]] = {}
    for job in jobs:
        value = read(job)
        if value is None:
            continue
        if job.queue not in lists:
            above = accumulate(job.queue.split("."), lambda path, name: f"{path}.{name}")
            lists[job.queue] = [groups[name] for name in (ALL, *above) if name in groups]
        for group in lists[job.queue]:
            group.append(value)
    for group in groups.values():
        group.sort()
    return groups


def make_logarithmic(largest: float, points: int) -> list[float]:
    """Return values from 1 to `largest` with equal ratios.

    >>> [round(value) for value in make_logarithmic(1000.0, 4)]
    [1, 10, 100, 1000]
    """
    width = log10(largest) / (points - 1)
    return [*(10 ** (width * number) for number in range(points - 1)), largest]


def compute_distribution(ordered: Sequence[float], edges: Iterable[float]) -> Curve:
    """Return the share of the ordered values that do not exceed each edge.

    >>> compute_distribution([0.0, 5.0, 50.0, 50.0], [1.0, 10.0, 100.0])
    [0.25, 0.5, 1]
    """
    return [_round(bisect_right(ordered, edge) / len(ordered)) for edge in edges]
