"""Reservations: create, resize, cancel and expire them.

A node is reserved for one ask, or for several asks that each require this node. After a preemption, and for a large ask
that small ones passed over (`passed_over.py`), the queues of the ask also keep room for it, so that no other ask below
a queue with a maximum takes it. `queue_traversal.py` decides which ask gets a reservation, and uses it.

A reservation idles a node, so it ends as soon as its ask could not use the node: its queue, user or group has no room,
its application may not start, or its application has more nodes reserved than its share. A reservation after a
preemption stays, or the victims would have ended without effect. A full queue that keeps room for the ask ends none,
and neither does a full cluster: a large ask reserves a node because small ones fill both.

If the room is lost that victims were preempted for, the reservation ends, and the ask is as one that never preempted:
it may get another node, or preempt again. Only the preemption cooldown bounds that, as for any other ask.
"""

from itertools import islice

from yunishard.common.messages import event_codes
from yunishard.common.resources import fits, plus, total_of
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.amounts import Amounts
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.state import PASSED_OVER_NODES_PERCENT, VICTIMS_LEAVE_MAX_S, PartitionState
from yunishard.partition_worker.engine.user_limits import UsageAccount


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
    if reservation.keeps and not reservation.after_preemption:
        _pause_after(state, reservation)
    if reservation.keeps:
        reservation.leaf.subtract_kept(reservation.keeps)
        reservation.keeps = {}
    if reservation.after_preemption:
        ask.preemption_triggered = False
        state.changes.allocations[ask.key] = ask
        state.readiness.wake_searches(state.preemptions.end_pause(ask))
    if ask.key in application.requests:
        application.asks.regroup(ask)
    if node.reservations:
        state.nodes.reindex(node)
    else:
        state.nodes.reopen(node)
    state.readiness.touch_application(application)
    state.readiness.retry_parked()


def _pause_after(state: PartitionState, reservation: Reservation) -> None:
    """Pause before the next reservation for an ask that others pass over, in proportion to how long this one lasted."""
    readiness, lasted = state.readiness, state.now - reservation.created
    pause = lasted * (100 / (PASSED_OVER_NODES_PERCENT * max(1, len(state.nodes))) - 1)
    readiness.passed_over_check_at = max(readiness.passed_over_check_at, state.now + pause)


def cancel_on_node(state: PartitionState, node: Node, *, keep_required: bool = False) -> None:
    """Cancel the reservations of a node, except with `keep_required` those whose asks require it."""
    for reservation in tuple(node.reservations.values()):
        if not (keep_required and reservation.for_required_node):
            cancel(state, reservation)


def end_of(state: PartitionState, reservation: Reservation) -> float:
    """Return when a reservation ends because of its age, or because victims have not left, in Unix seconds."""
    end = reservation.created + state.tuning.reservation_max_s
    return min(end, reservation.keeps_since + VICTIMS_LEAVE_MAX_S) if reservation.after_preemption else end


def first_to_end(state: PartitionState) -> Reservation | None:
    """Return the reservation that ends first by its age; None if there is none."""
    index = state.reservation_index
    first = [*islice(index.by_rank.values(), 1), *islice(index.keeping, 1)]
    return min(first, key=lambda one: end_of(state, one), default=None)


def expire(state: PartitionState) -> bool:
    """Cancel the reservations that end now, and return whether any did. The asks of their applications wait for others
    as if they were new, or they would reserve the same nodes before any other ask is tried.
    """
    has_ended = False
    while (first := first_to_end(state)) is not None and end_of(state, first) <= state.now:
        state.applications[first.ask.application_id].reserves_anew_at = state.now
        cancel(state, first)
        has_ended = True
    return has_ended


def share_max(state: PartitionState) -> int:
    """Return how many nodes one application may have reserved."""
    return max(1, len(state.nodes) * state.tuning.reservation_share_percent // 100)


def has_share(state: PartitionState, application: Application) -> bool:
    """Whether an application has as many nodes reserved as it may."""
    shares = state.reservation_index.shares
    return len(shares.get(application.application_id, ())) >= share_max(state)


def note_growth(state: PartitionState, application: Application) -> None:
    """Note that an application uses more, or asks for more: reservations may be useless now."""
    if state.reservation_index.by_rank:
        state.reservation_index.note_growth(application.queue, state.usage.account(application).limits)


def end_useless(state: PartitionState) -> None:
    """Cancel the reservations that their asks could not use now, and those beyond the share of their applications."""
    index = state.reservation_index
    if index.share_max != share_max(state):
        _apply_share(state)
    if index.has_new_limits:  # a maximum may be lower, without any growth that was counted
        index.grown = {queue.rank: queue for queue in state.tree if queue.rank in index.below}
    if index.grown or index.charged or index.has_new_limits:
        useless = _find_useless(state)
        index.grown, index.charged, index.has_new_limits = {}, {}, False
        for reservation in useless.values():
            cancel(state, reservation)


def _apply_share(state: PartitionState) -> None:
    """Cancel the newest reservations beyond the share, which has changed; applications below it may reserve again."""
    index = state.reservation_index
    index.share_max = share_max(state)
    for application_id, share in tuple(index.shares.items()):
        state.readiness.touch_application(state.applications[application_id])
        for reservation in [share[rank] for rank in sorted(share)[index.share_max :]]:
            cancel(state, reservation)


def _find_useless(state: PartitionState) -> dict[int, Reservation]:
    """Return the reservations for which a queue, user or group that grew has no room, by rank."""
    index, root = state.reservation_index, state.tree.root
    found: dict[int, Reservation] = {}
    for queue in index.grown.values():
        for group in index.below.get(queue.rank, {}).values():
            first = group.first()
            assert first is not None, "no group is empty"
            is_possible = first.leaf.may_ever_have_room if first.keeps else first.leaf.has_room
            if not first.after_preemption and not is_possible(first.shape.amounts, end=root):
                found.update({one.rank: one for one in group})
    if index.charged or index.has_new_limits:
        for one in index.by_rank.values():
            account = state.usage.account(state.applications[one.ask.application_id])
            is_charged = index.has_new_limits or any(level.rank in index.charged for level in account.limits)
            if is_charged and not one.after_preemption and not allows_use(account, one.shape.amounts):
                found[one.rank] = one
    return found


def allows_use(account: UsageAccount, amounts: Amounts) -> bool:
    """Whether the user and group of an application have room for these amounts, and the application may start."""
    application = account.application
    starts = application.state is not AppState.ACCEPTED or (
        application.queue.may_start(application.application_id) and account.may_start()
    )
    return starts and account.has_room(amounts)


def end_lost(state: PartitionState) -> None:
    """Cancel the reservations of preemptions whose room is lost. Call it after each change by an RM or an operator."""
    for reservation in tuple(state.reservation_index.keeping):
        if not _will_have_room(reservation):
            cancel(state, reservation)


def _will_have_room(reservation: Reservation) -> bool:
    """Whether the ask will have room on its node and in its queues once all victims have left."""
    node, shape = reservation.node, reservation.shape
    if not (node.is_open or reservation.for_required_node):
        return False
    if not node.has_room(shape.amounts):
        leaving = total_of(one.resources for one in node.allocations.values() if one.is_leaving)
        if not fits(plus(node.available, leaving), reservation.ask.resources):
            return False
    return not reservation.leaf.find_lacks(shape.amounts, reservation.keeps)


def update_for_resized_ask(state: PartitionState, reservation: Reservation) -> None:
    """Update the reservation of a resized ask, or cancel it if the node can never hold the ask."""
    ask = reservation.ask
    if not fits(reservation.node.capacity, ask.resources):
        cancel(state, reservation)
        return
    if reservation.keeps:  # the queues still count the old amounts
        reservation.leaf.subtract_kept(reservation.keeps)
        reservation.leaf.add_kept(ask.resources)
    keeps = ask.resources if reservation.keeps else {}
    state.reservation_index.update(reservation, ask.shape, keeps, reservation.keeps_since)
    note_growth(state, state.applications[ask.application_id])
    state.readiness.retry_parked()  # other nodes may have room for it now


def update_for_changed_node(state: PartitionState, node: Node) -> None:
    """Cancel the reservations that a node with other amounts or attributes can never satisfy, and check the others."""
    predicates = state.nodes.predicates
    for reservation in tuple(node.reservations.values()):
        constraint = reservation.shape.constraint
        demands = predicates.no_demands if constraint is None else constraint.demands
        if not (predicates.meets(demands, node) and fits(node.capacity, reservation.ask.resources)):
            cancel(state, reservation)
    state.reservation_index.recheck_node(node)


def keep_victims_room(state: PartitionState, reservation: Reservation) -> None:
    """Let the queues of an ask keep the room that its victims leave. The ask preempts no others meanwhile."""
    ask = reservation.ask
    assert not reservation.after_preemption, ask.key
    ask.preemption_triggered = True
    state.applications[ask.application_id].asks.regroup(ask)
    keep_room(state, reservation, since=state.now)
    state.nodes.reindex(reservation.node)
    state.changes.allocations[ask.key] = ask


def keep_room(state: PartitionState, reservation: Reservation, *, since: float = 0.0) -> None:
    """Let the queues of an ask keep room for it; with `since`, the time of a preemption, that of its victims."""
    keeps, had_kept = reservation.ask.resources, bool(reservation.keeps)
    state.reservation_index.update(reservation, reservation.shape, keeps, since)
    if not had_kept:
        reservation.leaf.add_kept(keeps)
    state.reservation_index.note_growth(reservation.leaf)
    state.changes.reservations[reservation.ask.key] = None
