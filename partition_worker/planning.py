"""Play the near future of a partition in virtual time, with planned changes or without.

    course = play(partition, order, now=now, viewer=viewer)

The partition is a copy with no other user (`plan_process.py` forks one): the changes are applied to it by the same
functions as real ones, and the engine itself decides what follows (`virtual_time.py`). The result has no
reference to the partition, so that it can be compared with the course of events without the changes (`plan_views.py`).

Allocations end when their run time is over. It is the tag RUN_TIME_TAG of the ask or else of its application; without
one an allocation never ends, nor does one that has run for longer than its estimate.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.wire import NEVER
from yunishard.common.rest.explain import ExplanationView
from yunishard.common.rest.plan import (
    RUN_TIME_TAG,
    ConfigChange,
    NewJob,
    NewNodes,
    NodeDrain,
    NodeRemoval,
    PlannedChange,
    PlanOrder,
)
from yunishard.common.rm_player import Eviction, Observer, Submission, Task, task_name
from yunishard.common.text_formats import parse_duration
from yunishard.partition_worker import explanations
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.explain.checks import survey_waiting
from yunishard.partition_worker.engine.explain.explanations import explain_application
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.user_limits import Tracker
from yunishard.partition_worker.redaction import Visibility
from yunishard.partition_worker.virtual_time import VirtualTime

DECISIONS_MAX: Final = 500_000
"""Decisions in one course of events, about 20 s; it then ends early, and the report states where."""

QUIET_S: Final = 6 * 3600.0
"""Virtual seconds in which nothing starts, and the RM has nothing to do, after which nothing more is expected.
Only timers of the partition are left then, some of which are due each second; one that is due later is not played. The
report states it.
"""

EXPLAINED_MAX: Final = 20
"""Applications whose waiting at the end is explained in words, a few ms each; of the others the codes are counted."""

JOB_ID: Final = "planned-job"
"""The ID of a planned application that has none; with a number if there is such an application."""

NODE_PREFIX: Final = "planned-"
"""New nodes are `planned-1`, `planned-2` and so on, without those that exist."""

TASK_GROUP: Final = "planned"
"""The task group of a planned gang."""

OPERATOR: Final = Actor(user="an operator", scheduler_admin=True)


# What happens ---------------------------------------------------------------------------------------------------------


class Owner(Struct, frozen=True, array_like=True):
    """The queue and the user of an application."""

    queue: str
    user: str


class Start(Struct, frozen=True, array_like=True):
    """A task got its node."""

    key: str
    application: str
    node: str
    at: float
    is_again: bool = False
    """Whether it was evicted before."""


class End(Struct, frozen=True, array_like=True):
    """A task ran to its end."""

    key: str
    application: str
    node: str
    at: float


class Evicted(Struct, frozen=True, array_like=True):
    """A running task that the core ended."""

    key: str
    application: str
    node: str
    at: float
    reason: str
    by_queue: str


class Rejection(Struct, frozen=True, array_like=True):
    """An application (empty key) or an ask was refused or withdrawn."""

    application: str
    key: str
    reason: str
    at: float


class Waiting(Struct, array_like=True):
    """The asks of an application that wait at the end, by reason, and why in words."""

    reasons: dict[str, int]
    text: str = ""


class Excess(Struct, frozen=True, array_like=True):
    """A use above a maximum; without a resource it is the number of running applications."""

    queue: str
    user: str
    group: str
    resource: str
    used: int
    maximum: int

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Identify the maximum that is exceeded."""
        return self.queue, self.user, self.group, self.resource


class Course(Struct):
    """A course of events, from now to the horizon. Times are Unix seconds."""

    began: float
    until: float = 0.0
    """The horizon, or where it ended early."""
    is_cut: bool = False
    """Whether it ended early, after DECISIONS_MAX."""
    quiet_from: float = 0.0
    """When the QUIET_S began after which nothing more is expected; 0 if the course is played up to `until`."""
    owners: dict[str, Owner] = field(default_factory=dict)
    waiting_before: dict[str, int] = field(default_factory=dict)
    """The number of asks that wait now, by application."""
    starts: list[Start] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    evictions: list[Evicted] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """By application."""
    excesses: list[Excess] = field(default_factory=list)
    """Right after the changes and the decisions that follow at once."""
    excesses_at_end: list[Excess] = field(default_factory=list)
    capacity_before: Resources = field(default_factory=dict)
    used_before: Resources = field(default_factory=dict)
    capacity: Resources = field(default_factory=dict)
    used: Resources = field(default_factory=dict)
    running: int = 0
    """Allocations at the end."""
    estimated: int = 0
    """Allocations of now that have an estimate of their run time."""
    overdue: int = 0
    """Those that run for longer than it."""
    unestimated: int = 0
    """Allocations of now without one."""
    held_back: int = 0
    """Applications that wait for the groups of their users, and are left out."""
    jobs: dict[str, ExplanationView | None] = field(default_factory=dict)
    """Planned applications, with what they wait for right after their submission; None if nothing waits."""


class _Recorder(Observer):
    """Records what happens, with the queue and user of each application."""

    def __init__(self, partition: Partition, course: Course) -> None:
        self._partition, self._course = partition, course
        self._nodes: dict[str, str] = {}
        """By key of a task: its node."""
        self._evicted: dict[str, None] = {}
        """The names of tasks that were evicted."""

    def accepted(self, application_id: str, queue: str, at: float) -> None:
        self._note(application_id)

    def started(self, key: str, application_id: str, node_id: str, at: float) -> None:
        self._note(application_id)
        self._nodes[key] = node_id
        is_again = key != task_name(key) and task_name(key) in self._evicted
        self._course.starts.append(Start(key, application_id, node_id, at, is_again))

    def ended(self, key: str, application_id: str, at: float) -> None:
        self._note(application_id)
        self._course.ends.append(End(key, application_id, self._nodes.pop(key, ""), at))

    def evicted(self, eviction: Eviction, at: float) -> None:
        self._note(eviction.application_id)
        self._nodes.pop(eviction.key, None)
        self._evicted[task_name(eviction.key)] = None
        self._course.evictions.append(
            Evicted(eviction.key, eviction.application_id, eviction.node_id, at, eviction.reason, eviction.by_queue)
        )

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        self._note(application_id)
        self._course.rejections.append(Rejection(application_id, key, reason, at))

    def removed(self, application_id: str, at: float) -> None:
        self._note(application_id)

    def remember(self, known: Allocation) -> None:
        """Remember where an allocation runs, and whose it is."""
        self._nodes[known.key] = known.node_id
        self._note(known.application_id)

    def _note(self, application_id: str) -> None:
        if application_id in self._course.owners:
            return
        found = self._partition.applications.get(application_id)
        if found is not None:
            self._course.owners[application_id] = Owner(found.queue.path, found.user.name)
        elif (rejection := self._partition.rejections.get(application_id)) is not None:
            self._course.owners[application_id] = Owner(rejection.queue_name, rejection.user)


# Playing --------------------------------------------------------------------------------------------------------------


def play(partition: Partition, order: PlanOrder, *, now: float, viewer: Actor | None = None) -> Course:
    """Apply the changes of a plan to a copy of a partition, and let time pass up to the horizon.

    `viewer` is the user for whom the explanations of planned jobs are redacted.

    Raises:
        NotDone: a change cannot be made, with an HTTP status and the reason.
    """
    check_ready(partition)
    now, first = max(now, partition.now), partition.decided
    course = Course(now)
    recorder = _Recorder(partition, course)
    course.capacity_before, course.used_before = _measure(partition)
    course.held_back = len(partition.pending_submissions)
    for application in partition.applications.values():
        if application.requests:
            course.waiting_before[application.application_id] = len(application.requests)
            course.owners[application.application_id] = Owner(application.queue.path, application.user.name)
    time = VirtualTime(partition, recorder, now=now)
    _set_run_times(partition, time, recorder, course)
    for change in order.changes:
        _apply(partition, time, change, course)
    course.until = now + order.horizon_s
    time.run(until=now)
    course.excesses = list_excesses(partition)
    for name in course.jobs:
        course.jobs[name] = _explain_job(partition, name, now, viewer)
    _run(partition, time, course, first)
    _describe_end(partition, course, time.now, viewer)
    return course


def check_ready(partition: Partition) -> None:
    """Raises NotDone: 503 while the partition lacks some of what its RM has, and so decides nothing."""
    if partition.report is not None:
        raise NotDone(503, "the resource manager is reporting all it has: plan again when it is done")
    if partition.pending_submissions.running_count:
        raise NotDone(503, "running allocations wait for the groups of a user: plan again in a moment")


def _run(partition: Partition, time: VirtualTime, course: Course, first: int) -> None:
    """Let time pass, from one event to the next; `first` is the number of decisions at the beginning."""
    last, quiet_since = 0, time.now
    while (at := max(time.next_event, time.now)) <= course.until:
        if partition.decided - first >= DECISIONS_MAX:
            course.is_cut, course.until = True, time.now
            return
        happened = len(course.starts) + len(course.evictions) + len(course.rejections)
        if happened != last:
            last, quiet_since = happened, time.now
        if time.deadline != NEVER:
            quiet_since = at
        elif at - quiet_since > QUIET_S:
            course.quiet_from = quiet_since
            return
        time.run(until=at)
    time.run(until=course.until)


def _measure(partition: Partition) -> tuple[Resources, Resources]:
    """Return the capacity of all nodes, and how much of it is used."""
    return dict(partition.nodes.total), {
        kind: amount for kind, amount in partition.tree.root.allocated.items() if amount
    }


def _describe_end(partition: Partition, course: Course, now: float, viewer: Actor | None) -> None:
    course.excesses_at_end = list_excesses(partition)
    course.capacity, course.used = _measure(partition)
    course.running = partition.running_allocations
    visible = Visibility(partition, viewer)
    redactor = explanations.Redactor(partition, visible)
    explained = 0
    for application in partition.applications.values():
        if not application.requests:
            continue
        name = application.application_id
        course.owners.setdefault(name, Owner(application.queue.path, application.user.name))
        waiting = course.waiting[name] = Waiting(_count_reasons(partition, application, now))
        if (explained < EXPLAINED_MAX or name in course.jobs) and visible.shows_application(application):
            explained += 1
            waiting.text = redactor.redact(explain_application(partition, application, now)).summary


def _count_reasons(partition: Partition, application: Application, now: float) -> dict[str, int]:
    reasons = survey_waiting(partition, [application], now, len(application.requests)).reasons
    if Reason.NOT_TRIED in reasons:  # nothing is left to try: the nodes refuse it
        reasons[Reason.NO_NODE_FITS] += reasons.pop(Reason.NOT_TRIED)
    return {code: reasons[code] for code in sorted(reasons)}


# Run times ------------------------------------------------------------------------------------------------------------


def read_run_time(tags: Mapping[str, str], application_tags: Mapping[str, str]) -> float | None:
    """Return the seconds that an ask with these tags is expected to run; None without a valid estimate."""
    for one in (tags, application_tags):
        text = one.get(RUN_TIME_TAG, "")
        found = parse_duration(text) if text else None
        if found is not None and found > 0:
            return found
    return None


def _set_run_times(partition: Partition, time: VirtualTime, recorder: _Recorder, course: Course) -> None:
    for known in tuple(partition.allocations.values()):
        application = partition.applications.get(known.application_id)
        if known.placeholder or application is None or known.key not in time.tasks:
            continue
        run_s = read_run_time(known.tags, application.tags)
        time.set_run_time(known.key, run_s)
        if not time.tasks[known.key].node_id:
            continue
        recorder.remember(known)
        if run_s is None:
            course.unestimated += 1
            continue
        course.estimated += 1
        started = (known.bound_ns or known.created_ns) / 1e9 or course.began
        if started + run_s > course.began:
            time.end_at(known.key, started + run_s)
        else:
            course.overdue += 1


# Changes --------------------------------------------------------------------------------------------------------------


def _apply(partition: Partition, time: VirtualTime, change: PlannedChange, course: Course) -> None:
    match change:
        case ConfigChange():
            _reconfigure(partition, time, change)
        case NodeDrain(node=node):
            time.act(lambda: partition.drain_node(node, "", OPERATOR, time.now))
        case NodeRemoval(node=node):
            if partition.nodes.get(node) is None:
                raise NotDone(404, f"node {node} does not exist in partition {partition.name}")
            info = rm_messages.NodeInfo(node_id=node, action=rm_messages.NODE_DECOMMISSION)
            _send(partition, time, rm_messages.NodeRequest(nodes=[info]))
        case NewNodes():
            _send(partition, time, rm_messages.NodeRequest(nodes=_build_nodes(partition, change)))
        case NewJob():
            _submit(partition, time, change, course)


def _reconfigure(partition: Partition, time: VirtualTime, change: ConfigChange) -> None:
    config = change.config
    if config is None:
        time.act(lambda: partition.retire(time.now))
        return
    objections = partition.objections(config)
    if objections:
        raise NotDone(409, f"the partition cannot take this configuration: {'; '.join(objections)}")
    time.act(lambda: partition.reconfigure(config, time.now))


def _send(partition: Partition, time: VirtualTime, command: rm_messages.NodeRequest) -> None:
    def send() -> list[Effect]:
        effects = partition.apply(command, time.now)
        for effect in effects:
            if isinstance(effect.part, rm_messages.RejectedNode):
                raise NotDone(409, f"node {effect.part.node_id} would be refused: {effect.part.reason}")
        return effects

    time.act(send)


def _build_nodes(partition: Partition, change: NewNodes) -> list[rm_messages.NodeInfo]:
    names: list[str] = []
    number = 0
    while len(names) < change.count:
        number += 1
        name = f"{NODE_PREFIX}{number}"
        if partition.nodes.get(name) is None:
            names.append(name)
    return [
        rm_messages.NodeInfo(
            node_id=name,
            action=rm_messages.NODE_CREATE,
            attributes=change.attributes,
            schedulable_resource=change.resources,
        )
        for name in names
    ]


def _submit(partition: Partition, time: VirtualTime, job: NewJob, course: Course) -> None:
    known = partition.applications.keys() | partition.pending_submissions.submissions.keys() | course.jobs.keys()
    if job.id in known:
        raise NotDone(409, f"there is an application {job.id} already: choose another id for the planned job")
    name, number = job.id or JOB_ID, 1
    while name in known:
        number += 1
        name = f"{JOB_ID}-{number}"
    course.jobs[name] = None
    course.owners[name] = Owner(job.queue.lower(), job.user)
    submission = _build_submission(name, job)
    time.schedule(time.now, lambda: submission)


def _build_submission(name: str, job: NewJob) -> Submission:
    run_s = job.run_s if job.run_s is not None else read_run_time(job.task_tags, job.tags)
    total = {kind: amount * job.tasks for kind, amount in job.resources.items()}
    application = rm_messages.AddApplicationRequest(
        application_id=name,
        queue_name=job.queue,
        ugi=rm_messages.UserGroupInformation(user=job.user, groups=job.groups),
        tags=job.tags,
        placeholder_ask=total if job.gang else {},
    )
    asks = [_build_ask(name, f"{name}-{number}", job) for number in range(1, job.tasks + 1)]
    holders = [_build_ask(name, f"{name}-placeholder-{number}", job, holds=True) for number in range(1, job.tasks + 1)]
    return Submission(application, tuple(Task(ask, run_s) for ask in asks), tuple(holders) if job.gang else ())


def _build_ask(name: str, key: str, job: NewJob, *, holds: bool = False) -> rm_messages.Allocation:
    return rm_messages.Allocation(
        allocation_key=key,
        application_id=name,
        resource_per_alloc=job.resources,
        priority=job.priority,
        allocation_tags=job.task_tags,
        task_group_name=TASK_GROUP if job.gang else "",
        placeholder=holds,
    )


def _explain_job(partition: Partition, name: str, now: float, viewer: Actor | None) -> ExplanationView | None:
    """Explain why a planned application does not have all its nodes at once; None if it has."""
    visible = Visibility(partition, viewer)
    application = partition.applications.get(name)
    if application is not None and not application.requests:
        return None
    explain = explanations.QUERIES["explain-application"]
    try:
        found = explain(partition, {"application": name}, visible, now, ())
    except NotDone:
        return None
    return explanations.Redactor(partition, visible).redact(found)


# Maxima ---------------------------------------------------------------------------------------------------------------


def list_excesses(partition: Partition) -> list[Excess]:
    """Return the queues above their maximum and the users and groups above a limit, in the order of the tree.

    The capacity of the nodes is not a maximum of the root queue here.
    """
    found: list[Excess] = []
    for queue in partition.tree:
        most = queue.max_applications
        if 0 < most < queue.running:
            found.append(Excess(queue.path, "", "", "", queue.running, most))
        if queue.parent is not None and queue.maximum is not None:
            found += (
                Excess(queue.path, "", "", kind, queue.allocated.get(kind, 0), limit)
                for kind, limit in queue.maximum.items()
                if queue.allocated.get(kind, 0) > limit
            )
    for trackers, is_user in ((partition.usage.users, True), (partition.usage.groups, False)):
        found += _list_above_limit(list(trackers.by_name.values()), is_user=is_user)
    return found


def _list_above_limit(trackers: Sequence[Tracker], *, is_user: bool) -> Iterator[Excess]:
    for tracker in trackers:
        user, group = (tracker.name, "") if is_user else ("", tracker.name)
        for level in tracker.levels.values():
            if level.allowance is None:
                continue
            most = level.allowance.applications
            if 0 < most < len(level.applications):
                yield Excess(level.path, user, group, "", len(level.applications), most)
            for kind, limit in level.allowance.resources.items():
                if level.used.get(kind, 0) > limit:
                    yield Excess(level.path, user, group, kind, level.used[kind], limit)
