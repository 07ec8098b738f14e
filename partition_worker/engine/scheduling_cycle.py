"""The scheduling cycle: make the next decisions and apply them.

    1. An ask with a reservation gets its reserved node, or another one.
    2. A real ask replaces a placeholder of its gang (`gang_scheduling.py`).
    3. The most deserving other ask gets a node, a reservation or victims (`queue_traversal.py`).

A decision is a value; the ledger applies it. Each decision equals the one that a cycle of its own would have made, so
one call makes many of them, simple ones on the fast path (`queue_traversal.run_fast_path`).

Reserved asks: an ask that fits its reserved node gets it, if its queues, its user and its group have room. Otherwise an
ask that fits an unreserved node gets that, unless it requires its reserved node. An ask that requires a node without
room preempts less important allocations there. Of several such asks, the one of the most deserving queue comes first,
then the oldest reservation. A draining node still takes the ask that reserved it.
"""

from collections.abc import Iterator
from typing import Final

from partition_worker.engine import events, gang_scheduling, ledger, queue_traversal, reservations
from partition_worker.engine.application import AppState
from partition_worker.engine.nodes.node import Reservation
from partition_worker.engine.order import Order
from partition_worker.engine.preemption import attempts
from partition_worker.engine.queues.fair_share import path_key
from partition_worker.engine.queues.queue import count_allocating, has_room, may_start
from partition_worker.engine.state import Allocate, PartitionState, Preempt, Release, Replace, Reserve

SINGLE_DECISIONS: Final = 4
"""Decisions made one by one after the fast path ended, before it is tried again."""

Decision = Allocate | Replace | Release | Reserve | Preempt


def run(state: PartitionState, budget: int) -> int:
    """Make up to `budget` decisions; return how many were made."""
    made = 0
    while made < budget:
        made += queue_traversal.run_fast_path(state, budget - made)
        singles = sum(1 for _ in make_decisions(state, budget - made, turns=SINGLE_DECISIONS))
        if not singles:
            break
        made += singles
    return made


def make_decisions(state: PartitionState, budget: int, *, turns: int | None = None) -> Iterator[Decision]:
    """Make up to `budget` decisions in up to `turns`, each based on those before; yield each once it is applied."""
    made, left = 0, budget if turns is None else turns
    while made < budget and left and (decision := decide(state)) is not None:
        left -= 1
        group = decision.ask.group
        apply_decision(state, decision)
        made += 1
        yield decision
        size = queue_traversal.batch_size(decision.application)
        if size > 1 and isinstance(decision, Allocate) and group is not None:
            for further in queue_traversal.plan_batch(state, decision.application, group, min(size - 1, budget - made)):
                apply_decision(state, further)
                made += 1
                yield further


def decide(state: PartitionState) -> Decision | None:
    """Return the next decision, or None if none is possible before something changes."""
    if state.tree.root.maximum is None:
        return None
    state.readiness.refresh()
    decision: Decision | None = decide_reserved(state)
    if decision is None and state.swap_candidates.first(state.readiness.retry_round) is not None:
        decision = gang_scheduling.decide_swap(state)
    return decision or queue_traversal.decide(state)


def apply_decision(state: PartitionState, decision: Decision) -> None:
    """Apply a decision to the state."""
    application, ask = decision.application, decision.ask
    if isinstance(decision, Replace | Release):
        gang_scheduling.commit_swap(state, decision)
        return
    if isinstance(decision, Preempt):
        attempts.apply_preemption(state, decision)
    else:
        if ask.shape.required_node:
            reservations.cancel_on_node(state, decision.node, keep_required=True)
        if isinstance(decision, Allocate):
            ledger.place_ask(state, application, ask, decision.node)
            state.emit(ask.make_announcement())
        else:
            reservations.reserve(state, application, ask, decision.node)
    if application.state is AppState.ACCEPTED and application.application_id not in application.queue.allocating:
        count_allocating(application.queue, application.application_id)


# Reserved asks --------------------------------------------------------------------------------------------------------


def decide_reserved(state: PartitionState) -> Allocate | Preempt | None:
    """Return the next decision for an ask with a reservation, or None if no reservation can be used now."""
    index, retry_round = state.reservation_index, state.readiness.retry_round
    if not (index.by_rank and index.is_check_due(retry_round)):
        return None
    found = list(_on_reserved_nodes(state))
    if index.checked_round != retry_round:
        found += _on_other_nodes(state)
    if not found:
        index.checked_round, index.has_candidates = retry_round, False
        return None
    return min(found, key=lambda one: (path_key(one[0].leaf), one[0].rank))[1] if len(found) > 1 else found[0][1]


_Found = tuple[Reservation, Allocate | Preempt]


def _on_reserved_nodes(state: PartitionState) -> Iterator[_Found]:
    """Yield, for each reservation group whose queue has room, the decision for the oldest usable reservation."""
    for group in tuple(state.reservation_index.candidates.values()):
        unusable: list[Reservation] = []
        for reservation in _within_limits(state, group):
            decision = _on_reserved_node(state, reservation)
            if decision is not None:
                yield reservation, decision
                break
            unusable.append(reservation)
        for reservation in unusable:
            state.reservation_index.remove_candidate(reservation)


def _on_reserved_node(state: PartitionState, reservation: Reservation) -> Allocate | Preempt | None:
    ask, node = reservation.ask, reservation.node
    application = state.applications[ask.application_id]
    if node.has_room(ask.shape.amounts):
        return Allocate(application, ask, node) if state.nodes.is_accepted(ask.shape, node) else None
    if reservation.for_required_node and not ask.preemption_triggered:
        victims = attempts.plan_required_node_victims(node, ask)
        if victims:
            return Preempt(application, ask, node, tuple(victims))
        events.record_no_victim(state, ask)
        assert ask.group is not None, ask.key
        ask.group.note(attempts.NO_HELP_ON_REQUIRED_NODE, state.now)
    return None


def _on_other_nodes(state: PartitionState) -> Iterator[_Found]:
    """Yield, for each ask shape that fits an unreserved node, the oldest usable reservation of each group."""
    for shape, groups in state.reservation_index.by_shape.items():
        if state.nodes.node_for(shape) is None:
            continue
        for group in groups.values():
            reservation = next(_within_limits(state, group), None)
            if reservation is not None:
                application = state.applications[reservation.ask.application_id]
                node = state.nodes.node_for(shape, application)
                assert node is not None, shape
                yield reservation, Allocate(application, reservation.ask, node)


def _within_limits(state: PartitionState, group: Order[Reservation]) -> Iterator[Reservation]:
    """Yield the reservations of a group for which queue, user and user group have room."""
    first = group.first()
    assert first is not None, "no group is empty"
    if not has_room(first.leaf, first.shape.amounts, first.keeps):
        return
    for reservation in group:
        application = state.applications[reservation.ask.application_id]
        account = state.usage.account(application)
        starts = application.state is not AppState.ACCEPTED or (
            may_start(application.queue, application.application_id) and account.may_start()
        )
        if starts and account.has_room(reservation.shape.amounts):
            yield reservation
