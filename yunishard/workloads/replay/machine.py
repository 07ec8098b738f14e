"""The replay's resource manager: what to send next, and what each answer means. A machine without clock or socket.

    joining --every node answered--> replaying --every job ended--> settling --every partition answered--> over

A job goes planned -> waiting -> running -> done, or to failed if the core refuses it or ends one of its allocations.
Each of its tasks runs from its allocation for the logged run time, then the machine releases it. When the core has
confirmed all releases, the machine removes the application. A preempted task is confirmed, and asks again.

With `gang`, a job of several tasks first asks for a placeholder for each of them, and for the tasks once the core
reports that it runs, which is when all placeholders have a node. Without, tasks do not wait for one another.

`settling` proves that the removals, which have no answer, have arrived. A partition handles its updates in order, so
its answer to one more node (a duplicate, which it rejects) comes after them.

Times are log seconds since the start. Not here: waiting (`run.py`), the summary (`report.py`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final, Literal

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Message, Resources
from yunishard.common.messages.wire import NEVER
from yunishard.common.names import normalise_partition_name
from yunishard.sdk.items import ApplicationState, application, ask, node, release, removal
from yunishard.workloads.replay.workload import Job, Plan, Site

ASKS_IN_A_BATCH_MAX: Final = 2000
"""Jobs beyond it are submitted a tick later."""
PROBLEMS_KEPT_MAX: Final = 20

_TO_CONFIRM: Final = (rm_messages.TIMEOUT, rm_messages.PREEMPTED_BY_SCHEDULER, rm_messages.PLACEHOLDER_REPLACED)
"""Releases that the core requests, and that take effect once the machine confirms them."""

_GANG_READY: Final = (ApplicationState.RUNNING, ApplicationState.RESUMING)
"""States of a gang in which it asks for its tasks: all placeholders have a node, or some did not get one in time."""

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
    is_placeholder: bool = False
    started_s: float = 0.0
    attempts: int = 1
    """Times that it was asked for; more than one if it was preempted."""


class Replay:
    """One replay of a plan. Call `due` when `deadline` has passed or an answer was received, and send the batch."""

    def __init__(self, plan: Plan, *, rm_id: str, gang: bool = False) -> None:
        self.plan = plan
        self._gang = gang
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
        self._gangs: dict[str, Job] = {}
        """All and only gangs that have not asked for their tasks yet, by application id."""
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
                for updated in news.updated:
                    if updated.state in _GANG_READY:
                        self._ask_for_tasks(updated.application_id)
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
            tasks = job.split_tasks()
            job.left = len(tasks)
            self._batch.applications.append(_build_application(job, is_gang=self._is_gang(job)))
            if self._is_gang(job):
                self._gangs[job.application_id] = job
                tasks = {f"{key}.placeholder": processors for key, processors in tasks.items()}
            for key, processors in tasks.items():
                self._ask_for(key, _Task(job, processors, is_placeholder=self._is_gang(job)))

    def _is_gang(self, job: Job) -> bool:
        return self._gang and job.processors > 1

    def _ask_for(self, key: str, task: _Task) -> None:
        self._tasks[key] = task
        self._batch.asks.append(_build_ask(key, task, is_gang=self._is_gang(task.job)))

    def _ask_for_tasks(self, application_id: str) -> None:
        """Send the real asks of a gang, unless they were sent before."""
        job = self._gangs.pop(application_id, None)
        for key, processors in (job.split_tasks() if job else {}).items():
            assert job is not None
            self._ask_for(key, _Task(job, processors))

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
                task.state, task.node_id, task.started_s = "running", allocation.node_id, now
                if not task.is_placeholder:
                    self._start_task(allocation.allocation_key, task, now)
        for released in news.released:
            key, task = released.allocation_key, self._tasks.get(released.allocation_key)
            if task is None:
                continue
            if released.termination_type in _TO_CONFIRM:
                self._confirm(released, task, now)
            elif task.state != "released" and not task.is_placeholder:
                task.job.problem = f"allocation {key} ended by the core: {released.message}"
            self._end_task(key, now)
        for rejected in news.rejected_allocations:
            task = self._tasks.get(rejected.allocation_key)
            if task is not None:
                task.job.problem = f"ask {rejected.allocation_key} refused: {rejected.reason}"
                if task.is_placeholder:
                    self._ask_for_tasks(task.job.application_id)  # as ordinary asks
            self._end_task(rejected.allocation_key, now)

    def _start_task(self, key: str, task: _Task, now: float) -> None:
        job = task.job
        heappush(self._ends, (now + job.run_s, key))
        self.allocations += 1
        job.state = "running"
        job.node_id = job.node_id or task.node_id
        if task.attempts == 1:
            job.start_s, job.wait_s = now, max(0.0, now - job.submit_s)

    def _confirm(self, released: rm_messages.AllocationRelease, task: _Task, now: float) -> None:
        """Confirm a release that the core requests. A preempted task asks again, under another key."""
        job, key, kind = task.job, released.allocation_key, released.termination_type
        self._batch.releases.append(
            release(job.application_id, key, partition=job.partition, termination_type=int(kind))
        )
        if kind == rm_messages.PREEMPTED_BY_SCHEDULER and task.state == "running" and not task.is_placeholder:
            job.preemptions += 1
            job.lost_s += now - task.started_s
            job.left += 1  # the preempted attempt ends below
            name = key.partition("~")[0]
            self._ask_for(
                f"{name}~{task.attempts + 1}", replace(task, state="waiting", node_id="", attempts=task.attempts + 1)
            )

    def _end_task(self, key: str, now: float) -> None:
        """Remove a task, if it exists; with the last task of its job remove the application."""
        task = self._tasks.pop(key, None)
        if task is None or task.is_placeholder:
            return
        job = task.job
        job.left -= 1
        if not job.left:
            for name in job.split_tasks() if self._is_gang(job) else ():
                self._tasks.pop(f"{name}.placeholder", None)  # it goes with its application
            self._batch.removals.append(removal(job.application_id, partition=job.partition))
            self._open -= 1
            self.end_s[job.partition] = job.end_s = now
            job.state = "failed" if job.problem else "done"

    def _reject(self, application_id: str, reason: str, now: float) -> None:
        job = self.jobs.get(application_id)
        if job is not None and job.left:
            job.problem, job.is_refused = f"refused: {reason}", True
            self._drop_placeholders(job)
            for key in job.split_tasks():
                self._end_task(key, now)

    def _drop_placeholders(self, job: Job) -> None:
        """Discard the placeholders of a gang that the core does not accept; its tasks end without having been sent."""
        if self._gangs.pop(job.application_id, None) is not None:
            for key, processors in job.split_tasks().items():
                self._tasks.pop(f"{key}.placeholder", None)
                self._tasks[key] = _Task(job, processors)

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
                    self._batch.applications.append(_build_application(job, is_gang=self._is_gang(job)))
                self._batch.asks.append(_build_ask(key, task, is_gang=self._is_gang(job)))

    def _send_nodes(self, site: Site) -> None:
        self._unanswered[site.partition] += site.nodes
        self._batch.nodes.extend(_build_node(site, index) for index in range(site.nodes))


def _build_node(site: Site, index: int) -> rm_messages.NodeInfo:
    capacity = _build_resources(site.node_processors, memory=site.node_memory)
    return node(f"node-{index + 1}", capacity, partition=site.partition)


def _build_application(job: Job, *, is_gang: bool) -> rm_messages.AddApplicationRequest:
    return application(
        job.application_id,
        job.leaf,
        user=job.user,
        groups=[job.group],
        partition=job.partition,
        tags={"group": job.group, "namespace": job.group},
        gang=_build_resources(job.processors, memory=job.memory * job.processors) if is_gang else None,
    )


def _build_ask(key: str, task: _Task, *, is_gang: bool) -> rm_messages.Allocation:
    job = task.job
    return ask(
        key,
        job.application_id,
        _build_resources(task.processors, memory=job.memory * task.processors),
        partition=job.partition,
        node_id=task.node_id,
        task_group=f"{task.processors}-processors" if is_gang else "",  # placeholders are as large as their tasks
        placeholder=task.is_placeholder,
    )


def _build_resources(processors: int, *, memory: int) -> Resources:
    return {"vcore": processors * 1000, "memory": memory} if memory else {"vcore": processors * 1000}
