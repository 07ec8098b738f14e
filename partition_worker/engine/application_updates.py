"""Application updates of the RM: submit and remove applications.

A submission whose user needs a group lookup waits (`user_resolution.py`), together with its asks, and continues when
the groups are known; a removal drops it. `placement.py` chooses the queue.
"""

from typing import Final

from yunishard.common.messages import event_codes, rm_messages
from yunishard.common.messages.control_messages import GroupsFound, GroupsWanted
from yunishard.common.names import RECOVERY_QUEUE, USER
from yunishard.partition_worker.engine import allocation_updates, events, lifecycle
from yunishard.partition_worker.engine.application import ENDED, Application, AppState
from yunishard.partition_worker.engine.durable_records import RejectionRecord
from yunishard.partition_worker.engine.gang_scheduling import gang_objection, placeholder_timeout_s
from yunishard.partition_worker.engine.placement import PlacementRejected, PlacementWork, Submission
from yunishard.partition_worker.engine.placement_trace import PlacementTrace
from yunishard.partition_worker.engine.preemption.quota_enforcement import quota_preemption_time
from yunishard.partition_worker.engine.queues.queue import Queue, refresh_fair_maximum
from yunishard.partition_worker.engine.queues.tree import CreationPlan, QueueError, apply_namespace_quota
from yunishard.partition_worker.engine.state import PartitionState, find_text_objection
from yunishard.partition_worker.engine.user_resolution import (
    NO_GROUP,
    OPERATING_SYSTEM,
    WAITING_MAX,
    GroupsUnknown,
    HeldUpdate,
    User,
    UserError,
    Users,
    is_forced,
)
from yunishard.partition_worker.placement_reasons import PlacementReason

APPLICATIONS_MAX: Final = 200_000
"""Applications of a partition that have not ended, a few kilobytes each."""


class Refusal(Exception):
    """An application is rejected; the text is the reason for the RM."""

    def __init__(
        self,
        reason: str,
        code: PlacementReason = PlacementReason.SUBMISSION_REFUSED,
        *,
        placed: bool = True,
        user: bool = True,
    ) -> None:
        super().__init__(reason)
        self.code = code
        """The reason code for an explanation."""
        self.placed = placed
        """Whether to report the requested queue with the rejection; False if placement found none."""
        self.user = user
        """Whether to report the user with the rejection; False for an invalid name."""


def handle(state: PartitionState, request: rm_messages.ApplicationRequest) -> None:
    """Process all submissions first, then the removals; the removal of an unknown application is only logged."""
    work = PlacementWork()
    for new in request.new:
        _add(state, new, work)
    for gone in request.remove:
        _remove(state, gone)


def apply_groups(state: PartitionState, found: GroupsFound) -> None:
    """Continue or reject all submissions that waited for this group lookup, then their asks and releases."""
    if state.users.resolver != OPERATING_SYSTEM:
        state.log_debug(f"groups of user {found.user}: no lookup was requested")
        return
    user = None if found.problem else User(found.user, tuple(found.groups))
    state.users.learn(found.user, user, state.now)
    _enter_waiting(state, state.pending_submissions.take_submissions(found.user), found.problem)


def reject_waiting(state: PartitionState) -> None:
    """The partition retires: reject all waiting submissions, with their asks and releases."""
    pending = state.pending_submissions
    _enter_waiting(state, [new for user in tuple(pending.by_user) for new in pending.take_submissions(user)])


def _enter_waiting(
    state: PartitionState, submissions: list[rm_messages.AddApplicationRequest], problem: str = ""
) -> None:
    work = PlacementWork()
    state.changes.submissions.update((one.application_id, None) for one in submissions)
    for submission in submissions:
        _enter(state, submission, work, problem)
    for one in [one for new in submissions for one in _take_updates(state, new.application_id)]:
        if isinstance(one, rm_messages.AllocationRelease):
            allocation_updates.release_allocation(state, one)
        else:
            allocation_updates.handle(state, rm_messages.AllocationRequest(allocations=[one]))


def _take_updates(state: PartitionState, application_id: str) -> list[HeldUpdate]:
    """Remove and return the updates that wait for an application, in order."""
    taken = state.pending_submissions.take_updates(application_id)
    state.changes.held_updates.update(dict.fromkeys(taken))
    return list(taken.values())


def _add(state: PartitionState, new: rm_messages.AddApplicationRequest, work: PlacementWork) -> None:
    state.counters.submitted += 1
    state.record_event(event_codes.APP, new.application_id, event_codes.ADD, event_codes.APP_NEW)
    try:
        _enter(state, new, work)
    except GroupsUnknown:
        if len(state.pending_submissions) >= WAITING_MAX:
            problem = f"{WAITING_MAX} applications wait until their user has been looked up: try again later"
            _enter(state, new, work, problem)
            return
        if new.ugi.user not in state.pending_submissions.by_user:
            state.emit(GroupsWanted(user=new.ugi.user))
        state.pending_submissions.insert(new)
        state.changes.submissions[new.application_id] = None


def _enter(
    state: PartitionState, new: rm_messages.AddApplicationRequest, work: PlacementWork, problem: str = ""
) -> None:
    """Accept or reject a submission; `problem` is why its group lookup failed. Raises GroupsUnknown."""
    user = User(new.ugi.user, tuple(new.ugi.groups))
    try:
        user = resolve_user(state, new, state.users, problem)
        leaf = _find_leaf(state, new, user, work)
    except Refusal as refusal:
        _reject(state, new, user, refusal)
        return
    state.application_ranks += 1
    application = Application(
        application_id=new.application_id,
        rank=state.application_ranks,
        user=user,
        queue=leaf,
        submitted_ns=state.stamp_ns(),
        tags=new.tags,
        placeholder_ask=new.placeholder_ask,
        gang_style="Hard" if new.gang_scheduling_style == "Hard" else "Soft",
        placeholder_timeout_s=placeholder_timeout_s(new, state.now),
    )
    state.applications[new.application_id] = application
    state.changes.submitted[application.rank] = None
    state.changes.applications[application.rank] = application
    leaf.applications[new.application_id] = None
    state.record_event(event_codes.QUEUE, leaf.path, event_codes.ADD, event_codes.QUEUE_APP, new.application_id)
    lifecycle.count_entry(state, leaf, AppState.NEW)
    state.emit(rm_messages.AcceptedApplication(application_id=new.application_id))


def resolve_user(
    state: PartitionState, new: rm_messages.AddApplicationRequest, users: Users, problem: str = ""
) -> User:
    """Return the user of a submission, whose group lookup failed with this problem; `users` learns the groups.

    Raises Refusal, and GroupsUnknown if a lookup is needed.
    """
    if state.retired:
        raise Refusal(f"partition {state.name} was removed: it cannot add a new application {new.application_id}")
    if not new.application_id:
        raise Refusal("invalid application: it has no id")
    groups, forced = new.ugi.groups, is_forced(new.tags)
    if problem and not forced:
        raise Refusal(problem)
    try:
        return users.resolve(new.ugi.user, [NO_GROUP] if problem else groups, forced=forced, now=state.now)
    except UserError as error:
        is_valid = bool(USER.fullmatch(new.ugi.user))
        raise Refusal(str(error), PlacementReason.USER_INVALID, user=is_valid) from error
    except GroupsUnknown:
        _check_id(state, new)
        raise


def _check_id(state: PartitionState, new: rm_messages.AddApplicationRequest) -> None:
    """Refuse a duplicate id, and what exceeds a bound; waiting submissions count."""
    if new.application_id in state.applications or new.application_id in state.pending_submissions:
        raise Refusal(
            f"adding application {new.application_id} to partition {state.name}, but application already existed"
        )
    if len(state.applications) + len(state.pending_submissions) >= APPLICATIONS_MAX:
        raise Refusal(f"the partition has {APPLICATIONS_MAX} applications, it takes no more")
    names = (new.application_id, new.queue_name, new.ugi.user, *new.ugi.groups, *new.placeholder_ask)
    if objection := find_text_objection(names, new.tags):
        raise Refusal(objection)


def _find_leaf(state: PartitionState, new: rm_messages.AddApplicationRequest, user: User, work: PlacementWork) -> Queue:
    plan = plan_queue(state, new, user, work)
    queue = _create_queue(state, plan) if plan.missing else plan.above
    _apply_quota(state, queue, new)
    objection = gang_objection(queue, new.application_id, new.placeholder_ask)
    if objection:
        raise Refusal(objection)
    return queue


def plan_queue(
    state: PartitionState,
    new: rm_messages.AddApplicationRequest,
    user: User,
    work: PlacementWork,
    trace: PlacementTrace | None = None,
) -> CreationPlan:
    """Return the leaf of a submission, with the levels that have to be created. Changes nothing. Raises Refusal."""
    _check_id(state, new)
    try:
        path = state.placement.place(Submission(new, user, work, trace), state.tree)
    except PlacementRejected as error:
        raise Refusal(str(error), error.code, placed=False) from error
    queue = state.tree.find(path)
    if queue is not None and not queue.leaf:
        raise Refusal(f"failed to find queue {path} for application {new.application_id}", PlacementReason.QUEUE_PARENT)
    if queue is not None:
        return CreationPlan(queue)
    try:
        return state.tree.plan_creation(path, user)
    except QueueError as error:
        reason = f"failed to create rule based queue {path} for application {new.application_id}\n{error}"
        raise Refusal(reason, PlacementReason.QUEUE_NOT_CREATED) from error


def _apply_quota(state: PartitionState, leaf: Queue, new: rm_messages.AddApplicationRequest) -> None:
    """Apply the namespace quota of the tags to the dynamic queue, with each submission."""
    if leaf.managed or leaf.path == RECOVERY_QUEUE:
        return
    most, maximum, guaranteed = leaf.max_applications, leaf.maximum, leaf.guaranteed
    for problem in apply_namespace_quota(leaf, new.tags):
        state.log_debug(f"application {new.application_id}: {problem}")
    if (most, maximum, guaranteed) != (leaf.max_applications, leaf.maximum, leaf.guaranteed):
        events.record_quota(state, leaf, maximum, guaranteed)
        state.changes.queues[leaf.path] = None
        delay_s = leaf.policies.quota_preemption_delay_s
        leaf.quota_preemption_at = quota_preemption_time(leaf, maximum, delay_s, state.now)
        if leaf.quota_preemption_at:
            state.schedule_quota_check()
        refresh_fair_maximum(leaf)
        state.reservation_index.has_new_limits = True
        state.readiness.reset_leaf(leaf)
        state.readiness.touch(leaf)
        state.readiness.retry_parked()


def _create_queue(state: PartitionState, plan: CreationPlan) -> Queue:
    known = state.tree.next_rank
    queue = state.tree.create(plan)
    for level in reversed([level for level in queue.ancestry() if level.rank >= known]):
        events.record_queue(state, level, event_codes.ADD)
        state.changes.queues[level.path] = None
    state.schedule_cleanup()
    return queue


def _reject(state: PartitionState, new: rm_messages.AddApplicationRequest, user: User, refusal: Refusal) -> None:
    state.counters.refused += 1
    reason, queue_name = str(refusal), new.queue_name if refusal.placed else ""
    state.record_event(event_codes.APP, new.application_id, event_codes.SET, event_codes.APP_REJECT, message=reason)
    queue = state.tree.find(queue_name)
    if queue is None:
        state.counters.reached["", AppState.REJECTED] += 1
    else:
        lifecycle.count_entry(state, queue, AppState.REJECTED)
    name, groups = (user.name, user.groups) if refusal.user else ("", ())
    state.keep_rejection(
        RejectionRecord(
            application_id=new.application_id,
            queue_name=queue_name,
            user=name,
            groups=groups,
            at_ns=state.stamp_ns(),
            reason=reason,
            requested_queue=new.queue_name,
        )
    )
    state.emit(rm_messages.RejectedApplication(application_id=new.application_id, reason=reason))


def _remove(state: PartitionState, gone: rm_messages.RemoveApplicationRequest) -> None:
    """Remove an application with everything it has. The RM receives the releases, and that it completes unless it fails
    or resumes.
    """
    application = state.applications.get(gone.application_id)
    if application is None:
        if gone.application_id in state.pending_submissions:
            state.pending_submissions.remove(gone.application_id)
            _take_updates(state, gone.application_id)
            state.changes.submissions[gone.application_id] = None
        state.log_debug(f"application {gone.application_id}: unknown, removing it has no effect")
        return
    told, asks = state.event_count, bool(application.requests)
    running = allocation_updates.remove_everything(state, application)
    if application.state not in (AppState.FAILING, AppState.RESUMING):
        lifecycle.update_after_removal_of_all(state, application)
    if application.state in ENDED:
        state.drop_ended(application)
    else:
        state.timers.stop(application, "state")
        lifecycle.leave_queue(state, application)
        application.finished_ns = state.stamp_ns()
    state.removed.append(application)
    state.sort_events(told, events.OF_WAITING if asks and not running else events.OF_APPLICATION)
    for allocation in running:
        state.emit(allocation.release(state.name, f"Application {application.application_id} Removed"))
