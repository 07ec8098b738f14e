"""What administrators do to an application: kill it, or move it to another queue. Everything is checked before anything
changes, so what cannot be done has no effect.

Who administers a queue administers what is in it; so do those who administer a queue above it, and those whom the
scheduler's own list names.

Rules of a move that are ours to choose: it never makes a queue exceed a maximum, nor a user or group a limit, neither
of resources nor of running applications, although a smaller one in a new configuration may. What runs would otherwise
be the one way around quotas. Only the queues that the application newly comes into are looked at.

Not here: who the actor is (whoever asks has established it), and the RM's own removals (`updates/`).
"""

from common import event_codes
from common.names import RECOVERY_QUEUE
from common.query_messages import Actor
from common.resources import admits, described, plus
from common.rm_messages import EventRecord
from partition_worker.engine import ledger, lifecycle
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import ACTIVE, AppEvent, AppState
from partition_worker.engine.books import Books
from partition_worker.engine.queues import gang
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.updates import removal
from partition_worker.engine.user_resolution import User

MOVABLE = frozenset({AppState.NEW, AppState.ACCEPTED, *ACTIVE, AppState.RESUMING, AppState.COMPLETING})
"""States in which an application may go to another queue: those in which it goes on."""


class NotDone(Exception):
    """An action that was not carried out: a status as in HTTP, and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


# Kill ---------------------------------------------------------------------------------------------------------------


def kill(books: Books, application_id: str, actor: Actor) -> None:
    """The application fails and everything it has is released; its asks go with it, as when an RM removes it.

    One that completes already has completed; if it has placeholders left they are released.

    Raises:
        NotDone: 404 for an unknown application, 403 without the right.
    """
    application = _application(books, application_id)
    _check_administers(actor, application.queue)
    told = f"Application {application_id} killed by {actor.user}"
    books.tell_people(told)
    completes = application.state is AppState.COMPLETING
    if application.state is AppState.RESUMING:  # from there it cannot fail
        lifecycle.fire(books, application, AppEvent.RUN)
    if not completes and application.state is not AppState.FAILING:
        lifecycle.fire(books, application, AppEvent.FAIL, told)
    running = removal.empty(books, application)
    application.queue.released += len(running)
    lifecycle.fire(books, application, AppEvent.COMPLETE if completes else AppEvent.FAIL, told)
    for allocation in running:
        books.emit(allocation.release(books.name, told))


# Move ---------------------------------------------------------------------------------------------------------------


def move(books: Books, application_id: str, path: str, actor: Actor) -> None:
    """The application goes on in another leaf, with all it has and asks for.

    Raises:
        NotDone: 404 for an unknown application or queue, 403 without the right on both queues, 400 for a queue that no
            application can be moved to, 409 if it is there, cannot go on there, or there is no room for it.
    """
    application = _application(books, application_id)
    leaf = books.tree.find(path)
    if leaf is None:
        raise no_queue(path)
    for queue in (application.queue, leaf):
        _check_administers(actor, queue)
    unusable = _unusable(application, leaf)
    if unusable:
        raise NotDone(400, unusable)
    conflict = _conflict(application, leaf) or books.usage.objection(application, leaf)
    if conflict:
        raise NotDone(409, conflict)
    before = application.queue
    ledger.move(books, application, leaf)
    lifecycle.settle(books, application)
    told = f"Application {application_id} moved from {before.path} to {leaf.path} by {actor.user}"
    books.tell_people(told)
    books.emit(
        EventRecord(
            type=event_codes.APP,
            object_id=application_id,
            reference_id=leaf.path,
            message=told,
            timestamp_nano=books.stamp_ns(),
            event_change_type=event_codes.SET,
            event_change_detail=event_codes.DETAILS_NONE,
        )
    )


def _unusable(application: Application, leaf: Queue) -> str:
    """Why no application, or none like this one, can be moved to the queue; empty if one can."""
    if not leaf.leaf:
        return f"queue {leaf.path} is not a leaf"
    if leaf.path == RECOVERY_QUEUE:
        return f"no application can be moved to the recovery queue {leaf.path}"
    if leaf.state != "Active":
        return f"queue {leaf.path} is {leaf.state}, only an active queue takes applications"
    return gang.objection(leaf, application.application_id, application.placeholder_ask)


def _conflict(application: Application, leaf: Queue) -> str:
    """Why this application cannot be moved to the queue now; empty if it can."""
    name = f"application {application.application_id}"
    if application.queue is leaf:
        return f"{name} is already in queue {leaf.path}"
    if application.state not in MOVABLE:
        return f"{name} is {application.state} and cannot be moved"
    shared = {level.path for level in application.queue.ancestry()}
    for level in leaf.ancestry():
        if level.path in shared:
            break
        most = level.max_applications
        if application.state in ACTIVE and most and level.running >= most:
            return f"{name} runs, and queue {level.path} runs {level.running} of at most {most} applications"
        held = plus(level.allocated, application.charged)
        if level.maximum is not None and not admits(level.maximum, {kind: held[kind] for kind in _used(application)}):
            return (
                f"{name} has {described(application.charged)}, which exceeds what is left in queue {level.path}: "
                f"{described(level.allocated)} of at most {described(level.maximum)} is in use"
            )
    return ""


def _used(application: Application) -> list[str]:
    return [kind for kind, amount in application.charged.items() if amount > 0]


# Rights -------------------------------------------------------------------------------------------------------------


def _application(books: Books, application_id: str) -> Application:
    application = books.applications.get(application_id)
    if application is None:
        raise no_application(application_id, books.name)
    return application


def no_application(application_id: str, partition: str) -> NotDone:
    """That there is no such application in the partition of this name."""
    return NotDone(404, f"application {application_id} does not exist in partition {partition}, or has ended")


def no_queue(path: str) -> NotDone:
    """That there is no such queue."""
    return NotDone(404, f"queue {path} does not exist")


def _check_administers(actor: Actor, queue: Queue) -> None:
    if actor.scheduler_admin or queue.admits_administration(User(actor.user, tuple(actor.groups))):
        return
    raise NotDone(
        403, f"user {actor.user or '(nobody)'} does not administer queue {queue.path}: its admin ACL decides who does"
    )
