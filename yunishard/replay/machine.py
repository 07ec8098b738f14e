"""What the replay's resource manager sends next, and what it makes of each answer: a machine without clock or socket.

    joining --every node answered--> replaying --every job ended--> settling --every partition answered--> over

A job goes planned -> waiting -> running -> done, or to failed when the core refuses it or takes something away. Each of
its tasks runs from its allocation for the logged run time, then it is released; when the core has confirmed the release
of all, the application is removed. Tasks do not wait for one another: all or nothing is gang scheduling.

`settling` proves that the removals, which nothing confirms, have arrived: a partition handles its updates in order, so
its answer to one more node (which it has, and so refuses) comes after them.

Times are log seconds since the start. Not here: waiting (`drive.py`), numbers for people (`report.py`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from math import inf
from typing import Final, Literal

from common.messages import Message, Resources
from common.names import normalise_partition_name
from common.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    Goodbye,
    NodeInfo,
    NodeResponse,
    PartitionRestarted,
    Refused,
    RemoveApplicationRequest,
    SchedulingStateResponse,
)
from yunishard.builders import application, ask, node, release
from yunishard.replay.workload import Plan, PlannedJob, Site

NEVER: Final = inf
ASKS_IN_A_BATCH_MAX: Final = 2000
"""Jobs that would go beyond it are submitted a tick later."""
PROBLEMS_KEPT_MAX: Final = 20

Phase = Literal["joining", "replaying", "settling", "over"]
State = Literal["planned", "waiting", "running", "done", "failed"]
CLOSED: Final = frozenset({"done", "failed"})
_AFTER_NODES: Final[dict[Phase, Phase]] = {"joining": "replaying", "settling": "over"}
"""Where a phase leads when every partition has answered about its nodes."""


@dataclass(slots=True)
class Batch:
    """Updates to send at once, in this order."""

    reports: list[str] = field(default_factory=list)
    """Partitions that began anew: what the batch has for them is a full report."""
    nodes: list[NodeInfo] = field(default_factory=list)
    applications: list[AddApplicationRequest] = field(default_factory=list)
    removals: list[RemoveApplicationRequest] = field(default_factory=list)
    asks: list[Allocation] = field(default_factory=list)
    releases: list[AllocationRelease] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.reports or self.nodes or self.applications or self.removals or self.asks or self.releases)


@dataclass(slots=True)
class Run:
    """A job and how far it is."""

    job: PlannedJob
    state: State = "planned"
    left: int = 0
    """Tasks that were submitted and are not gone."""
    unplaced: int = 0
    """Tasks that were submitted and never had an allocation."""
    wait_s: float = 0.0
    """From the logged submit time until the last task had its allocation."""
    problem: str = ""
    """Why it failed, or is going to when its last task is gone."""


@dataclass(slots=True)
class Tally:
    """What happened in a partition so far."""

    jobs: Counter[State] = field(default_factory=Counter)
    """All and only jobs of the partition, by state."""
    allocations: int = 0
    end_s: float = 0.0
    """When the last job ended."""
    work_wanted_s: int = 0
    """Processor seconds of all jobs."""
    work_ended_s: int = 0
    """Processor seconds of the tasks that ran to their end."""
    busy_processors: int = 0
    busy_since_s: float = 0.0
    """The sum, over the processors that are busy, of the time since when."""

    def work_s(self, now: float) -> float:
        """Processor seconds that were used until now."""
        return self.work_ended_s + self.busy_processors * now - self.busy_since_s


class _TaskState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    """Released by us, not yet confirmed."""


@dataclass(slots=True)
class _Task:
    run: Run
    processors: int
    state: _TaskState = _TaskState.WAITING
    node_id: str = ""
    start_s: float = 0.0


class Replay:
    """One replay of a plan. Call `due` when `deadline` has passed or something was heard, and send what it gives."""

    def __init__(self, plan: Plan, *, rm_id: str) -> None:
        self.plan = plan
        self.phase: Phase = "joining"
        self.runs: dict[str, Run] = {job.application_id: Run(job) for job in plan.jobs}
        self.tallies: dict[str, Tally] = {site.partition: Tally() for site in plan.sites}
        for job in plan.jobs:
            tally = self.tallies[job.partition]
            tally.jobs["planned"] += 1
            tally.work_wanted_s += job.work_s
        self.problems: list[str] = []
        """What went wrong and concerns no job alone; the first `PROBLEMS_KEPT_MAX`."""
        self._sites = {normalise_partition_name(rm_id, site.partition): site for site in plan.sites}
        self._unanswered: Counter[str] = Counter()
        """Nodes that a partition has not answered; no entry for a partition that has answered all."""
        self._tasks: dict[str, _Task] = {}
        """All and only tasks that are submitted and not gone, by allocation key."""
        self._ends: list[tuple[float, str]] = []
        """A heap of when running tasks end; entries of tasks that are gone already are skipped."""
        self._submitted = 0
        self._open = len(plan.jobs)
        """Jobs that are not closed."""
        self._batch = Batch()
        for site in plan.sites:
            self._send_nodes(site)

    # Time -----------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When something is due next if nothing is heard before."""
        if self.phase != "replaying":
            return NEVER
        submit_s = self.plan.jobs[self._submitted].submit_s if self._submitted < len(self.plan.jobs) else NEVER
        return min(submit_s, self._ends[0][0] if self._ends else NEVER)

    def due(self, now: float) -> Batch:
        """What is to be sent now."""
        if self.phase == "replaying":
            self._submit(now)
            self._end(now)
        batch, self._batch = self._batch, Batch()
        if self.phase == "replaying" and not self._open and not batch:
            self.phase = "settling"
            for site in self.plan.sites:
                self._unanswered[site.partition] += 1
                batch.nodes.append(_node(site, 0))
        return batch

    # Answers --------------------------------------------------------------------------------------------------------

    def hear(self, partition: str, news: Message, now: float) -> None:
        """Take an answer from a partition (its normalised name)."""
        site = self._sites.get(partition)
        match news:
            case NodeResponse() if site:
                self._hear_nodes(site, news)
            case ApplicationResponse():
                for rejected in news.rejected:
                    self._reject(rejected.application_id, rejected.reason, now)
            case AllocationResponse():
                self._hear_allocations(news, now)
            case PartitionRestarted() if site:
                self._report_again(site, now)
            case Refused():
                self.note(f"{partition or 'core'}: message {news.seq} refused ({news.code}): {news.reason}")
            case SchedulingStateResponse() | Goodbye():
                pass  # the clusters of a replay do not grow, and a core that stops comes back or is given up
            case _:
                self.note(f"unexpected {type(news).__name__} from {partition!r}")

    def note(self, problem: str) -> None:
        """Keep something that went wrong and concerns no job alone; from then on the replay cannot be complete."""
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(problem)

    @property
    def complete(self) -> bool:
        """Whether every job ran, everything was released, and every partition has confirmed it."""
        done = sum(tally.jobs["done"] for tally in self.tallies.values())
        return self.phase == "over" and done == len(self.runs) and not self._tasks and not self.problems

    def missing(self) -> Iterator[str]:
        """What is in the way of `complete`, by name: answers, jobs, partitions."""
        yield from self.problems
        for run in self.runs.values():
            if run.state != "done":
                why = f": {run.problem}" if run.problem else ""
                yield f"{run.job.application_id} ({run.job.partition}, {run.job.queue}) {run.state}{why}"
        for partition, count in self._unanswered.items():
            yield f"{partition}: no answer about {count} nodes"

    # Private: what time does ----------------------------------------------------------------------------------------

    def _submit(self, now: float) -> None:
        jobs = self.plan.jobs
        while self._submitted < len(jobs) and jobs[self._submitted].submit_s <= now:
            if len(self._batch.asks) >= ASKS_IN_A_BATCH_MAX:
                return
            run = self.runs[jobs[self._submitted].application_id]
            self._submitted += 1
            self._move(run, "waiting")
            self._batch.applications.append(_application(run.job))
            for index, processors in enumerate(run.job.tasks()):
                key = _key(run.job, index)
                self._tasks[key] = _Task(run, processors)
                self._batch.asks.append(_ask(run.job, key, processors))
            run.left = run.unplaced = index + 1

    def _end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, key = heappop(self._ends)
            task = self._tasks.get(key)
            if task is not None and task.state is _TaskState.RUNNING:
                task.state = _TaskState.ENDING
                job = task.run.job
                self._batch.releases.append(release(job.application_id, key, partition=job.partition))

    # Private: what answers do ---------------------------------------------------------------------------------------

    def _hear_nodes(self, site: Site, news: NodeResponse) -> None:
        name = site.partition
        self._unanswered[name] -= len(news.accepted) + len(news.rejected)
        if self._unanswered[name] <= 0:
            del self._unanswered[name]
        if self.phase != "settling":
            for rejected in news.rejected:
                self.note(f"{name}: node {rejected.node_id} refused: {rejected.reason}")
        if not self._unanswered:
            self.phase = _AFTER_NODES.get(self.phase, self.phase)

    def _hear_allocations(self, news: AllocationResponse, now: float) -> None:
        for allocation in news.new:
            task = self._tasks.get(allocation.allocation_key)
            if task is not None and task.state is _TaskState.WAITING:
                self._place(allocation.allocation_key, task, allocation.node_id, now)
        for gone in news.released:
            task = self._tasks.get(gone.allocation_key)
            if task is not None:
                if task.state is not _TaskState.ENDING:
                    task.run.problem = f"allocation {gone.allocation_key} taken away: {gone.message}"
                self._forget(gone.allocation_key, task, now)
        for rejected in news.rejected_allocations:
            task = self._tasks.get(rejected.allocation_key)
            if task is not None:
                task.run.problem = f"ask {rejected.allocation_key} refused: {rejected.reason}"
                self._forget(rejected.allocation_key, task, now)

    def _place(self, key: str, task: _Task, node_id: str, now: float) -> None:
        run = task.run
        task.state, task.node_id, task.start_s = _TaskState.RUNNING, node_id, now
        heappush(self._ends, (now + run.job.run_s, key))
        tally = self.tallies[run.job.partition]
        tally.allocations += 1
        tally.busy_processors += task.processors
        tally.busy_since_s += task.processors * now
        run.unplaced -= 1
        if not run.unplaced:
            run.wait_s = max(0.0, now - run.job.submit_s)
        if run.state == "waiting":
            self._move(run, "running")

    def _forget(self, key: str, task: _Task, now: float) -> None:
        """A task is gone; with the last one of its job goes the application."""
        del self._tasks[key]
        run = task.run
        if task.state is not _TaskState.WAITING:
            tally = self.tallies[run.job.partition]
            tally.busy_processors -= task.processors
            tally.busy_since_s -= task.processors * task.start_s
            if task.state is _TaskState.ENDING:
                tally.work_ended_s += task.processors * run.job.run_s
        run.left -= 1
        if not run.left:
            removal = RemoveApplicationRequest(application_id=run.job.application_id, partition_name=run.job.partition)
            self._batch.removals.append(removal)
            self._close(run, now)

    def _reject(self, application_id: str, reason: str, now: float) -> None:
        run = self.runs.get(application_id)
        if run is None or run.state in CLOSED:
            return
        run.problem = f"refused: {reason}"
        for index in range(len(run.job.tasks())):
            key = _key(run.job, index)
            if (task := self._tasks.get(key)) is not None:
                self._forget(key, task, now)

    def _close(self, run: Run, now: float) -> None:
        self._open -= 1
        self.tallies[run.job.partition].end_s = now
        self._move(run, "failed" if run.problem else "done")

    def _report_again(self, site: Site, now: float) -> None:
        """The partition forgot everything: tell it of its nodes, of open jobs, of what runs and what waits. If it
        forgets again before that was sent, once is enough.
        """
        if site.partition in self._batch.reports:
            return
        self._unanswered.pop(site.partition, None)
        for key, task in list(self._tasks.items()):
            if task.run.job.partition == site.partition and task.state is _TaskState.ENDING:
                self._forget(key, task, now)
        self._batch.removals = [item for item in self._batch.removals if item.partition_name != site.partition]
        self._batch.reports.append(site.partition)
        self._send_nodes(site)
        reported: set[str] = set()
        for key, task in self._tasks.items():
            job = task.run.job
            if job.partition == site.partition:
                if job.application_id not in reported:
                    reported.add(job.application_id)
                    self._batch.applications.append(_application(job))
                self._batch.asks.append(_ask(job, key, task.processors, node_id=task.node_id))

    # Private: books -------------------------------------------------------------------------------------------------

    def _send_nodes(self, site: Site) -> None:
        self._unanswered[site.partition] += site.nodes
        self._batch.nodes.extend(_node(site, index) for index in range(site.nodes))

    def _move(self, run: Run, state: State) -> None:
        jobs = self.tallies[run.job.partition].jobs
        jobs[run.state] -= 1
        jobs[state] += 1
        run.state = state


# The plan's things as the interface names them ----------------------------------------------------------------------


def _node_id(index: int) -> str:
    return f"node-{index + 1}"


def _node(site: Site, index: int) -> NodeInfo:
    capacity = _resources(site.node_processors, memory=site.node_memory)
    return node(_node_id(index), capacity, partition=site.partition)


def _application(job: PlannedJob) -> AddApplicationRequest:
    return application(
        job.application_id, user=job.user, groups=[job.group], partition=job.partition, tags={"group": job.group}
    )


def _ask(job: PlannedJob, key: str, processors: int, *, node_id: str = "") -> Allocation:
    amount = _resources(processors, memory=job.memory * processors)
    return ask(key, job.application_id, amount, partition=job.partition, node_id=node_id)


def _key(job: PlannedJob, index: int) -> str:
    return f"{job.application_id}.{index + 1}"


def _resources(processors: int, *, memory: int) -> Resources:
    return {"vcore": processors * 1000, "memory": memory} if memory else {"vcore": processors * 1000}
