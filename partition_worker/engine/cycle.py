"""The scheduling cycle: which ask gets which node next.

    1. The most deserving child of each queue, from the root down (`queues/fairness.py`).
    2. In the leaf, the application whose turn it is by the leaf's policy.
    3. Of its asks, in order, the first for which its user, its group and its queues have room and that some node can
       take.

A decision is a value; committing it is the ledger's. What cannot be placed is set aside (`readiness.py`), so a
decision costs the depth of the tree and the logarithm of what is kept in order, however much waits. Each decision is
the one that a cycle of its own would have made.

Not here: the orders (`queues/fairness.py`, `readiness.py`) and the books (`ledger.py`).
"""

from dataclasses import dataclass

from partition_worker.engine import ledger
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.states import AppState
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.queues.admission import may_start
from partition_worker.engine.queues.headroom import has_room
from partition_worker.engine.queues.queue import Queue


@dataclass(frozen=True, slots=True)
class Allocate:
    """Give this ask that node."""

    application: Application
    ask: Allocation
    node: Node


def run(books: Books, budget: int) -> int:
    """Make up to `budget` decisions, each seeing the effects of those before; how many were made."""
    for made in range(budget):
        decision = decide(books)
        if decision is None:
            return made
        _commit(books, decision)
    return budget


def decide(books: Books) -> Allocate | None:
    """The next decision, or None when nothing can be placed as things are. Changes nothing but what is set aside."""
    if books.tree.root.maximum is None:
        return None
    books.readiness.refresh()
    return _from_queue(books, books.tree.root)


def _from_queue(books: Books, queue: Queue) -> Allocate | None:
    while (child := queue.ready_children.first()) is not None:
        decision = _from_queue(books, child)
        if decision is not None:
            return decision
        books.readiness.park(child)
    return _from_leaf(books, queue) if queue.leaf else None  # a leaf that was a parent has children that drain


def _from_leaf(books: Books, leaf: Queue) -> Allocate | None:
    while (application := books.readiness.next_application(leaf)) is not None:
        account = books.usage.account(application)
        if application.state is not AppState.ACCEPTED or (may_start(leaf) and account.may_start()):
            decision = _from_application(books, leaf, application)
            if decision is not None:
                return decision
        books.readiness.park_application(application, account)
    return None


def _from_application(books: Books, leaf: Queue, application: Application) -> Allocate | None:
    account = books.usage.account(application)
    for group in application.asks.groups:
        shape = group.need.shape
        if account.has_room(shape) and has_room(leaf, shape):
            node = books.fleet.node_for(group.need)
            if node is not None:
                return Allocate(application, group.head, node)
    return None


def _commit(books: Books, decision: Allocate) -> None:
    ledger.place_ask(books, decision.application, decision.ask, decision.node)
    books.emit(decision.ask.announced())
