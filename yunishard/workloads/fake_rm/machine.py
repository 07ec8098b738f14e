"""The fake RM's decisions: what to send next, and what each answer means. A machine without clock or socket.

It does what an RM does: it reports nodes, submits applications with their asks, lets each allocation run for its time,
then releases it; the core completes an application after its last task. It confirms the releases that the core
requests: of preempted tasks, which ask again, and of placeholders. A gang asks for its tasks once all its placeholders
have a node, or once the core has given up on them. A partition that lost its state gets a full report.

Not here: waiting and sending (`run.py`), what is submitted (`workload.py`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Literal

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Message, Resources
from yunishard.common.messages.wire import NEVER
from yunishard.common.names import NODE_PARTITION, normalise_partition_name
from yunishard.common.rest.plan import RUN_TIME_TAG
from yunishard.common.rm_player import Batch
from yunishard.common.simulated_nodes import build_simulated_nodes
from yunishard.sdk.items import ApplicationState, application, ask, release, removal
from yunishard.workloads.fake_rm.workload import Submission, Workload

OPEN_IN_QUEUE_MAX: Final = 50
"""Applications of one queue that have not ended; more if the load needs more. Another one is not submitted, so that a
queue that is too small for the load does not grow for ever."""

OPEN_FACTOR: Final = 4
"""Applications that have not ended in all queues, as a multiple of those of which all tasks run on average. An
application lasts until its longest task ends, which takes about two and a half times the mean, and some wait."""

BURST_MAX: Final = 200
"""Applications that are submitted at the start; with a higher load, the rest of it comes with time."""

GANG_TIMEOUT_S: Final = 120
"""Seconds after which a gang that did not get all its placeholders asks for its tasks one by one."""

ENDED: Final = frozenset({ApplicationState.COMPLETED, ApplicationState.FAILED, ApplicationState.EXPIRED})
"""States in which the core has ended an application: an operator has killed it, for example."""

GANG_READY: Final = frozenset({ApplicationState.RUNNING, ApplicationState.RESUMING})

_TO_CONFIRM: Final = (rm_messages.TIMEOUT, rm_messages.PREEMPTED_BY_SCHEDULER, rm_messages.PLACEHOLDER_REPLACED)
_POLICY: Final = rm_messages.PreemptionPolicy(allow_preempt_self=True, allow_preempt_other=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeNodes:
    """The nodes of each partition, all alike."""

    partitions: tuple[str, ...]
    """As the configuration names them."""
    names: tuple[str, ...]
    """Empty if the partitions have nodes without a report, see `common/simulated_nodes.py`."""
    resources: Resources


@dataclass(slots=True)
class _Application:
    submission: Submission
    left: int
    """Tasks that have not ended."""
    is_gang_waiting: bool


@dataclass(slots=True)
class _Task:
    application: _Application
    run_s: float
    state: Literal["waiting", "running", "released"] = "waiting"
    node_id: str = ""
    is_placeholder: bool = False
    attempt: int = 1


@dataclass(slots=True)
class Counts:
    """Events since the start."""

    submitted: int = 0
    completed: int = 0
    rejected: int = 0
    ended_by_core: int = 0
    held_back: int = 0
    """Applications that were not submitted because of `OPEN_IN_QUEUE_MAX`."""
    preempted: int = 0
    """Tasks."""


class FakeRM:
    """A resource manager. Call `due` when `deadline` has passed or an answer was received, and send the batch."""

    def __init__(self, nodes: FakeNodes, workload: Workload, *, rm_id: str) -> None:
        self.counts = Counts()
        self.problem = ""
        """The latest refusal; cleared by the driver."""
        self._nodes = nodes
        self._workload = workload
        self._partitions = {normalise_partition_name(rm_id, name): name for name in nodes.partitions}
        self._applications: dict[str, _Application] = {}
        """All and only applications with tasks that have not ended."""
        self._open = Counter[tuple[str, str]]()
        """Applications that have not ended, by partition and queue."""
        self._tasks: dict[str, _Task] = {}
        self._ends: list[tuple[float, str]] = []
        """A heap of the end times of running tasks; entries of other tasks are skipped."""
        self._open_max = max(OPEN_IN_QUEUE_MAX, OPEN_FACTOR * workload.mean_running // workload.queue_count)
        self._next_at = 0.0 if workload.rate else NEVER
        self._is_begun = False
        self._batch = Batch()
        for name in nodes.partitions:
            self._send_nodes(name)

    def begin_session(self) -> None:
        """Send everything to partitions that are empty, because the core has dropped the session before."""
        self._batch = Batch()
        for name in self._nodes.partitions:
            self._send_everything(name)

    @property
    def deadline(self) -> float:
        """When something is due next, unless an answer arrives before."""
        return min(self._next_at, self._ends[0][0] if self._ends else NEVER)

    @property
    def tasks_by_state(self) -> Counter[str]:
        """Number of tasks by state, without placeholders."""
        return Counter(task.state for task in self._tasks.values() if not task.is_placeholder)

    @property
    def rate(self) -> float:
        """Applications a minute."""
        return self._workload.rate

    @property
    def applications_open(self) -> int:
        return len(self._applications)

    def due(self, now: float) -> Batch:
        """Return the updates to send now."""
        while self._ends and self._ends[0][0] <= now:
            _, key = heappop(self._ends)
            task = self._tasks.get(key)
            if task is not None and task.state == "running":
                task.state = "released"
                self._batch.releases.append(self._build_release(key, task, rm_messages.STOPPED_BY_RM))
        if not self._is_begun:  # with about as many applications as run later on
            self._is_begun = True
            for _ in range(min(self._workload.mean_running, BURST_MAX)):
                self._submit(self._workload.draw_submission())
        while self._next_at <= now:
            self._submit(self._workload.draw_submission())
            # from `now` at the start and after a pause of the program: it does not catch up
            late = now - self._next_at > 1
            self._next_at = (now if late else self._next_at) + self._workload.draw_pause()
        batch, self._batch = self._batch, Batch()
        return batch

    # Answers --------------------------------------------------------------------------------------------------------

    def receive(self, partition: str, news: Message, now: float) -> None:
        """Handle an answer from a partition (its normalised name)."""
        match news:
            case rm_messages.AllocationResponse():
                self._receive_allocations(news, now)
            case rm_messages.ApplicationResponse():
                for refused in news.rejected:
                    self.counts.rejected += self._drop(refused.application_id)
                    self.problem = f"application {refused.application_id} refused: {refused.reason}"
                for updated in news.updated:
                    self._receive_state(updated.application_id, updated.state)
            case rm_messages.NodeResponse(rejected=[first, *_]):
                self.problem = f"node {first.node_id} refused: {first.reason}"
            case rm_messages.PartitionRestarted() if partition in self._partitions:
                self._report_again(self._partitions[partition])
            case rm_messages.Refused():
                self.problem = f"message {news.seq} refused ({news.code}): {news.reason}"

    def _receive_allocations(self, news: rm_messages.AllocationResponse, now: float) -> None:
        for allocation in news.new:
            key = allocation.allocation_key
            task = self._tasks.get(key)
            if task is not None and task.state == "waiting":
                task.state, task.node_id = "running", allocation.node_id
                if not task.is_placeholder:
                    heappush(self._ends, (now + task.run_s, key))
        for released in news.released:
            self._receive_release(released)
        for refused in news.rejected_allocations:
            task = self._tasks.get(refused.allocation_key)
            if task is None:
                continue  # of an application that was refused
            self.problem = f"ask {refused.allocation_key} refused: {refused.reason}"
            if task.is_placeholder:
                self._send_tasks(task.application)
            self._end_task(refused.allocation_key)

    def _receive_release(self, released: rm_messages.AllocationRelease) -> None:
        key, kind = released.allocation_key, int(released.termination_type)
        task = self._tasks.get(key)
        if task is None:
            return
        if kind in _TO_CONFIRM:
            self._batch.releases.append(self._build_release(key, task, kind))
        if kind == rm_messages.PREEMPTED_BY_SCHEDULER and task.state == "running":
            self.counts.preempted += 1
            if not task.is_placeholder:
                task.application.left += 1  # the preempted attempt ends below
                again = _Task(task.application, task.run_s, attempt=task.attempt + 1)
                self._ask_for(f"{key.partition('~')[0]}~{again.attempt}", again)
        self._end_task(key)

    def _receive_state(self, application_id: str, state: str) -> None:
        found = self._applications.get(application_id)
        if found is not None and state in GANG_READY:
            self._send_tasks(found)
        elif found is not None and state in ENDED:
            self.counts.ended_by_core += self._drop(application_id)
            self._batch.removals.append(removal(application_id, partition=found.submission.partition))

    # Private --------------------------------------------------------------------------------------------------------

    def _submit(self, new: Submission) -> None:
        if self._open[new.partition, new.queue] >= self._open_max:
            self.counts.held_back += 1
            return
        self.counts.submitted += 1
        self._open[new.partition, new.queue] += 1
        found = _Application(new, left=len(new.runs_s), is_gang_waiting=new.is_gang)
        self._applications[new.application_id] = found
        self._batch.applications.append(_build_application(new))
        if new.is_gang:
            for number in range(len(new.runs_s)):
                self._ask_for(f"{new.application_id}.{number + 1}.placeholder", _Task(found, 0.0, is_placeholder=True))
        else:
            self._send_all(found)

    def _send_tasks(self, found: _Application) -> None:
        """Send the asks of a gang for its tasks, unless they were sent before."""
        if found.is_gang_waiting:
            found.is_gang_waiting = False
            self._send_all(found)

    def _send_all(self, found: _Application) -> None:
        for number, run_s in enumerate(found.submission.runs_s, start=1):
            self._ask_for(f"{found.submission.application_id}.{number}", _Task(found, run_s))

    def _ask_for(self, key: str, task: _Task) -> None:
        self._tasks[key] = task
        self._batch.asks.append(_build_ask(key, task))

    def _build_release(self, key: str, task: _Task, kind: int) -> rm_messages.AllocationRelease:
        owner = task.application.submission
        return release(owner.application_id, key, partition=owner.partition, termination_type=kind)

    def _end_task(self, key: str) -> None:
        """Remove a task. The core completes an application without tasks by itself, after a while."""
        task = self._tasks.pop(key, None)
        if task is None or task.is_placeholder:
            return
        owner = task.application
        owner.left -= 1
        if not owner.left:
            self.counts.completed += self._drop(owner.submission.application_id)

    def _drop(self, application_id: str) -> bool:
        """Remove everything of an application here; whether it was there."""
        found = self._applications.pop(application_id, None)
        if found is None:
            return False
        place = (found.submission.partition, found.submission.queue)
        self._open[place] -= 1
        for key in [key for key, task in self._iterate_tasks(found)]:
            del self._tasks[key]
        return True

    def _iterate_tasks(self, owner: _Application) -> Iterator[tuple[str, _Task]]:
        return ((key, task) for key, task in self._tasks.items() if task.application is owner)

    def _report_again(self, partition: str) -> None:
        """Report everything to a partition that lost its state. If it loses its state again before the report was sent,
        one report is enough.
        """
        if partition in self._batch.reports:
            return
        self._discard_updates(partition)
        self._batch.reports.append(partition)
        self._send_everything(partition)

    def _send_everything(self, partition: str) -> None:
        mine = {key: task for key, task in self._tasks.items() if task.application.submission.partition == partition}
        for key, task in mine.items():
            if task.state == "released":
                self._end_task(key)
        self._send_nodes(partition)
        for found in self._applications.values():
            if found.submission.partition == partition:
                self._batch.applications.append(_build_application(found.submission))
        self._batch.asks += [_build_ask(key, task) for key, task in mine.items() if key in self._tasks]

    def _discard_updates(self, partition: str) -> None:
        """Discard what is to be sent to a partition, as the report replaces it."""
        batch = self._batch
        batch.nodes = [one for one in batch.nodes if one.attributes[NODE_PARTITION] != partition]
        batch.applications = [one for one in batch.applications if one.partition_name != partition]
        batch.removals = [one for one in batch.removals if one.partition_name != partition]
        batch.asks = [one for one in batch.asks if one.partition_name != partition]
        batch.releases = [one for one in batch.releases if one.partition_name != partition]

    def _send_nodes(self, partition: str) -> None:
        self._batch.nodes += build_simulated_nodes(self._nodes.names, self._nodes.resources, partition=partition)


def _build_application(new: Submission) -> rm_messages.AddApplicationRequest:
    total = {kind: amount * len(new.runs_s) for kind, amount in new.resources.items()}
    return application(
        new.application_id,
        new.queue,
        user=new.user,
        groups=[new.group],
        partition=new.partition,
        tags={"namespace": new.group},
        gang=total if new.is_gang else None,
        gang_timeout_s=GANG_TIMEOUT_S if new.is_gang else 0,
    )


def _build_ask(key: str, task: _Task) -> rm_messages.Allocation:
    new = task.application.submission
    return ask(
        key,
        new.application_id,
        new.resources,
        partition=new.partition,
        priority=new.priority,
        node_id=task.node_id,
        tags={} if task.is_placeholder else {RUN_TIME_TAG: f"{task.run_s:.3f}s"},  # plans end it then
        preemption=_POLICY,
        task_group="tasks" if new.is_gang else "",
        placeholder=task.is_placeholder,
    )
