"""Play the RM of one partition in virtual time: no clock, no waiting, the same input gives the same schedule.

`VirtualTime` wraps a partition, new (`yunishard simulate`) or copied from a live one (`yunishard plan`), and is its RM:

    time = VirtualTime(partition, observer, now=0.0)
    time.schedule(0.0, lambda: NodeRequest(nodes=[...]))
    time.schedule(60.0, lambda: Submission(application, tasks=(Task(ask, run_s=600.0),)))
    time.run()

An input is built when it is due, so that a long trace needs little memory. At each time, what ends comes first, then
the inputs in the order in which they were scheduled; then the partition decides until it has nothing more to decide.
The time then moves to the next event or timer of the partition. Decisions take no time.

The RM does what a real one does: it ends a task after its run time, confirms the releases that the core requests after
`termination_delay_s`, asks again for what was evicted, submits the tasks of a gang once its placeholders have nodes,
and removes an application whose last task has ended.

Not here: where applications come from and what is recorded of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from yunishard.common.messages import rm_messages
from yunishard.common.messages.control_messages import GroupsFound, GroupsWanted
from yunishard.common.messages.kinds import Command, Resources
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.durable_records import PreemptionRecord
from yunishard.partition_worker.engine.effects import Effect, Part
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.state import Changes

BUDGET: Final = 512
"""Decisions of one step, as in a worker."""

QUIET_S: Final = 86_400.0
"""Virtual seconds without an input or the end of a task, after which `run` ends if it has no other limit. Asks that
still wait then would wait for ever; the partition tries them again every few seconds.
"""

_NOT_DUE: Final = 1e300
"""Later than any time, but not NEVER: the partition does not report outstanding asks, as the cluster does not grow."""

_CONFIRMED: Final = (rm_messages.TIMEOUT, rm_messages.PREEMPTED_BY_SCHEDULER, rm_messages.PLACEHOLDER_REPLACED)
"""Releases that the core requests, and that take effect once the RM confirms them."""

_GANG_READY: Final = frozenset({"Running", "Resuming"})
"""States of a gang in which it asks for its tasks: all placeholders have nodes, or some did not get one in time."""

_ENDS: Final = 0
_REMOVALS: Final = 1
_INPUTS: Final = 2
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
    """When it got its node; None if it ran before `VirtualTime` began."""
    by: str
    """The key of the ask that needed the room; empty if there is none."""
    by_queue: str
    """The path of that ask's queue, or of the queue whose quota was enforced; empty if there is none."""
    reason: str
    is_again: bool
    """Whether the RM asks for it again."""


class Observer(Protocol):
    """Receives what happens to applications and tasks; placeholders are left out. Times are those of `VirtualTime`."""

    def accepted(self, application_id: str, queue: str, at: float) -> None:
        """An application was placed in a queue."""

    def started(self, key: str, application_id: str, node_id: str, at: float) -> None:
        """A task got its node."""

    def ended(self, key: str, application_id: str, at: float) -> None:
        """A task ran to its end."""

    def evicted(self, eviction: Eviction, at: float) -> None:
        """The core ended a task, by preemption or otherwise. If the RM asks for it again, the key gets a suffix `~2`,
        `~3` and so on; `task_name` returns the key without it.
        """

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        """An application (empty key) or an ask was refused, or withdrawn because its application failed."""

    def removed(self, application_id: str, at: float) -> None:
        """An application has ended, as its last task has."""


class UsageObserver(Protocol):
    """Receives what applications use and wait for; placeholders count."""

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
class _Running:
    """A task or placeholder that was asked for and has not ended."""

    ask: rm_messages.Allocation
    run_s: float | None = None
    node_id: str = ""
    started: float | None = None


@dataclass(slots=True, eq=False)
class _Application:
    """An application that has not ended."""

    left: int = 0
    """Tasks that have not ended; placeholders do not count."""
    keys: dict[str, None] = field(default_factory=dict)
    """Its entries of `VirtualTime.tasks`."""
    later: tuple[Task, ...] = ()
    """The tasks of a gang that has not asked for them yet."""


@dataclass(slots=True)
class _Batch:
    """Messages that the RM sends at one time."""

    applications: list[rm_messages.AddApplicationRequest] = field(default_factory=list)
    asks: list[rm_messages.Allocation] = field(default_factory=list)


class VirtualTime:
    """The RM of a partition, and its clock."""

    def __init__(
        self,
        partition: Partition,
        observer: Observer,
        *,
        now: float,
        termination_delay_s: float = 0.0,
        resubmits: bool = True,
        usage: UsageObserver | None = None,
    ) -> None:
        """`now` is the Unix time at which to begin, at least that of the partition. With `resubmits` the RM asks again
        for evicted tasks. `usage` receives changes of asks that are submitted here.
        """
        self.partition = partition
        self.now = now
        self.observer = observer
        self.termination_delay_s = termination_delay_s
        self.resubmits = resubmits
        self._usage: UsageObserver | None = None
        self.tasks: dict[str, _Running] = {}
        """Tasks and placeholders that were asked for and have not ended, by allocation key."""
        self._applications: dict[str, _Application] = {}
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        """A heap by time, order, and number."""
        self._number = 0
        self._batch = _Batch()
        self._victims: dict[str, PreemptionRecord] = {}
        partition.tracking = False
        partition.outstanding.deadline = _NOT_DUE
        for application in partition.applications.values():
            self._applications[application.application_id] = _Application()
        for known in partition.allocations.values():
            self._adopt(known)
        self._usage = usage

    # Inputs -----------------------------------------------------------------------------------------------------------

    def schedule(self, at: float, build: Callable[[], Submission | Command]) -> None:
        """Send an input at a time; `build` is called then."""
        self._push(at, _INPUTS, partial(self._build, build))

    def end_at(self, key: str, at: float) -> None:
        """Let a running task end at a time: one that ran already when `VirtualTime` began."""
        self._push(at, _ENDS, partial(self._end, key))

    def set_run_time(self, key: str, run_s: float | None) -> None:
        """Set the run time of an ask that the partition had when `VirtualTime` began; of one that ran already, that of
        the ask that follows an eviction.
        """
        self.tasks[key].run_s = run_s

    def keep(self, application_id: str) -> None:
        """Let an application that the partition had when `VirtualTime` began stay until `schedule_removal`."""
        application = self._applications.get(application_id)
        if application is not None:
            application.left += 1

    def schedule_task(self, at: float, task: Task) -> None:
        """Ask for a further task of an application, which has to stay until then."""
        self._push(at, _INPUTS, partial(self._add, task))

    def schedule_removal(self, at: float, application_id: str) -> None:
        """Remove an application that stays: at this time, or when its last task has ended."""
        self._push(at, _REMOVALS, partial(self._close, application_id))

    def act(self, action: Callable[[], Iterable[Effect]]) -> None:
        """Change the partition now, in another way than its RM does, such as `Partition.reconfigure`."""
        self._receive(action())

    @property
    def next_event(self) -> float:
        """When something happens next: an event of the RM, or a timer of the partition."""
        return min(self._events[0][0] if self._events else NEVER, self.partition.next_change)

    @property
    def has_events(self) -> bool:
        """Whether the RM has anything to do: an input, the end of a task, a release to confirm."""
        return bool(self._events)

    def run(self, until: float = NEVER) -> None:
        """Play everything up to and including a time. Without one, until nothing more happens, or only timers of the
        partition have been due for `QUIET_S`.
        """
        quiet_since = self.now
        self._decide()
        while True:
            at = max(self.next_event, self.now)
            if at > until or at == NEVER:
                break
            if self._events and self._events[0][0] <= at:
                quiet_since = at
            elif until == NEVER and not self._events and at - quiet_since > QUIET_S:
                break
            self.now = at
            self._play_due()
            self._decide()
        if until != NEVER:
            self.now = max(self.now, until)

    # What the RM does -------------------------------------------------------------------------------------------------

    def _push(self, at: float, order: int, action: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._events, (max(at, self.now), order, self._number, action))

    def _play_due(self) -> None:
        """Carry out all events that are due; those of the same kind in one request where the order allows."""
        while self._events and self._events[0][0] <= self.now:
            _, _, _, action = heappop(self._events)
            action()
        self._flush()

    def _flush(self) -> None:
        """Send the collected applications, then their asks."""
        batch, self._batch = self._batch, _Batch()
        if batch.applications:
            self._apply(rm_messages.ApplicationRequest(new=batch.applications))
        if batch.asks:
            known = [one for one in batch.asks if one.allocation_key in self.tasks]
            self._apply(rm_messages.AllocationRequest(allocations=known))

    def _decide(self) -> None:
        """Let the partition decide until there is nothing more to decide, nor to send at this time."""
        partition = self.partition
        while not partition.idle or partition.next_change <= self.now:
            self._receive(partition.step(self.now, BUDGET))
            self._play_due()

    def _apply(self, command: Command) -> None:
        self._receive(self.partition.apply(command, self.now))

    def _build(self, build: Callable[[], Submission | Command]) -> None:
        self._send(build())

    def _send(self, built: Submission | Command) -> None:
        if not isinstance(built, Submission):
            self._flush()
            self._apply(built)
            return
        name = built.application.application_id
        is_gang = bool(built.placeholders)
        self._batch.applications.append(built.application)
        self._applications[name] = _Application(len(built.tasks) + built.stays, later=built.tasks if is_gang else ())
        for ask in built.placeholders:
            self._ask(_Running(ask))
        for task in () if is_gang else built.tasks:
            self._ask(_Running(*task))

    def _add(self, task: Task) -> None:
        application = self._applications.get(task.ask.application_id)
        if application is not None:
            application.left += not task.ask.placeholder
        self._ask(_Running(*task))

    def _ask(self, task: _Running) -> None:
        self._track(task)
        self._batch.asks.append(task.ask)

    def _track(self, task: _Running) -> None:
        self.tasks[task.ask.allocation_key] = task
        application = self._applications.get(task.ask.application_id)
        if application is not None:
            application.keys[task.ask.allocation_key] = None
        self._note_usage(task, pending=1)

    def _forget(self, key: str) -> _Running | None:
        """Remove and return a task or placeholder that has ended; None if there is no such one."""
        task = self.tasks.pop(key, None)
        application = None if task is None else self._applications.get(task.ask.application_id)
        if application is not None:
            application.keys.pop(key, None)
        if task is not None:
            self._note_usage(task, used=-bool(task.node_id), pending=-(not task.node_id))
        return task

    def _note_usage(self, task: _Running, *, used: int = 0, pending: int = 0) -> None:
        if self._usage is not None:
            ask = task.ask
            self._usage.note_usage(ask.application_id, ask.resource_per_alloc, self.now, used=used, pending=pending)

    def _submit_gang(self, application_id: str) -> None:
        application = self._applications.get(application_id)
        if application is None:
            return
        for task in application.later:
            self._push(self.now, _INPUTS, partial(self._ask, _Running(*task)))
        application.later = ()

    def _end(self, key: str) -> None:
        """A task has run to its end, unless it was evicted before."""
        task = self._forget(key)
        if task is None:
            return
        self._apply(_build_release(task.ask, rm_messages.STOPPED_BY_RM))
        self.observer.ended(key, task.ask.application_id, self.now)
        self._close(task.ask.application_id)

    def _close(self, application_id: str) -> None:
        """Count an ended task of an application, and remove the application after the last one."""
        application = self._applications.get(application_id)
        if application is not None:
            application.left -= 1
            if application.left <= 0:
                self._push(self.now, _REMOVALS, partial(self._remove, application_id))

    def _remove(self, application_id: str) -> None:
        """Remove an application without tasks; its placeholders go with it."""
        application = self._applications.get(application_id)
        if application is None or application.left > 0:
            return
        for key in tuple(application.keys):
            self._forget(key)
        del self._applications[application_id]
        if application_id in self.partition.applications:
            removal = rm_messages.RemoveApplicationRequest(application_id=application_id)
            self._apply(rm_messages.ApplicationRequest(remove=[removal]))
            self.observer.removed(application_id, self.now)

    def _adopt(self, known: Allocation) -> None:
        """Take over an ask or allocation that the partition had before, and confirm a release that was requested."""
        ask = rm_messages.Allocation(
            allocation_key=known.key,
            application_id=known.application_id,
            resource_per_alloc=known.resources,
            priority=known.priority,
            allocation_tags=known.tags,
            task_group_name=known.task_group,
            placeholder=known.placeholder,
            originator=known.originator,
            preemption_policy=known.preemption_policy,
        )
        is_swapping = known.partner is not None and not known.placeholder
        task = _Running(ask, node_id="" if is_swapping else known.node_id)
        self._track(task)
        self._applications[known.application_id].left += not known.placeholder
        if known.placeholder and known.partner is not None:
            self._confirm(ask, rm_messages.PLACEHOLDER_REPLACED)
        elif known.released:
            self._confirm(ask, rm_messages.TIMEOUT)
        elif known.preempted:
            self._evict(task, rm_messages.AllocationRelease(allocation_key=known.key), confirms=True)

    # What the core reports --------------------------------------------------------------------------------------------

    def _receive(self, effects: Iterable[Effect]) -> None:
        for record in self.partition.changes.preemptions:
            self._victims.update((victim.key, record) for victim in record.victims)
        self.partition.changes = Changes()
        for effect in effects:
            self._receive_part(effect.part)
        self._victims.clear()

    def _receive_part(self, part: Part) -> None:
        match part:
            case rm_messages.Allocation():
                self._start(part)
            case rm_messages.AllocationRelease():
                self._release(part)
            case rm_messages.AcceptedApplication(application_id=name):
                known = self.partition.applications.get(name)
                self.observer.accepted(name, "" if known is None else known.queue.path, self.now)
            case rm_messages.UpdatedApplication(application_id=name, state=state, message=message):
                if state in _GANG_READY:
                    self._submit_gang(name)
                elif state in ("Failing", "Failed"):
                    self._fail(name, message)
            case rm_messages.RejectedApplication(application_id=name, reason=reason):
                self._fail(name, reason)
            case rm_messages.RejectedAllocation(allocation_key=key, application_id=name, reason=reason):
                task = self._forget(key)
                if task is not None and task.ask.placeholder:
                    self._submit_gang(name)  # as ordinary asks
                elif task is not None:
                    self.observer.rejected(name, key, reason, self.now)
                    self._close(name)
            case GroupsWanted(user=user):
                self._push(self.now, _ENDS, partial(self._find_groups, user))
            case rm_messages.PredicatesAsked() as question:
                self._push(self.now, _ENDS, partial(self._admit, question))

    def _find_groups(self, user: str) -> None:
        """Answer a group lookup: the user is in a group of the same name."""
        self._receive(self.partition.apply_groups(GroupsFound(user=user, groups=[user]), self.now))

    def _admit(self, question: rm_messages.PredicatesAsked) -> None:
        """Answer that every ask may run on every node, as soon as there is room."""
        verdicts = [
            rm_messages.Verdict(allocation_key=one.allocation_key, node_id=one.node_id, allocate=one.allocate)
            for one in question.asked
        ]
        preemptions = [
            rm_messages.PreemptionVerdict(allocation_key=one.allocation_key, node_id=one.node_id, index=one.start_index)
            for one in question.preemptions
        ]
        answer = rm_messages.PredicatesAnswered(question=question.question, verdicts=verdicts, preemptions=preemptions)
        self._receive(self.partition.apply_verdicts(answer, self.now))

    def _start(self, allocation: rm_messages.Allocation) -> None:
        key = allocation.allocation_key
        task = self.tasks.get(key)
        if task is None or task.node_id:
            return
        task.node_id, task.started = allocation.node_id, self.now
        self._note_usage(task, used=1, pending=-1)
        if task.ask.placeholder:
            return
        self.observer.started(key, allocation.application_id, allocation.node_id, self.now)
        if task.run_s is not None:
            self._push(self.now + task.run_s, _ENDS, partial(self._end, key))

    def _release(self, released: rm_messages.AllocationRelease) -> None:
        task = self.tasks.get(released.allocation_key)
        if task is None:
            return  # the answer to a release of the RM
        kind = released.termination_type
        if not task.node_id:
            self._forget(released.allocation_key)
            if not task.ask.placeholder:
                self.observer.rejected(released.application_id, released.allocation_key, released.message, self.now)
                self._close(released.application_id)
        elif task.ask.placeholder:
            if kind in _CONFIRMED:
                self._confirm(task.ask, kind)
            else:
                self._forget(released.allocation_key)
        else:
            self._evict(task, released, confirms=kind in _CONFIRMED)

    def _evict(self, task: _Running, released: rm_messages.AllocationRelease, *, confirms: bool) -> None:
        """The core ended a running task: confirm it if the core waits for that, and ask for it again."""
        key, application_id = task.ask.allocation_key, task.ask.application_id
        record = self._victims.get(key)
        known = self.partition.applications.get(application_id)
        again = None
        if self.resubmits and known is not None and known.state not in ("Failing", "Failed"):
            name, number = _split_key(key)
            number += 1
            while f"{name}~{number}" in self.tasks:  # the RM has such an ask already
                number += 1
            again = _Running(replace(task.ask, allocation_key=f"{name}~{number}"), task.run_s)
        by, by_queue = ("", "") if record is None else (record.ask_key, record.queue)
        eviction = Eviction(
            key, application_id, task.node_id, task.started, by, by_queue, released.message, again is not None
        )
        self.observer.evicted(eviction, self.now)
        self._forget(key)
        if confirms:
            self._confirm(task.ask, rm_messages.PREEMPTED_BY_SCHEDULER, again)
        elif again is not None:
            self._push(self.now, _INPUTS, partial(self._ask, again))
        if again is None:
            self._close(application_id)

    def _confirm(self, ask: rm_messages.Allocation, kind: int, again: _Running | None = None) -> None:
        """Confirm a release after the termination delay, together with the ask that follows it."""

        def confirm() -> None:
            self._forget(ask.allocation_key)
            asks = []
            if again is not None:
                self._track(again)
                asks = [again.ask]
            self._apply(_build_release(ask, kind, asks))

        self._push(self.now + self.termination_delay_s, _ENDS, confirm)

    def _fail(self, application_id: str, reason: str) -> None:
        """An application was refused or failed: what it waits for is withdrawn."""
        application = self._applications.get(application_id)
        if application is None:
            return
        application.later = ()
        for key in [key for key in application.keys if not self.tasks[key].node_id]:
            self._forget(key)
        self.observer.rejected(application_id, "", reason, self.now)
        application.left = 1 + sum(not self.tasks[key].ask.placeholder for key in application.keys)
        self._close(application_id)


def _build_release(
    ask: rm_messages.Allocation, kind: int, asks: list[rm_messages.Allocation] | None = None
) -> rm_messages.AllocationRequest:
    release = rm_messages.AllocationRelease(
        application_id=ask.application_id, allocation_key=ask.allocation_key, termination_type=kind
    )
    releases = rm_messages.AllocationReleasesRequest(allocations_to_release=[release])
    return rm_messages.AllocationRequest(allocations=asks or [], releases=releases)
