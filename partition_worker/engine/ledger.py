"""Double-entry accounting: apply asks, placements, resizes, releases and moves to everything that counts them.

Application, node, the queues on the path, user and group, the index of keys and the scheduling order change together
here and nowhere else. `auditor.py` verifies the sums. The caller
has already decided that the change is allowed.
"""

from yunishard.common.messages import event_codes, rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import equal, fits, minus, total_of
from yunishard.partition_worker.engine import events, lifecycle, reservations
from yunishard.partition_worker.engine.allocation import Allocation, Constraint
from yunishard.partition_worker.engine.amounts import Amounts, amounts_of
from yunishard.partition_worker.engine.application import ACTIVE, AppEvent, Application, AppState, TaskGroup
from yunishard.partition_worker.engine.nodes.node_index import UNKNOWN_INSTANCE, Node
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState


def add_ask(state: PartitionState, application: Application, ask: Allocation) -> None:
    """Add a pending ask."""
    if ask.placeholder:
        count_placeholder(state, application, ask)
    _add_pending(state, application, ask)
    state.record_application_event(event_codes.ADD, event_codes.APP_REQUEST, ask)


def remove_ask(
    state: PartitionState, application: Application, ask: Allocation, *, detail: int = event_codes.REQUEST_CANCEL
) -> None:
    """Remove a pending ask; `detail` is the reason in the event."""
    _withdraw_ask(state, application, ask)
    application.queue.subtract_pending(ask.shape.amounts)
    del state.allocations[ask.key]
    state.changes.allocations[ask.key] = None
    if ask.placeholder:
        count_placeholder_end(state, application, ask)
    state.record_application_event(event_codes.REMOVE, detail, ask)


def place_ask(state: PartitionState, application: Application, ask: Allocation, node: Node) -> None:
    """Allocate a pending ask on a node, by a decision or because the RM reports it there."""
    told, kept = state.event_count, ask.reserved
    _withdraw_ask(state, application, ask)
    application.queue.settle_pending(ask.shape.amounts)
    _bind(state, application, ask, node)
    if kept:
        state.sort_events(told, events.OF_KEPT)


def recover(state: PartitionState, application: Application, allocation: Allocation, node: Node) -> None:
    """Add an allocation that the RM reports and that was never an ask here."""
    if allocation.placeholder:
        count_placeholder(state, application, allocation)
    application.queue.add_allocated(allocation.shape.amounts)
    state.changes.applications[application.rank] = application  # it may be older than the application was
    state.allocations[allocation.key] = allocation
    _bind(state, application, allocation, node)


def _bind(state: PartitionState, application: Application, allocation: Allocation, node: Node) -> None:
    """Put an allocation that its queues have counted on a node, without checking for room."""
    allocation.node_id = node.node_id
    allocation.bound_ns = application.queue.last_bound_ns = state.stamp_ns()
    state.changes.allocations[allocation.key] = allocation
    state.nodes.bind(application, allocation, node)
    state.readiness.note_less_room(node, allocation.shape.amounts)
    if node.reservations:
        state.reservation_index.recheck_node(node)  # a reserved ask may have to preempt now
    state.record_node_event(node.node_id, event_codes.ADD, allocation)
    if application.state is AppState.NEW:  # the RM reported it without an ask
        lifecycle.fire(state, application, AppEvent.RUN)
    if allocation.placeholder:
        first = not application.holds_placeholders and "placeholders" not in application.alarms
        if first and application.state is AppState.ACCEPTED:
            state.timers.start(application, "placeholders", state.now + application.placeholder_timeout_s)
            state.changes.applications[application.rank] = application
    elif application.state is not AppState.RUNNING:
        lifecycle.fire(state, application, AppEvent.RUN)
    _count(state, application, allocation)
    if allocation.placeholder:
        if equal(application.allocated_placeholder, application.placeholder_ask):
            lifecycle.fire(state, application, AppEvent.RUN)
        offer_swap(state, application, allocation)
    state.record_application_event(event_codes.ADD, event_codes.APP_ALLOC, allocation)


def remove_allocation(
    state: PartitionState,
    application: Application,
    allocation: Allocation,
    termination_type: int | None = rm_messages.STOPPED_BY_RM,
) -> None:
    """Remove an allocation, because of a release of this type, or with its node if there is none. The caller checks
    whether the application is done.
    """
    assert allocation.partner is None, allocation.key
    del state.allocations[allocation.key]
    state.changes.allocations[allocation.key] = None
    _discharge(state, application, allocation)
    if allocation.placeholder:
        count_placeholder_end(state, application, allocation)
    events.record_removal(state, allocation, termination_type)
    if not allocation.placeholder and not (any(application.allocated_sum) or application.requests):
        state.usage.discount(application)
    _offer_freed(state, application)


def roll_back(state: PartitionState, application: Application, allocation: Allocation) -> None:
    """Turn an allocation that could not be started into a pending ask again. A placeholder stays in its task group, and
    the placeholder timeout restarts if it was the only one.
    """
    assert allocation.partner is None, allocation.key
    _discharge(state, application, allocation)
    if not application.holds_placeholders:
        state.timers.stop(application, "placeholders")
    events.record_removal(state, allocation, rm_messages.SCHEDULING_FAILED_ON_RM)
    allocation.preempted = allocation.is_overdue = allocation.placeholder_used = False
    allocation.preempted_at = 0.0
    _add_pending(state, application, allocation)
    _offer_freed(state, application)


# Swaps --------------------------------------------------------------------------------------------------------------


def begin_swap(
    state: PartitionState, application: Application, ask: Allocation, placeholder: Allocation, node: Node
) -> None:
    """Bind an ask to a node until the RM confirms the release of its placeholder. Only the placeholder is charged until
    then, but on a different node the ask already takes room.
    """
    _withdraw_ask(state, application, ask)
    application.queue.subtract_pending(ask.shape.amounts)
    application.begin_swap(ask, placeholder)
    ask.node_id = node.node_id
    ask.bound_ns = state.stamp_ns()
    state.changes.allocations[ask.key], state.changes.allocations[placeholder.key] = ask, placeholder
    if node.node_id != placeholder.node_id:
        state.nodes.bind(application, ask, node)
        state.readiness.note_less_room(node, ask.shape.amounts)
        state.record_node_event(node.node_id, event_codes.ADD, ask)


def end_swap(state: PartitionState, application: Application, placeholder: Allocation) -> Allocation:
    """Complete a swap: the placeholder is released and the ask, which is returned, runs. Unused room of the placeholder
    becomes free; a larger ask is charged without a check.
    """
    ask = placeholder.partner
    assert ask is not None, placeholder.key
    node = state.nodes.get(ask.node_id)
    assert node is not None, (ask.key, ask.node_id)
    begun = any(application.allocated_sum)
    del state.allocations[placeholder.key]
    state.changes.allocations[ask.key], state.changes.allocations[placeholder.key] = ask, None
    _discharge(state, application, placeholder)
    count_placeholder_end(state, application, placeholder, replaced=True)
    state.record_application_event(event_codes.REMOVE, event_codes.ALLOC_REPLACED, placeholder)
    if placeholder.node_id != ask.node_id:  # in place, the node's allocation only changes its name
        state.record_node_event(placeholder.node_id, event_codes.REMOVE, placeholder)
    lifecycle.update_after_placeholder(state, application)
    application.end_swap(ask)
    ask.bound_ns = application.queue.last_bound_ns = state.stamp_ns()
    ask.placeholder_used = True
    ask.placeholder_created_ns = placeholder.created_ns
    if ask.key not in node.allocations:
        state.nodes.bind(application, ask, node)
    if begun or application.state is AppState.COMPLETING:
        lifecycle.fire(state, application, AppEvent.RUN)
    application.queue.add_allocated(ask.shape.amounts)
    _count(state, application, ask)
    state.record_application_event(event_codes.ADD, event_codes.APP_ALLOC, ask)
    state.record_application_event(event_codes.REMOVE, event_codes.REQUEST_CANCEL, placeholder)
    if placeholder.node_id != ask.node_id or not fits(ask.resources, placeholder.resources):
        _offer_freed(state, application)
    state.readiness.note_victim()  # unlike the placeholder, the ask may be preempted
    return ask


def undo_swap(state: PartitionState, application: Application, ask: Allocation) -> None:
    """Make the ask pending again. The release of its placeholder is still outstanding and has no replacement."""
    node = state.nodes.get(ask.node_id)
    if node is not None and ask.key in node.allocations:
        _unbind(state, application, node, ask)
        state.record_node_event(node.node_id, event_codes.REMOVE, ask)
        state.readiness.retry_parked()
    application.end_swap(ask)
    _add_pending(state, application, ask)  # its placeholder stays as it is, as `released`


# Changes ------------------------------------------------------------------------------------------------------------


def mark_preempted(state: PartitionState, application: Application, allocation: Allocation) -> None:
    """Mark an allocation as a victim. It stays charged until the RM confirms its release."""
    assert not allocation.preempted, allocation.key
    assert not allocation.released, allocation.key
    allocation.preempted, allocation.preempted_at = True, state.now
    state.leaving[allocation.key] = allocation
    state.changes.allocations[allocation.key] = allocation
    application.withdraw_placeholder(allocation)
    application.queue.add_preempting(allocation.shape.amounts)
    state.readiness.note_victim()


def end_wait_for_victims(state: PartitionState) -> bool:
    """Count the victims that have not left in time as staying, and return whether there are any."""
    has_ended = False
    while state.leaving_deadline <= state.now:
        allocation = next(iter(state.leaving.values()))
        _forget_leaving(state, state.applications[allocation.application_id], allocation)
        allocation.is_overdue = True
        state.changes.allocations[allocation.key] = allocation
        has_ended = True
    return has_ended


def _forget_leaving(state: PartitionState, application: Application, allocation: Allocation) -> None:
    del state.leaving[allocation.key]
    application.queue.subtract_preempting(allocation.shape.amounts)


def resize_ask(state: PartitionState, application: Application, ask: Allocation, resources: Resources) -> None:
    """Resize a pending ask; it keeps its place in the order."""
    application.queue.subtract_pending(ask.shape.amounts)
    application.resize_ask(ask, resources)
    state.changes.allocations[ask.key] = ask
    application.queue.add_pending(ask.shape.amounts)
    if ask.reserved:
        reservations.update_for_resized_ask(state, application.reservations[ask.key])
    if ask.held:
        offer_swap(state, application, ask)
    state.readiness.touch_application(application)


def constrain_ask(
    state: PartitionState, application: Application, ask: Allocation, constraint: Constraint, tags: dict[str, str]
) -> None:
    """Set other tags of a pending ask, and the constraint that they express; it keeps its place in the order."""
    ask.tags = tags
    application.asks.constrain(ask, constraint)
    state.changes.allocations[ask.key] = ask
    if ask.reserved:
        reservation = application.reservations[ask.key]
        state.reservation_index.update(reservation, ask.shape, reservation.keeps, reservation.keeps_since)


def resize_allocation(
    state: PartitionState, application: Application, allocation: Allocation, resources: Resources
) -> None:
    """Resize an allocation, whether or not there is room. The node order does not change."""
    delta = amounts_of(minus(resources, allocation.resources))
    node = state.nodes.get(allocation.node_id)
    assert node is not None, (allocation.key, allocation.node_id)
    if allocation.key in node.allocations:
        node.resize_allocation(delta)
    if allocation.key in application.allocations:
        application.queue.add_allocated(delta)
        if allocation.is_leaving:
            application.queue.add_preempting(delta)
        application.grow_allocated(delta, placeholder=allocation.placeholder)
        _increase_usage(state, application, delta)
        reservations.note_growth(state, application)
    allocation.resize(resources)
    state.changes.allocations[allocation.key] = allocation
    state.changes.applications[application.rank] = application
    if allocation.placeholder:
        offer_swap(state, application, allocation)
    state.readiness.touch_application(application)
    state.nodes.note_room(node)
    state.reservation_index.recheck_node(node)
    state.readiness.note_less_room(node, delta)
    if any(amount < 0 for _, amount in delta.pairs):
        state.readiness.reopen_limits(state.usage.account(application))
        state.readiness.retry_parked()


def move(state: PartitionState, application: Application, leaf: Queue) -> None:
    """Move an application to another leaf, with its asks and allocations, without checking for room.

    The usage of its user and group moves from the old path to the new one; the limits of the new path decide its group.
    """
    before, name = application.queue, application.application_id
    priority, running = application.asks.priority, application.state in ACTIVE
    counted = state.usage.account(application).counted
    for reservation in tuple(application.reservations.values()):
        reservations.cancel(state, reservation)
    state.swap_candidates.drop(application)
    allocating = before.discount_allocating(name)
    state.readiness.forget_application(application)
    preempting = amounts_of(total_of(one.resources for one in application.allocations.values() if one.is_leaving))
    charged, pending = amounts_of(application.charged), amounts_of(application.pending)
    before.subtract_preempting(preempting)
    leaf.add_preempting(preempting)
    before.subtract_allocated(charged)
    leaf.add_allocated(charged)
    before.subtract_pending(pending)
    leaf.add_pending(pending)
    before.exchange_priority(priority, None)
    leaf.exchange_priority(None, priority)
    _decrease_usage(state, application, charged)
    lifecycle.drop_account(state, application)
    if running:
        before.add_running(-1)
        leaf.add_running(1)
    del before.applications[name]
    state.record_event(event_codes.QUEUE, before.path, event_codes.REMOVE, event_codes.QUEUE_APP, name)
    application.queue = leaf
    state.changes.applications[application.rank] = application
    leaf.applications[name] = None
    state.record_event(event_codes.QUEUE, leaf.path, event_codes.ADD, event_codes.QUEUE_APP, name)
    if application.allocations or counted:
        _increase_usage(state, application, charged)
        if not counted:
            state.usage.discount(application)
        reservations.note_growth(state, application)
    if allocating:
        leaf.count_allocating(name)
    state.readiness.touch(before)
    state.readiness.touch_application(application)
    if may_swap(application):
        state.swap_candidates.offer(application)
    state.readiness.reopen_starts(before)


def _add_pending(state: PartitionState, application: Application, ask: Allocation) -> None:
    """Make an ask wait for a node, or for a placeholder."""
    ask.node_id = ""
    ask.held = application.must_hold(ask)
    before = application.asks.priority
    submitted_ns = application.submitted_ns
    application.add_ask(ask)
    if application.submitted_ns != submitted_ns:
        state.changes.applications[application.rank] = application
    state.allocations[ask.key] = ask
    state.changes.allocations[ask.key] = ask
    application.queue.add_pending(ask.shape.amounts)
    _update_order(state, application, before)
    if ask.held:
        offer_swap(state, application, ask)


def _count(state: PartitionState, application: Application, allocation: Allocation) -> None:
    """Count a running allocation everywhere but with its node and queues."""
    state.running_allocations += 1
    if not state.usage.account(application).counted:  # otherwise nothing durable but the allocation changes
        state.changes.applications[application.rank] = application
    application.add_allocation(allocation)
    _increase_usage(state, application, allocation.shape.amounts)
    if state.reservation_index.by_rank:  # mostly there is none, and this runs for each allocation
        reservations.note_growth(state, application)
    state.readiness.touch_application(application)


def _discharge(state: PartitionState, application: Application, allocation: Allocation) -> None:
    """Remove an allocation from all sums."""
    state.running_allocations -= 1
    state.changes.applications[application.rank] = application
    node = state.nodes.get(allocation.node_id)
    instance_type = node.instance_type if node is not None else UNKNOWN_INSTANCE
    if node is not None:
        _unbind(state, application, node, allocation)
    application.queue.subtract_allocated(allocation.shape.amounts)
    if allocation.is_leaving:
        _forget_leaving(state, application, allocation)
    application.remove_allocation(allocation)
    application.record_usage(allocation, instance_type, int(state.now * 1e9))
    _decrease_usage(state, application, allocation.shape.amounts)
    state.readiness.touch_application(application)


def _increase_usage(state: PartitionState, application: Application, amounts: Amounts) -> None:
    state.record_usage_event(state.usage.increase(application, amounts), event_codes.ADD, amounts)


def _decrease_usage(state: PartitionState, application: Application, amounts: Amounts) -> None:
    state.record_usage_event(state.usage.decrease(application, amounts), event_codes.REMOVE, amounts)


def _unbind(state: PartitionState, application: Application, node: Node, allocation: Allocation) -> None:
    state.nodes.unbind(application, allocation, node)
    state.reservation_index.recheck_node(node)


def _offer_freed(state: PartitionState, application: Application) -> None:
    """Let other asks use what the application no longer has. A resuming application stays counted (spec 2, rule 7)."""
    state.readiness.reopen_limits(state.usage.account(application))
    if not application.allocations and not application.requests and application.state is not AppState.RESUMING:
        lifecycle.drop_account(state, application)
    state.readiness.retry_parked()


def _withdraw_ask(state: PartitionState, application: Application, ask: Allocation) -> None:
    """Remove an ask from the pending asks; the caller updates the pending sums of the queues."""
    if ask.reserved:
        reservations.cancel(state, application.reservations[ask.key])
    before = application.asks.priority
    if ask.shape.constraint is not None:
        state.nodes.predicates.verdicts.drop(ask.key)
    application.remove_ask(ask)
    _update_order(state, application, before)


def _update_order(state: PartitionState, application: Application, priority_before: int | None) -> None:
    application.queue.exchange_priority(priority_before, application.asks.priority)
    state.readiness.touch_application(application)


# Placeholders ---------------------------------------------------------------------------------------------------------


def count_placeholder(state: PartitionState, application: Application, placeholder: Allocation) -> None:
    """Count a new placeholder, asked for or reported as running."""
    name = placeholder.task_group
    group = application.task_groups.get(name)
    if group is None:
        group = application.task_groups[name] = TaskGroup(name, dict(placeholder.resources))
    group.count += 1
    state.changes.applications[application.rank] = application
    if group.outstanding == 1:
        _hold_asks(state, application, group)


def count_placeholder_end(
    state: PartitionState, application: Application, placeholder: Allocation, *, replaced: bool = False
) -> None:
    """Count the end of a placeholder; `replaced` if a real allocation replaces it."""
    group = application.task_groups[placeholder.task_group]
    state.changes.applications[application.rank] = application
    if replaced:
        group.replaced += 1
    else:
        group.timed_out += 1
    if group.outstanding == 0:
        _hold_asks(state, application, group)


def _hold_asks(state: PartitionState, application: Application, group: TaskGroup) -> None:
    """Hold all real asks of a group with outstanding placeholders, or release them when there are none left."""
    held = group.outstanding > 0
    for ask in tuple(application.asks):
        if ask.task_group == group.name and not ask.placeholder:
            application.hold(ask, held=held)
    state.readiness.touch_application(application)


def offer_swap(state: PartitionState, application: Application, changed: Allocation) -> None:
    """Consider the application for a swap, after a placeholder or an ask held for one was added or changed."""
    group = application.task_groups[changed.task_group]
    if group.waiting and group.free:
        state.swap_candidates.offer(application)


def may_swap(application: Application) -> bool:
    """Whether the application has an ask and a placeholder that could be swapped."""
    return any(group.waiting and group.free for group in application.task_groups.values())


def release_placeholders(
    state: PartitionState, application: Application, chosen: list[Allocation], reason: str
) -> None:
    """Ask the RM to release placeholders; they stay charged until it confirms."""
    for one in chosen:
        assert not one.released, one.key
        assert not one.preempted, one.key
        one.released = True
        state.changes.allocations[one.key] = one
        application.withdraw_placeholder(one)
    for one in chosen:
        state.emit(one.release(state.name, reason, rm_messages.TIMEOUT))
