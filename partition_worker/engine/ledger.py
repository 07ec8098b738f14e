"""Double entry: whatever is asked for, placed, resized or released is booked with everyone whom it concerns, in one
place.

Application, node, every queue on the path, user and group, the index of keys and the order of readiness change together
here and nowhere else, so they cannot drift apart (`invariants.py` checks it).

Not here: whether something may be placed or released; whoever calls has decided that.
"""

from common.messages import Resources
from common.resources import minus
from partition_worker.engine import lifecycle
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.states import AppEvent, AppState
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.queues import admission, headroom, priorities
from partition_worker.engine.queues.queue import Queue


def add_ask(books: Books, application: Application, ask: Allocation) -> None:
    """An application asks for something."""
    before = application.asks.priority
    application.add_ask(ask)
    books.allocations[ask.key] = ask
    headroom.expect(application.queue, ask.resources)
    _asks_changed(books, application, before)


def remove_ask(books: Books, application: Application, ask: Allocation) -> None:
    """An application no longer asks for something that it did not get."""
    _take_ask(books, application, ask)
    del books.allocations[ask.key]


def place_ask(books: Books, application: Application, ask: Allocation, node: Node) -> None:
    """An ask gets its node: by a decision, or because the RM says that it runs there."""
    _take_ask(books, application, ask)
    add_allocation(books, application, ask, node)


def add_allocation(books: Books, application: Application, allocation: Allocation, node: Node) -> None:
    """Something runs on a node; nobody checks here whether there is room."""
    allocation.node_id = node.node_id
    allocation.bound_ns = books.stamp_ns()
    books.allocations[allocation.key] = allocation
    books.running_allocations += 1
    node.add(allocation)
    books.fleet.changed(node)
    headroom.charge(application.queue, allocation.resources)
    application.add_allocation(allocation)
    books.usage.increase(application, allocation.resources)
    books.readiness.touch_application(application)
    lifecycle.fire(books, application, AppEvent.RUN)


def remove_allocation(books: Books, application: Application, allocation: Allocation) -> None:
    """Something no longer runs. Whether the application is done thereby is for the caller to ask."""
    del books.allocations[allocation.key]
    books.running_allocations -= 1
    node = books.fleet.get(allocation.node_id)
    if node is not None and node.allocations.get(allocation.key) is allocation:
        node.remove(allocation)
        books.fleet.gained(node)
    headroom.refund(application.queue, allocation.resources)
    application.remove_allocation(allocation)
    books.usage.decrease(application, allocation.resources)
    books.readiness.freed(books.usage.account(application))
    if not application.allocations and not application.requests:
        lifecycle.forget(books, application)
    books.readiness.touch_application(application)
    books.readiness.relieve()


def resize_ask(books: Books, application: Application, ask: Allocation, resources: Resources) -> None:
    """An ask that has no node yet asks for other amounts, at its old place in the order."""
    headroom.no_longer_expect(application.queue, ask.resources)
    application.resize_ask(ask, dict(resources))
    headroom.expect(application.queue, ask.resources)
    books.readiness.touch_application(application)


def resize_allocation(books: Books, application: Application, allocation: Allocation, resources: Resources) -> None:
    """Something that runs uses other amounts, whether or not there is room. The order of nodes stays as it is."""
    delta = minus(resources, allocation.resources)
    node = books.fleet.get(allocation.node_id)
    assert node is not None, (allocation.key, allocation.node_id)
    node.resize_allocation(delta)
    headroom.charge(application.queue, delta)
    application.grow_allocated(delta)
    books.usage.increase(application, delta)
    allocation.resize(dict(resources))
    books.readiness.touch_application(application)
    if any(amount < 0 for amount in delta.values()):
        books.fleet.freed(node)
        books.readiness.freed(books.usage.account(application))
        books.readiness.relieve()


def move(books: Books, application: Application, leaf: Queue) -> None:
    """An application goes to another leaf, with all it has and asks for; nobody checks here whether there is room.

    The use of the old queues by its user and group becomes that of the new ones, and where they meet nothing changes.
    The limits of the new queues decide which group that is.
    """
    before, name = application.queue, application.application_id
    priority, running = application.asks.priority, application.state is AppState.RUNNING
    counted = books.usage.account(application).counted
    books.readiness.forget_application(application)
    headroom.refund(before, application.allocated)
    headroom.no_longer_expect(before, application.pending)
    priorities.exchange(before, priority, None)
    books.usage.decrease(application, application.allocated)
    lifecycle.forget(books, application)
    if running:
        admission.stopped(before)
    del before.applications[name]
    application.queue = leaf
    leaf.applications[name] = application
    if running:
        admission.started(leaf)
    if counted:
        books.usage.increase(application, application.allocated)
    priorities.exchange(leaf, None, priority)
    headroom.expect(leaf, application.pending)
    headroom.charge(leaf, application.allocated)
    books.readiness.touch(before)
    books.readiness.touch_application(application)
    books.readiness.relieve()
    if not before.managed or before.draining:
        books.expect_cleaning()


def _take_ask(books: Books, application: Application, ask: Allocation) -> None:
    before = application.asks.priority
    application.remove_ask(ask)
    headroom.no_longer_expect(application.queue, ask.resources)
    _asks_changed(books, application, before)


def _asks_changed(books: Books, application: Application, priority_before: int | None) -> None:
    priorities.exchange(application.queue, priority_before, application.asks.priority)
    books.readiness.touch_application(application)
