"""What an RM's word about applications does to the partition: they come and go.

Not here: the rules of placement (`placement/`), and what a state means (`lifecycle.py`).
"""

from common.messages import (
    AcceptedApplication,
    AddApplicationRequest,
    ApplicationRequest,
    RejectedApplication,
    RemoveApplicationRequest,
)
from partition_worker.engine import ledger, lifecycle
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.states import AppState
from partition_worker.engine.books import Books
from partition_worker.engine.placement.rule import PlacementRejected
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.tree import QueueError
from partition_worker.engine.rejection import Rejection
from partition_worker.engine.users import Submission, User, UserError, is_forced


class _Refusal(Exception):
    """An application that cannot be taken; the text is the reason for the RM."""

    def __init__(self, reason: str, *, placed: bool = True) -> None:
        super().__init__(reason)
        self.placed = placed
        """Whether it had a queue, or had not come to that; an application without one shows none."""


def handle(books: Books, request: ApplicationRequest) -> None:
    """All new ones first, each accepted or rejected; then the removals, of which unknown ones are only noted."""
    for new in request.new:
        _add(books, new)
    for gone in request.remove:
        _remove(books, gone)


def _add(books: Books, new: AddApplicationRequest) -> None:
    books.counters.submitted += 1
    user = User(new.ugi.user, tuple(new.ugi.groups))
    try:
        user = _user(books, new)
        leaf = _leaf(books, new, user)
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
    )
    books.applications[new.application_id] = application
    leaf.applications[new.application_id] = application
    lifecycle.count(books, leaf, AppState.NEW)
    books.emit(AcceptedApplication(application_id=new.application_id))


def _user(books: Books, new: AddApplicationRequest) -> User:
    if not new.application_id:
        raise _Refusal("invalid application: it has no id")
    try:
        return books.users.resolve(new.ugi.user, new.ugi.groups, forced=is_forced(new.tags), now=books.now)
    except UserError as error:
        raise _Refusal(str(error)) from error


def _leaf(books: Books, new: AddApplicationRequest, user: User) -> Queue:
    if new.application_id in books.applications:
        raise _Refusal(
            f"adding application {new.application_id} to partition {books.name}, but application already existed"
        )
    submission = Submission(
        application_id=new.application_id,
        user=user,
        queue_name=new.queue_name,
        tags=new.tags,
        forced=is_forced(new.tags),
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
    return queue


def _created(books: Books, new: AddApplicationRequest, path: str, user: User) -> Queue:
    try:
        queue = books.tree.create(path, user)
    except QueueError as error:
        raise _Refusal(
            f"failed to create rule based queue {path} for application {new.application_id}\n{error}"
        ) from error
    books.expect_cleaning()
    return queue


def _reject(books: Books, new: AddApplicationRequest, user: User, refusal: _Refusal) -> None:
    books.counters.refused += 1
    reason, queue_name = str(refusal), new.queue_name if refusal.placed else ""
    queue = books.tree.find(queue_name)
    if queue is None:
        books.counters.reached["", AppState.REJECTED] += 1
    else:
        lifecycle.count(books, queue, AppState.REJECTED)
    books.remember_rejection(
        Rejection(new.application_id, queue_name, user.name, user.groups, books.stamp_ns(), reason)
    )
    books.emit(RejectedApplication(application_id=new.application_id, reason=reason))


def _remove(books: Books, gone: RemoveApplicationRequest) -> None:
    """Everything of the application goes with it. An RM hears that it completes, and which allocations were
    released.
    """
    application = books.applications.get(gone.application_id)
    if application is None:
        books.note(f"application {gone.application_id}: unknown, removing it has no effect")
        return
    for ask in tuple(application.requests.values()):
        ledger.remove_ask(books, application, ask)
    running = tuple(application.allocations.values())
    for allocation in running:
        ledger.remove_allocation(books, application, allocation)
    lifecycle.complete_emptied(books, application)
    if application.state is AppState.COMPLETED:
        books.forget_ended(application)
    else:
        books.timers.stop(application)
        lifecycle.leave_queue(books, application)
    for allocation in running:
        books.emit(allocation.released(books.name, f"Application {application.application_id} Removed"))
