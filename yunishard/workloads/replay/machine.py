"""The replay's resource manager: when to submit which job, what becomes of it. A machine without clock or socket.

    joining --every node answered--> replaying --every job ended--> settling --every partition answered--> over

A job goes planned -> waiting -> running -> done, or to failed if the core refuses it or ends one of its allocations.
`RmPlayer` runs it: each task runs from its allocation for the logged run time. A preempted task asks again.

With `gang`, a job of several tasks first asks for a placeholder for each of them, and for the tasks once the core
reports that it runs, which is when all placeholders have a node. Without, tasks do not wait for one another.

`settling` proves that the releases and removals have arrived. A partition handles its updates in order, so its answer
to one more node (a duplicate, which it rejects) comes after them.

Times are log seconds since the start. Not here: what an RM does (`common/rm_player.py`), waiting (`run.py`), the
summary (`report.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, Literal

from msgspec import structs

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Message, Resources
from yunishard.common.messages.wire import NEVER
from yunishard.common.names import normalise_partition_name
from yunishard.common.rm_player import Batch, Eviction, Observer, RmPlayer, Submission, Task, task_name
from yunishard.sdk.items import application, ask, node
from yunishard.workloads.replay.workload import Job, Plan, Site

ASKS_IN_A_BATCH_MAX: Final = 2000
"""Jobs beyond it are submitted a tick later."""
PROBLEMS_KEPT_MAX: Final = 20

Phase = Literal["joining", "replaying", "settling", "over"]
_AFTER_NODES: Final[dict[Phase, Phase]] = {"joining": "replaying", "settling": "over"}
"""The phase after each phase that ends when every partition has answered its nodes."""


class Replay(Observer):
    """One replay of a plan. Call `due` when `deadline` has passed or an answer was received, and send the batch."""

    def __init__(self, plan: Plan, *, rm_id: str, gang: bool = False) -> None:
        self.plan = plan
        self.phase: Phase = "joining"
        self.jobs = {job.application_id: replace(job) for job in plan.jobs}
        self.allocations = 0
        self.end_s: dict[str, float] = {site.partition: 0.0 for site in plan.sites}
        """Partition to when its last job ended."""
        self.problems: list[str] = []
        """Problems that concern no job alone; the first `PROBLEMS_KEPT_MAX`."""
        self._sites = {normalise_partition_name(rm_id, site.partition): site for site in plan.sites}
        self._players = {
            site.partition: RmPlayer(
                self, partition=site.partition, nodes=_build_nodes(site, site.nodes), resubmits="preempted"
            )
            for site in plan.sites
        }
        self._unanswered = Counter({site.partition: site.nodes for site in plan.sites})
        """Nodes that a partition has not answered; no entry for a partition that has answered all."""
        self._source = iterate_submissions(plan.jobs, gang=gang)
        self._next = next(self._source, None)
        self._open = len(plan.jobs)
        """Jobs that are neither done nor failed."""

    # Time -----------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When something is due next, unless an answer arrives before."""
        if self.phase != "replaying":
            return NEVER
        submit_s = NEVER if self._next is None else self._next[0]
        return min(submit_s, *(player.deadline for player in self._players.values()))

    def due(self, now: float) -> Batch:
        """Return the updates to send now."""
        if self.phase == "replaying":
            self._submit_jobs(now)
        batch = Batch()
        for player in self._players.values():
            batch.extend(player.due(now))
        if self.phase == "replaying" and not self._open and batch == Batch():
            self.phase = "settling"
            for site in self.plan.sites:
                self._unanswered[site.partition] += 1
                batch.nodes += _build_nodes(site, 1)
        return batch

    def _submit_jobs(self, now: float) -> None:
        asks = 0
        while self._next is not None and self._next[0] <= now and asks < ASKS_IN_A_BATCH_MAX:
            submission = self._next[1]
            self._next = next(self._source, None)
            asks += len(submission.tasks)
            self.jobs[submission.application.application_id].state = "waiting"
            self._players[submission.application.partition_name].submit(submission)

    # Answers --------------------------------------------------------------------------------------------------------

    def receive(self, partition: str, news: Message, now: float) -> None:
        """Handle an answer from a partition (its normalised name)."""
        site = self._sites.get(partition)
        match news:
            case rm_messages.NodeResponse() if site:
                self._receive_nodes(site, news)
            case rm_messages.ApplicationResponse() | rm_messages.AllocationResponse() if site:
                self._players[site.partition].receive(news, now)
            case rm_messages.PartitionRestarted() if site:
                self._unanswered[site.partition] = site.nodes
                self._players[site.partition].receive(news, now)
            case rm_messages.Refused():
                self.note(f"{partition or 'core'}: message {news.seq} refused ({news.code}): {news.reason}")
            case rm_messages.SchedulingStateResponse() | rm_messages.Goodbye():
                pass  # the clusters do not grow; after a Goodbye the core returns, or the silence ends the replay
            case _:
                self.note(f"unexpected {type(news).__name__} from {partition!r}")

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

    def note(self, problem: str) -> None:
        """Keep a problem that concerns no job alone; the replay can no longer be complete."""
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(problem)

    @property
    def is_complete(self) -> bool:
        """Whether every job ran, everything was released, and every partition has confirmed it."""
        return self.phase == "over" and not any(self.find_missing())

    def find_missing(self) -> Iterator[str]:
        """Yield everything that prevents completion, by name: problems, jobs, partitions without an answer."""
        yield from self.problems
        for job in self.jobs.values():
            if job.state != "done":
                why = f": {job.problem}" if job.problem else ""
                yield f"{job.application_id} ({job.partition}, {job.queue}) {job.state}{why}"
        for partition, count in self._unanswered.items():
            yield f"{partition}: no answer about {count} nodes"

    # Jobs -----------------------------------------------------------------------------------------------------------

    def started(self, key: str, application_id: str, node_id: str, at: float) -> None:
        job = self.jobs[application_id]
        self.allocations += 1
        job.state = "running"
        job.node_id = job.node_id or node_id
        if key == task_name(key):
            job.start_s, job.wait_s = at, max(0.0, at - job.submit_s)

    def evicted(self, eviction: Eviction, at: float) -> None:
        job = self.jobs[eviction.application_id]
        if eviction.is_again:
            job.preemptions += 1
            job.lost_s += 0.0 if eviction.started is None else at - eviction.started
        else:
            job.problem = job.problem or f"allocation {eviction.key} ended by the core: {eviction.reason}"

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        job = self.jobs[application_id]
        if key:
            job.problem = f"ask {key} refused: {reason}"
        else:
            job.problem, job.is_refused = f"refused: {reason}", True

    def failed(self, application_id: str, reason: str, at: float) -> None:
        self.jobs[application_id].problem = f"ended by the core: {reason}"

    def removed(self, application_id: str, at: float) -> None:
        job = self.jobs[application_id]
        self._open -= 1
        self.end_s[job.partition] = job.end_s = at
        job.state = "failed" if job.problem else "done"


def iterate_submissions(jobs: Iterable[Job], *, gang: bool = False) -> Iterator[tuple[float, Submission]]:
    """Yield the time and the application of each job, with one ask for each task; with `gang` those of several
    processors as gangs. The placeholders are as large as the tasks.
    """
    for job in jobs:
        is_gang = gang and job.processors > 1
        new = application(
            job.application_id,
            job.leaf,
            user=job.user,
            groups=[job.group],
            partition=job.partition,
            tags={"group": job.group, "namespace": job.group},
            gang=_build_resources(job.processors, memory=job.memory * job.processors) if is_gang else None,
        )
        tasks = tuple(
            Task(_build_ask(job, key, processors, is_gang=is_gang), job.run_s)
            for key, processors in job.split_tasks().items()
        )
        placeholders = tuple(
            structs.replace(task.ask, allocation_key=f"{task.ask.allocation_key}.placeholder", placeholder=True)
            for task in (tasks if is_gang else ())
        )
        yield job.submit_s, Submission(new, tasks, placeholders)


def _build_nodes(site: Site, count: int) -> list[rm_messages.NodeInfo]:
    """Build the first nodes of a site."""
    capacity = _build_resources(site.node_processors, memory=site.node_memory)
    return [node(f"node-{number}", capacity, partition=site.partition) for number in range(1, count + 1)]


def _build_ask(job: Job, key: str, processors: int, *, is_gang: bool) -> rm_messages.Allocation:
    return ask(
        key,
        job.application_id,
        _build_resources(processors, memory=job.memory * processors),
        partition=job.partition,
        task_group=f"{processors}-processors" if is_gang else "",
    )


def _build_resources(processors: int, *, memory: int) -> Resources:
    return {"vcore": processors * 1000, "memory": memory} if memory else {"vcore": processors * 1000}
