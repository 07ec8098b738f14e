"""Administrative actions on applications: kill one, move it to another queue; and the retirement of the partition.
Those on queues and nodes are in `operator_marks.py`.

Every action is checked completely before it changes anything. A queue is administered by those in its admin ACL, in
that of a queue above it, and by scheduler administrators.

A move never exceeds a maximum of a queue or a limit of a user or group, neither of resources nor of running
applications; otherwise it would circumvent quotas. Only queues that are new on the application's path are checked.

The caller has authenticated the actor. A partition retires when it leaves the configuration: its applications fail or
end, and the RM receives all releases.
"""

from typing import Final

from yunishard.common.messages import event_codes
from yunishard.common.messages.query_messages import Actor
from yunishard.common.names import RECOVERY_QUEUE
from yunishard.common.resources import describe_amount
from yunishard.partition_worker.engine import application_updates, events, ledger, lifecycle
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.allocation_updates import remove_everything
from yunishard.partition_worker.engine.amounts import amounts_of, find_excess
from yunishard.partition_worker.engine.application import ACTIVE, AppEvent, Application, AppState
from yunishard.partition_worker.engine.gang_scheduling import gang_objection
from yunishard.partition_worker.engine.node_updates import remove_node
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_resolution import User

MOVABLE = frozenset({AppState.NEW, AppState.ACCEPTED, *ACTIVE, AppState.RESUMING, AppState.COMPLETING})
"""States in which an application may move."""


class NotDone(Exception):
    """An action or a query was refused, with an HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


# Kill ---------------------------------------------------------------------------------------------------------------


def kill(state: PartitionState, application_id: str, actor: Actor) -> None:
    """Fail the application, remove its asks and release its allocations. A completing application completes.

    Raises: NotDone: 404 for an unknown application, 403 without the right.
    """
    application = _find_application(state, application_id)
    check_administers(actor, application.queue)
    told = f"Application {application_id} killed by {actor.user}"
    state.log_info(told)
    running = _fail(state, application, told)
    completes = application.state is AppState.COMPLETING
    lifecycle.fire(state, application, AppEvent.COMPLETE if completes else AppEvent.FAIL, told)
    for allocation in running:
        state.emit(allocation.release(state.name, told))


def _fail(state: PartitionState, application: Application, cause: str) -> list[Allocation]:
    """Make an application fail, unless it is completing, and remove everything it has; returns what ran."""
    if application.state is AppState.RESUMING:  # Resuming has no transition to Failing
        lifecycle.fire(state, application, AppEvent.RUN)
    if application.state not in (AppState.COMPLETING, AppState.FAILING):
        lifecycle.fire(state, application, AppEvent.FAIL, cause)
    running = remove_everything(state, application)
    application.queue.released += len(running)
    return running


# Move ---------------------------------------------------------------------------------------------------------------


def move(state: PartitionState, application_id: str, path: str, actor: Actor) -> None:
    """Move the application, with its asks and allocations, to another leaf.

    Raises: NotDone: 404 for an unknown application or queue, 403 without the right on both queues, 400 for an
    unsuitable queue, 409 if the application is there already, cannot be moved now, or does not fit.
    """
    application = _find_application(state, application_id)
    leaf = state.tree.find(path)
    if leaf is None:
        raise no_queue(path)
    for queue in (application.queue, leaf):
        check_administers(actor, queue)
    unusable = _find_queue_objection(application, leaf)
    if unusable:
        raise NotDone(400, unusable)
    conflict = _find_conflict(application, leaf) or state.usage.objection(application, leaf)
    if conflict:
        raise NotDone(409, conflict)
    before = application.queue
    ledger.move(state, application, leaf)
    lifecycle.end_starting(state, application)
    told = f"Application {application_id} moved from {before.path} to {leaf.path} by {actor.user}"
    state.log_info(told)
    events.emit_record(state, event_codes.APP, application_id, told, state.stamp_ns(), leaf.path)


def _find_queue_objection(application: Application, leaf: Queue) -> str:
    """Why the queue cannot take this application at all; empty if it can."""
    if not leaf.leaf:
        return f"queue {leaf.path} is not a leaf"
    if leaf.path == RECOVERY_QUEUE:
        return f"no application can be moved to the recovery queue {leaf.path}"
    if leaf.state != "Active":
        return f"queue {leaf.path} is {leaf.state}, only an active queue takes applications"
    if (stopped := leaf.find_stopped()) is not None:
        return f"queue {stopped.path} is stopped, only an active queue takes applications"
    return gang_objection(leaf, application.application_id, application.placeholder_ask)


def _find_conflict(application: Application, leaf: Queue) -> str:
    """Why the application cannot move to the queue now; empty if it can."""
    name, amounts = f"application {application.application_id}", amounts_of(application.charged)
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
        if level.limits is not None and find_excess(level.allocated_sum, amounts, level.limits) >= 0:
            return (
                f"{name} has {describe_amount(application.charged)}, which exceeds what is left in queue {level.path}: "
                f"{describe_amount(level.allocated)} of at most {describe_amount(level.maximum or {})} is in use"
            )
    return ""


# Rights -------------------------------------------------------------------------------------------------------------


def _find_application(state: PartitionState, application_id: str) -> Application:
    application = state.applications.get(application_id)
    if application is None:
        raise no_application(application_id, state.name)
    return application


def no_application(application_id: str, partition: str) -> NotDone:
    """The error for an unknown application."""
    return NotDone(404, f"application {application_id} does not exist in partition {partition}, or has ended")


def no_queue(path: str) -> NotDone:
    """The error for an unknown queue."""
    return NotDone(404, f"queue {path} does not exist")


def check_administers(actor: Actor, queue: Queue) -> None:
    """Raises NotDone: 403 if the actor does not administer the queue."""
    if actor.scheduler_admin or queue.admits_administration(User(actor.user, tuple(actor.groups))):
        return
    raise NotDone(
        403, f"user {actor.user or '(nobody)'} does not administer queue {queue.path}: its admin ACL decides who does"
    )


# Retirement of a partition --------------------------------------------------------------------------------------------

RETIRED_CAUSE: Final = "PartitionRemoved"
"""The reason, known to RMs, why its applications fail."""


def retire(state: PartitionState) -> None:
    """Remove everything from the partition, and accept nothing more."""
    state.retired = state.changes.partition = True
    for queue in state.tree:
        queue.state = "Draining"
        state.changes.queues[queue.path] = None
        queue.draining_since_ns = queue.draining_told_ns = state.stamp_ns()
    application_updates.reject_waiting(state)
    released: list[Allocation] = []
    for application in tuple(state.applications.values()):
        released += _fail(state, application, RETIRED_CAUSE)
        if application.state is AppState.COMPLETING:
            lifecycle.fire(state, application, AppEvent.COMPLETE, RETIRED_CAUSE)
        else:
            state.timers.stop(application, "state")
            lifecycle.leave_queue(state, application)
    for allocation in released:
        state.emit(allocation.release(state.name, f"Partition {state.name} Removed"))
    for node in tuple(state.nodes):
        remove_node(state, node)
    state.changes.foreign.update(dict.fromkeys(state.foreign))
    state.foreign.clear()
    state.readiness.update_cluster_size()
    state.schedule_cleanup()
