"""Asks and allocations: most of what is written, so little is said of each.

What an ask demands of a node is read from its tags again. Not here: who has it (`applications.py`, `nodes.py`).
"""

import math
from collections.abc import Mapping
from typing import Final

from common.rm_messages import PreemptionPolicy
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.memory.model import AllocationMemory
from partition_worker.engine.memory.references import Lookup, Numbering
from partition_worker.engine.memory.values import NOBODY
from partition_worker.engine.needs import Need
from partition_worker.engine.predicates.constraint import Constraint, Demands
from partition_worker.engine.predicates.predicates import Predicates

_DEMANDS: Final = 1 << 12
"""Flags beyond those in `written`: it demands something of a node, ..."""

_ASKED: Final = 1 << 13
"""... and the resource manager is asked about it; ..."""

_POLICY: Final = 14
"""... the first of three bits: it says whether it may be preempted or preempt, and both."""

_STATES: Final = (1 << 11) - 1
"""The flags of what happened to it."""

_POLICIES: Final[Mapping[int, PreemptionPolicy | None]] = {0: None} | {
    1 | own << 1 | other << 2: PreemptionPolicy(allow_preempt_self=bool(own), allow_preempt_other=bool(other))
    for own in (0, 1)
    for other in (0, 1)
}


def written(one: Allocation, numbering: Numbering) -> AllocationMemory:
    """One of them."""
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
    return AllocationMemory(
        one.key,
        numbering.amount(one.resources),
        one.created_ns,
        one.priority,
        numbering.nodes[one.node_id] if one.node_id else NOBODY,
        one.tags,
        one.task_group,
        flags,
        one.bound_ns,
        one.rank,
        None if plain else _rare(one),
    )


def _rare(one: Allocation) -> tuple[str, int, float, float]:
    partner = one.partner.key if one.partner is not None and not one.placeholder else ""
    return partner, one.placeholder_created_ns, one.unschedulable_told_at, one.no_victim_told_at


class Reading:
    """Makes allocations of what is written."""

    def __init__(self, lookup: Lookup, predicates: Predicates) -> None:
        self._lookup = lookup
        self._predicates = predicates
        self._demands: dict[Demands, Demands] = {}
        self._needs: dict[Need, Need] = {}

    def restored(self, memory: AllocationMemory, application: Application | None) -> Allocation:
        """One of them; what holds it, and its partner, are for the caller."""
        flags, lookup = memory.flags, self._lookup
        one = Allocation(
            memory.key,
            application,
            lookup.amounts[memory.resources],
            memory.created_ns,
            memory.priority,
            "" if memory.node == NOBODY else lookup.nodes[memory.node].node_id,
            memory.tags,
            memory.task_group,
            bool(flags & 1 << 9),
            bool(flags & 1 << 10),
            _POLICIES[flags >> _POLICY],
            memory.bound_ns,
            memory.rank,
            self._constraint(memory) if flags & _DEMANDS else None,
        )
        one.need = self._needs.setdefault(one.need, one.need)
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

    def _constraint(self, memory: AllocationMemory) -> Constraint:
        demands = self._predicates.demanded(memory.tags)
        demands = self._demands.setdefault(demands, demands)
        return Constraint(demands, memory.key if memory.flags & _ASKED else "")
