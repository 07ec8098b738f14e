"""Asks that get their nodes one after another, booked together.

What the next decision looks at is booked at once: the node, the queues, the asks that are left, and the orders of what
is ready. What nobody looks at in between is added up and booked at the end: what the application has, its user and its
group. What is told is the same as if each had been booked by itself (`ledger.place_ask`), and in the same order.

Not here: which asks may be booked like this (`cycle/stretch.py`).
"""

from common import event_codes
from common.messages import Resources
from common.resources import add_to, take_from
from partition_worker.engine import happenings
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.queues import headroom, priorities


class Tab:
    """What was placed and is not booked with everybody yet. Nothing else may happen before it is settled."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._used: dict[int, tuple[Application, Resources]] = {}
        """By the rank of the application, what it got."""

    def place(self, application: Application, ask: Allocation, node: Node) -> None:
        """An ask that wants nothing but room gets its node. Its application runs, and counts as running."""
        books, asks, amount = self._books, application.asks, ask.resources
        priority = asks.priority
        del application.requests[ask.key]
        asks.remove(ask)
        headroom.settle(application.queue, amount)
        ask.node_id, ask.bound_ns = node.node_id, books.stamp_ns()
        node.add(ask)
        books.fleet.changed(node)
        books.running_allocations += 1
        application.allocations[ask.key] = ask
        used = self._used.get(application.rank)
        if used is None:
            self._used[application.rank] = application, dict(amount)
        else:
            add_to(used[1], amount)
        if not asks.count or application.queue.policies.application_sort != "fifo":
            self._settle(*self._used.pop(application.rank))
        happenings.node_allocation(books, node.node_id, event_codes.ADD, ask)
        books.usage.tell_increase(application, amount)
        happenings.allocation_added(books, ask)
        books.emit(ask.announced())
        if asks.priority == priority:
            books.readiness.served(application)
        else:
            priorities.exchange(application.queue, priority, asks.priority)
            books.readiness.touch_application(application)
            books.readiness.refresh()

    def settle(self) -> None:
        """Book what is left."""
        for application, amount in self._used.values():
            self._settle(application, amount)
        self._used.clear()

    def _settle(self, application: Application, amount: Resources) -> None:
        take_from(application.pending, amount)
        application.grow_allocated(amount, placeholder=False)
        self._books.usage.charge(application, amount)
