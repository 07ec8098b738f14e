"""Play a resource manager: what it sends next, and what each answer of a partition means. No clock, no socket.

`RmPlayer` is the RM of one partition. It runs whatever is submitted to it:

    player = RmPlayer(observer)
    player.submit(Submission(application, tasks=(Task(ask, run_s=600.0),)))
    send(player.due(now))  # at `player.deadline`, and after each answer
    player.receive(answer, now)

It does what a real RM does: it ends a task after its run time, confirms the releases that the core requests after
`termination_delay_s`, asks again for what was evicted, submits the tasks of a gang once its placeholders have nodes or
the core gave up on them, withdraws what an application that failed waits for, removes an application whose last task
has ended, and reports everything again to a partition that lost its state.

Events of the same time are in this order: what ends, removals, inputs; each in the order in which they were scheduled.

`partition_worker/virtual_time.py` plays it in virtual time, `yunishard replay` and `yunishard fake-rm` through a
session with a running system. Not here: where applications come from and what is recorded of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Message, Part, Resources
from yunishard.common.messages.wire import NEVER

Resubmits = Literal["all", "preempted", "none"]
"""Which of the tasks that the core ended are asked for again."""

_CONFIRMED: Final = (rm_messages.TIMEOUT, rm_messages.PREEMPTED_BY_SCHEDULER, rm_messages.PLACEHOLDER_REPLACED)
"""Releases that the core requests, and that take effect once the RM confirms them."""

_GANG_READY: Final = frozenset({"Running", "Resuming"})
"""States of a gang in which it asks for its tasks: all placeholders have nodes, or some did not get one in time."""

_FAILED: Final = frozenset({"Failing", "Failed"})

ENDS: Final = 0
REMOVALS: Final = 1
INPUTS: Final = 2
"""Order of the events of the same time."""


class Task(NamedTuple):
    """An ask of an application, and for how many seconds it runs; None if it never ends."""

    ask: rm_messages.Allocation
    run_s: float | None


class Submission(NamedTuple):
    """An application with all its tasks. With placeholders it is a gang, whose tasks are submitted later."""

    application: rm_messages.AddApplicationRequest
    tasks: tuple[Task, ...]
    placeholders: tuple[rm_messages.Allocation, ...] = ()
    stays: bool = False
    """Whether the application stays after its last task, until `schedule_removal`."""


class Eviction(NamedTuple):
    """A running task that the core ended."""

    key: str
    application_id: str
    node_id: str
    started: float | None
    """When it got its node; None if it ran before the player began."""
    by: str
    """The key of the ask that needed the room; empty if there is none or it is unknown."""
    by_queue: str
    """The path of that ask's queue, or of the queue whose quota was enforced; empty likewise."""
    reason: str
    is_again: bool
    """Whether the RM asks for it again."""


class Observer:
    """Receives what happens to applications and tasks; override what is of interest. Times are those of the player.

    Placeholders are left out, except for what `note_usage` receives.
    """

    __slots__ = ()

    def accepted(self, application_id: str, queue: str, at: float) -> None:
        """An application was placed in a queue; its path is empty if it is unknown."""

    def started(self, key: str, application_id: str, node_id: str, at: float) -> None:
        """A task got its node."""

    def ended(self, key: str, application_id: str, at: float) -> None:
        """A task ran to its end."""

    def evicted(self, eviction: Eviction, at: float) -> None:
        """The core ended a task, by preemption or otherwise. If the RM asks for it again, the key gets a suffix `~2`,
        `~3` and so on; `task_name` returns the key without it.
        """

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        """An application (empty key) or an ask was refused, or the core withdrew an ask."""

    def failed(self, application_id: str, reason: str, at: float) -> None:
        """The core ended an application: a hard gang found no room, or an operator killed it. The default is to treat
        it like one that was refused.
        """
        self.rejected(application_id, "", reason, at)

    def removed(self, application_id: str, at: float) -> None:
        """An application is over: its last task has ended, or it was refused."""

    def note_usage(self, application_id: str, resources: Resources, at: float, *, used: int, pending: int) -> None:
        """An ask of these amounts got or left a node (`used` is 1 or -1), or began or ceased to wait (`pending`)."""


def task_name(key: str) -> str:
    """Return the key under which a task was asked for first."""
    return _split_key(key)[0]


def _split_key(key: str) -> tuple[str, int]:
    """Split the key of a task that was asked for again: `a~2` is `a` and 2. Any other `~` is part of the RM's key."""
    name, _, number = key.rpartition("~")
    if name and number.isascii() and number.isdecimal():
        return name, int(number)
    return key, 1


@dataclass(slots=True, eq=False)
class PlayedTask:
    """A task or placeholder that was asked for and has not ended."""

    ask: rm_messages.Allocation
    run_s: float | None = None
    node_id: str = ""
    started: float | None = None
    is_released: bool = False
    """Whether the core requested its release, which is to be confirmed."""


@dataclass(slots=True, eq=False)
class PlayedApplication:
    """An application that has not ended."""

    request: rm_messages.AddApplicationRequest
    left: int = 0
    """Tasks that have not ended; placeholders do not count."""
    keys: dict[str, None] = field(default_factory=dict)
    """Its entries of `RmPlayer.tasks`."""
    later: tuple[Task, ...] = ()
    """The tasks of a gang that has not asked for them yet."""
    is_refused: bool = False
    is_failing: bool = False
    """Whether it was refused or has failed: nothing is asked for again."""


@dataclass(slots=True)
class Batch:
    """Updates to send, in this order."""

    reports: list[str] = field(default_factory=list)
    """Partitions that lost their state: the updates to them are a full report."""
    nodes: list[rm_messages.NodeInfo] = field(default_factory=list)
    applications: list[rm_messages.AddApplicationRequest] = field(default_factory=list)
    asks: list[rm_messages.Allocation] = field(default_factory=list)
    releases: list[rm_messages.AllocationRelease] = field(default_factory=list)
    removals: list[rm_messages.RemoveApplicationRequest] = field(default_factory=list)
    """Last, as they would take allocations away that are released properly."""

    def extend(self, other: "Batch") -> None:
        """Append the updates of another partition."""
        self.reports += other.reports
        self.nodes += other.nodes
        self.applications += other.applications
        self.asks += other.asks
        self.releases += other.releases
        self.removals += other.removals


class RmPlayer:
    """The RM of one partition."""

    def __init__(
        self,
        observer: Observer,
        *,
        partition: str = "",
        nodes: Iterable[rm_messages.NodeInfo] = (),
        now: float = 0.0,
        termination_delay_s: float = 0.0,
        resubmits: Resubmits = "all",
        removes: bool = True,
    ) -> None:
        """`partition` is the name in messages. With `removes` the RM removes each application after its last task;
        otherwise only those that failed, as the core completes the others by itself, after a while.
        """
        self.observer = observer
        self.partition_name = partition
        self.nodes = tuple(nodes)
        self.now = now
        """The time of the latest call."""
        self.termination_delay_s = termination_delay_s
        self.resubmits = resubmits
        self.removes = removes
        self.batch = Batch(nodes=list(self.nodes))
        """The updates to send."""
        self.tasks: dict[str, PlayedTask] = {}
        """Tasks and placeholders that were asked for and have not ended, by allocation key."""
        self.applications: dict[str, PlayedApplication] = {}
        """By id."""
        self.preemptors: dict[str, tuple[str, str]] = {}
        """`Eviction.by` and `by_queue` of the victims in the next answer, by allocation key, as far as known."""
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        """A heap by time, order, and number."""
        self._number = 0
        self._reports = 0
        """How often everything was sent to a partition without state."""

    # Time -------------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """When something is due next, unless an answer arrives before."""
        return self._events[0][0] if self._events else NEVER

    def due(self, now: float) -> Batch:
        """Carry out what is due, and return the updates to send now."""
        self.now = now
        while self.deadline <= now:
            self.play_next()
        batch, self.batch = self.batch, Batch()
        return batch

    def play_next(self) -> None:
        """Carry out the next event."""
        _, _, _, action = heappop(self._events)
        action()

    def call_at(self, at: float, order: int, action: Callable[[], None]) -> None:
        """Schedule an event, now or later; `order` is among those of the same time."""
        self._number += 1
        heappush(self._events, (max(at, self.now), order, self._number, action))

    # Inputs -----------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> None:
        """Submit an application, and ask for its placeholders or tasks."""
        request, tasks, placeholders, stays = submission
        self.batch.applications.append(request)
        application = PlayedApplication(request, len(tasks) + stays, later=tasks if placeholders else ())
        self.applications[request.application_id] = application
        for ask in placeholders:
            self._ask(PlayedTask(ask))
        for task in () if placeholders else tasks:
            self._ask(PlayedTask(*task))

    def schedule_task(self, at: float, task: Task) -> None:
        """Ask for a further task of an application, which has to stay until then."""
        self.call_at(at, INPUTS, partial(self._add, task))

    def schedule_removal(self, at: float, application_id: str) -> None:
        """Remove an application that stays: at this time, or when its last task has ended."""
        self.call_at(at, REMOVALS, partial(self._close, application_id))

    def end_at(self, key: str, at: float) -> None:
        """Let a running task end at a time: one that ran already when the player began."""
        self.call_at(at, ENDS, partial(self._end, key))

    def set_run_time(self, key: str, run_s: float | None) -> None:
        """Set the run time of an ask that the partition had when the player began; of one that ran already, that of
        the ask that follows an eviction.
        """
        self.tasks[key].run_s = run_s

    def keep(self, application_id: str) -> None:
        """Let an application that the partition had when the player began stay until `schedule_removal`."""
        application = self.applications.get(application_id)
        if application is not None:
            application.left += 1

    def adopt(self, task: PlayedTask) -> None:
        """Take over an ask or allocation that the partition had when the player began; its application is known."""
        self._track(task)
        self.applications[task.ask.application_id].left += not task.ask.placeholder

    def send_everything(self) -> None:
        """Send all nodes, applications, asks and allocations, and nothing else, to a partition without state."""
        self._reports += 1
        asks = [
            replace(task.ask, node_id=task.node_id) if task.node_id else task.ask
            for task in self.tasks.values()
            if not task.is_released
        ]
        self.batch = Batch(
            nodes=list(self.nodes),
            applications=[one.request for one in self.applications.values() if one.left > 0],
            asks=asks,
        )

    def _add(self, task: Task) -> None:
        application = self.applications.get(task.ask.application_id)
        if application is not None:
            application.left += not task.ask.placeholder
        self._ask(PlayedTask(*task))

    def _ask(self, task: PlayedTask) -> None:
        self._track(task)
        self.batch.asks.append(task.ask)

    def _track(self, task: PlayedTask) -> None:
        self.tasks[task.ask.allocation_key] = task
        application = self.applications.get(task.ask.application_id)
        if application is not None:
            application.keys[task.ask.allocation_key] = None
        self._note_usage(task, used=bool(task.node_id), pending=not task.node_id)

    def _forget(self, key: str) -> PlayedTask | None:
        """Remove and return a task or placeholder that has ended; None if there is no such one."""
        task = self.tasks.pop(key, None)
        if task is None:
            return None
        application = self.applications.get(task.ask.application_id)
        if application is not None:
            application.keys.pop(key, None)
        self._note_usage(task, used=-bool(task.node_id), pending=-(not task.node_id))
        return task

    def _note_usage(self, task: PlayedTask, *, used: int = 0, pending: int = 0) -> None:
        ask = task.ask
        self.observer.note_usage(ask.application_id, ask.resource_per_alloc, self.now, used=used, pending=pending)

    # Ends -------------------------------------------------------------------------------------------------------------

    def _submit_gang(self, application_id: str) -> None:
        """Ask for the tasks of a gang, unless it was done before."""
        application = self.applications.get(application_id)
        if application is None:
            return
        for task in application.later:
            self.call_at(self.now, INPUTS, partial(self._ask, PlayedTask(*task)))
        application.later = ()

    def _end(self, key: str) -> None:
        """A task has run to its end, unless it was evicted before."""
        task = self._forget(key)
        if task is None:
            return
        self.batch.releases.append(_build_release(task.ask, rm_messages.STOPPED_BY_RM))
        self.observer.ended(key, task.ask.application_id, self.now)
        self._close(task.ask.application_id)

    def _close(self, application_id: str) -> None:
        """Count an ended task of an application, and remove the application after the last one."""
        application = self.applications.get(application_id)
        if application is not None:
            application.left -= 1
            if application.left <= 0:
                self.call_at(self.now, REMOVALS, partial(self._remove, application_id))

    def _remove(self, application_id: str) -> None:
        """Remove an application without tasks; its placeholders go with it."""
        application = self.applications.get(application_id)
        if application is None or application.left > 0:
            return
        for key in tuple(application.keys):
            self._forget(key)
        del self.applications[application_id]
        if (self.removes or application.is_failing) and not application.is_refused:
            partition = application.request.partition_name
            removal = rm_messages.RemoveApplicationRequest(application_id=application_id, partition_name=partition)
            self.batch.removals.append(removal)
        self.observer.removed(application_id, self.now)

    # Answers ----------------------------------------------------------------------------------------------------------

    def receive(self, message: Message, now: float) -> None:
        """Handle an answer of the partition; those about nodes and messages are the driver's."""
        self.now = now
        match message:
            case rm_messages.AllocationResponse(new=new, released=released, rejected_allocations=rejected):
                parts: tuple[Part, ...] = (*new, *released, *rejected)
            case rm_messages.ApplicationResponse(accepted=accepted, rejected=rejected, updated=updated):
                parts = (*accepted, *rejected, *updated)
            case rm_messages.PartitionRestarted():
                self.send_everything()
                self.batch.reports = [self.partition_name]
                return
            case _:
                return
        for part in parts:
            self.receive_part(part)

    def receive_part(self, part: object) -> None:
        """Handle a part of an answer."""
        match part:
            case rm_messages.Allocation():
                self._start(part)
            case rm_messages.AllocationRelease():
                self._release(part)
            case rm_messages.AcceptedApplication(application_id=name):
                self.observer.accepted(name, self.find_queue(name), self.now)
            case rm_messages.UpdatedApplication(application_id=name, state=state, message=message):
                if state in _GANG_READY:
                    self._submit_gang(name)
                elif state in _FAILED:
                    self._fail(name, message)
            case rm_messages.RejectedApplication(application_id=name, reason=reason):
                self._fail(name, reason, is_refused=True)
            case rm_messages.RejectedAllocation(allocation_key=key, application_id=name, reason=reason):
                task = self._forget(key)
                if task is not None and task.ask.placeholder:
                    self._submit_gang(task.ask.application_id)  # as ordinary asks
                elif task is not None:
                    self.observer.rejected(task.ask.application_id, key, reason, self.now)
                    self._close(task.ask.application_id)

    def find_queue(self, application_id: str) -> str:
        """Return the path of the queue in which an application was placed; empty if it is unknown."""
        return ""

    def _start(self, allocation: rm_messages.Allocation) -> None:
        key = allocation.allocation_key
        task = self.tasks.get(key)
        if task is None or task.node_id:
            return
        task.node_id, task.started = allocation.node_id, self.now
        self._note_usage(task, used=1, pending=-1)
        if task.ask.placeholder:
            return
        self.observer.started(key, task.ask.application_id, allocation.node_id, self.now)
        if task.run_s is not None:
            self.call_at(self.now + task.run_s, ENDS, partial(self._end, key))

    def _release(self, released: rm_messages.AllocationRelease) -> None:
        key, kind = released.allocation_key, int(released.termination_type)
        task = self.tasks.get(key)
        if task is None:
            return  # the answer to a release of the RM
        application_id = task.ask.application_id
        if not task.node_id:
            self._forget(key)
            if not task.ask.placeholder:
                self.observer.rejected(application_id, key, released.message, self.now)
                self._close(application_id)
        elif not task.ask.placeholder:
            self._evict(task, released, confirms=kind in _CONFIRMED)
        elif kind in _CONFIRMED:
            self._confirm(task, kind)
        else:
            self._forget(key)

    def _evict(self, task: PlayedTask, released: rm_messages.AllocationRelease, *, confirms: bool) -> None:
        """The core ended a running task: confirm it if the core waits for that, and ask for it again."""
        key, application_id = task.ask.allocation_key, task.ask.application_id
        application = self.applications.get(application_id)
        again = None
        is_again = self.resubmits == "all" or (self.resubmits == "preempted" and confirms)
        if is_again and application is not None and not application.is_failing:
            name, number = _split_key(key)
            number += 1
            while f"{name}~{number}" in self.tasks:  # the RM has such an ask already
                number += 1
            again = PlayedTask(replace(task.ask, allocation_key=f"{name}~{number}"), task.run_s)
        by, by_queue = self.preemptors.get(key, ("", ""))
        eviction = Eviction(
            key, application_id, task.node_id, task.started, by, by_queue, released.message, again is not None
        )
        self.observer.evicted(eviction, self.now)
        self._forget(key)
        if confirms:
            self._confirm(task, rm_messages.PREEMPTED_BY_SCHEDULER, again)
        elif again is not None:
            self.call_at(self.now, INPUTS, partial(self._ask, again))
        if again is None:
            self._close(application_id)

    def _confirm(self, task: PlayedTask, kind: int, again: PlayedTask | None = None) -> None:
        """Confirm a release after the termination delay, together with the ask that follows it. A partition that has
        lost its state since then has nothing to release.
        """
        reports = self._reports

        def confirm() -> None:
            self._forget(task.ask.allocation_key)
            if again is not None:
                self._ask(again)
            if reports == self._reports:
                self.batch.releases.append(_build_release(task.ask, kind))

        task.is_released = True
        self.call_at(self.now + self.termination_delay_s, ENDS, confirm)

    def _fail(self, application_id: str, reason: str, *, is_refused: bool = False) -> None:
        """An application was refused or failed: what it waits for is withdrawn."""
        application = self.applications.get(application_id)
        if application is None:
            return
        application.later = ()
        application.is_failing, application.is_refused = True, application.is_refused or is_refused
        for key in [key for key in application.keys if not self.tasks[key].node_id]:
            self._forget(key)
        if is_refused:
            self.observer.rejected(application_id, "", reason, self.now)
        else:
            self.observer.failed(application_id, reason, self.now)
        application.left = 1 + sum(not self.tasks[key].ask.placeholder for key in application.keys)
        self._close(application_id)


def _build_release(ask: rm_messages.Allocation, kind: int) -> rm_messages.AllocationRelease:
    return rm_messages.AllocationRelease(
        application_id=ask.application_id,
        allocation_key=ask.allocation_key,
        partition_name=ask.partition_name,
        termination_type=kind,
    )
