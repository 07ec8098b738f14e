"""Scheduler events: functions that record the events of applications, allocations, nodes, queues and requests.

Events only go to the event ring buffer (`partition_worker/event_ring_buffer.py`); the RM is informed in other ways. The
methods of the state record an event as it is; this module has the events that depend on a condition or are recorded in
several places.

Equal asks are tried once for all, so a request event is recorded for the first ask of its group. A lack of quota or
room is recorded once, and once more when it ends.
"""

from collections.abc import Mapping
from typing import Final

from yunishard.common.messages import event_codes, rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason
from yunishard.common.resources import Limit, text
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.attempt_log import (
    LIMITS_FULL,
    QUEUES_FULL,
    WaitCause,
    log_attempt,
)
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState

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
    rm_messages.UNKNOWN_TERMINATION: event_codes.ALLOC_NODEREMOVED,
    rm_messages.STOPPED_BY_RM: event_codes.ALLOC_CANCEL,
    rm_messages.TIMEOUT: event_codes.ALLOC_TIMEOUT,
    rm_messages.PREEMPTED_BY_SCHEDULER: event_codes.ALLOC_PREEMPT,
    rm_messages.PLACEHOLDER_REPLACED: event_codes.ALLOC_REPLACED,
}
"""Event detail by the termination type of an allocation's release."""

UNSCHEDULABLE_TOLD_EVERY_S: Final = 15.0
"""Minimum seconds between events about the same ask that no node or victim can satisfy."""

# Applications and allocations -----------------------------------------------------------------------------------------


def record_may_run(state: PartitionState, application: Application, *, in_queue: bool, by_quota: bool) -> None:
    """Record changes of whether the application limits of queues and of user and group let an application start."""
    details = []
    if application.held_by_queue is in_queue:
        application.held_by_queue = not in_queue
        details.append(event_codes.APP_RUNNABLE_QUEUE if in_queue else event_codes.APP_CANNOTRUN_QUEUE)
    if application.held_by_quota is by_quota:
        application.held_by_quota = not by_quota
        details.append(event_codes.APP_RUNNABLE_QUOTA if by_quota else event_codes.APP_CANNOTRUN_QUOTA)
    for detail in details:
        state.record_event(event_codes.APP, application.application_id, event_codes.NONE, detail)


def record_removal(state: PartitionState, allocation: Allocation, termination_type: int | None) -> None:
    """Record that an allocation was removed, by a release of this type or with its node (None).

    Its request is removed as well, unless that becomes pending again; a placeholder timeout records the requests when
    it starts.
    """
    detail = REMOVED.get(termination_type, event_codes.ALLOC_CANCEL)
    state.record_application_event(event_codes.REMOVE, detail, allocation)
    if termination_type is None:
        return
    state.record_node_event(allocation.node_id, event_codes.REMOVE, allocation)
    if termination_type not in (rm_messages.TIMEOUT, rm_messages.SCHEDULING_FAILED_ON_RM):
        state.record_application_event(event_codes.REMOVE, event_codes.REQUEST_CANCEL, allocation)


# Order of the events of a removal -------------------------------------------------------------------------------------

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


# Nodes and queues -----------------------------------------------------------------------------------------------------


def record_schedulable(state: PartitionState, node_id: str, *, schedulable: bool) -> None:
    """Record whether a node is schedulable."""
    message = f"schedulable: {str(schedulable).lower()}"
    state.record_event(event_codes.NODE, node_id, event_codes.SET, event_codes.NODE_SCHEDULABLE, message=message)


def record_cluster_size(state: PartitionState, before: Resources) -> None:
    """Record a change of the cluster size, which is the root's maximum. The amounts are the previous ones, as in the
    reference.
    """
    if before != state.nodes.total:
        root = state.tree.root.path
        state.record_event(event_codes.QUEUE, root, event_codes.SET, event_codes.QUEUE_MAX, resource=before)


def record_queue(state: PartitionState, queue: Queue, change: int) -> None:
    """Record that a queue was created or removed."""
    detail = event_codes.DETAILS_NONE if queue.managed else event_codes.QUEUE_DYNAMIC
    state.record_event(event_codes.QUEUE, queue.path, change, detail)


def record_quota(state: PartitionState, queue: Queue, maximum: Limit | None, guaranteed: Resources | None) -> None:
    """Record changes of a queue's maximum and guarantee from these values."""
    for detail, before, now in (
        (event_codes.QUEUE_MAX, maximum, queue.maximum),
        (event_codes.QUEUE_GUARANTEED, guaranteed, queue.guaranteed),
    ):
        if before != now:
            state.record_event(event_codes.QUEUE, queue.path, event_codes.SET, detail, resource=now or {})


# Requests -------------------------------------------------------------------------------------------------------------


def record_failure(state: PartitionState, ask: Allocation, cause: WaitCause) -> None:
    """Count a failed attempt to place an ask in the log of its group, and record its event: once that its user, its
    group or its queues have no room, from time to time which nodes refuse it or have no victim for it.
    """
    assert ask.group is not None, ask.key
    log_attempt(ask.group.log, cause, state.now)
    code = cause.code
    if code in LIMITS_FULL:
        if not ask.lacks_quota:
            ask.lacks_quota = True
            account = state.usage.account(state.applications[ask.application_id])
            lack = _format_lack(ask, account.headroom())
            record_request(state, ask, f"Request '{ask.key}' exceeds the available user quota {lack}")
    elif code in QUEUES_FULL:
        if not ask.lacks_queue_room:
            ask.lacks_queue_room = True
            leaf = state.applications[ask.application_id].queue
            lack = _format_lack(ask, leaf.compute_headroom())
            record_request(state, ask, f"Request '{ask.key}' does not fit in queue '{leaf.path}' {lack}")
    elif code is Reason.NO_NODE_FITS and cause.nodes:  # they are counted from time to time only
        ask.unschedulable_told_at = state.now
        told = "".join(f"{reason} ({cause.nodes[reason]}x); " for reason in sorted(cause.nodes))
        record_request(state, ask, f"Unschedulable request '{ask.key}': {told}")
    elif code is Reason.REQUIRED_NODE_FULL and state.now >= ask.unschedulable_told_at + UNSCHEDULABLE_TOLD_EVERY_S:
        ask.unschedulable_told_at = state.now
        told = f"Unschedulable request '{ask.key}' with required node '{cause.node}', no preemption victim found"
        record_request(state, ask, told)


def _format_lack(ask: Allocation, available: Limit | None) -> str:
    return f"(requested {text(ask.resources)}, available {text(available or {})})"


def record_quota_room(state: PartitionState, ask: Allocation) -> None:
    """Record that the user and the group of an ask have room for it again."""
    ask.lacks_quota = False
    record_request(state, ask, f"Request '{ask.key}' fits in the available user quota")


def record_queue_room(state: PartitionState, ask: Allocation, leaf: Queue) -> None:
    """Record that the queues of an ask have room for it again."""
    ask.lacks_queue_room = False
    record_request(state, ask, f"Request '{ask.key}' has become schedulable in queue '{leaf.path}'")


def record_request(state: PartitionState, ask: Allocation, message: str, resource: Resources | None = None) -> None:
    """Record a message about an ask or allocation, with these amounts or its own."""
    amounts, none = ask.resources if resource is None else resource, event_codes.DETAILS_NONE
    state.record_event(event_codes.REQUEST, ask.key, event_codes.NONE, none, ask.application_id, amounts, message)


# Events sent to the RM ------------------------------------------------------------------------------------------------


def emit_record(
    state: PartitionState, kind: int, object_id: str, message: str, at_ns: int, reference_id: str = ""
) -> None:
    """Send an event to the RM, also if it did not ask for events."""
    state.emit(
        rm_messages.EventRecord(
            type=kind,
            object_id=object_id,
            message=message,
            timestamp_nano=at_ns,
            event_change_type=event_codes.SET,
            event_change_detail=event_codes.DETAILS_NONE,
            reference_id=reference_id,
        )
    )
