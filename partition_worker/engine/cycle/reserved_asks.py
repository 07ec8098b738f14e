"""Reserved asks, the first step of the scheduling cycle.

    1. An ask that fits its reserved node gets it, if its queues, its user and its group have room.
    2. An ask that fits an unreserved node gets that, unless it requires its reserved node.
    3. An ask that requires a node without room preempts less important allocations there.

Of several, the ask of the most deserving queue comes first, then the oldest reservation. A draining node still takes
the ask that reserved it. Reservations are made and cancelled in `reservations.py`.
"""

from collections.abc import Iterator

from partition_worker.engine import events
from partition_worker.engine.application import AppState
from partition_worker.engine.nodes.node import Reservation
from partition_worker.engine.order import Order
from partition_worker.engine.preemption import attempts
from partition_worker.engine.queues.fair_share import path_key
from partition_worker.engine.queues.headroom import has_room
from partition_worker.engine.queues.queue import may_start
from partition_worker.engine.state import Allocate, PartitionState, Preempt

_Found = tuple[Reservation, Allocate | Preempt]


def decide(state: PartitionState) -> Allocate | Preempt | None:
    """The next decision for an ask with a reservation, or None if none can be used as things are."""
    reserved, retry_round = state.reservation_index, state.readiness.retry_round
    if not reserved.worth_a_look(retry_round):
        return None
    found = list(_on_kept_nodes(state))
    if reserved.relieved(retry_round):
        found += _on_other_nodes(state)
    if not found:
        reserved.rest(retry_round)
        return None
    if len(found) > 1:
        found.sort(key=lambda one: (path_key(one[0].leaf), one[0].rank))
    return found[0][1]


def _on_kept_nodes(state: PartitionState) -> Iterator[_Found]:
    """Of each line whose queue has room, the oldest that can be used."""
    for line in state.reservation_index.nudged():
        vain: list[Reservation] = []
        for reservation in _allowed(state, line):
            decision = _on_kept_node(state, reservation)
            if decision is not None:
                yield reservation, decision
                break
            vain.append(reservation)
        for reservation in vain:
            state.reservation_index.settle(reservation)


def _on_kept_node(state: PartitionState, reservation: Reservation) -> Allocate | Preempt | None:
    ask, node = reservation.ask, reservation.node
    application = state.applications[ask.application_id]
    if node.has_room(ask.shape.amounts):
        if state.nodes.admits(ask.shape, node):
            return Allocate(application, ask, node)
    elif reservation.for_required_node and not ask.preemption_triggered:
        victims = attempts.plan_required_node_victims(node, ask)
        if victims:
            return Preempt(application, ask, node, tuple(victims))
        events.record_no_victim(state, ask)
        assert ask.group is not None, ask.key
        ask.group.note(attempts.NO_HELP_ON_REQUIRED_NODE, state.now)
    return None


def _on_other_nodes(state: PartitionState) -> Iterator[_Found]:
    """For each need that a free node has room for, in each line the oldest reservation that may use it."""
    for shape, lines in state.reservation_index.needs():
        if state.nodes.node_for(shape) is None:
            continue
        for line in lines:
            reservation = next(_allowed(state, line), None)
            if reservation is not None:
                application = state.applications[reservation.ask.application_id]
                node = state.nodes.node_for(shape, application)
                assert node is not None, shape
                yield reservation, Allocate(application, reservation.ask, node)


def _allowed(state: PartitionState, line: Order[Reservation]) -> Iterator[Reservation]:
    """Those of a line for which their queue, their user and their group have room."""
    first = line.first()
    assert first is not None, "no line is empty"
    if not has_room(first.leaf, first.shape.amounts, first.keeps):
        return
    for reservation in line:
        application = state.applications[reservation.ask.application_id]
        account = state.usage.account(application)
        starts = application.state is not AppState.ACCEPTED or (
            may_start(application.queue, application.application_id) and account.may_start()
        )
        if starts and account.has_room(reservation.shape.amounts):
            yield reservation
