"""Quota enforcement: preempt allocations of queues that exceed their lowered maximum.

While a queue has a time at which its maximum is enforced, all queues are checked every second from the root down. A
queue that is enforced excludes the queues below it from the same check. Each configured time is enforced once.

A queue never gives up more than its excess, and never falls below a guarantee of its own or above it. Enforcement is
a best effort: allocations are taken whole, and an allocation that would take too much is skipped. Priorities, fences
and `preemption.policy` do not count, and allocations that did not agree to be preempted are taken too.

A lowered maximum, or a charge without a check, starts the delay of a queue; the end of this file has these rules.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from common import event_codes
from common.messages import Resources
from common.resources import NOTHING, Limit, covers, describe_amount, equal, less, minus, permits, total_of
from common.rm_messages import PREEMPTED_BY_SCHEDULER
from common.wire import NEVER
from partition_worker.engine import events, ledger
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.queues.fair_share import descending_shares
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.state import PartitionState

HOUR_NS: Final = 3_600_000_000_000
OPTED_OUT_SCORE: Final = 2**34
ORIGINATOR_SCORE: Final = 2**33


def enforce_quotas(state: PartitionState) -> None:
    """Enforce the maximum of every queue that is due, and schedule the next check if others will be.

    A time that is no longer needed, as the queue does not exceed its maximum, is dropped. Costs a check of each queue.
    """
    state.quota_check_at = NEVER
    if not state.config.preemption.is_quota_enabled:
        return
    enforced: dict[str, Queue] = {}
    for queue in state.tree:
        if not queue.quota_preemption_at:
            continue
        state.changes.queues[queue.path] = None
        if not exceeds_maximum(queue):
            queue.quota_preemption_at = NO_QUOTA_PREEMPTION
        elif queue.quota_preemption_at > state.now or any(one.path in enforced for one in queue.ancestry()):
            state.schedule_quota_check()
        else:
            enforced[queue.path] = queue
            queue.quota_preemption_at = NO_QUOTA_PREEMPTION
            _enforce(state, queue)


def _enforce(state: PartitionState, queue: Queue) -> None:
    excess = excess_to_claim(queue)
    found = 0
    victims: list[Allocation] = []
    for leaf, part in split_among_leaves(queue, excess) if excess else ():
        candidates = list_quota_candidates(state.applications, leaf, part)
        chosen = choose_quota_victims(candidates, part)
        _preempt(state, leaf, chosen)
        found += len(candidates)
        victims += chosen
    if victims:
        state.changes.preemptions.append(state.preemptions.record_quota(state.now, queue, victims))
    if found:
        claimed = total_of(one.resources for one in victims)
        state.record_event(
            event_codes.QUEUE,
            queue.path,
            event_codes.SET,
            event_codes.QUEUE_PREEMPTION,
            message=f"Quota change enforcement process: preemptable {describe_amount(excess)}, "
            f"claimed {describe_amount(claimed)}, selected {found}, preempted {len(victims)}",
            resource=dict(queue.maximum or {}),
        )


def _preempt(state: PartitionState, leaf: Queue, victims: list[Allocation]) -> None:
    """Ask the RM to release the victims, application after application."""
    order = {name: number for number, name in enumerate(dict.fromkeys(one.application_id for one in victims))}
    for victim in sorted(victims, key=lambda one: order[one.application_id]):
        ledger.mark_preempted(state, state.applications[victim.application_id], victim)
        events.record_request(state, victim, f"Preempted by Quota change enforcement process in {leaf.path}")
        reason = f"preempting allocations to enforce new max quota for queue : {leaf.path}"
        state.emit(victim.release(state.name, reason, PREEMPTED_BY_SCHEDULER))


def excess_to_claim(queue: Queue) -> Resources:
    """Return the amounts that a queue should give up, of the types that exceed its maximum.

    Victims that are still leaving count as gone. If a queue on the path has a guarantee, it is at most the usage beyond
    that, and of several guarantees the one that is exceeded most counts.
    """
    if queue.maximum is None:
        return {}
    excess = _overdrawn(less(queue.maximum, minus(queue.allocated, queue.preempting)))
    beyond: Resources = {}
    for level in queue.ancestry():
        room = level.allocated if level.guaranteed is None else less(level.guaranteed, level.allocated)
        for kind, amount in room.items():
            beyond[kind] = min(amount, beyond.get(kind, amount))
    unprotected = _overdrawn(beyond)
    return {kind: min(amount, unprotected.get(kind, amount)) for kind, amount in excess.items()}


def split_among_leaves(queue: Queue, amount: Resources) -> Iterator[tuple[Queue, Resources]]:
    """Yield the leaves that give up an amount together, with the part of each: a parent divides it among its children
    that exceed their guarantee, in proportion to the excess. Fractions are dropped.
    """
    if queue.leaf:
        yield queue, amount
        return
    above = {child.name: surplus for child in queue.children.values() if (surplus := _surplus(child))}
    total = total_of(above.values())
    for name, surplus in above.items():
        part = {kind: surplus[kind] * amount[kind] // total[kind] for kind in amount if surplus.get(kind)}
        yield from split_among_leaves(queue.children[name], part)


def list_quota_candidates(applications: Mapping[str, Application], leaf: Queue, amount: Resources) -> list[Allocation]:
    """Return the candidates of a leaf that is to give up this amount, in the order in which they are chosen.

    As in YuniKorn, allocations that did not agree to be preempted come first, then originators. Among each, those of
    which most types are wanted come first, then the lowest priority, the newest hour, and the smallest.
    """
    wanted = amount.keys()
    sizes: dict[tuple[tuple[str, int], ...], tuple[int, tuple[float, ...]]] = {}

    def sort_key(one: Allocation) -> tuple[int, int, int, tuple[float, ...]]:
        amounts = one.shape.amounts
        if amounts not in sizes:  # thousands are of a few shapes
            used = {kind: value for kind, value in amounts if kind in wanted}
            sizes[amounts] = 100 * len(used) // len(amounts), descending_shares(used, leaf.maximum)
        score, shares = sizes[amounts]
        score += ORIGINATOR_SCORE * one.originator + OPTED_OUT_SCORE * (not one.may_be_victim)
        return -score, one.priority, -(one.created_ns // HOUR_NS), shares

    found = (
        allocation
        for application_id in leaf.applications
        for allocation in applications[application_id].allocations.values()
        if not (allocation.released or allocation.preempted or allocation.shape.required_node)
        and not wanted.isdisjoint(allocation.resources)
    )
    return sorted(found, key=sort_key)


def choose_quota_victims(candidates: list[Allocation], amount: Resources) -> list[Allocation]:
    """Return, of candidates in their order, each that keeps the sum of all within the amount."""
    chosen: list[Allocation] = []
    left = dict(amount)
    for allocation in candidates:
        if all(value <= left.get(kind, value) for kind, value in allocation.resources.items()):
            chosen.append(allocation)
            for kind in left:
                left[kind] -= allocation.resources.get(kind, 0)
    return chosen


def _overdrawn(room: Resources) -> Resources:
    """Return the amounts below zero, as positive numbers."""
    return {kind: -amount for kind, amount in room.items() if amount < 0}


def _surplus(child: Queue) -> Resources:
    """Return the weight of a child when its parent divides an amount: the distance from its guarantee, or all of its
    usage without one.
    """
    if not child.guaranteed:
        return child.allocated
    if permits(child.guaranteed, child.allocated):
        return NOTHING
    return {kind: abs(amount) for kind, amount in less(child.guaranteed, child.allocated).items()}


# Times of quota preemption --------------------------------------------------------------------------------------------

NO_QUOTA_PREEMPTION = 0.0
"""No quota preemption is due."""


def quota_preemption_time(queue: Queue, maximum: Limit | None, delay_s: float, now: float) -> float:
    """When quota preemption of a reconfigured queue starts, in Unix seconds; NO_QUOTA_PREEMPTION if never.

    `maximum` and `delay_s` are those before; a delay of 0 disables it.

    As in YuniKorn, a new maximum counts as raised, and a change that raises some types and lowers others changes
    nothing.
    """
    new_delay_s, at = queue.policies.quota_preemption_delay_s, queue.quota_preemption_at
    if not new_delay_s or not queue.maximum or not exceeds_maximum(queue):
        return NO_QUOTA_PREEMPTION
    old, new = maximum or {}, queue.maximum
    same = maximum is not None and equal(old, new)
    if not same and not covers(old, new) and not covers(new, old):
        return at
    if at:
        return at + new_delay_s - delay_s
    lowered = not same and covers(old, new)
    return now + new_delay_s if lowered or (same and not delay_s) else NO_QUOTA_PREEMPTION


def exceeds_maximum(queue: Queue) -> bool:
    """Whether the queue uses more than its maximum."""
    return queue.maximum is not None and not permits(queue.maximum, queue.allocated)


def start_quota_timers(leaf: Queue, now: float) -> bool:
    """After a charge without a check: start the delay of each queue on the path that exceeds its maximum. Returns
    whether there is one.
    """
    found = False
    for level in leaf.ancestry():
        delay_s = level.policies.quota_preemption_delay_s
        if level.managed and delay_s and not level.quota_preemption_at and exceeds_maximum(level):
            level.quota_preemption_at = now + delay_s
            found = True
    return found
