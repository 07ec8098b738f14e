"""Double entry: whatever is asked for, placed, resized or released is booked with everyone whom it concerns, in one
place.

Application, node, every queue on the path, user and group, the index of keys and the order of readiness change together
here and, for many asks in a row, in `tab.py`, and nowhere else: so they cannot drift apart, as `checks/invariants.py`
checks.

Not here: whether something may be placed or released; whoever calls has decided that.
"""

from common import event_codes
from common.messages import Resources
from common.resources import equal, fits, is_zero, minus, total_of
from common.rm_messages import SCHEDULING_FAILED_ON_RM, STOPPED_BY_RM
from partition_worker.engine import happenings, lifecycle, placeholders, reservations
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import ACTIVE, AppEvent, AppState
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import UNKNOWN_INSTANCE, Node
from partition_worker.engine.queues import admission, headroom, priorities
from partition_worker.engine.queues.queue import Queue


def add_ask(books: Books, application: Application, ask: Allocation) -> None:
    """An application asks for something."""
    if ask.placeholder:
        placeholders.expect(books, application, ask)
    _wait(books, application, ask)
    name = application.application_id
    books.happened(
        event_codes.APP, name, event_codes.ADD, event_codes.APP_REQUEST, reference=ask.key, resource=ask.resources
    )


def remove_ask(
    books: Books, application: Application, ask: Allocation, *, detail: int = event_codes.REQUEST_CANCEL
) -> None:
    """An application no longer asks for something that it did not get; `detail` says why, for the history."""
    _take_ask(books, application, ask)
    headroom.no_longer_expect(application.queue, ask.resources)
    del books.allocations[ask.key]
    if ask.placeholder:
        placeholders.gone(books, application, ask)
    happenings.ask_removed(books, ask, detail)


def place_ask(books: Books, application: Application, ask: Allocation, node: Node) -> None:
    """An ask gets its node: by a decision, or because the RM says that it runs there."""
    told, kept = books.told, ask.reserved
    _take_ask(books, application, ask)
    headroom.settle(application.queue, ask.resources)
    _bind(books, application, ask, node)
    if kept:
        happenings.arrange(books, told, happenings.OF_KEPT)


def recover(books: Books, application: Application, allocation: Allocation, node: Node) -> None:
    """Something that nobody asked for here runs on a node, as the RM says."""
    if allocation.placeholder:
        placeholders.expect(books, application, allocation)
    headroom.charge(application.queue, allocation.resources)
    _bind(books, application, allocation, node)


def _bind(books: Books, application: Application, allocation: Allocation, node: Node) -> None:
    """Something runs on a node, and its queues have counted it; nobody checks here whether there is room."""
    allocation.node_id = node.node_id
    allocation.bound_ns = books.stamp_ns()
    books.allocations[allocation.key] = allocation
    books.fleet.bind(application, allocation, node)
    if node.reservations:
        books.reserved.nudge(node)  # whoever waits there for a say may have to make others go now
    happenings.node_allocation(books, node.node_id, event_codes.ADD, allocation)
    if application.state is AppState.NEW:  # nobody asked for it here
        lifecycle.fire(books, application, AppEvent.RUN)
    if allocation.placeholder:
        placeholders.watch(books, application)
    elif application.state is not AppState.RUNNING:
        lifecycle.fire(books, application, AppEvent.RUN)
    _count(books, application, allocation)
    if allocation.placeholder:
        if equal(application.allocated_placeholder, application.placeholder_ask):
            lifecycle.fire(books, application, AppEvent.RUN)
        placeholders.offer(books, application, allocation)
    happenings.allocation_added(books, allocation)


def remove_allocation(
    books: Books, application: Application, allocation: Allocation, termination_type: int | None = STOPPED_BY_RM
) -> None:
    """Something no longer runs, because of a release of this type, or because its node goes if there is none. Whether
    the application is done thereby is for the caller to ask.
    """
    assert allocation.partner is None, allocation.key
    del books.allocations[allocation.key]
    _discharge(books, application, allocation)
    if allocation.placeholder:
        placeholders.gone(books, application, allocation)
    happenings.allocation_removed(books, allocation, termination_type)
    if not allocation.placeholder and is_zero(application.allocated) and is_zero(application.pending):
        books.usage.discount(application)
    _freed(books, application)


def roll_back(books: Books, application: Application, allocation: Allocation) -> None:
    """Something that runs, or was to, waits for a node again. A placeholder is still the same one of its group, whose
    time begins anew if it was the only one.
    """
    assert allocation.partner is None, allocation.key
    _discharge(books, application, allocation)
    if is_zero(application.allocated_placeholder):
        books.timers.stop(application, "placeholders")
    happenings.allocation_removed(books, allocation, SCHEDULING_FAILED_ON_RM)
    allocation.preempted = allocation.placeholder_used = False
    _wait(books, application, allocation)
    _freed(books, application)


# Swaps --------------------------------------------------------------------------------------------------------------


def begin_swap(books: Books, application: Application, ask: Allocation, placeholder: Allocation, node: Node) -> None:
    """An ask gets a node and waits for the RM to confirm that its placeholder is gone. Until then only the placeholder
    is charged; but on another node than that of the placeholder the ask takes room already.
    """
    _take_ask(books, application, ask)
    headroom.no_longer_expect(application.queue, ask.resources)
    application.begin_swap(ask, placeholder)
    ask.node_id = node.node_id
    ask.bound_ns = books.stamp_ns()
    if node.node_id != placeholder.node_id:
        books.fleet.bind(application, ask, node)
        happenings.node_allocation(books, node.node_id, event_codes.ADD, ask)


def end_swap(books: Books, application: Application, ask: Allocation) -> None:
    """The placeholder is gone and the ask has its place. What it leaves of it is free; what it has more was used
    before anybody asked.
    """
    placeholder, node = ask.partner, books.fleet.get(ask.node_id)
    assert placeholder is not None, ask.key
    assert node is not None, (ask.key, ask.node_id)
    begun = not is_zero(application.allocated)
    del books.allocations[placeholder.key]
    _discharge(books, application, placeholder)
    placeholders.gone(books, application, placeholder, replaced=True)
    happenings.placeholder_replaced(books, placeholder, in_place=placeholder.node_id == ask.node_id)
    lifecycle.placeholder_gone(books, application)
    application.end_swap(ask)
    ask.bound_ns = books.stamp_ns()
    ask.placeholder_used = True
    ask.placeholder_created_ns = placeholder.created_ns
    if ask.key not in node.allocations:
        books.fleet.bind(application, ask, node)
    if begun or application.state is AppState.COMPLETING:
        lifecycle.fire(books, application, AppEvent.RUN)
    headroom.charge(application.queue, ask.resources)
    _count(books, application, ask)
    happenings.allocation_added(books, ask)
    happenings.ask_removed(books, placeholder)
    if placeholder.node_id != ask.node_id or not fits(ask.resources, placeholder.resources):
        _freed(books, application)


def undo_swap(books: Books, application: Application, ask: Allocation) -> None:
    """The ask waits as before. Its placeholder, which the RM was asked to let go, has no successor."""
    node = books.fleet.get(ask.node_id)
    if node is not None and ask.key in node.allocations:
        _take_from_node(books, application, node, ask)
        happenings.node_allocation(books, node.node_id, event_codes.REMOVE, ask)
        books.readiness.relieve()
    application.end_swap(ask)
    _wait(books, application, ask)


# Changes ------------------------------------------------------------------------------------------------------------


def mark_preempted(books: Books, application: Application, allocation: Allocation) -> None:
    """The RM is asked to let an allocation go for somebody else. It is used and charged until the RM confirms."""
    assert not allocation.preempted, allocation.key
    assert not allocation.released, allocation.key
    allocation.preempted = True
    application.withdraw_placeholder(allocation)
    headroom.preempt(application.queue, allocation.resources)


def resize_ask(books: Books, application: Application, ask: Allocation, resources: Resources) -> None:
    """An ask that has no node yet asks for other amounts, at its old place in the order."""
    headroom.no_longer_expect(application.queue, ask.resources)
    application.resize_ask(ask, dict(resources))
    headroom.expect(application.queue, ask.resources)
    if ask.reserved:
        reservations.resized(books, application.reservations[ask.key])
    if ask.held:
        placeholders.offer(books, application, ask)
    books.readiness.touch_application(application)


def resize_allocation(books: Books, application: Application, allocation: Allocation, resources: Resources) -> None:
    """Something that runs uses other amounts, whether or not there is room. The order of nodes stays as it is."""
    delta = minus(resources, allocation.resources)
    node = books.fleet.get(allocation.node_id)
    assert node is not None, (allocation.key, allocation.node_id)
    if allocation.key in node.allocations:
        node.resize_allocation(delta)
    if allocation.key in application.allocations:
        headroom.charge(application.queue, delta)
        if allocation.preempted:
            headroom.preempt(application.queue, delta)
        application.grow_allocated(delta, placeholder=allocation.placeholder)
        books.usage.increase(application, delta)
    allocation.resize(dict(resources))
    if allocation.placeholder:
        placeholders.offer(books, application, allocation)
    books.readiness.touch_application(application)
    books.fleet.freed(node)
    books.reserved.nudge(node)
    if any(amount < 0 for amount in delta.values()):
        books.readiness.freed(books.usage.account(application))
        books.readiness.relieve()


def move(books: Books, application: Application, leaf: Queue) -> None:
    """An application goes to another leaf, with all it has and asks for; nobody checks here whether there is room.

    The use of the old queues by its user and group becomes that of the new ones, and where they meet nothing changes.
    The limits of the new queues decide which group that is.
    """
    before, name = application.queue, application.application_id
    priority, running = application.asks.priority, application.state in ACTIVE
    counted = books.usage.account(application).counted
    for reservation in tuple(application.reservations.values()):
        reservations.cancel(books, reservation)
    books.swappable.drop(application)
    allocating = admission.no_longer_allocating(before, name)
    books.readiness.forget_application(application)
    preempting = total_of(one.resources for one in application.allocations.values() if one.preempted)
    headroom.preempted(before, preempting)
    headroom.refund(before, application.charged)
    headroom.no_longer_expect(before, application.pending)
    priorities.exchange(before, priority, None)
    books.usage.decrease(application, dict(application.charged))
    lifecycle.forget(books, application)
    if running:
        admission.stopped(before)
    del before.applications[name]
    happenings.queue_application(books, before, event_codes.REMOVE, name)
    application.queue = leaf
    leaf.applications[name] = None
    happenings.queue_application(books, leaf, event_codes.ADD, name)
    if running:
        admission.started(leaf)
    if application.allocations or counted:
        books.usage.increase(application, dict(application.charged))
        if not counted:
            books.usage.discount(application)
    priorities.exchange(leaf, None, priority)
    headroom.expect(leaf, application.pending)
    headroom.charge(leaf, application.charged)
    headroom.preempt(leaf, preempting)
    if allocating:
        admission.allocating(leaf, name)
    books.readiness.touch(before)
    books.readiness.touch_application(application)
    if placeholders.may_swap(application):
        books.swappable.offer(application)
    books.readiness.relieve()
    if not before.managed or before.draining:
        books.expect_cleaning()


def _wait(books: Books, application: Application, ask: Allocation) -> None:
    """An ask waits for a node, or for a placeholder."""
    ask.node_id = ""
    ask.held = application.must_hold(ask)
    before = application.asks.priority
    application.add_ask(ask)
    books.allocations[ask.key] = ask
    headroom.expect(application.queue, ask.resources)
    _asks_changed(books, application, before)
    if ask.held:
        placeholders.offer(books, application, ask)


def _count(books: Books, application: Application, allocation: Allocation) -> None:
    """Everybody but the node and the queues counts an allocation that runs."""
    books.running_allocations += 1
    application.add_allocation(allocation)
    books.usage.increase(application, allocation.resources)
    books.readiness.touch_application(application)


def _discharge(books: Books, application: Application, allocation: Allocation) -> None:
    """Nobody counts an allocation any more."""
    books.running_allocations -= 1
    node = books.fleet.get(allocation.node_id)
    instance_type = node.instance_type if node is not None else UNKNOWN_INSTANCE
    if node is not None:
        _take_from_node(books, application, node, allocation)
    headroom.refund(application.queue, allocation.resources)
    if allocation.preempted:
        headroom.preempted(application.queue, allocation.resources)
    application.remove_allocation(allocation)
    application.record_usage(allocation, instance_type, int(books.now * 1e9))
    books.usage.decrease(application, allocation.resources)
    books.readiness.touch_application(application)


def _take_from_node(books: Books, application: Application, node: Node, allocation: Allocation) -> None:
    books.fleet.unbind(application, allocation, node)
    books.reserved.nudge(node)


def _freed(books: Books, application: Application) -> None:
    """Somebody else may have what the application no longer has. It stays counted while it resumes (spec 2, rule 7)."""
    books.readiness.freed(books.usage.account(application))
    if not application.allocations and not application.requests and application.state is not AppState.RESUMING:
        lifecycle.forget(books, application)
    books.readiness.relieve()


def _take_ask(books: Books, application: Application, ask: Allocation) -> None:
    """The application asks for it no longer; what its queues expect is for the caller."""
    if ask.reserved:
        reservations.cancel(books, application.reservations[ask.key])
    before = application.asks.priority
    if ask.need.constraint is not None:
        books.fleet.predicates.verdicts.drop(ask.key)
    application.remove_ask(ask)
    _asks_changed(books, application, before)


def _asks_changed(books: Books, application: Application, priority_before: int | None) -> None:
    priorities.exchange(application.queue, priority_before, application.asks.priority)
    books.readiness.touch_application(application)
