"""Record a simulation: the progress of each job, preemptions, and what queues use and wait for over time.

The recorder observes `partition_worker/virtual_time.py`. It keeps changes of usage as numbers in arrays, because a long
trace has millions of them; `average_usage` computes means over intervals at the end.

Not here: files (`results.py`).
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from common.messages import Resources
from common.resources import Limit
from partition_worker.engine.partition import Partition
from partition_worker.virtual_time import Eviction, task_name
from simulator.traces import TraceJob

JobState = Literal["planned", "waiting", "completed", "rejected"]

INTERVALS_MAX: Final = 1_000
"""Intervals of `usage.csv`, all equally long."""

INTERVALS_MIN: Final = 100
USAGE_ROWS_MAX: Final = 1_000_000
"""Lines of `usage.csv`. With so many queues and resource types that there would be more, the intervals are longer, but
not fewer than `INTERVALS_MIN`.
"""


@dataclass(slots=True, eq=False)
class JobRun:
    """A job in the simulation. Times are seconds since the start of the trace."""

    job: TraceJob
    application_id: str
    state: JobState = "planned"
    queue: str = ""
    """Where the partition placed it."""
    submitted: float | None = None
    """When it was submitted: at its time in the trace, or after the jobs that it depends on."""
    started: float | None = None
    """When the last of its tasks got its first node."""
    ended: float | None = None
    node: str = ""
    """The first node of its first task."""
    missing: int = 0
    """Tasks that have not got a first node."""
    preemptions: int = 0
    lost: float = 0.0
    early: list[tuple[Resources, int]] = field(default_factory=list)
    """Changes of pending amounts before it was placed in a queue."""


class PreemptedTask(NamedTuple):
    """A task that the core ended."""

    at: float
    job: str
    task: str
    queue: str
    node: str
    by: str
    by_queue: str
    lost: float


class _Changes(NamedTuple):
    """The changes of one leaf queue, in order of time."""

    times: "array[float]"
    amounts: "array[int]"
    """Indexes of `Recorder.amounts`."""
    used: "array[int]"
    pending: "array[int]"


class QueueLimits(NamedTuple):
    """The configured bounds of a queue."""

    guaranteed: Resources
    maximum: Limit


class Recorder:
    """Observes the simulation of a partition."""

    def __init__(
        self, partition: Partition, jobs: Sequence[JobRun], *, start: float, finished: Callable[[JobRun], None]
    ) -> None:
        """`start` is the time of the partition at which the trace starts. `finished` is called at the end of a job."""
        self.partition = partition
        self.start = start
        self.by_application = {run.application_id: run for run in jobs}
        self.preemptions: list[PreemptedTask] = []
        self.last = 0.0
        """When the last thing happened to a job."""
        self.limits: dict[str, QueueLimits] = {}
        """The queues that exist or existed, by path."""
        self.changes: dict[str, _Changes] = {}
        self.amounts: list[Resources] = []
        self._indexes: dict[int, int] = {}
        self._finished = finished
        for queue in partition.tree:
            self._note_queue(queue.path)

    def _note_queue(self, path: str) -> None:
        """Record the limits of a queue and those above it; a dynamic queue may be removed later."""
        while path and path not in self.limits:
            queue = self.partition.tree.find(path)
            if queue is not None:
                maximum = queue.maximum if queue.parent is not None else self.partition.nodes.total
                self.limits[path] = QueueLimits(dict(queue.guaranteed or {}), dict(maximum or {}))
            path = path.rpartition(".")[0]

    def _get_time(self, at: float) -> float:
        self.last = at - self.start
        return self.last

    # Jobs -------------------------------------------------------------------------------------------------------------

    def submitted(self, run: JobRun, at: float) -> None:
        """A job is submitted."""
        run.state, run.submitted, run.missing = "waiting", self._get_time(at), len(run.job.tasks)

    def accepted(self, application_id: str, queue: str, at: float) -> None:
        run = self.by_application[application_id]
        run.queue = queue
        self._note_queue(queue)
        early, run.early = run.early, []
        for resources, pending in early:
            self.note_usage(application_id, resources, at, used=0, pending=pending)

    def started(self, key: str, application_id: str, node_id: str, at: float) -> None:
        run, name = self.by_application[application_id], task_name(key)
        time = self._get_time(at)
        if name == f"{application_id}.1" and not run.node:
            run.node = node_id
        if key == name:
            run.missing -= 1
            if not run.missing:
                run.started = time

    def ended(self, key: str, application_id: str, at: float) -> None:
        self._get_time(at)

    def evicted(self, eviction: Eviction, at: float) -> None:
        run = self.by_application[eviction.application_id]
        lost = 0.0 if eviction.started is None else at - eviction.started
        run.preemptions += 1
        run.lost += lost
        time = self._get_time(at)
        by = self.by_application.get(eviction.by.rpartition(".")[0])
        asking = by.job.name if by else eviction.by
        self.preemptions.append(
            PreemptedTask(
                time, run.job.name, eviction.key, run.queue, eviction.node_id, asking, eviction.by_queue, lost
            )
        )

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        run = self.by_application[application_id]
        self._get_time(at)
        if run.state != "rejected":
            run.state = "rejected"
            self._finished(run)

    def removed(self, application_id: str, at: float) -> None:
        run = self.by_application[application_id]
        if run.state != "rejected":
            run.state, run.ended = "completed", self._get_time(at)
            self._finished(run)

    # Usage ------------------------------------------------------------------------------------------------------------

    def note_usage(self, application_id: str, resources: Resources, at: float, *, used: int, pending: int) -> None:
        run = self.by_application[application_id]
        if not run.queue:
            run.early.append((resources, pending))
            return
        index = self._indexes.get(id(resources))
        if index is None:
            index = self._indexes[id(resources)] = len(self.amounts)
            self.amounts.append(resources)  # keeps it, so that no other object gets its id
        found = self.changes.get(run.queue)
        if found is None:
            found = self.changes[run.queue] = _Changes(array("d"), array("q"), array("b"), array("b"))
        found.times.append(at - self.start)
        found.amounts.append(index)
        found.used.append(used)
        found.pending.append(pending)


# Means ----------------------------------------------------------------------------------------------------------------


class UsageRow(NamedTuple):
    """The mean usage of one resource type by one queue in one interval, in base units."""

    time: float
    """Start of the interval."""
    queue: str
    resource: str
    used: float
    pending: float


def average_usage(recorder: Recorder, *, span: float, types: Sequence[str]) -> list[UsageRow]:
    """Return the means over equal intervals of `span`, for all queues; by time, queue and type."""
    paths = sorted(recorder.limits, key=lambda path: path.split("."))
    rows_each = max(1, len(paths) * len(types))
    count = max(min(INTERVALS_MAX, USAGE_ROWS_MAX // rows_each), INTERVALS_MIN) if span > 0 else 1
    width = span / count if span > 0 else 1.0
    series = {(path, kind): ([0.0] * count, [0.0] * count) for path in paths for kind in types}
    for leaf, changes in sorted(recorder.changes.items()):
        for kind in types:
            amounts = [resources.get(kind, 0) for resources in recorder.amounts]
            if not any(amounts):
                continue
            for which, signs in enumerate((changes.used, changes.pending)):
                means = _average(changes, signs, amounts, width=width, count=count)
                for path in _list_levels(leaf):
                    total = series[path, kind][which]
                    for interval, mean in enumerate(means):
                        total[interval] += mean
    return [
        UsageRow(interval * width, path, kind, series[path, kind][0][interval], series[path, kind][1][interval])
        for interval in range(count)
        for path in paths
        for kind in types
    ]


def _list_levels(leaf: str) -> list[str]:
    parts = leaf.split(".")
    return [".".join(parts[:level]) for level in range(1, len(parts) + 1)]


def _average(
    changes: _Changes, signs: "array[int]", amounts: Sequence[int], *, width: float, count: int
) -> list[float]:
    """Return the mean in each interval of an amount that begins at 0 and changes step by step."""
    steps = [0] * (count + 1)
    """Change of the amount in each interval, which all later ones have."""
    parts = [0.0] * count
    """Contribution of the changes in an interval to its own mean."""
    for time, index, sign in zip(changes.times, changes.amounts, signs, strict=True):
        change = sign * amounts[index]
        if change:
            interval = min(int(time / width), count - 1)
            steps[interval] += change
            parts[interval] += change * max((interval + 1) - time / width, 0.0)
    means = []
    level = 0
    for interval in range(count):
        means.append(max(level + parts[interval], 0.0))
        level += steps[interval]
    return means


def list_types(capacity: Mapping[str, int], jobs: Sequence[JobRun]) -> list[str]:
    """Return the resource types of nodes and jobs."""
    found = set(capacity)
    for amounts in {id(task): task for run in jobs for task in run.job.tasks}.values():
        found.update(amounts)
    return sorted(found)
