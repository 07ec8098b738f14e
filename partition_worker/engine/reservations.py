"""Reservations: create, resize, cancel and expire them.

A node is reserved for one ask, or for several asks that each require this node. After a preemption the queues of the
ask also keep the freed room for it, so that no other ask below a queue with a maximum takes it. `queue_traversal.py`
decides which ask gets a reservation, and uses it.
"""

from common import event_codes
from common.resources import fits
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.nodes.node_index import Node, Reservation
from partition_worker.engine.state import PartitionState


def reserve(state: PartitionState, application: Application, ask: Allocation, node: Node) -> Reservation:
    """Reserve the node for the ask, in place of an earlier reservation of the ask."""
    index = state.reservation_index
    if ask.reserved:
        before = application.reservations[ask.key]
        if before.node is node:
            return before
        cancel(state, before)
    assert ask.key in application.requests, ask.key
    index.ranks += 1
    reservation = Reservation(ask, node, application.queue, created=state.now, rank=index.ranks)
    others = node.reservations.values()
    assert all(reservation.for_required_node and other.for_required_node for other in others), node.node_id
    ask.reserved = True
    state.changes.reservations[ask.key] = None
    application.reservations[ask.key] = node.reservations[ask.key] = reservation
    application.asks.regroup(ask)
    state.nodes.reindex(node)
    index.insert(reservation)
    state.record_node_event(node.node_id, event_codes.ADD, ask, event_codes.NODE_RESERVATION)
    state.readiness.touch_application(application)
    return reservation


def cancel(state: PartitionState, reservation: Reservation) -> None:
    """Cancel a reservation."""
    ask, node = reservation.ask, reservation.node
    application = state.applications[ask.application_id]
    ask.reserved = False
    state.changes.reservations[ask.key] = None
    del application.reservations[ask.key], node.reservations[ask.key]
    state.record_node_event(node.node_id, event_codes.REMOVE, ask, event_codes.NODE_RESERVATION)
    state.reservation_index.remove(reservation)
    if reservation.keeps:
        reservation.leaf.subtract_kept(reservation.keeps)
        reservation.keeps = {}
        state.readiness.wake_searches(state.preemptions.end_pause(ask))
    if ask.key in application.requests:
        application.asks.regroup(ask)
    if not node.reservations:
        state.nodes.reopen(node)
    state.readiness.touch_application(application)
    state.readiness.retry_parked()


def cancel_on_node(state: PartitionState, node: Node, *, keep_required: bool = False) -> None:
    """Cancel the reservations of a node, except with `keep_required` those whose asks require it."""
    for reservation in tuple(node.reservations.values()):
        if not (keep_required and reservation.for_required_node):
            cancel(state, reservation)


def expire(state: PartitionState) -> None:
    """Cancel reservations that have reached their maximum age; their asks may reserve again, after others."""
    while state.reservation_index.deadline <= state.now:
        cancel(state, next(iter(state.reservation_index.by_rank.values())))


def update_for_resized_ask(state: PartitionState, reservation: Reservation) -> None:
    """Update the reservation of a resized ask, or cancel it if the node can never hold the ask."""
    ask = reservation.ask
    if not fits(reservation.node.capacity, ask.resources):
        cancel(state, reservation)
        return
    if reservation.keeps:
        reservation.leaf.subtract_kept(reservation.keeps)
        reservation.leaf.add_kept(ask.resources)
    state.reservation_index.update(reservation, ask.shape, ask.resources if reservation.keeps else {})
    state.readiness.retry_parked()  # other nodes may have room for it now


def update_for_changed_node(state: PartitionState, node: Node) -> None:
    """Cancel the reservations that a node with other amounts or attributes can never satisfy, and check the others. An
    ask that requires the node keeps its reservation whatever the attributes are, as it waits for no other node.
    """
    predicates = state.nodes.predicates
    for reservation in tuple(node.reservations.values()):
        constraint = reservation.shape.constraint
        demands = predicates.no_demands if constraint is None else constraint.demands
        is_accepted = reservation.for_required_node or predicates.meets(demands, node)
        if not (is_accepted and fits(node.capacity, reservation.ask.resources)):
            cancel(state, reservation)
    state.reservation_index.recheck_node(node)


def keep_room(state: PartitionState, reservation: Reservation) -> None:
    """Let the queues of an ask keep the room that its victims leave."""
    assert not reservation.keeps, reservation.ask.key
    state.reservation_index.update(reservation, reservation.shape, reservation.ask.resources)
    reservation.leaf.add_kept(reservation.keeps)
    state.changes.reservations[reservation.ask.key] = None
