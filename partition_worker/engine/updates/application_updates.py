"""What an RM's word about applications does to the partition: they come and go.

A submission whose user has to be looked up first is put aside (`waiting.py`) and goes on when the groups are known.
Until then what is asked for it waits with it, and its removal drops all of that.

Not here: the rules of placement (`placement/`), and what a state means (`lifecycle.py`).
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
from partition_worker.engine import gangs, happenings, lifecycle
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import ENDED, AppState
from partition_worker.engine.books import Books
from partition_worker.engine.bounds import application_objection
from partition_worker.engine.placement_rules import PlacementRejected
from partition_worker.engine.queues import gang, namespace
from partition_worker.engine.queues.fairness import refresh_fair_maximum
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.tree import QueueError
from partition_worker.engine.rejection import Rejection
from partition_worker.engine.updates import removal
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
from partition_worker.engine.work import Work


class _Refusal(Exception):
    """An application that cannot be taken; the text is the reason for the RM."""

    def __init__(self, reason: str, *, placed: bool = True, user: bool = True) -> None:
        super().__init__(reason)
        self.placed = placed
        """Whether it had a queue, or had not come to that; an application without one shows none."""
        self.user = user
        """Whether it has a user; what is no name of one is not shown as such."""


def handle(books: Books, request: ApplicationRequest) -> None:
    """All new ones first, each accepted or rejected; then the removals, of which unknown ones are only noted."""
    work = Work()
    for new in request.new:
        _add(books, new, work)
    for gone in request.remove:
        _remove(books, gone)


def go_on(books: Books, found: GroupsFound) -> list[Said]:
    """A user was looked up: all submissions that waited for it go on, or fail as the look-up did. What was said about
    their applications in the meantime has to follow now.
    """
    if not books.users.looks_up_outside:
        books.note(f"groups of user {found.user}: nobody asked for them")
        return []
    if found.problem:
        books.users.failed(found.user, books.now)
    else:
        books.users.found(found.user, found.groups, books.now)
    return _entered(books, books.waiting.take(found.user), found.problem)


def give_up(books: Books) -> list[Said]:
    """The partition takes nothing any more: what waits is refused like everything else, and so is what follows."""
    return _entered(books, books.waiting.take_all())


def _entered(books: Books, submissions: list[AddApplicationRequest], problem: str = "") -> list[Said]:
    work = Work()
    for submission in submissions:
        _enter(books, submission, work, problem)
    return [said for submission in submissions for said in books.waiting.said(submission.application_id)]


def _add(books: Books, new: AddApplicationRequest, work: Work) -> None:
    books.counters.submitted += 1
    happenings.application(books, new.application_id, event_codes.ADD, event_codes.APP_NEW)
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


def _enter(books: Books, new: AddApplicationRequest, work: Work, problem: str = "") -> None:
    """Accept or reject; `problem` is why the user could not be looked up. Raises GroupsUnknown."""
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
        placeholder_timeout_s=gangs.placeholder_timeout_s(new, books.now),
    )
    books.applications[new.application_id] = application
    leaf.applications[new.application_id] = None
    happenings.queue_application(books, leaf, event_codes.ADD, new.application_id)
    lifecycle.count(books, leaf, AppState.NEW)
    books.emit(AcceptedApplication(application_id=new.application_id))


def _user(books: Books, new: AddApplicationRequest, problem: str) -> User:
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


def _check_new(books: Books, new: AddApplicationRequest) -> None:
    """An application that waits for its user has its id already."""
    if new.application_id in books.applications or new.application_id in books.waiting:
        raise _Refusal(
            f"adding application {new.application_id} to partition {books.name}, but application already existed"
        )
    if objection := application_objection(books, new):
        raise _Refusal(objection)


def _leaf(books: Books, new: AddApplicationRequest, user: User, work: Work) -> Queue:
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
    objection = gang.objection(queue, new.application_id, new.placeholder_ask)
    if objection:
        raise _Refusal(objection)
    return queue


def _set_quota(books: Books, leaf: Queue, new: AddApplicationRequest) -> None:
    """The tags of a namespace set what its dynamic queue may use, with each submission again."""
    if leaf.managed or leaf.path == RECOVERY_QUEUE:
        return
    quota = namespace.quota_of(new.tags)
    for problem in quota.problems:
        books.note(f"application {new.application_id}: {problem}")
    maximum, guaranteed = leaf.maximum, leaf.guaranteed
    if namespace.apply(leaf, quota):
        happenings.quota_changed(books, leaf, maximum, guaranteed)
        refresh_fair_maximum(leaf)
        books.readiness.reordered(leaf)
        books.readiness.touch(leaf)
        books.readiness.relieve()


def _created(books: Books, new: AddApplicationRequest, path: str, user: User) -> Queue:
    known = books.tree.next_rank
    try:
        queue = books.tree.create(path, user)
    except QueueError as error:
        raise _Refusal(
            f"failed to create rule based queue {path} for application {new.application_id}\n{error}"
        ) from error
    for level in reversed([level for level in queue.ancestry() if level.rank >= known]):
        happenings.queue_came(books, level)
    books.expect_cleaning()
    return queue


def _reject(books: Books, new: AddApplicationRequest, user: User, refusal: _Refusal) -> None:
    books.counters.refused += 1
    happenings.application(books, new.application_id, event_codes.SET, event_codes.APP_REJECT, message=str(refusal))
    reason, queue_name = str(refusal), new.queue_name if refusal.placed else ""
    queue = books.tree.find(queue_name)
    if queue is None:
        books.counters.reached["", AppState.REJECTED] += 1
    else:
        lifecycle.count(books, queue, AppState.REJECTED)
    name, groups = (user.name, user.groups) if refusal.user else ("", ())
    books.remember_rejection(Rejection(new.application_id, queue_name, name, groups, books.stamp_ns(), reason))
    books.emit(RejectedApplication(application_id=new.application_id, reason=reason))


def _remove(books: Books, gone: RemoveApplicationRequest) -> None:
    """Everything of the application goes with it. An RM hears that it completes, unless it fails or resumes, and which
    allocations were released.
    """
    application = books.applications.get(gone.application_id)
    if application is None:
        books.waiting.drop(gone.application_id)
        books.note(f"application {gone.application_id}: unknown, removing it has no effect")
        return
    told, asks = books.told, bool(application.requests)
    running = removal.empty(books, application)
    if application.state not in (AppState.FAILING, AppState.RESUMING):
        lifecycle.emptied(books, application)
    if application.state in ENDED:
        books.forget_ended(application)
    else:
        books.timers.stop(application, "state")
        lifecycle.leave_queue(books, application)
        application.finished_ns = books.stamp_ns()
    books.removed.append(application)
    happenings.arrange(books, told, happenings.OF_WAITING if asks and not running else happenings.OF_APPLICATION)
    for allocation in running:
        books.emit(allocation.release(books.name, f"Application {application.application_id} Removed"))
