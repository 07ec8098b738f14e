"""Decisions for asks with a reservation.

An ask that fits its reserved node gets it, if its queues, its user and its group have room. Otherwise an ask that fits
an unreserved node gets that, or else one that is reserved for asks of lower priority, unless it requires its reserved
node. An ask that requires a node without room preempts less important allocations there, if its queues have room once
these have left. Of several such asks, the one of the most deserving queue comes first, then the one of the highest
priority, then the one with the oldest reservation. A draining node still takes the ask that reserved it, unless others
were preempted for that.

`reservations.py` makes and cancels reservations, `queue_traversal.py` applies the decisions.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine import events, reservations
from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.attempt_log import WaitCause
from yunishard.partition_worker.engine.nodes.node_index import Reservation
from yunishard.partition_worker.engine.predicates.results import WorkSpent
from yunishard.partition_worker.engine.preemption import victim_choice
from yunishard.partition_worker.engine.queues.queue import path_key
from yunishard.partition_worker.engine.reservation_index import ReservationKey
from yunishard.partition_worker.engine.sorted_items import Key, Order
from yunishard.partition_worker.engine.state import Allocate, PartitionState, Preempt


def decide(state: PartitionState) -> Allocate | Preempt | None:
    """Return the next decision for an ask with a reservation, or None if no reservation can be used now."""
    index, retry_round = state.reservation_index, state.readiness.retry_round
    is_check_due = index.has_candidates or index.checked_round != retry_round
    if not (index.by_rank and is_check_due):
        return None
    found = list(_on_reserved_nodes(state))
    # Other nodes get room only if something is freed, which begins a retry round. Reservations become candidates with
    # each change of their nodes.
    if index.checked_round != retry_round:
        found += _on_other_nodes(state)
    if not found:
        index.checked_round, index.has_candidates = retry_round, False
        return None
    return min(found, key=lambda one: _key_of(one[0]))[1] if len(found) > 1 else found[0][1]


def _key_of(reservation: Reservation) -> tuple[Key, int, int]:
    return path_key(reservation.leaf), -reservation.ask.priority, reservation.rank


_Found = tuple[Reservation, Allocate | Preempt]


def _on_reserved_nodes(state: PartitionState) -> Iterator[_Found]:
    """Yield, for each reservation group, the decision for the oldest usable reservation. Without room in the cluster
    only an ask that requires its node may have one: to preempt allocations there.
    """
    for group in tuple(state.reservation_index.candidates.values()):
        has_room = _has_queue_room(group)
        if not (has_room or _first_of(group).for_required_node):
            continue
        unusable: list[Reservation] = []
        for reservation in _within_limits(state, group):
            decision = _on_reserved_node(state, reservation, has_room=has_room)
            if decision is not None:
                yield reservation, decision
                break
            if has_room:  # otherwise it stays a candidate, as room in its queues would not make it one again
                unusable.append(reservation)
        for reservation in unusable:
            state.reservation_index.remove_candidate(reservation)


def _on_reserved_node(state: PartitionState, reservation: Reservation, *, has_room: bool) -> Allocate | Preempt | None:
    ask, node = reservation.ask, reservation.node
    state.nodes.predicates.table.subject = ask.group
    application = state.applications[ask.application_id]
    if node.has_room(ask.shape.amounts):
        is_usable = has_room and state.nodes.is_accepted(ask.shape, node)
        return Allocate(application, ask, node) if is_usable else None
    if reservation.for_required_node and not ask.preemption_triggered:
        victims = victim_choice.plan_required_node_victims(state.applications, reservation.leaf, node, ask)
        if victims:
            return Preempt(application, ask, node, tuple(victims))
        events.record_failure(state, ask, WaitCause(Reason.REQUIRED_NODE_FULL, node=node.node_id))
    return None


def _on_other_nodes(state: PartitionState) -> Iterator[_Found]:
    """Yield, for each ask shape that fits another node, the decision for the first usable reservation of each group."""
    for shape, groups in state.reservation_index.by_shape.items():
        first = next(iter(next(iter(groups.values()))))  # any of them: nodes accept all asks of a shape or none
        state.nodes.predicates.table.subject = first.ask.group
        try:
            if state.nodes.node_for(shape) is not None or state.nodes.reserved.may_have_room(shape.amounts):
                yield from _on_other_node(state, shape, groups)
        except WorkSpent as spent:
            for reservation in chain.from_iterable(groups.values()):
                if reservation.ask.group is not None:
                    table = state.nodes.predicates.table
                    table.postpone(spent.results, reservation.ask.application_id, reservation.ask.group)


def _on_other_node(
    state: PartitionState, shape: AskShape, groups: Mapping[ReservationKey, Order[Reservation]]
) -> Iterator[_Found]:
    for group in groups.values():
        reservation = next(_within_limits(state, group), None) if _has_queue_room(group) else None
        if reservation is not None:
            application = state.applications[reservation.ask.application_id]
            node = state.nodes.first_fit(shape, application)
            if node is None:
                node = state.nodes.first_outranked_fit(shape, reservation.leaf, reservation.ask.priority)
            if node is not None:
                yield reservation, Allocate(application, reservation.ask, node)


def _first_of(group: Order[Reservation]) -> Reservation:
    first = group.first()
    assert first is not None, "no group is empty"
    return first


def _has_queue_room(group: Order[Reservation]) -> bool:
    first = _first_of(group)
    return first.leaf.has_room(first.shape.amounts, first.keeps)


def _within_limits(state: PartitionState, group: Order[Reservation]) -> Iterator[Reservation]:
    """Yield the reservations of a group for which user and user group have room."""
    for reservation in group:
        account = state.usage.account(state.applications[reservation.ask.application_id])
        if reservations.allows_use(account, reservation.shape.amounts):
            yield reservation
