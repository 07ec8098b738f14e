"""Figures of a simulated run: waits, slowdown, utilisation, fairness, guarantees, preemptions.

The definitions, which docs/operating/simulate.md explains to users:

- The wait of a job is the time from its submission until all of its tasks run. Jobs that never started have none: read
  their number together with the waits. Percentiles are values that occur (nearest rank).
- Bounded slowdown is (wait + run time) / max(run time, 10 s), at least 1, of completed jobs (Feitelson et al., 1997).
- The service of a user or queue is the share of its jobs' time in the system in which they ran, so that a user whose
  jobs never wait has 1, and one whose jobs never start has 0.
- Fairness is Jain's index (Jain, Chiu and Hawe, 1984) over the service of all users or of all queues: 1 if all have the
  same service, and 1/n if one of n has all.
- `guarantee_kept` of a queue compares what it used with what it was entitled to, which is its guaranteed amount, or its
  demand where that is smaller.

Not here: reading the files (`run_folder.py`), differences between runs (`compare.py`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from statistics import fmean, median
from typing import Final, Literal

from yunishard.common.process.terminal import print_table
from yunishard.common.text_formats import format_decimal, format_seconds, list_kinds
from yunishard.workloads.replay.usage import ROOT
from yunishard.workloads.simulator.run_folder import Run, SimulatedJob, UsageSeries

SHORTFALL_MIN: Final = 0.01
"""Part of the guaranteed amount by which a queue is short before an interval counts as below the guarantee. Intervals
have mean values, so that a smaller part is a short moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """The jobs of one queue, one user, or all. Times are in seconds; None stands for a figure of no job."""

    name: str
    jobs: int
    completed: int
    rejected: int
    unfinished: int
    """Neither completed nor rejected when the simulation ended."""
    never_started: int
    """Part of the unfinished ones."""
    wait_mean: float | None
    wait_median: float | None
    wait_p95: float | None
    wait_max: float | None
    slowdown_mean: float | None
    slowdown_median: float | None
    slowdown_p95: float | None
    service: float | None
    preemptions: int
    lost: float
    """Seconds of work that preemptions have undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFigures:
    """The use of one resource type by one queue, in base units, as means over the run."""

    queue: str
    resource: str
    used: float
    pending: float
    share: float | None
    """Of the capacity; None without capacity."""
    guaranteed: float | None
    """None without a guaranteed amount, and then the two figures below are None, too."""
    guarantee_kept: float | None
    """None if it was entitled to nothing, because it never asked."""
    below_guaranteed: float | None
    """Share of the run in which the queue had less than it was entitled to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All figures of a run."""

    name: str
    configuration: str
    node_sort_policy: str
    traces: tuple[str, ...]
    nodes: int
    capacity: dict[str, int]
    span: float
    replay_speed: float
    """0 for a simulation."""
    makespan: float | None
    """Seconds from the first submission to the last end."""
    utilisation: dict[str, float]
    """Resource type to the share of the capacity that was used, over the span."""
    fairness_users: float | None
    fairness_queues: float | None
    guarantee_kept: float | None
    """The least of all queues and types."""
    total: JobFigures
    queues: tuple[JobFigures, ...]
    """Leaves with jobs, by name."""
    users: tuple[JobFigures, ...]
    shares: tuple[ShareFigures, ...]


def summarize(run: Run) -> Summary:
    """Compute all figures of a run."""
    info = run.info
    span = info.span
    queues = _group(run.jobs, lambda job: job.queue, span)
    users = _group(run.jobs, lambda job: job.user, span)
    shares = tuple(
        summarize_share(queue, resource, series, capacity=info.capacity.get(resource, 0))
        for queue, types in sorted(run.usage.items())
        for resource, series in sorted(types.items())
    )
    kept = [one.guarantee_kept for one in shares if one.guarantee_kept is not None]
    ends = [job.end for job in run.jobs if job.end is not None]
    return Summary(
        name=info.name,
        configuration=info.configuration,
        node_sort_policy=info.node_sort_policy,
        traces=info.traces,
        nodes=info.nodes,
        capacity=info.capacity,
        span=span,
        replay_speed=info.replay_speed,
        makespan=max(ends) - min(job.submit for job in run.jobs) if ends else None,
        utilisation={one.resource: one.share for one in shares if one.queue == ROOT and one.share is not None},
        fairness_users=_compute_fairness(users),
        fairness_queues=_compute_fairness(queues),
        guarantee_kept=min(kept, default=None),
        total=summarize_jobs("all", run.jobs, span),
        queues=queues,
        users=users,
        shares=shares,
    )


def _compute_fairness(groups: Sequence[JobFigures]) -> float | None:
    """Return Jain's index over the service of groups; None for less than two, which are fair whatever they get."""
    services = [one.service for one in groups if one.service is not None]
    return compute_jain_index(services) if len(services) > 1 else None


def compute_jain_index(values: Sequence[float]) -> float | None:
    """Return Jain's fairness index; None without values. Equal values are fair, even if all are 0.

    >>> compute_jain_index([2.0, 2.0]), compute_jain_index([1.0, 0.0]), compute_jain_index([])
    (1.0, 0.5, None)
    """
    largest = max(values, default=None)
    if not largest:
        return None if largest is None else 1.0
    scaled = [value / largest for value in values]  # or squares of tiny values would be 0
    return min(1.0, sum(scaled) ** 2 / (len(scaled) * sum(value * value for value in scaled)))


def find_percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Return the smallest of the ordered values that `percent` of them do not exceed (nearest rank); None without any.

    >>> find_percentile([1.0, 2.0, 3.0, 4.0], 95), find_percentile([1.0, 2.0, 3.0, 4.0], 50)
    (4.0, 2.0)
    """
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def summarize_jobs(name: str, jobs: Sequence[SimulatedJob], span: float) -> JobFigures:
    """Compute the figures of some jobs."""
    waits = sorted(job.wait for job in jobs if job.wait is not None)
    slowdowns = sorted(job.slowdown for job in jobs if job.slowdown is not None)
    states = [job.state for job in jobs]
    return JobFigures(
        name=name,
        jobs=len(jobs),
        completed=states.count("completed"),
        rejected=states.count("rejected"),
        unfinished=states.count("unfinished"),
        never_started=sum(job.state == "unfinished" and job.start is None for job in jobs),
        wait_mean=fmean(waits) if waits else None,
        wait_median=median(waits) if waits else None,
        wait_p95=find_percentile(waits, 95),
        wait_max=waits[-1] if waits else None,
        slowdown_mean=fmean(slowdowns) if slowdowns else None,
        slowdown_median=median(slowdowns) if slowdowns else None,
        slowdown_p95=find_percentile(slowdowns, 95),
        service=_compute_service(jobs, span),
        preemptions=sum(job.preemptions for job in jobs),
        lost=sum(job.lost for job in jobs),
    )


def _compute_service(jobs: Iterable[SimulatedJob], span: float) -> float | None:
    """Return the share of the time in the system in which the jobs did work that was not lost; None without jobs."""
    ran = present = 0.0
    count = 0
    for job in jobs:
        if job.state == "rejected":
            continue
        count += 1
        end = span if job.end is None else job.end
        whole = max(0.0, end - job.submit)
        worked = max(0.0, end - (end if job.start is None else job.start) - job.lost)
        present += whole
        ran += min(worked, whole)
    if not count:
        return None
    return ran / present if present else 1.0


def _group(jobs: Iterable[SimulatedJob], key: Callable[[SimulatedJob], str], span: float) -> tuple[JobFigures, ...]:
    """Compute the figures of each group of jobs. Jobs without a group, such as rejected ones without a queue, are left
    out."""
    groups: defaultdict[str, list[SimulatedJob]] = defaultdict(list)
    for job in jobs:
        groups[key(job)].append(job)
    return tuple(summarize_jobs(name, groups[name], span) for name in sorted(groups) if name)


def summarize_share(queue: str, resource: str, series: UsageSeries, *, capacity: int) -> ShareFigures:
    """Compute the figures of one resource type of a queue; its intervals are of equal length."""
    entitled = served = 0.0
    below = 0
    for used, pending, guaranteed in zip(series.used, series.pending, series.guaranteed, strict=True):
        if guaranteed:
            due = min(guaranteed, used + pending)
            entitled += due
            served += min(used, due)
            below += due - used > SHORTFALL_MIN * guaranteed
    amounts = [amount for amount in series.guaranteed if amount is not None]
    used_mean = fmean(series.used) if series.used else 0.0
    return ShareFigures(
        queue=queue,
        resource=resource,
        used=used_mean,
        pending=fmean(series.pending) if series.pending else 0.0,
        share=used_mean / capacity if capacity else None,
        guaranteed=fmean(amounts) if amounts else None,
        guarantee_kept=served / entitled if entitled else None,
        below_guaranteed=below / len(series.used) if amounts else None,
    )


# Figures in tables ----------------------------------------------------------------------------------------------------

Unit = Literal["count", "seconds", "ratio", "factor"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a whole run, as a row of tables."""

    key: str
    label: str
    unit: Unit
    better: Literal["less", "more", ""]
    """Empty if neither is better."""
    read: Callable[[Summary], float | None]


def list_figures(summaries: Iterable[Summary]) -> list[Figure]:
    """Return the figures that at least one of these runs has."""
    summaries = list(summaries)
    used = [_make_utilisation(kind) for kind in list_kinds(*(one.utilisation for one in summaries))]
    return [figure for figure in [*_JOBS, *used, *_FAIRNESS] if any(figure.read(one) is not None for one in summaries)]


def _make_utilisation(kind: str) -> Figure:
    return Figure(
        f"utilisation_{kind}", f"utilisation of {kind}", "ratio", "more", lambda one: one.utilisation.get(kind)
    )


_JOBS: Final = (
    Figure("jobs", "jobs", "count", "", lambda one: one.total.jobs),
    Figure("completed", "completed", "count", "more", lambda one: one.total.completed),
    Figure("unfinished", "unfinished", "count", "less", lambda one: one.total.unfinished),
    Figure("rejected", "rejected", "count", "less", lambda one: one.total.rejected),
    Figure("wait_mean", "mean wait", "seconds", "less", lambda one: one.total.wait_mean),
    Figure("wait_median", "median wait", "seconds", "less", lambda one: one.total.wait_median),
    Figure("wait_p95", "95 % wait", "seconds", "less", lambda one: one.total.wait_p95),
    Figure("slowdown_mean", "mean bounded slowdown", "factor", "less", lambda one: one.total.slowdown_mean),
    Figure("slowdown_median", "median bounded slowdown", "factor", "less", lambda one: one.total.slowdown_median),
    Figure("slowdown_p95", "95 % bounded slowdown", "factor", "less", lambda one: one.total.slowdown_p95),
    Figure("makespan", "makespan", "seconds", "less", lambda one: one.makespan),
)
_FAIRNESS: Final = (
    Figure("fairness_users", "fairness over users (Jain)", "ratio", "more", lambda one: one.fairness_users),
    Figure("fairness_queues", "fairness over queues (Jain)", "ratio", "more", lambda one: one.fairness_queues),
    Figure("guarantee_kept", "guarantee kept (worst queue)", "ratio", "more", lambda one: one.guarantee_kept),
    Figure("preemptions", "preemptions", "count", "less", lambda one: one.total.preemptions),
    Figure("lost", "work lost by preemption", "seconds", "less", lambda one: one.total.lost),
)

ABSENT: Final = "-"


def format_value(unit: Unit, value: float | None) -> str:
    """Return a figure as text.

    >>> format_value("seconds", 3700), format_value("ratio", 0.5), format_value("factor", 1.25)
    ('1 h 1 min', '0.500', '1.25')
    """
    if value is None:
        return ABSENT
    match unit:
        case "seconds":
            return format_seconds(value)
        case "ratio":
            return f"{value:.3f}"
        case "factor":
            return f"{value:,.0f}" if value >= 1000 else format_decimal(value)
        case "count":
            return f"{value:,.0f}"


def print_summaries(summaries: Sequence[Summary]) -> None:
    """Print a table: a line for each figure, and a column for each run."""
    rows = [
        [figure.label, *(format_value(figure.unit, figure.read(one)) for one in summaries)]
        for figure in list_figures(summaries)
    ]
    print_table(["FIGURE", *(one.name for one in summaries)], rows)


def to_json(summary: Summary) -> dict[str, object]:
    """Return all figures for a JSON document."""
    return asdict(summary)
