"""The replay's resource manager: what to send next, and what each answer means. A machine without clock or socket.

    joining --every node answered--> replaying --every job ended--> settling --every partition answered--> over

A job goes planned -> waiting -> running -> done, or to failed if the core refuses it or ends one of its allocations.
Each of its tasks runs from its allocation for the logged run time, then the machine releases it. When the core has
confirmed all releases, the machine removes the application. Tasks do not wait for one another as a gang would.

`settling` proves that the removals, which have no answer, have arrived. A partition handles its updates in order, so
its answer to one more node (a duplicate, which it rejects) comes after them.

Times are log seconds since the start. Not here: waiting (`run.py`), the summary (`report.py`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final, Literal

from common import rm_messages
from common.messages import Message, Resources
from common.names import normalise_partition_name
from common.wire import NEVER
from yunishard.items import application, ask, node, release, removal
from yunishard.replay.workload import Job, Plan, Site

ASKS_IN_A_BATCH_MAX: Final = 2000
"""Jobs beyond it are submitted a tick later."""
PROBLEMS_KEPT_MAX: Final = 20

Phase = Literal["joining", "replaying", "settling", "over"]
_AFTER_NODES: Final[dict[Phase, Phase]] = {"joining": "replaying", "settling": "over"}
"""The phase after each phase that ends when every partition has answered its nodes."""


@dataclass(slots=True)
class Batch:
    """Updates to send now, in this order."""

    reports: list[str] = field(default_factory=list)
    """Partitions that lost their state: the updates to them are a full report."""
    nodes: list[rm_messages.NodeInfo] = field(default_factory=list)
    applications: list[rm_messages.AddApplicationRequest] = field(default_factory=list)
    removals: list[rm_messages.RemoveApplicationRequest] = field(default_factory=list)
    asks: list[rm_messages.Allocation] = field(default_factory=list)
    releases: list[rm_messages.AllocationRelease] = field(default_factory=list)


@dataclass(slots=True)
class _Task:
    job: Job
    processors: int
    state: Literal["waiting", "running", "released"] = "waiting"
    node_id: str = ""


class Replay:
    """One replay of a plan. Call `due` when `deadline` has passed or an answer was received, and send the batch."""

    def __init__(self, plan: Plan, *, rm_id: str) -> None:
        self.plan = plan
        self.phase: Phase = "joining"
        self.jobs = {job.application_id: replace(job) for job in plan.jobs}
        self.allocations = 0
        self.end_s: dict[str, float] = {site.partition: 0.0 for site in plan.sites}
        """Partition to when its last job ended."""
        self.problems: list[str] = []
        """Problems that concern no job alone; the first `PROBLEMS_KEPT_MAX`."""
        self._sites = {normalise_partition_name(rm_id, site.partition): site for site in plan.sites}
        self._unanswered: Counter[str] = Counter()
        """Nodes that a partition has not answered; no entry for a partition that has answered all."""
        self._tasks: dict[str, _Task] = {}
        """All and only tasks that are submitted and have not ended, by allocation key."""
        self._ends: list[tuple[float, str]] = []
        """A heap of the end times of running tasks; entries of other tasks are skipped."""
        self._submitted = 0
        self._open = len(plan.jobs)
        """Jobs that are neither done nor failed."""
        self._batch = Batch()
        for site in plan.sites:
            self._send_nodes(site)

    # Time -----------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When something is due next, unless an answer arrives before."""
        if self.phase != "replaying":
            return NEVER
        submit_s = self.plan.jobs[self._submitted].submit_s if self._submitted < len(self.plan.jobs) else NEVER
        return min(submit_s, self._ends[0][0] if self._ends else NEVER)

    def due(self, now: float) -> Batch:
        """Return the updates to send now."""
        if self.phase == "replaying":
            self._submit_jobs(now)
            self._release_tasks(now)
        batch, self._batch = self._batch, Batch()
        if self.phase == "replaying" and not self._open and batch == Batch():
            self.phase = "settling"
            for site in self.plan.sites:
                self._unanswered[site.partition] += 1
                batch.nodes.append(_build_node(site, 0))
        return batch

    # Answers --------------------------------------------------------------------------------------------------------

    def receive(self, partition: str, news: Message, now: float) -> None:
        """Handle an answer from a partition (its normalised name)."""
        site = self._sites.get(partition)
        match news:
            case rm_messages.NodeResponse() if site:
                self._receive_nodes(site, news)
            case rm_messages.ApplicationResponse():
                for rejected in news.rejected:
                    self._reject(rejected.application_id, rejected.reason, now)
            case rm_messages.AllocationResponse():
                self._receive_allocations(news, now)
            case rm_messages.PartitionRestarted() if site:
                self._report_again(site, now)
            case rm_messages.Refused():
                self.note(f"{partition or 'core'}: message {news.seq} refused ({news.code}): {news.reason}")
            case rm_messages.SchedulingStateResponse() | rm_messages.Goodbye():
                pass  # the clusters do not grow; after a Goodbye the core returns, or the silence ends the replay
            case _:
                self.note(f"unexpected {type(news).__name__} from {partition!r}")

    def note(self, problem: str) -> None:
        """Keep a problem that concerns no job alone; the replay can no longer be complete."""
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(problem)

    @property
    def is_complete(self) -> bool:
        """Whether every job ran, everything was released, and every partition has confirmed it."""
        return self.phase == "over" and not any(self.find_missing()) and not self._tasks

    def find_missing(self) -> Iterator[str]:
        """Yield everything that prevents completion, by name: problems, jobs, partitions without an answer."""
        yield from self.problems
        for job in self.jobs.values():
            if job.state != "done":
                why = f": {job.problem}" if job.problem else ""
                yield f"{job.application_id} ({job.partition}, {job.queue}) {job.state}{why}"
        for partition, count in self._unanswered.items():
            yield f"{partition}: no answer about {count} nodes"

    # Private --------------------------------------------------------------------------------------------------------

    def _submit_jobs(self, now: float) -> None:
        jobs = self.plan.jobs
        while self._submitted < len(jobs) and jobs[self._submitted].submit_s <= now:
            if len(self._batch.asks) >= ASKS_IN_A_BATCH_MAX:
                return
            job = self.jobs[jobs[self._submitted].application_id]
            self._submitted += 1
            job.state = "waiting"
            self._batch.applications.append(_build_application(job))
            for key, processors in job.split_tasks().items():
                self._tasks[key] = _Task(job, processors)
                self._batch.asks.append(_build_ask(job, key, processors))
            job.left = len(job.split_tasks())

    def _release_tasks(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, key = heappop(self._ends)
            task = self._tasks.get(key)
            if task is not None and task.state == "running":
                task.state = "released"
                job = task.job
                self._batch.releases.append(release(job.application_id, key, partition=job.partition))

    def _receive_nodes(self, site: Site, news: rm_messages.NodeResponse) -> None:
        name = site.partition
        self._unanswered[name] -= len(news.accepted) + len(news.rejected)
        if self._unanswered[name] <= 0:
            del self._unanswered[name]
        if self.phase != "settling":
            for rejected in news.rejected:
                self.note(f"{name}: node {rejected.node_id} refused: {rejected.reason}")
        if not self._unanswered:
            self.phase = _AFTER_NODES.get(self.phase, self.phase)

    def _receive_allocations(self, news: rm_messages.AllocationResponse, now: float) -> None:
        for allocation in news.new:
            task = self._tasks.get(allocation.allocation_key)
            if task is not None and task.state == "waiting":
                job = task.job
                task.state, task.node_id = "running", allocation.node_id
                heappush(self._ends, (now + job.run_s, allocation.allocation_key))
                self.allocations += 1
                job.state, job.wait_s = "running", max(0.0, now - job.submit_s)
        for released in news.released:
            task = self._tasks.get(released.allocation_key)
            if task is not None and task.state != "released":
                task.job.problem = f"allocation {released.allocation_key} ended by the core: {released.message}"
            self._end_task(released.allocation_key, now)
        for rejected in news.rejected_allocations:
            task = self._tasks.get(rejected.allocation_key)
            if task is not None:
                task.job.problem = f"ask {rejected.allocation_key} refused: {rejected.reason}"
            self._end_task(rejected.allocation_key, now)

    def _end_task(self, key: str, now: float) -> None:
        """Remove a task, if it exists; with the last task of its job remove the application."""
        task = self._tasks.pop(key, None)
        if task is None:
            return
        job = task.job
        job.left -= 1
        if not job.left:
            self._batch.removals.append(removal(job.application_id, partition=job.partition))
            self._open -= 1
            self.end_s[job.partition] = now
            job.state = "failed" if job.problem else "done"

    def _reject(self, application_id: str, reason: str, now: float) -> None:
        job = self.jobs.get(application_id)
        if job is not None and job.left:
            job.problem = f"refused: {reason}"
            for key in job.split_tasks():
                self._end_task(key, now)

    def _report_again(self, site: Site, now: float) -> None:
        """Report nodes, open jobs, running and waiting tasks to a partition that lost its state.

        If it loses its state again before the report was sent, one report is enough.
        """
        if site.partition in self._batch.reports:
            return
        self._unanswered.pop(site.partition, None)
        tasks = {key: task for key, task in self._tasks.items() if task.job.partition == site.partition}
        for key, task in tasks.items():
            if task.state == "released":
                self._end_task(key, now)
        self._batch.removals = [item for item in self._batch.removals if item.partition_name != site.partition]
        self._batch.reports.append(site.partition)
        self._send_nodes(site)
        reported: set[str] = set()
        for key, task in tasks.items():
            job = task.job
            if key in self._tasks:
                if job.application_id not in reported:
                    reported.add(job.application_id)
                    self._batch.applications.append(_build_application(job))
                self._batch.asks.append(_build_ask(job, key, task.processors, node_id=task.node_id))

    def _send_nodes(self, site: Site) -> None:
        self._unanswered[site.partition] += site.nodes
        self._batch.nodes.extend(_build_node(site, index) for index in range(site.nodes))


def _build_node(site: Site, index: int) -> rm_messages.NodeInfo:
    capacity = _build_resources(site.node_processors, memory=site.node_memory)
    return node(f"node-{index + 1}", capacity, partition=site.partition)


def _build_application(job: Job) -> rm_messages.AddApplicationRequest:
    return application(
        job.application_id, user=job.user, groups=[job.group], partition=job.partition, tags={"group": job.group}
    )


def _build_ask(job: Job, key: str, processors: int, *, node_id: str = "") -> rm_messages.Allocation:
    amount = _build_resources(processors, memory=job.memory * processors)
    return ask(key, job.application_id, amount, partition=job.partition, node_id=node_id)


def _build_resources(processors: int, *, memory: int) -> Resources:
    return {"vcore": processors * 1000, "memory": memory} if memory else {"vcore": processors * 1000}
