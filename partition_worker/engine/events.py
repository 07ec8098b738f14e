"""Scheduler events: functions that record the events of applications, allocations, nodes, queues and requests.

Events only go to the event ring buffer (`partition_worker/event_ring.py`); the RM is informed in other ways. An event
that is recorded in one place only is recorded there with `record_event`; this module has those with several callers, or
with a condition.

Equal asks are tried once for all, so a request event is recorded for the first ask of its group. A lack of quota or
room is recorded once, and once more when it ends.
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
from partition_worker.engine.queues.headroom import headroom
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.state import PartitionState
from partition_worker.engine.usage_trackers import UsageAccount

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
"""Event detail by the state that was entered."""

REMOVED: Final[Mapping[int | None, int]] = {
    None: event_codes.ALLOC_NODEREMOVED,
    UNKNOWN_TERMINATION: event_codes.ALLOC_NODEREMOVED,
    STOPPED_BY_RM: event_codes.ALLOC_CANCEL,
    TIMEOUT: event_codes.ALLOC_TIMEOUT,
    PREEMPTED_BY_SCHEDULER: event_codes.ALLOC_PREEMPT,
    PLACEHOLDER_REPLACED: event_codes.ALLOC_REPLACED,
}
"""Event detail by the termination type of an allocation's release."""

UNSCHEDULABLE_TOLD_EVERY_S: Final = 15.0
"""Minimum seconds between events about the same ask that no node or victim can satisfy."""

# Applications ---------------------------------------------------------------------------------------------------------


def application(state: PartitionState, application_id: str, change: int, detail: int, *, message: str = "") -> None:
    """Record that an application was added, entered a state, or left its queue."""
    state.record_event(event_codes.APP, application_id, change, detail, message=message)


def entered(state: PartitionState, entering: Application, message: str = "") -> None:
    """Record that an application entered its present state, with the reason if known."""
    application(state, entering.application_id, event_codes.SET, ENTERED[entering.state], message=message)


# Allocations ----------------------------------------------------------------------------------------------------------


def ask_removed(state: PartitionState, ask: Allocation, detail: int = event_codes.REQUEST_CANCEL) -> None:
    """Record that an ask was removed; the ask of an allocation lasts as long as the allocation."""
    state.record_event(
        event_codes.APP, ask.application_id, event_codes.REMOVE, detail, reference=ask.key, resource=ask.resources
    )


def node_allocation(state: PartitionState, node_id: str, change: int, allocation: Allocation) -> None:
    """Record that a native or foreign allocation was added to a node or removed."""
    state.record_event(
        event_codes.NODE,
        node_id,
        change,
        event_codes.NODE_ALLOC,
        reference=allocation.key,
        resource=allocation.resources,
    )


def allocation_added(state: PartitionState, allocation: Allocation) -> None:
    """Record that an application has a new allocation."""
    state.record_event(
        event_codes.APP,
        allocation.application_id,
        event_codes.ADD,
        event_codes.APP_ALLOC,
        reference=allocation.key,
        resource=allocation.resources,
    )


def allocation_removed(state: PartitionState, allocation: Allocation, termination_type: int | None) -> None:
    """Record that an allocation was removed, by a release of this type or with its node (None).

    Its request is removed as well, unless that becomes pending again; a placeholder timeout records the requests when
    it starts.
    """
    state.record_event(
        event_codes.APP,
        allocation.application_id,
        event_codes.REMOVE,
        REMOVED.get(termination_type, event_codes.ALLOC_CANCEL),
        reference=allocation.key,
        resource=allocation.resources,
    )
    if termination_type is None:
        return
    node_allocation(state, allocation.node_id, event_codes.REMOVE, allocation)
    if termination_type not in (TIMEOUT, SCHEDULING_FAILED_ON_RM):
        ask_removed(state, allocation)


def placeholder_replaced(state: PartitionState, placeholder: Allocation, *, in_place: bool) -> None:
    """Record the replacement of a placeholder. In place, the node's allocation only changes its name; the request event
    follows when the real allocation runs.
    """
    state.record_event(
        event_codes.APP,
        placeholder.application_id,
        event_codes.REMOVE,
        event_codes.ALLOC_REPLACED,
        reference=placeholder.key,
        resource=placeholder.resources,
    )
    if not in_place:
        node_allocation(state, placeholder.node_id, event_codes.REMOVE, placeholder)


def reservation(state: PartitionState, node_id: str, change: int, ask: Allocation) -> None:
    """Record that a node is reserved for an ask, or no longer."""
    state.record_event(
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
"""Order of the events of a removed allocation, by detail, as in YuniKorn: usage, state, allocation, request, and last
the application.
"""
OF_APPLICATION: Final = _places(_REQUESTED, *_LEFT, _ENDED, *_USED, _STATES, (event_codes.NODE_ALLOC,))
"""Order of the events of a removed application."""
OF_WAITING: Final = _places(_REQUESTED, _STATES, *_LEFT)
"""Order of the events of a removed application that only had asks."""
OF_RELEASE: Final = _places(_ENDED, *_USED, _STATES, (event_codes.NODE_ALLOC,), _REQUESTED, *_LEFT)
"""Order of the events of a release of everything an application has."""
OF_KEPT: Final = _places((event_codes.NODE_RESERVATION,))
"""An ask with a reservation was allocated: the end of the reservation comes last."""


def arrange(state: PartitionState, first: int, places: Mapping[int, int]) -> None:
    """Sort the events from this index on by such an order; other details come first."""
    state.sort_events(first, lambda event: places.get(event[4], -1))


# Nodes ----------------------------------------------------------------------------------------------------------------


def schedulable(state: PartitionState, node_id: str, *, now: bool) -> None:
    """Record whether a node is schedulable."""
    state.record_event(
        event_codes.NODE,
        node_id,
        event_codes.SET,
        event_codes.NODE_SCHEDULABLE,
        message=f"schedulable: {str(now).lower()}",
    )


def node_added(state: PartitionState, node_id: str, capacity: Resources) -> None:
    """Record that a node was registered, also if its id is already in use, as the reference does."""
    state.record_event(
        event_codes.NODE,
        node_id,
        event_codes.ADD,
        event_codes.DETAILS_NONE,
        message="Node added to the scheduler",
        resource=capacity,
    )


def node_gone(state: PartitionState, node_id: str) -> None:
    """Record that a node was removed."""
    state.record_event(
        event_codes.NODE,
        node_id,
        event_codes.REMOVE,
        event_codes.NODE_DECOMISSION,
        message="Node removed from the scheduler",
    )


def cluster_resized(state: PartitionState, before: Resources) -> None:
    """Record a change of the cluster size, which is the root's maximum. The amounts are the previous ones, as in the
    reference.
    """
    if before != state.nodes.total:
        root = state.tree.root.path
        state.record_event(event_codes.QUEUE, root, event_codes.SET, event_codes.QUEUE_MAX, resource=before)


# Queues ---------------------------------------------------------------------------------------------------------------


def queue_came(state: PartitionState, queue: Queue) -> None:
    """Record that a queue was created."""
    _queue(state, queue, event_codes.ADD)


def queue_gone(state: PartitionState, queue: Queue) -> None:
    """Record that a queue was removed."""
    _queue(state, queue, event_codes.REMOVE)


def _queue(state: PartitionState, queue: Queue, change: int) -> None:
    detail = event_codes.DETAILS_NONE if queue.managed else event_codes.QUEUE_DYNAMIC
    state.record_event(event_codes.QUEUE, queue.path, change, detail)


def queue_application(state: PartitionState, queue: Queue, change: int, application_id: str) -> None:
    """Record that an application was added to a queue or removed."""
    state.record_event(event_codes.QUEUE, queue.path, change, event_codes.QUEUE_APP, reference=application_id)


def quota_changed(state: PartitionState, queue: Queue, maximum: Limit | None, guaranteed: Resources | None) -> None:
    """Record changes of a queue's maximum and guarantee from these values."""
    for detail, before, now in (
        (event_codes.QUEUE_MAX, maximum, queue.maximum),
        (event_codes.QUEUE_GUARANTEED, guaranteed, queue.guaranteed),
    ):
        if before != now:
            state.record_event(event_codes.QUEUE, queue.path, event_codes.SET, detail, resource=now or {})


def queue_type(state: PartitionState, queue: Queue) -> None:
    """Record that a leaf became a parent, or the reverse."""
    state.record_event(
        event_codes.QUEUE,
        queue.path,
        event_codes.SET,
        event_codes.QUEUE_TYPE,
        message=f"leaf queue: {str(queue.leaf).lower()}",
    )


# Applications that may not run, and requests --------------------------------------------------------------------------


def may_run(state: PartitionState, application: Application, *, in_queue: bool, by_quota: bool) -> None:
    """Record changes of whether the application limits of queues and of user and group let an application start."""
    if application.held_by_queue is in_queue:
        application.held_by_queue = not in_queue
        detail = event_codes.APP_RUNNABLE_QUEUE if in_queue else event_codes.APP_CANNOTRUN_QUEUE
        state.record_event(event_codes.APP, application.application_id, event_codes.NONE, detail)
    if application.held_by_quota is by_quota:
        application.held_by_quota = not by_quota
        detail = event_codes.APP_RUNNABLE_QUOTA if by_quota else event_codes.APP_CANNOTRUN_QUOTA
        state.record_event(event_codes.APP, application.application_id, event_codes.NONE, detail)


def quota_room(state: PartitionState, ask: Allocation, account: UsageAccount, *, found: bool) -> None:
    """Record a change of whether the user and group of an ask have room for it."""
    if ask.lacks_quota is not found:
        return
    ask.lacks_quota = not found
    if found:
        request(state, ask, f"Request '{ask.key}' fits in the available user quota")
        return
    amounts = f"(requested {text(ask.resources)}, available {text(account.headroom() or {})})"
    request(state, ask, f"Request '{ask.key}' exceeds the available user quota {amounts}")


def queue_room(state: PartitionState, ask: Allocation, leaf: Queue, *, found: bool) -> None:
    """Record a change of whether the queues of an ask have room for it."""
    if ask.lacks_queue_room is not found:
        return
    ask.lacks_queue_room = not found
    if found:
        request(state, ask, f"Request '{ask.key}' has become schedulable in queue '{leaf.path}'")
        return
    amounts = f"(requested {text(ask.resources)}, available {text(headroom(leaf) or {})})"
    request(state, ask, f"Request '{ask.key}' does not fit in queue '{leaf.path}' {amounts}")


def unschedulable(state: PartitionState, ask: Allocation, reasons: Mapping[str, int]) -> None:
    """Record why no node takes an ask, with the number of nodes for each reason; rate-limited."""
    if reasons and state.now >= ask.unschedulable_told_at + UNSCHEDULABLE_TOLD_EVERY_S:
        ask.unschedulable_told_at = state.now
        told = "".join(f"{reason} ({reasons[reason]}x); " for reason in sorted(reasons))
        request(state, ask, f"Unschedulable request '{ask.key}': {told}")


def no_victim(state: PartitionState, ask: Allocation) -> None:
    """Record that no victim on the required node of an ask helps it; rate-limited."""
    if state.now >= ask.no_victim_told_at + UNSCHEDULABLE_TOLD_EVERY_S:
        ask.no_victim_told_at = state.now
        node_id = ask.shape.required_node
        told = f"Unschedulable request '{ask.key}' with required node '{node_id}', no preemption victim found"
        request(state, ask, told)


def preempted(state: PartitionState, victim: Allocation, ask: Allocation, leaf: Queue) -> None:
    """Record that an allocation is preempted for an ask of this queue."""
    told = f"Preempted by {ask.key} from application {ask.application_id} in {leaf.path}"
    request(state, victim, told)


def not_matching(state: PartitionState, ask: Allocation, placeholder: Allocation) -> None:
    """Record that a placeholder is released because an ask of its group is larger."""
    told = (
        f"Task group '{ask.task_group}' in application '{ask.application_id}': allocation resources "
        f"'{text(ask.resources)}' are not matching placeholder '{text(placeholder.resources)}' allocation with ID "
        f"'{placeholder.key}'"
    )
    request(state, placeholder, told, ask.resources)


def request(state: PartitionState, ask: Allocation, message: str, resource: Resources | None = None) -> None:
    """Record a message about an ask or allocation, with these amounts or its own."""
    state.record_event(
        event_codes.REQUEST,
        ask.key,
        event_codes.NONE,
        event_codes.DETAILS_NONE,
        reference=ask.application_id,
        message=message,
        resource=ask.resources if resource is None else resource,
    )
