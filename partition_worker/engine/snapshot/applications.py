"""Encode and restore applications, running and ended, with their asks, allocations, task groups and timers.

Pending asks are ordered after reservations are restored, as a reserved ask is ordered differently. The nodes of a
packed application follow from its allocations, so only the fact that it is packed is encoded. The constraints of an ask
are parsed from its tags again.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from common.rm_messages import PreemptionPolicy
from partition_worker.engine.allocation import Allocation, AskShape, Constraint, Demands, Failure, PendingAsks
from partition_worker.engine.application import STATE_LOG_MAX, Alarm, Application, TaskGroup, Use
from partition_worker.engine.predicates.evaluation import Predicates
from partition_worker.engine.snapshot import schema
from partition_worker.engine.state import PartitionState, Timers

# Asks and allocations -------------------------------------------------------------------------------------------------

_DEMANDS: Final = 1 << 12
"""Flags beyond those in `encode_allocation`: the ask has placement constraints;"""

_ASKED: Final = 1 << 13
"""the RM evaluates predicates for it;"""

_POLICY: Final = 14
"""the first of three bits: it has a preemption policy, may be preempted, may preempt."""

_STATES: Final = (1 << 11) - 1
"""The flags of `Allocation`'s boolean fields."""

_POLICIES: Final[Mapping[int, PreemptionPolicy | None]] = {0: None} | {
    1 | own << 1 | other << 2: PreemptionPolicy(allow_preempt_self=bool(own), allow_preempt_other=bool(other))
    for own in (0, 1)
    for other in (0, 1)
}


def encode_allocation(one: Allocation, numbering: schema.ReferenceEncoder) -> schema.AllocationSnapshot:
    """Encode an ask or allocation."""
    flags = (
        one.held
        | one.recovered << 1
        | one.released << 2
        | one.preempted << 3
        | one.placeholder_used << 4
        | one.preemption_triggered << 5
        | one.scale_up_told << 6
        | one.lacks_quota << 7
        | one.lacks_queue_room << 8
        | one.placeholder << 9
        | one.originator << 10
    )
    constraint, policy = one.constraint, one.preemption_policy
    if constraint is not None:
        flags |= _DEMANDS | (_ASKED if constraint.asked else 0)
    if policy is not None:
        flags |= (1 | policy.allow_preempt_self << 1 | policy.allow_preempt_other << 2) << _POLICY
    plain = (
        one.partner is None
        and not one.placeholder_created_ns
        and one.unschedulable_told_at == one.no_victim_told_at == -math.inf
    )
    return schema.AllocationSnapshot(
        one.key,
        numbering.amount(one.resources),
        one.created_ns,
        one.priority,
        numbering.nodes[one.node_id] if one.node_id else schema.NO_RANK,
        one.tags,
        one.task_group,
        flags,
        one.bound_ns,
        one.rank,
        None if plain else _encode_rare(one),
    )


def _encode_rare(one: Allocation) -> tuple[str, int, float, float]:
    partner = one.partner.key if one.partner is not None and not one.placeholder else ""
    return partner, one.placeholder_created_ns, one.unschedulable_told_at, one.no_victim_told_at


class AllocationDecoder:
    """Decodes asks and allocations; equal constraints and ask shapes share one object."""

    def __init__(self, lookup: schema.ReferenceDecoder, predicates: Predicates) -> None:
        self._lookup = lookup
        self._predicates = predicates
        self._demands: dict[Demands, Demands] = {}
        self._needs: dict[AskShape, AskShape] = {}

    def decode(self, memory: schema.AllocationSnapshot, application_id: str) -> Allocation:
        """Decode one; the caller attaches it to its owner, and sets its partner."""
        flags, lookup = memory.flags, self._lookup
        one = Allocation(
            memory.key,
            application_id,
            lookup.amounts[memory.resources],
            memory.created_ns,
            memory.priority,
            "" if memory.node == schema.NO_RANK else lookup.nodes[memory.node].node_id,
            memory.tags,
            memory.task_group,
            bool(flags & 1 << 9),
            bool(flags & 1 << 10),
            _POLICIES[flags >> _POLICY],
            memory.bound_ns,
            memory.rank,
            self._constraint(memory) if flags & _DEMANDS else None,
        )
        one.shape = self._needs.setdefault(one.shape, one.shape)
        if flags & _STATES:
            one.held = bool(flags & 1)
            one.recovered = bool(flags & 1 << 1)
            one.released = bool(flags & 1 << 2)
            one.preempted = bool(flags & 1 << 3)
            one.placeholder_used = bool(flags & 1 << 4)
            one.preemption_triggered = bool(flags & 1 << 5)
            one.scale_up_told = bool(flags & 1 << 6)
            one.lacks_quota = bool(flags & 1 << 7)
            one.lacks_queue_room = bool(flags & 1 << 8)
        if memory.rare is not None:
            _, one.placeholder_created_ns, one.unschedulable_told_at, one.no_victim_told_at = memory.rare
        return one

    def _constraint(self, memory: schema.AllocationSnapshot) -> Constraint:
        demands = self._predicates.read_demands(memory.tags)
        demands = self._demands.setdefault(demands, demands)
        return Constraint(demands, memory.key if memory.flags & _ASKED else "")


# Applications ---------------------------------------------------------------------------------------------------------


def encode_applications(
    those: Iterable[Application], numbering: schema.ReferenceEncoder
) -> list[schema.ApplicationSnapshot]:
    """Encode applications, running or ended."""
    return [_encode_application(one, numbering) for one in those]


def _encode_application(one: Application, numbering: schema.ReferenceEncoder) -> schema.ApplicationSnapshot:
    lowest, highest = one.asks.lowest_rank, one.asks.highest_rank
    places = {ask: place for place, ask in enumerate(one.requests.values())}
    return schema.ApplicationSnapshot(
        application_id=one.application_id,
        rank=one.rank,
        user=numbering.submitter(one.user),
        queue=one.queue.rank,
        submitted_ns=one.submitted_ns,
        tags=one.tags,
        placeholder_ask=one.placeholder_ask,
        state=one.state,
        state_log=list(one.state_log),
        lowest_rank=lowest,
        highest_rank=highest,
        requests=_encode_allocations(one.requests.values(), numbering),
        groups=_encode_ask_groups(one.asks, places),
        allocations=_encode_allocations(one.allocations.values(), numbering),
        swapping=_encode_allocations(one.swapping.values(), numbering),
        pending=schema.encode_amounts(one.pending),
        allocated=schema.encode_amounts(one.allocated),
        allocated_placeholder=schema.encode_amounts(one.allocated_placeholder),
        max_allocated=schema.encode_amounts(one.max_allocated),
        hard=one.gang_style == "Hard",
        placeholder_timeout_s=one.placeholder_timeout_s,
        task_groups=[_encode_task_group(group) for group in one.task_groups.values()],
        history=[(use, kind, schema.encode_amounts(used)) for (use, kind), used in one.history.items()],
        started_ns=one.started_ns,
        finished_ns=one.finished_ns,
        alarms=[(alarm, timer.rank, timer.at) for alarm, timer in one.alarms.items()],
        held_by_queue=one.held_by_queue,
        held_by_quota=one.held_by_quota,
        back_off_until=one.back_off_until,
        packed=one.pack is not None,
    )


def _encode_allocations(
    those: Iterable[Allocation], numbering: schema.ReferenceEncoder
) -> list[schema.AllocationSnapshot]:
    found = []
    for one in those:
        numbering.place(one)
        found.append(encode_allocation(one, numbering))
    return found


def _encode_ask_groups(asks: PendingAsks, places: dict[Allocation, int]) -> list[schema.GroupSnapshot]:
    return [
        schema.GroupSnapshot(
            group.attempted,
            [(reason, times, last) for reason, (times, last) in group.failures.items()],
            [places[ask] for ask in group.asks],
        )
        for group in asks.groups_by_kind.values()
    ]


def _encode_task_group(group: TaskGroup) -> schema.TaskGroupSnapshot:
    return schema.TaskGroupSnapshot(
        group.name,
        schema.encode_amounts(group.minimum),
        group.count,
        group.replaced,
        group.timed_out,
        group.waiting,
        list(group.free),
    )


def restore_applications(
    state: PartitionState, found: schema.PartitionSnapshot, lookup: schema.ReferenceDecoder
) -> None:
    """Restore the applications, running and ended. Queues and empty nodes are restored already."""
    reading = AllocationDecoder(lookup, state.nodes.predicates)
    for memory in found.applications:
        application = state.applications[memory.application_id] = _decode_application(memory, lookup, reading)
        for owned in (application.requests, application.allocations, application.swapping):
            state.allocations.update(owned)
        state.running_allocations += len(application.allocations)
    for memory in found.ended:
        state.keep_ended(_decode_application(memory, lookup, reading))


def restore_ask_orders(
    state: PartitionState, found: list[schema.ApplicationSnapshot], lookup: schema.ReferenceDecoder
) -> None:
    """Restore the order of pending asks, which depends on reservations, allocations and node orders."""
    for memory in found:
        application = lookup.applications[memory.rank]
        requests = tuple(application.requests.values())
        for group in memory.groups:
            failures = {reason: Failure(times, last) for reason, times, last in group.failures}
            asks = [requests[at] for at in group.asks]
            application.asks.restore_group(asks, attempted=group.attempted, failures=failures)
        if memory.packed:
            state.nodes.pack_index(application)


def restore_alarms(
    timers: Timers, found: list[schema.ApplicationSnapshot], lookup: schema.ReferenceDecoder, last: int
) -> None:
    """Restore the applications' timers."""
    kinds: dict[str, Alarm] = {"state": "state", "placeholders": "placeholders", "look": "look"}
    for memory in found:
        for alarm, number, at in memory.alarms:
            timers.restore(lookup.applications[memory.rank], kinds[alarm], at, number)
    timers.last = last


def _decode_application(
    memory: schema.ApplicationSnapshot, lookup: schema.ReferenceDecoder, reading: AllocationDecoder
) -> Application:
    application = lookup.applications[memory.rank] = Application(
        application_id=memory.application_id,
        rank=memory.rank,
        user=lookup.submitters[memory.user],
        queue=lookup.queues[memory.queue],
        submitted_ns=memory.submitted_ns,
        tags=memory.tags,
        placeholder_ask=memory.placeholder_ask,
        state=memory.state,
        state_log=deque(memory.state_log, maxlen=STATE_LOG_MAX),
        pending=schema.decode_amounts(memory.pending),
        allocated=schema.decode_amounts(memory.allocated),
        allocated_placeholder=schema.decode_amounts(memory.allocated_placeholder),
        max_allocated=schema.decode_amounts(memory.max_allocated),
        gang_style="Hard" if memory.hard else "Soft",
        placeholder_timeout_s=memory.placeholder_timeout_s,
        history={(Use(use), kind): schema.decode_amounts(used) for use, kind, used in memory.history},
        started_ns=memory.started_ns,
        finished_ns=memory.finished_ns,
        held_by_queue=memory.held_by_queue,
        held_by_quota=memory.held_by_quota,
        back_off_until=memory.back_off_until,
    )
    application.asks.lowest_rank, application.asks.highest_rank = memory.lowest_rank, memory.highest_rank
    _decode_contents(application, memory, lookup, reading)
    return application


def _decode_contents(
    application: Application,
    memory: schema.ApplicationSnapshot,
    lookup: schema.ReferenceDecoder,
    reading: AllocationDecoder,
) -> None:
    for owned, those in (
        (application.requests, memory.requests),
        (application.allocations, memory.allocations),
        (application.swapping, memory.swapping),
    ):
        for one in those:
            owned[one.key] = allocation = reading.decode(one, application.application_id)
            lookup.allocations.append(allocation)
    for one in memory.swapping:
        assert one.rare is not None, one.key
        ask, placeholder = application.swapping[one.key], application.allocations[one.rare[0]]
        ask.partner, placeholder.partner = placeholder, ask
    for group in memory.task_groups:
        application.task_groups[group.name] = TaskGroup(
            name=group.name,
            minimum=schema.decode_amounts(group.minimum),
            count=group.count,
            replaced=group.replaced,
            timed_out=group.timed_out,
            free={key: application.allocations[key] for key in group.free},
            waiting=group.waiting,
        )
