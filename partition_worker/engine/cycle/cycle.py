"""The scheduling cycle: make the next decisions and carry them out.

    1. An ask with a reservation gets its reserved node, or another one (`reserved_asks.py`).
    2. A real ask replaces a placeholder of its gang (`swaps.py`).
    3. The most deserving other ask gets a node, or a reservation, or victims (`queue_traversal.py`).

A decision is a value; the ledger applies it. Each decision equals the one that a cycle of its own would have made, so
one call makes many of them, plain ones on the fast path (`fast_path.py`). Only an application that asks for batches
gets several nodes in a row.

The orders are in `queues/fairness.py` and `readiness/readiness.py`.
"""

from collections.abc import Iterator
from typing import Final

from partition_worker.engine import ledger, reservations
from partition_worker.engine.application import Application, AppState
from partition_worker.engine.cycle import fast_path, queue_traversal, reserved_asks
from partition_worker.engine.gang_scheduling import commit_swap, decide_swap
from partition_worker.engine.preemption import attempts
from partition_worker.engine.queues.queue import count_allocating
from partition_worker.engine.state import Allocate, PartitionState, Preempt, Release, Replace, Reserve

OTHERS: Final = 4
"""Turns that are taken one by one where a stretch of plain decisions has ended, before the next one is tried."""

Decision = Allocate | Replace | Release | Reserve | Preempt


def run(state: PartitionState, budget: int) -> int:
    """Make up to `budget` decisions; how many were made."""
    made = 0
    while made < budget:
        made += fast_path.run_fast_path(state, budget - made)
        others = sum(1 for _ in decisions(state, budget - made, turns=OTHERS))
        if not others:
            break
        made += others
    return made


def decisions(state: PartitionState, budget: int, *, turns: int | None = None) -> Iterator[Decision]:
    """Make up to `budget` decisions in up to `turns`, each seeing the effects of those before, and tell each once it is
    carried out.
    """
    made, left = 0, budget if turns is None else turns
    while made < budget and left and (decision := decide(state)) is not None:
        left -= 1
        group = decision.ask.group
        commit(state, decision)
        made += 1
        yield decision
        size = fast_path.batch_size(decision.application)
        if size > 1 and isinstance(decision, Allocate) and group is not None:
            for further in fast_path.plan_batch(state, decision.application, group, min(size - 1, budget - made)):
                commit(state, further)
                made += 1
                yield further


def decide(state: PartitionState) -> Decision | None:
    """The next decision, or None when nothing can be done as things are."""
    if state.tree.root.maximum is None:
        return None
    state.readiness.refresh()
    return reserved_asks.decide(state) or decide_swap(state) or queue_traversal.decide(state)


def commit(state: PartitionState, decision: Decision) -> None:
    """Carry a decision out."""
    if isinstance(decision, Allocate):
        application, ask, node = decision
        if ask.shape.required_node:
            reservations.clear(state, node)
        ledger.place_ask(state, application, ask, node)
        state.emit(ask.announced())
    elif isinstance(decision, Reserve):
        application, ask, node = decision
        if ask.shape.required_node:
            reservations.clear(state, node)
        reservations.reserve(state, application, ask, node)
    elif isinstance(decision, Preempt):
        application = decision.application
        attempts.carry_out(state, decision)
    else:
        commit_swap(state, decision)
        return
    if application.state is AppState.ACCEPTED:
        _counts_as_running(application)


def _counts_as_running(application: Application) -> None:
    """Whoever got something and is still Accepted counts for the limits of its queues from now on."""
    leaf = application.queue
    if application.application_id not in leaf.allocating:
        count_allocating(leaf, application.application_id)
