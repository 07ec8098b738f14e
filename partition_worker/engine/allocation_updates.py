"""Allocation updates of the RM: asks, resizes, recovered and foreign allocations, releases, and predicate answers.

`queue_traversal.py` allocates nodes, `ledger.py` does the accounting.
"""

from collections.abc import Iterable
from typing import Final

from yunishard.common.messages import event_codes, rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.partition_worker.engine import events, ledger, lifecycle
from yunishard.partition_worker.engine.allocation import (
    FOREIGN,
    NO_TAGS,
    Allocation,
    AskGroup,
    Constraint,
    find_creation_time,
    make_shape,
)
from yunishard.partition_worker.engine.amounts import amounts_of, find_types_objection
from yunishard.partition_worker.engine.application import ACTIVE, AppEvent, Application, AppState
from yunishard.partition_worker.engine.effects import IgnoredRelease
from yunishard.partition_worker.engine.gang_scheduling import unwind_swap
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.predicates.evaluation import NODE_SCOPE, PARTITION_SCOPE, SCOPE
from yunishard.partition_worker.engine.predicates.verdicts import DEADLINE_S, Keys, Pair
from yunishard.partition_worker.engine.preemption.quota_enforcement import start_quota_timers
from yunishard.partition_worker.engine.rm_errors import RmError
from yunishard.partition_worker.engine.state import PartitionState, find_text_objection
from yunishard.partition_worker.engine.user_resolution import HELD_MAX

_FAILING: Final = AppState.FAILING
_NEW: Final = AppState.NEW
_COMPLETING: Final = AppState.COMPLETING

_CONFIRMATIONS = frozenset({rm_messages.TIMEOUT, rm_messages.PREEMPTED_BY_SCHEDULER})
"""Termination types by which an RM confirms a release that the core requested; they are not answered."""


class _Refusal(Exception):
    """An ask or allocation is rejected; the text is the reason for the RM."""

    def __init__(self, reason: str, error: RmError | None = None) -> None:
        super().__init__(reason)
        self.error = error
        """The error that the RM made, if a correct RM does not cause this."""


def handle(state: PartitionState, request: rm_messages.AllocationRequest) -> None:
    """Process all allocations in order, send their rejections together, then process all releases in order."""
    rejected: list[rm_messages.RejectedAllocation] = []
    for message in request.allocations:
        try:
            _apply_allocation(state, message)
        except _Refusal as refusal:
            if refusal.error is not None:
                state.counters.errors.count(refusal.error, state.now)
            rejected.append(
                rm_messages.RejectedAllocation(
                    allocation_key=message.allocation_key,
                    application_id=message.application_id,
                    reason=str(refusal),
                )
            )
    for rejection in rejected:
        state.emit(rejection)
    for release in request.releases.allocations_to_release:
        release_allocation(state, release)


# Asks and allocations -----------------------------------------------------------------------------------------------


def _apply_allocation(state: PartitionState, message: rm_messages.Allocation) -> None:
    """Process one allocation. A repetition changes nothing; other amounts resize it; a node means that the RM placed
    it.
    """
    # Each field is read once: what is compiled reads those of a message slowly.
    key, application_id, resources = message.allocation_key, message.application_id, message.resource_per_alloc
    tags, placeholder, task_group = message.allocation_tags, message.placeholder, message.task_group_name
    if placeholder and not task_group:
        raise _Refusal(f"placeholder allocation {key} has no task group")
    if tags and FOREIGN in tags:
        _apply_foreign(state, message)
        return
    application = _find_application(state, message, application_id)
    if application is None:
        return
    node = _find_node(state, message.node_id)
    known = state.allocations.get(key)
    is_new = known is None or known.application_id != application_id
    size = len(key) + len(application_id) + len(task_group)
    _check_bounds(state, size, resources, tags, is_new=is_new)
    amounts = application.asks.make_amounts(resources)
    if amounts.is_zero:
        raise _Refusal("allocation contains no resources", RmError.NO_RESOURCES)
    if amounts.is_negative:
        raise _Refusal("allocation contains negative resources", RmError.NEGATIVE_RESOURCES)
    if known is None or is_new:
        if not key:
            raise _Refusal("allocation has no key")
        if known is not None:
            raise _Refusal(f"allocation key {key} is in use by application {known.application_id}")
        constraint = _read_constraint(state, key, tags, is_ask=node is None)
        allocation = Allocation(
            key,
            application_id,
            make_shape(amounts, tags, constraint),
            find_creation_time(tags, state.stamp_ns()),
            message.priority,
            "",
            tags if tags else NO_TAGS,
            task_group,
            placeholder,
            message.originator,
            message.preemption_policy,
        )
        _add_new(state, application, allocation, node)
        return
    if known.shape.amounts.pairs != amounts.pairs:
        resize = ledger.resize_allocation if known.node_id else ledger.resize_ask
        resize(state, application, known, resources)
        _start_quota_timers(state, application)
    if node is not None and not known.node_id:
        ledger.place_ask(state, application, known, node)
        _start_quota_timers(state, application)
        application.queue.bound += 1
        state.announce(known)
    elif known.group is not None:
        _ask_again(state, application, known, tags)


def _find_application(state: PartitionState, message: rm_messages.Allocation, name: str) -> Application | None:
    """Return the application of an allocation; None if the allocation is held until the application has entered."""
    application = state.applications.get(name)
    if application is None:
        if name not in state.pending_submissions:
            raise _Refusal(f"failed to find application {name}", RmError.UNKNOWN_APPLICATION)
        number = state.pending_submissions.hold_update(message)
        if not number:
            raise _Refusal(f"{HELD_MAX} asks and releases wait until users have been looked up: try again later")
        state.changes.held_updates[number] = None
    elif application.state is _FAILING:
        raise _Refusal(f"application {name} is failing, it takes nothing more")
    return application


def _find_node(state: PartitionState, node_id: str) -> Node | None:
    if not node_id:
        return None
    node = state.nodes.get(node_id)
    if node is None:
        raise _Refusal(f"failed to find node {node_id}", RmError.UNKNOWN_NODE)
    return node


def _read_constraint(state: PartitionState, key: str, tags: dict[str, str], *, is_ask: bool) -> Constraint | None:
    predicates = state.nodes.predicates
    if tags or predicates.asks_manager:
        try:
            return predicates.read_constraint(tags, key)
        except ValueError as error:
            if is_ask:  # an allocation with invalid tags is accepted without a constraint
                raise _Refusal(str(error)) from error
    return None


def _add_new(state: PartitionState, application: Application, allocation: Allocation, node: Node | None) -> None:
    if node is None:
        if application.state is _NEW:
            lifecycle.fire(state, application, AppEvent.RUN)
        elif application.state is _COMPLETING:
            lifecycle.run_again(state, application)
        ledger.add_ask(state, application, allocation)
        return
    allocation.recovered = True
    ledger.recover(state, application, allocation, node)
    _start_quota_timers(state, application)
    application.queue.bound += 1
    state.announce(allocation)


def _check_bounds(
    state: PartitionState, size: int, resources: Resources, tags: dict[str, str], *, is_new: bool
) -> None:
    """Refuse an ask or allocation, whose names have this size, that exceeds a bound of the partition."""
    objection, most = find_types_objection(resources), state.tuning.asks_max
    if is_new:
        for kind in resources:
            size += len(kind)
        objection = find_text_objection((), tags, size) or objection
        if len(state.allocations) + len(state.foreign) >= most:
            objection = f"the partition has {most} asks and allocations, the setting asks-max allows no more"
    if objection:
        raise _Refusal(objection)


def _ask_again(state: PartitionState, application: Application, ask: Allocation, tags: dict[str, str]) -> None:
    """Handle an ask that the RM sent again: with a scope, its answers about the ask may be others by now, so they are
    dropped, and the ask has these tags from now on. A node that cools down stays refused.
    """
    predicates = state.nodes.predicates
    if predicates.asks_manager and tags.get(SCOPE) in (NODE_SCOPE, PARTITION_SCOPE):
        if objection := find_text_objection((ask.key,), tags):
            raise _Refusal(objection)
        constraint = _read_constraint(state, ask.key, tags, is_ask=True)
        assert constraint is not None, ask.key  # as the RM is asked about it
        ledger.constrain_ask(state, application, ask, constraint, tags)
        predicates.verdicts.drop(ask.key)
        _retry(state, {ask.key: None})


def _start_quota_timers(state: PartitionState, application: Application) -> None:
    """Start quota preemption where a reported allocation exceeds a maximum."""
    if state.config.preemption.is_quota_enabled and start_quota_timers(application.queue, state.now):
        state.changes.queues.update((level.path, None) for level in application.queue.ancestry())
        state.schedule_quota_check()


def _apply_foreign(state: PartitionState, message: rm_messages.Allocation) -> None:
    """Add or update a foreign allocation: it only takes room on its node."""
    key = message.allocation_key
    if not message.node_id:
        raise _Refusal(f"trying to add a foreign request (non-allocation) {key}")
    node = state.nodes.get(message.node_id)
    if node is None:
        raise _Refusal(f"failed to find node {message.node_id} for allocation {key}")
    if any(amount < 0 for amount in message.resource_per_alloc.values()):
        raise _Refusal("allocation contains negative resources")
    before = state.foreign.get(key)
    resources, tags = message.resource_per_alloc, message.allocation_tags
    _check_bounds(state, len(key), resources, tags, is_new=before is None)
    if before is not None and before is not node:
        _remove_foreign(state, before, key)
    created_ns = find_creation_time(tags, state.stamp_ns())
    shape = make_shape(amounts_of(resources), {}, None)
    allocation = Allocation(key, "", shape, created_ns, message.priority, node.node_id, tags)
    node.put_foreign(allocation)
    if before is not node:
        state.record_node_event(node.node_id, event_codes.ADD, allocation)
    state.foreign[key] = node
    state.changes.foreign[key] = None
    _note_foreign_change(state, node)


# Releases -----------------------------------------------------------------------------------------------------------


def release_allocation(state: PartitionState, release: rm_messages.AllocationRelease) -> None:
    """Process a release of one allocation, of everything an application has, or of a foreign allocation."""
    name, key = release.application_id, release.allocation_key
    application = state.applications.get(name)
    if not name:
        node = state.foreign.pop(key, None)
        if node is None:
            state.emit(IgnoredRelease(release, "no foreign allocation has this key"))
        else:
            _remove_foreign(state, node, key)
    elif application is None and name in state.pending_submissions:
        _hold_release(state, release)
    elif application is None:
        state.emit(IgnoredRelease(release, f"application {name} is unknown"))
    elif not key:
        _release_all(state, application, release.termination_type)
    elif (known := application.find(key)) is None:
        state.emit(IgnoredRelease(release, f"unknown to application {name}"))
    else:
        _release_one(state, application, known, release.termination_type)


def _hold_release(state: PartitionState, release: rm_messages.AllocationRelease) -> None:
    """Hold a release until its application has entered; without room for it, drop the held updates that it ends."""
    pending = state.pending_submissions
    if number := pending.hold_update(release):
        state.changes.held_updates[number] = None
    else:
        dropped = pending.take_updates(release.application_id, release.allocation_key)
        state.changes.held_updates.update(dict.fromkeys(dropped))


def _release_one(state: PartitionState, application: Application, known: Allocation, termination_type: int) -> None:
    """Release one allocation: remove it, make it pending again, or complete a swap."""
    if termination_type == rm_messages.SCHEDULING_FAILED_ON_RM:
        _roll_back(state, application, known)
    elif termination_type == rm_messages.PLACEHOLDER_REPLACED and known.placeholder and known.partner is not None:
        state.emit(ledger.end_swap(state, application, known).make_announcement())
        _start_quota_timers(state, application)
    elif known.key in application.allocations:
        if termination_type == rm_messages.PLACEHOLDER_REPLACED:
            state.log_debug(f"release of {known.key}: nothing takes its place, it is removed")
            termination_type = rm_messages.STOPPED_BY_RM
        end_allocation(state, application, known, termination_type)
        _confirm(state, [known], termination_type)
    elif termination_type != rm_messages.TIMEOUT:  # it confirms the timeout of a placeholder that had a node
        withdraw_ask(state, application, known)


def _release_all(state: PartitionState, application: Application, termination_type: int) -> None:
    keeping_asks = termination_type == rm_messages.TIMEOUT
    told = state.event_count
    ran = remove_everything(state, application, keeping_asks=keeping_asks)
    application.queue.released += len(ran)
    lifecycle.update_after_removal_of_all(state, application)
    state.sort_events(told, events.OF_RELEASE)
    _confirm(state, ran, termination_type)


def _confirm(state: PartitionState, gone: list[Allocation], termination_type: int) -> None:
    """Send the releases to the RM, unless it confirmed a request of the core."""
    if termination_type not in _CONFIRMATIONS:
        for allocation in gone:
            state.emit(allocation.release(state.name, "allocation remove as per RM request"))


def _roll_back(state: PartitionState, application: Application, allocation: Allocation) -> None:
    """The RM could not start an allocation: it waits for another node, or for a while, unless its release was requested
    or its swap is not complete.
    """
    if allocation.released or allocation.key not in application.allocations:
        state.log_debug(f"allocation {allocation.key} was not to be started")
    elif application.state is AppState.ACCEPTED or application.state in ACTIVE:
        predicates, constraint = state.nodes.predicates, allocation.constraint
        if constraint is None or not constraint.asked:  # so that the refusal is this ask's alone
            demands = predicates.no_demands if constraint is None else constraint.demands
            is_wide = allocation.tags.get(SCOPE) == PARTITION_SCOPE
            allocation.constrain(Constraint(demands, allocation.key, is_wide))
        predicates.verdicts.refuse(allocation.key, allocation.node_id, NOT_STARTED, state.now)
        ledger.roll_back(state, application, allocation)


def _remove_foreign(state: PartitionState, node: Node, key: str) -> None:
    state.record_node_event(node.node_id, event_codes.REMOVE, node.foreign[key])
    node.remove_foreign(key)
    state.changes.foreign[key] = None
    _note_foreign_change(state, node)


def _note_foreign_change(state: PartitionState, node: Node) -> None:
    """The foreign usage of a node changed, which does not change the node order."""
    state.nodes.note_room(node)
    state.reservation_index.recheck_node(node)
    state.readiness.retry_parked()


# Removal --------------------------------------------------------------------------------------------------------------


def end_allocation(
    state: PartitionState,
    application: Application,
    allocation: Allocation,
    termination_type: int | None = rm_messages.STOPPED_BY_RM,
) -> None:
    """Remove an allocation because of a release of this type, or with its node (None). An ask that was to replace a
    placeholder waits again.
    """
    if allocation.partner is not None:
        unwind_swap(state, application, allocation.partner)
    told = state.event_count
    ledger.remove_allocation(state, application, allocation, termination_type)
    application.queue.released += 1
    gone = state.event_count
    if allocation.placeholder:
        lifecycle.update_after_placeholder(state, application)
    else:
        lifecycle.update_after_release(state, application)
    if not application.allocations or state.event_count > gone:  # usually there are none, and the events are in order
        state.sort_events(told, events.OF_ALLOCATION)


def withdraw_ask(state: PartitionState, application: Application, ask: Allocation) -> None:
    """Remove an ask. If it was to replace a placeholder, that is released all the same."""
    if ask.key in application.swapping:
        ledger.undo_swap(state, application, ask)
    ledger.remove_ask(state, application, ask)
    lifecycle.update_after_ask_removal(state, application)


def set_aside_asks(state: PartitionState, groups: Iterable[AskGroup], reason: str) -> None:
    """Reject asks that were accepted, and those with equal demands, of which an evaluation would end the same way."""
    keys: dict[str, None] = {}
    waiting = [
        ask for application in state.applications.values() for ask in application.asks if ask.constraint is not None
    ]
    for group in groups:
        demands = None if group.shape.constraint is None else group.shape.constraint.demands
        equal = (ask for ask in waiting if ask.constraint is not None and ask.constraint.demands == demands)
        keys.update(dict.fromkeys(ask.key for ask in (*group, *equal)))
    for key in keys:
        ask = state.allocations[key]
        application = state.applications[ask.application_id]
        events.record_request(state, ask, reason)
        withdraw_ask(state, application, ask)
        state.emit(
            rm_messages.RejectedAllocation(allocation_key=key, application_id=application.application_id, reason=reason)
        )


def remove_everything(
    state: PartitionState, application: Application, *, keeping_asks: bool = False
) -> list[Allocation]:
    """Remove everything an application has; returns what ran. The caller updates the state."""
    for ask in tuple(application.swapping.values()):
        unwind_swap(state, application, ask) if keeping_asks else ledger.undo_swap(state, application, ask)
    if not keeping_asks:
        for ask in tuple(application.requests.values()):
            ledger.remove_ask(state, application, ask)
    ran = tuple(application.allocations.values())
    for allocation in ran:
        ledger.remove_allocation(state, application, allocation)
    return list(ran)


# Predicate verdicts of the RM -----------------------------------------------------------------------------------------

NOT_STARTED: Final = "the resource manager could not start it on this node"


def ask_for_verdicts(state: PartitionState, *, has_decided: bool) -> None:
    """Drop late questions and outdated verdicts, and ask the RM the next question about predicates. One with wide pairs
    is asked only if nothing is left to decide now (`has_decided`).
    """
    verdicts = state.nodes.predicates.verdicts
    _retry(state, verdicts.elapse(state.now))
    next_question = verdicts.next_question(state.now) if has_decided or not verdicts.wide_pairs else None
    if next_question is not None:
        question, retried = next_question
        asked = [
            rm_messages.PredicatesArgs(allocation_key=key, node_id=node, allocate=allocate)
            for key, node, allocate in question.pairs
        ]
        preemptions = [
            rm_messages.PreemptionPredicatesArgs(
                allocation_key=key, node_id=node, preempt_allocation_keys=list(victims), start_index=start
            )
            for key, node, victims, start, _ in question.removals
        ]
        deadline_ms = int(DEADLINE_S * 1000)
        state.emit(
            rm_messages.PredicatesAsked(
                question=question.number, deadline_milli_seconds=deadline_ms, asked=asked, preemptions=preemptions
            )
        )
        _retry(state, retried)


def apply_verdicts(state: PartitionState, answered: rm_messages.PredicatesAnswered) -> None:
    """Apply the RM's answer to a question about predicates; a late or unknown answer has no effect."""
    refusals = {
        Pair(verdict.allocation_key, verdict.node_id, verdict.allocate): verdict.refusal
        for verdict in answered.verdicts
    }
    removals = {(one.allocation_key, one.node_id): (one.refusal, one.index) for one in answered.preemptions}
    _retry(state, state.nodes.predicates.verdicts.apply_answer(answered.question, refusals, state.now, removals))


def _retry(state: PartitionState, keys: Keys) -> None:
    """Try these asks again if they still wait."""
    state.nodes.predicates.recheck_asks(keys)
    for key in keys:
        ask = state.allocations.get(key)
        if ask is None or ask.group is None:
            continue
        application = state.applications[ask.application_id]
        state.readiness.touch_application(application)
        if ask.held:
            state.swap_candidates.offer(application)
        if ask.reserved:
            state.reservation_index.recheck_node(application.reservations[key].node)
        if ask.reserved or ask.task_group:
            state.readiness.retry_parked()  # these are not tried with the other asks of the application
