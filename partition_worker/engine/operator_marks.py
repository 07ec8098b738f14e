"""Operators stop and start queues, and cordon, uncordon and drain nodes.

    queue   active --stop--> stopped --start--> active
    node    open --cordon, or drain--> cordoned --uncordon--> open, unless the RM drains it

A stopped queue, and each queue below it, takes no new applications, and its asks get nothing new; its allocations
continue. Only an application that probably runs already, as its RM forces it, is accepted.

A cordoned node gets nothing new, like a node that the RM drains, and also nothing for which it was reserved. As there,
asks that require the node (daemon sets) still get it, and an ask may still replace a placeholder on it. The RM's own
flag is independent: a node is open if the RM does not drain it and no operator cordoned it.

To drain a node is to cordon it and to ask the RM to release what runs there, all at once, as preemption does; the RM
decides how long each release takes. Allocations that require the node stay, as they would come back at once.

The marks belong to the partition (`Tree.stops`, `Nodes.cordons`), not to its queues and nodes: they last until an
operator removes them, also over other configurations, a node that is registered again, and new sessions of the RM.
"""

from typing import Final, NamedTuple

from yunishard.common.messages import event_codes
from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.rm_messages import PREEMPTED_BY_SCHEDULER
from yunishard.common.names import RECOVERY_QUEUE
from yunishard.common.text_formats import format_count
from yunishard.partition_worker.engine import events, ledger, reservations
from yunishard.partition_worker.engine.administration import NotDone, check_administers, no_queue
from yunishard.partition_worker.engine.durable_records import OperatorMark
from yunishard.partition_worker.engine.gang_scheduling import unwind_swap
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.nodes.nodes import CORDONS_MAX
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.queues.tree import STOPS_MAX
from yunishard.partition_worker.engine.state import PartitionState

REASON_MAX: Final = 256
"""Characters of the reason that an operator gives; a longer one is refused."""


# Queues -------------------------------------------------------------------------------------------------------------


def stop_queue(state: PartitionState, path: str, reason: str, actor: Actor) -> None:
    """Stop a queue; repeated, only the mark changes.

    Raises: NotDone: 404 for an unknown queue, 403 without the right, 400 for the recovery queue, 409 for a draining
    queue or too many stopped ones.
    """
    queue, stops = _find_queue(state, path, actor), state.tree.stops
    if queue.path == RECOVERY_QUEUE:
        raise NotDone(400, f"the recovery queue {queue.path} cannot be stopped: it takes what runs already")
    if queue.draining:
        raise NotDone(409, f"queue {queue.path} is draining: it takes no applications, and ends once it is empty")
    if len(stops) >= STOPS_MAX and queue.path not in stops:
        raise NotDone(409, f"the partition has {STOPS_MAX} stopped queues, it takes no more: start some of them")
    was_stopped = queue.stopped
    queue.stop = stops[queue.path] = _make_mark(state, reason, actor)
    if not was_stopped:
        for reservation in tuple(state.reservation_index.by_rank.values()):  # or its node would stay reserved
            if queue in reservation.leaf.ancestry():
                reservations.cancel(state, reservation)
    _update_queue(state, queue, f"queue {queue.path} was stopped by {actor.user}", reason)


def start_queue(state: PartitionState, path: str, actor: Actor) -> None:
    """Start a queue that was stopped, or that is not stopped.

    Raises: NotDone: 404 for an unknown queue, 403 without the right.
    """
    queue = state.tree.find(path)
    if queue is None and path.lower() in state.tree.stops and actor.scheduler_admin:
        del state.tree.stops[path.lower()]  # it was dynamic, and ended with an earlier session
        state.changes.partition = True
        return
    queue = _find_queue(state, path, actor)
    if queue.stopped:
        del state.tree.stops[queue.path]
        queue.stop = None
        _update_queue(state, queue, f"queue {queue.path} was started by {actor.user}")


def _find_queue(state: PartitionState, path: str, actor: Actor) -> Queue:
    queue = state.tree.find(path)
    if queue is None:
        raise no_queue(path)
    check_administers(actor, queue)
    return queue


def _update_queue(state: PartitionState, queue: Queue, told: str, reason: str = "") -> None:
    """Record a change of a stop, and offer what waits in the queue, or keep it from being tried."""
    state.changes.partition = True
    state.readiness.touch(queue)
    state.swap_candidates.reorder()
    state.readiness.retry_parked()
    _tell(state, event_codes.QUEUE, queue.path, told, reason)


# Nodes --------------------------------------------------------------------------------------------------------------


class NodeCounts(NamedTuple):
    """The allocations on a node, by whether a drain asks for their release."""

    running: int = 0
    """Allocations that a drain asks the RM to release, and has not yet."""
    leaving: int = 0
    """Allocations whose release the RM was asked for and has not confirmed."""
    required: int = 0
    """Allocations that require the node, and stay."""
    foreign: int = 0
    """Allocations of other schedulers, which stay."""


def count_on_node(node: Node) -> NodeCounts:
    """Count what is on a node."""
    there = node.allocations.values()
    staying = [one for one in there if not (one.released or one.preempted)]
    required = sum([bool(one.shape.required_node) for one in staying])
    return NodeCounts(len(staying) - required, len(there) - len(staying), required, len(node.foreign))


def cordon_node(state: PartitionState, node_id: str, reason: str, actor: Actor) -> None:
    """Cordon a node; repeated, only the mark changes.

    Raises: NotDone: 404 for an unknown node, 409 if too many are cordoned.
    """
    node, cordons = _find_node(state, node_id), state.nodes.cordons
    if len(cordons) >= CORDONS_MAX and node_id not in cordons:
        raise NotDone(409, f"the partition has {CORDONS_MAX} cordoned nodes, it takes no more: uncordon some of them")
    mark = cordons[node_id] = _make_mark(state, reason, actor)
    state.changes.partition = True
    reservations.cancel_on_node(state, node, keep_required=True)
    _set_cordon(state, node, mark)
    _tell(state, event_codes.NODE, node_id, f"node {node_id} was cordoned by {actor.user}", reason)


def uncordon_node(state: PartitionState, node_id: str, actor: Actor) -> None:
    """Remove the cordon of a node, which may be gone.

    Raises: NotDone: 404 for an unknown node.
    """
    is_cordoned = state.nodes.cordons.pop(node_id, None) is not None
    node = state.nodes.get(node_id) if is_cordoned else _find_node(state, node_id)
    if is_cordoned:
        state.changes.partition = True
        if node is not None:
            _set_cordon(state, node, None)
        _tell(state, event_codes.NODE, node_id, f"node {node_id} was uncordoned by {actor.user}")


def drain_node(state: PartitionState, node_id: str, reason: str, actor: Actor) -> None:
    """Cordon a node, and ask the RM to release what runs there; repeated, what came since.

    An ask that was to replace a placeholder and would run here waits again, as if the node left.

    Raises: NotDone: as `cordon_node`.
    """
    cordon_node(state, node_id, reason, actor)
    why = f"node {node_id} is drained by {actor.user}{f': {reason}' if reason else ''}"
    for allocation in tuple(_find_node(state, node_id).allocations.values()):
        application = state.applications[allocation.application_id]
        partner = allocation.partner
        if allocation.key in application.swapping:
            unwind_swap(state, application, allocation)
        elif partner is not None and partner.node_id == node_id:
            unwind_swap(state, application, partner)
        elif not (allocation.released or allocation.preempted or allocation.shape.required_node):
            ledger.mark_preempted(state, application, allocation)
            events.record_request(state, allocation, f"Preempted as {why}")
            state.emit(allocation.release(state.name, why, PREEMPTED_BY_SCHEDULER))
    state.readiness.retry_parked()


def _find_node(state: PartitionState, node_id: str) -> Node:
    node = state.nodes.get(node_id)
    if node is None:
        raise NotDone(404, f"node {node_id} does not exist in partition {state.name}")
    return node


def _set_cordon(state: PartitionState, node: Node, mark: OperatorMark | None) -> None:
    was_open = node.is_open
    state.nodes.set_cordon(node, mark)
    if node.is_open != was_open:
        events.record_schedulable(state, node.node_id, schedulable=node.is_open)
    state.readiness.retry_parked()


# Both ---------------------------------------------------------------------------------------------------------------


def _make_mark(state: PartitionState, reason: str, actor: Actor) -> OperatorMark:
    if len(reason) > REASON_MAX:
        raise NotDone(400, f"the reason has {format_count(len(reason), 'character')}, at most {REASON_MAX} are allowed")
    return OperatorMark(actor.user, state.stamp_ns(), reason)


def _tell(state: PartitionState, kind: int, name: str, told: str, reason: str = "") -> None:
    """Log what was done, and record it as an event for users and for the RM."""
    text = f"{told}: {reason}" if reason else told
    state.log_info(text)
    state.record_event(kind, name, event_codes.SET, event_codes.DETAILS_NONE, message=text)
    events.emit_record(state, kind, name, text, state.stamp_ns())
