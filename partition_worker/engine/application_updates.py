"""Application updates of the RM: submit and remove applications.

A submission whose user needs a group lookup waits (`user_resolution.py`), together with its asks, and continues when
the groups are known; a removal drops it. `placement_chain.py` chooses the queue.
"""

from common import event_codes
from common.control_messages import GroupsFound, GroupsWanted
from common.names import RECOVERY_QUEUE, USER
from common.rm_messages import (
    AcceptedApplication,
    AddApplicationRequest,
    ApplicationRequest,
    RejectedApplication,
    RemoveApplicationRequest,
)
from partition_worker.engine import events, lifecycle
from partition_worker.engine.allocation_updates import remove_everything
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import ENDED, AppState
from partition_worker.engine.bounds import Work, application_objection
from partition_worker.engine.gang_scheduling import placeholder_timeout_s
from partition_worker.engine.placement_rules import PlacementRejected
from partition_worker.engine.queues.configuration import apply_namespace_quota, read_namespace_quota
from partition_worker.engine.queues.fair_share import refresh_fair_maximum
from partition_worker.engine.queues.headroom import gang_objection
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.tree import QueueError
from partition_worker.engine.state import PartitionState, Rejection
from partition_worker.engine.user_resolution import (
    NO_GROUP,
    WAITING_MAX,
    GroupsUnknown,
    Said,
    Submission,
    User,
    UserError,
    is_forced,
)


class _Refusal(Exception):
    """An application is rejected; the text is the reason for the RM."""

    def __init__(self, reason: str, *, placed: bool = True, user: bool = True) -> None:
        super().__init__(reason)
        self.placed = placed
        """Whether to report the requested queue with the rejection; False if placement found none."""
        self.user = user
        """Whether to report the user with the rejection; False for an invalid name."""


def handle(books: PartitionState, request: ApplicationRequest) -> None:
    """Process all submissions first, then the removals; the removal of an unknown application is only logged."""
    work = Work()
    for new in request.new:
        _add(books, new, work)
    for gone in request.remove:
        _remove(books, gone)


def go_on(books: PartitionState, found: GroupsFound) -> list[Said]:
    """Continue or reject all submissions that waited for this group lookup; returns the asks and releases received
    meanwhile.
    """
    if not books.users.looks_up_outside:
        books.note(f"groups of user {found.user}: nobody asked for them")
        return []
    if found.problem:
        books.users.failed(found.user, books.now)
    else:
        books.users.found(found.user, found.groups, books.now)
    return _entered(books, books.waiting.take(found.user), found.problem)


def give_up(books: PartitionState) -> list[Said]:
    """The partition retires: reject all waiting submissions; returns the asks and releases received meanwhile."""
    return _entered(books, books.waiting.take_all())


def _entered(books: PartitionState, submissions: list[AddApplicationRequest], problem: str = "") -> list[Said]:
    work = Work()
    for submission in submissions:
        _enter(books, submission, work, problem)
    return [said for submission in submissions for said in books.waiting.said(submission.application_id)]


def _add(books: PartitionState, new: AddApplicationRequest, work: Work) -> None:
    books.counters.submitted += 1
    events.application(books, new.application_id, event_codes.ADD, event_codes.APP_NEW)
    try:
        _enter(books, new, work)
    except GroupsUnknown:
        if books.waiting.full:
            problem = f"{WAITING_MAX} applications wait until their user has been looked up: try again later"
            _enter(books, new, work, problem)
            return
        if not books.waiting.has_user(new.ugi.user):
            books.emit(GroupsWanted(user=new.ugi.user))
        books.waiting.put(new)


def _enter(books: PartitionState, new: AddApplicationRequest, work: Work, problem: str = "") -> None:
    """Accept or reject a submission; `problem` is why its group lookup failed. Raises GroupsUnknown."""
    user = User(new.ugi.user, tuple(new.ugi.groups))
    try:
        user = _user(books, new, problem)
        leaf = _leaf(books, new, user, work)
    except _Refusal as refusal:
        _reject(books, new, user, refusal)
        return
    application = Application(
        application_id=new.application_id,
        rank=books.next_application_rank(),
        user=user,
        queue=leaf,
        submitted_ns=books.stamp_ns(),
        tags=new.tags,
        placeholder_ask=new.placeholder_ask,
        gang_style="Hard" if new.gang_scheduling_style == "Hard" else "Soft",
        placeholder_timeout_s=placeholder_timeout_s(new, books.now),
    )
    books.applications[new.application_id] = application
    leaf.applications[new.application_id] = None
    events.queue_application(books, leaf, event_codes.ADD, new.application_id)
    lifecycle.count(books, leaf, AppState.NEW)
    books.emit(AcceptedApplication(application_id=new.application_id))


def _user(books: PartitionState, new: AddApplicationRequest, problem: str) -> User:
    if books.retired:
        raise _Refusal(f"partition {books.name} was removed: it cannot add a new application {new.application_id}")
    if not new.application_id:
        raise _Refusal("invalid application: it has no id")
    groups, forced = new.ugi.groups, is_forced(new.tags)
    if problem and not forced:
        raise _Refusal(problem)
    try:
        return books.users.resolve(new.ugi.user, [NO_GROUP] if problem else groups, forced=forced, now=books.now)
    except UserError as error:
        raise _Refusal(str(error), user=bool(USER.fullmatch(new.ugi.user))) from error
    except GroupsUnknown:
        _check_new(books, new)
        raise


def _check_new(books: PartitionState, new: AddApplicationRequest) -> None:
    """Refuse a duplicate id; a waiting submission counts."""
    if new.application_id in books.applications or new.application_id in books.waiting:
        raise _Refusal(
            f"adding application {new.application_id} to partition {books.name}, but application already existed"
        )
    if objection := application_objection(new, count=len(books.applications) + len(books.waiting)):
        raise _Refusal(objection)


def _leaf(books: PartitionState, new: AddApplicationRequest, user: User, work: Work) -> Queue:
    _check_new(books, new)
    submission = Submission(
        application_id=new.application_id,
        user=user,
        queue_name=new.queue_name,
        tags=new.tags,
        forced=is_forced(new.tags),
        work=work,
    )
    try:
        path = books.placement.place(submission, books.tree)
    except PlacementRejected as error:
        raise _Refusal(str(error), placed=False) from error
    queue = books.tree.find(path)
    if queue is None:
        queue = _created(books, new, path, user)
    if not queue.leaf:
        raise _Refusal(f"failed to find queue {path} for application {new.application_id}")
    _set_quota(books, queue, new)
    objection = gang_objection(queue, new.application_id, new.placeholder_ask)
    if objection:
        raise _Refusal(objection)
    return queue


def _set_quota(books: PartitionState, leaf: Queue, new: AddApplicationRequest) -> None:
    """Apply the namespace quota of the tags to the dynamic queue, with each submission."""
    if leaf.managed or leaf.path == RECOVERY_QUEUE:
        return
    quota = read_namespace_quota(new.tags)
    for problem in quota.problems:
        books.note(f"application {new.application_id}: {problem}")
    maximum, guaranteed = leaf.maximum, leaf.guaranteed
    if apply_namespace_quota(leaf, quota):
        events.quota_changed(books, leaf, maximum, guaranteed)
        refresh_fair_maximum(leaf)
        books.readiness.reordered(leaf)
        books.readiness.touch(leaf)
        books.readiness.relieve()


def _created(books: PartitionState, new: AddApplicationRequest, path: str, user: User) -> Queue:
    known = books.tree.next_rank
    try:
        queue = books.tree.create(path, user)
    except QueueError as error:
        raise _Refusal(
            f"failed to create rule based queue {path} for application {new.application_id}\n{error}"
        ) from error
    for level in reversed([level for level in queue.ancestry() if level.rank >= known]):
        events.queue_came(books, level)
    books.expect_cleaning()
    return queue


def _reject(books: PartitionState, new: AddApplicationRequest, user: User, refusal: _Refusal) -> None:
    books.counters.refused += 1
    events.application(books, new.application_id, event_codes.SET, event_codes.APP_REJECT, message=str(refusal))
    reason, queue_name = str(refusal), new.queue_name if refusal.placed else ""
    queue = books.tree.find(queue_name)
    if queue is None:
        books.counters.reached["", AppState.REJECTED] += 1
    else:
        lifecycle.count(books, queue, AppState.REJECTED)
    name, groups = (user.name, user.groups) if refusal.user else ("", ())
    books.remember_rejection(Rejection(new.application_id, queue_name, name, groups, books.stamp_ns(), reason))
    books.emit(RejectedApplication(application_id=new.application_id, reason=reason))


def _remove(books: PartitionState, gone: RemoveApplicationRequest) -> None:
    """Remove an application with everything it has. The RM receives the releases, and that it completes unless it fails
    or resumes.
    """
    application = books.applications.get(gone.application_id)
    if application is None:
        books.waiting.drop(gone.application_id)
        books.note(f"application {gone.application_id}: unknown, removing it has no effect")
        return
    told, asks = books.told, bool(application.requests)
    running = remove_everything(books, application)
    if application.state not in (AppState.FAILING, AppState.RESUMING):
        lifecycle.emptied(books, application)
    if application.state in ENDED:
        books.forget_ended(application)
    else:
        books.timers.stop(application, "state")
        lifecycle.leave_queue(books, application)
        application.finished_ns = books.stamp_ns()
    books.removed.append(application)
    events.arrange(books, told, events.OF_WAITING if asks and not running else events.OF_APPLICATION)
    for allocation in running:
        books.emit(allocation.release(books.name, f"Application {application.application_id} Removed"))
