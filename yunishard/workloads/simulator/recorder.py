"""Record a simulation: the progress of each job, preemptions, and what queues use and wait for over time.

The recorder observes the RM of `partition_worker/virtual_time.py`.

Not here: usage over time (`yunishard/workloads/replay/usage.py`), files (`results.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from yunishard.common.messages.kinds import Resources
from yunishard.common.rm_player import Eviction, Observer, task_name
from yunishard.partition_worker.engine.partition import Partition
from yunishard.workloads.replay.usage import QueueLimits, UsageLog
from yunishard.workloads.simulator.traces import TraceJob

JobState = Literal["planned", "waiting", "completed", "rejected"]


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


class Recorder(Observer):
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
        self.usage = UsageLog()
        self._finished = finished
        for queue in partition.tree:
            self._note_queue(queue.path)

    def _note_queue(self, path: str) -> None:
        """Record the limits of a queue and those above it; a dynamic queue may be removed later."""
        while path and path not in self.usage.limits:
            queue = self.partition.tree.find(path)
            if queue is not None:
                maximum = queue.maximum if queue.parent is not None else self.partition.nodes.total
                self.usage.limits[path] = QueueLimits(dict(queue.guaranteed or {}), dict(maximum or {}))
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
        self.usage.note(run.queue, resources, at - self.start, used=used, pending=pending)


def list_types(capacity: Mapping[str, int], jobs: Sequence[JobRun]) -> list[str]:
    """Return the resource types of nodes and jobs."""
    found = set(capacity)
    for amounts in {id(task): task for run in jobs for task in run.job.tasks}.values():
        found.update(amounts)
    return sorted(found)
