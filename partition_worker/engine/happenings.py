"""The events of the history that are told in more than one place, or only when something is another than it was told
before.

What happens once and in one place is told there, by `books.happened`. Everything here is told to the history only: the
RM hears of it by other ways, if at all.

Asks of one shape are tried once for all of them, so what is said about a request is said about the first of its group;
the next one is told of when it is the first. What a request lacks is told once and when it no longer lacks it, however
often it is tried meanwhile.

Not here: keeping the history (`partition_worker/event_ring_buffer.py`).
"""

from collections.abc import Mapping
from typing import Final

from common import event_codes
from common.messages import Resources
from common.resources import Limit, text
from common.rm_messages import (
    PLACEHOLDER_REPLACED,
    PREEMPTED_BY_SCHEDULER,
    SCHEDULING_FAILED_ON_RM,
    STOPPED_BY_RM,
    TIMEOUT,
    UNKNOWN_TERMINATION,
)
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import AppState
from partition_worker.engine.books import Books
from partition_worker.engine.queues.headroom import headroom
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.usage_trackers import Account

ENTERED: Final[Mapping[AppState, int]] = {
    AppState.NEW: event_codes.APP_NEW,
    AppState.ACCEPTED: event_codes.APP_ACCEPTED,
    AppState.STARTING: event_codes.APP_STARTING,
    AppState.RUNNING: event_codes.APP_RUNNING,
    AppState.COMPLETING: event_codes.APP_COMPLETING,
    AppState.COMPLETED: event_codes.APP_COMPLETED,
    AppState.FAILING: event_codes.APP_FAILING,
    AppState.FAILED: event_codes.APP_FAILED,
    AppState.RESUMING: event_codes.APP_RESUMING,
    AppState.REJECTED: event_codes.APP_REJECT,
    AppState.EXPIRED: event_codes.APP_EXPIRED,
}
"""The detail of an event that says which state was entered."""

REMOVED: Final[Mapping[int | None, int]] = {
    None: event_codes.ALLOC_NODEREMOVED,
    UNKNOWN_TERMINATION: event_codes.ALLOC_NODEREMOVED,
    STOPPED_BY_RM: event_codes.ALLOC_CANCEL,
    TIMEOUT: event_codes.ALLOC_TIMEOUT,
    PREEMPTED_BY_SCHEDULER: event_codes.ALLOC_PREEMPT,
    PLACEHOLDER_REPLACED: event_codes.ALLOC_REPLACED,
}
"""The detail of an event that says why an allocation is gone, by the termination type of its release."""

UNSCHEDULABLE_TOLD_EVERY_S: Final = 15.0
"""How often it is told of one ask that no node would take it, or that nobody can make room for it where it must be."""

# Applications ---------------------------------------------------------------------------------------------------------


def application(books: Books, application_id: str, change: int, detail: int, *, message: str = "") -> None:
    """An application came, entered a state, or left its queue."""
    books.happened(event_codes.APP, application_id, change, detail, message=message)


def entered(books: Books, entering: Application, message: str = "") -> None:
    """An application entered the state it is in; the message says why if that is known."""
    application(books, entering.application_id, event_codes.SET, ENTERED[entering.state], message=message)


# Allocations ----------------------------------------------------------------------------------------------------------


def ask_removed(books: Books, ask: Allocation, detail: int = event_codes.REQUEST_CANCEL) -> None:
    """Something is no longer asked for; what had a node was asked for until it is gone."""
    books.happened(
        event_codes.APP, ask.application_id, event_codes.REMOVE, detail, reference=ask.key, resource=ask.resources
    )


def node_allocation(books: Books, node_id: str, change: int, allocation: Allocation) -> None:
    """Something, foreign or not, came to a node or left it."""
    books.happened(
        event_codes.NODE,
        node_id,
        change,
        event_codes.NODE_ALLOC,
        reference=allocation.key,
        resource=allocation.resources,
    )


def allocation_added(books: Books, allocation: Allocation) -> None:
    """An application has something that runs."""
    books.happened(
        event_codes.APP,
        allocation.application_id,
        event_codes.ADD,
        event_codes.APP_ALLOC,
        reference=allocation.key,
        resource=allocation.resources,
    )


def allocation_removed(books: Books, allocation: Allocation, termination_type: int | None) -> None:
    """An application lost an allocation by a release of this type, or with its node if there is none.

    With an allocation goes the request for it, unless that goes on; and a time-out of placeholders is told of the
    requests when it begins.
    """
    books.happened(
        event_codes.APP,
        allocation.application_id,
        event_codes.REMOVE,
        REMOVED.get(termination_type, event_codes.ALLOC_CANCEL),
        reference=allocation.key,
        resource=allocation.resources,
    )
    if termination_type is None:
        return
    node_allocation(books, allocation.node_id, event_codes.REMOVE, allocation)
    if termination_type not in (TIMEOUT, SCHEDULING_FAILED_ON_RM):
        ask_removed(books, allocation)


def placeholder_replaced(books: Books, placeholder: Allocation, *, in_place: bool) -> None:
    """A placeholder went, for a real allocation that takes its place. On its own node only the name has changed; the
    request for it ends when that runs.
    """
    books.happened(
        event_codes.APP,
        placeholder.application_id,
        event_codes.REMOVE,
        event_codes.ALLOC_REPLACED,
        reference=placeholder.key,
        resource=placeholder.resources,
    )
    if not in_place:
        node_allocation(books, placeholder.node_id, event_codes.REMOVE, placeholder)


def reservation(books: Books, node_id: str, change: int, ask: Allocation) -> None:
    """A node is kept for an ask, or no longer."""
    books.happened(
        event_codes.NODE,
        node_id,
        change,
        event_codes.NODE_RESERVATION,
        reference=ask.key,
        resource=ask.resources,
    )


# What goes ------------------------------------------------------------------------------------------------------------

_USED: Final = ((event_codes.UG_USER_RESOURCE,), (event_codes.UG_APP_LINK,), (event_codes.UG_GROUP_RESOURCE,))
_STATES: Final = tuple(ENTERED.values())
_ENDED: Final = (*REMOVED.values(),)
_REQUESTED: Final = (event_codes.REQUEST_CANCEL, event_codes.REQUEST_TIMEOUT)
_LEFT: Final = ((event_codes.QUEUE_APP,), (event_codes.DETAILS_NONE,))


def _places(*details: tuple[int, ...]) -> Mapping[int, int]:
    return {detail: place for place, group in enumerate(details) for detail in group}


OF_ALLOCATION: Final = _places(*_USED, _STATES, _ENDED, (event_codes.NODE_ALLOC,), _REQUESTED, *_LEFT)
"""By detail, when it is told of what goes with an allocation: who uses less, which state follows, what is gone, and at
last that the application has left. As YuniKorn tells it.
"""
OF_APPLICATION: Final = _places(_REQUESTED, *_LEFT, _ENDED, *_USED, _STATES, (event_codes.NODE_ALLOC,))
"""The same of what goes with an application that is removed."""
OF_WAITING: Final = _places(_REQUESTED, _STATES, *_LEFT)
"""The same where it only asks for something: with the last request it is done, before it leaves."""
OF_RELEASE: Final = _places(_ENDED, *_USED, _STATES, (event_codes.NODE_ALLOC,), _REQUESTED, *_LEFT)
"""The same of what goes when everything of an application is released at once."""
OF_KEPT: Final = _places((event_codes.NODE_RESERVATION,))
"""Of an ask that gets a node: that no node is kept for it any more comes last."""


def arrange(books: Books, first: int, places: Mapping[int, int]) -> None:
    """Tell what goes, all that was told from this one on, in this order; anything else comes before."""
    books.rearrange(first, lambda happened: places.get(happened[4], -1))


# Nodes ----------------------------------------------------------------------------------------------------------------


def schedulable(books: Books, node_id: str, *, now: bool) -> None:
    """Whether a node takes anything from now on."""
    books.happened(
        event_codes.NODE,
        node_id,
        event_codes.SET,
        event_codes.NODE_SCHEDULABLE,
        message=f"schedulable: {str(now).lower()}",
    )


def node_added(books: Books, node_id: str, capacity: Resources) -> None:
    """A node was registered; told of one whose id is taken too, as the reference does."""
    books.happened(
        event_codes.NODE,
        node_id,
        event_codes.ADD,
        event_codes.DETAILS_NONE,
        message="Node added to the scheduler",
        resource=capacity,
    )


def node_gone(books: Books, node_id: str) -> None:
    """A node left, and with it what was there."""
    books.happened(
        event_codes.NODE,
        node_id,
        event_codes.REMOVE,
        event_codes.NODE_DECOMISSION,
        message="Node removed from the scheduler",
    )


def cluster_resized(books: Books, before: Resources) -> None:
    """The root's maximum, which is the size of the cluster, changed. The amounts are those before, as in the
    reference.
    """
    if before != books.fleet.total:
        root = books.tree.root.path
        books.happened(event_codes.QUEUE, root, event_codes.SET, event_codes.QUEUE_MAX, resource=before)


# Queues ---------------------------------------------------------------------------------------------------------------


def queue_came(books: Books, queue: Queue) -> None:
    """A queue was created."""
    _queue(books, queue, event_codes.ADD)


def queue_gone(books: Books, queue: Queue) -> None:
    """A queue was removed."""
    _queue(books, queue, event_codes.REMOVE)


def _queue(books: Books, queue: Queue, change: int) -> None:
    detail = event_codes.DETAILS_NONE if queue.managed else event_codes.QUEUE_DYNAMIC
    books.happened(event_codes.QUEUE, queue.path, change, detail)


def queue_application(books: Books, queue: Queue, change: int, application_id: str) -> None:
    """An application came to a queue or left it."""
    books.happened(event_codes.QUEUE, queue.path, change, event_codes.QUEUE_APP, reference=application_id)


def quota_changed(books: Books, queue: Queue, maximum: Limit | None, guaranteed: Resources | None) -> None:
    """A queue has other settings than these, unless they are the same."""
    for detail, before, now in (
        (event_codes.QUEUE_MAX, maximum, queue.maximum),
        (event_codes.QUEUE_GUARANTEED, guaranteed, queue.guaranteed),
    ):
        if before != now:
            books.happened(event_codes.QUEUE, queue.path, event_codes.SET, detail, resource=now or {})


def queue_type(books: Books, queue: Queue) -> None:
    """A leaf became a parent, or the other way round."""
    books.happened(
        event_codes.QUEUE,
        queue.path,
        event_codes.SET,
        event_codes.QUEUE_TYPE,
        message=f"leaf queue: {str(queue.leaf).lower()}",
    )


# Applications that may not run, and requests --------------------------------------------------------------------------


def may_run(books: Books, application: Application, *, in_queue: bool, by_quota: bool) -> None:
    """Whether an application that wants to start to run may, as far as the number of applications in its queues and
    of its user and group goes.
    """
    if application.held_by_queue is in_queue:
        application.held_by_queue = not in_queue
        detail = event_codes.APP_RUNNABLE_QUEUE if in_queue else event_codes.APP_CANNOTRUN_QUEUE
        books.happened(event_codes.APP, application.application_id, event_codes.NONE, detail)
    if application.held_by_quota is by_quota:
        application.held_by_quota = not by_quota
        detail = event_codes.APP_RUNNABLE_QUOTA if by_quota else event_codes.APP_CANNOTRUN_QUOTA
        books.happened(event_codes.APP, application.application_id, event_codes.NONE, detail)


def quota_room(books: Books, ask: Allocation, account: Account, *, found: bool) -> None:
    """Whether the user and group of an ask have room for it, told when that is another than before."""
    if ask.lacks_quota is not found:
        return
    ask.lacks_quota = not found
    if found:
        request(books, ask, f"Request '{ask.key}' fits in the available user quota")
        return
    amounts = f"(requested {text(ask.resources)}, available {text(account.headroom() or {})})"
    request(books, ask, f"Request '{ask.key}' exceeds the available user quota {amounts}")


def queue_room(books: Books, ask: Allocation, leaf: Queue, *, found: bool) -> None:
    """Whether the queues of an ask have room for it, told when that is another than before."""
    if ask.lacks_queue_room is not found:
        return
    ask.lacks_queue_room = not found
    if found:
        request(books, ask, f"Request '{ask.key}' has become schedulable in queue '{leaf.path}'")
        return
    amounts = f"(requested {text(ask.resources)}, available {text(headroom(leaf) or {})})"
    request(books, ask, f"Request '{ask.key}' does not fit in queue '{leaf.path}' {amounts}")


def unschedulable(books: Books, ask: Allocation, reasons: Mapping[str, int]) -> None:
    """No node would take an ask for these reasons, each with the number of nodes; told from time to time."""
    if reasons and books.now >= ask.unschedulable_told_at + UNSCHEDULABLE_TOLD_EVERY_S:
        ask.unschedulable_told_at = books.now
        told = "".join(f"{reason} ({reasons[reason]}x); " for reason in sorted(reasons))
        request(books, ask, f"Unschedulable request '{ask.key}': {told}")


def no_victim(books: Books, ask: Allocation) -> None:
    """Nobody on the node that an ask requires can make room for it, told from time to time."""
    if books.now >= ask.no_victim_told_at + UNSCHEDULABLE_TOLD_EVERY_S:
        ask.no_victim_told_at = books.now
        node_id = ask.need.required_node
        told = f"Unschedulable request '{ask.key}' with required node '{node_id}', no preemption victim found"
        request(books, ask, told)


def preempted(books: Books, victim: Allocation, ask: Allocation, leaf: Queue) -> None:
    """An allocation is preempted for an ask of this queue."""
    told = f"Preempted by {ask.key} from application {ask.application_id} in {leaf.path}"
    request(books, victim, told)


def not_matching(books: Books, ask: Allocation, placeholder: Allocation) -> None:
    """An ask is larger than the placeholder whose place it would take, which goes."""
    told = (
        f"Task group '{ask.task_group}' in application '{ask.application_id}': allocation resources "
        f"'{text(ask.resources)}' are not matching placeholder '{text(placeholder.resources)}' allocation with ID "
        f"'{placeholder.key}'"
    )
    request(books, placeholder, told, ask.resources)


def request(books: Books, ask: Allocation, message: str, resource: Resources | None = None) -> None:
    """Something to say about an ask or allocation, and these amounts or else its own."""
    books.happened(
        event_codes.REQUEST,
        ask.key,
        event_codes.NONE,
        event_codes.DETAILS_NONE,
        reference=ask.application_id,
        message=message,
        resource=ask.resources if resource is None else resource,
    )
