"""Quota enforcement: preempt allocations of queues that exceed their lowered maximum.

While a queue has a time at which its maximum is enforced, all queues are checked every second from the root down. A
queue that is enforced excludes the queues below it from the same check. Each configured time is enforced once.

A queue never gives up more than its excess, and never falls below a guarantee of its own or above it. Enforcement is
a best effort: allocations are taken whole, and an allocation that would take too much is skipped. Priorities, fences
and `preemption.policy` do not count, and allocations that did not agree to be preempted are taken too.

When a queue is due is decided in `queues/quota_timing.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from common import event_codes
from common.messages import Resources
from common.resources import NOTHING, add_to, admits, describe_amount, less, minus, total_of
from common.rm_messages import PREEMPTED_BY_SCHEDULER
from common.wire import NEVER
from partition_worker.engine import events, ledger
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.ask_shapes import Amounts
from partition_worker.engine.queues.fair_share import descending_shares
from partition_worker.engine.queues.headroom import NO_QUOTA_PREEMPTION, exceeds_maximum
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.state import PartitionState


def look(state: PartitionState) -> None:
    """Bring down every queue whose time has come, and look again in a second if others wait for theirs.

    A time that is not needed any more, as the queue no longer exceeds its maximum, is forgotten. Costs a look at each
    queue.
    """
    state.quota_check_at = NEVER
    if not state.config.preemption.is_quota_enabled:
        return
    brought_down: dict[str, Queue] = {}
    for queue in state.tree:
        if not queue.quota_preemption_at:
            continue
        if not exceeds_maximum(queue):
            queue.quota_preemption_at = NO_QUOTA_PREEMPTION
        elif queue.quota_preemption_at > state.now or any(one.path in brought_down for one in queue.ancestry()):
            state.schedule_quota_check()
        else:
            brought_down[queue.path] = queue
            queue.quota_preemption_at = NO_QUOTA_PREEMPTION
            _bring_down(state, queue)


def _bring_down(state: PartitionState, queue: Queue) -> None:
    amount = excess_to_claim(queue)
    if not amount:
        return
    found = 0
    gone: list[Allocation] = []
    for leaf, part in split_among_leaves(queue, amount):
        ordered = list_quota_candidates(state.applications, leaf, part)
        chosen = choose_quota_victims(ordered, part)
        _preempt(state, leaf, chosen)
        found += len(ordered)
        gone += chosen
    if gone:
        state.preemptions.record_quota(state.now, queue, gone)
    if found:
        claimed = total_of(one.resources for one in gone)
        state.record_event(
            event_codes.QUEUE,
            queue.path,
            event_codes.SET,
            event_codes.QUEUE_PREEMPTION,
            message=f"Quota change enforcement process: preemptable {describe_amount(amount)}, "
            f"claimed {describe_amount(claimed)}, selected {found}, preempted {len(gone)}",
            resource=dict(queue.maximum or {}),
        )


def _preempt(state: PartitionState, leaf: Queue, chosen: list[Allocation]) -> None:
    """Ask the RM to let these go, application after application."""
    by_application: dict[str, list[Allocation]] = {}
    for allocation in chosen:
        by_application.setdefault(allocation.application_id, []).append(allocation)
    for application_id, allocations in by_application.items():
        application = state.applications[application_id]
        for allocation in allocations:
            ledger.mark_preempted(state, application, allocation)
            events.record_request(state, allocation, f"Preempted by Quota change enforcement process in {leaf.path}")
            reason = f"preempting allocations to enforce new max quota for queue : {leaf.path}"
            state.emit(allocation.release(state.name, reason, PREEMPTED_BY_SCHEDULER))


HOUR_NS: Final = 3_600_000_000_000
OPTED_OUT_SCORE: Final = 2**34
ORIGINATOR_SCORE: Final = 2**33

_Size = tuple[int, tuple[float, ...]]
"""Which part of its types is wanted, in per cent, and the shares of those, the largest first."""

_Rank = tuple[int, int, int, tuple[float, ...]]


def excess_to_claim(queue: Queue) -> Resources:
    """How much of what the queue uses should go, of the types of which there is too much; may be nothing.

    What was asked back already counts as gone. Where something is guaranteed on the path it is at most what is used
    beyond that, and of several guarantees the one that is exceeded most counts.
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
    """The leaves that give up an amount together, and how much each: a parent divides it among its children that use
    more than is guaranteed to them, in proportion to how much more. Fractions are dropped.
    """
    if queue.leaf:
        yield queue, amount
        return
    above = {child.name: surplus for child in queue.children.values() if (surplus := _surplus(child))}
    total: Resources = {}
    for surplus in above.values():
        add_to(total, surplus)
    for name, surplus in above.items():
        part = {kind: surplus[kind] * amount[kind] // total[kind] for kind in amount if surplus.get(kind)}
        yield from split_among_leaves(queue.children[name], part)


def list_quota_candidates(applications: Mapping[str, Application], leaf: Queue, amount: Resources) -> list[Allocation]:
    """What might go from a leaf that is to give up this amount, in the order in which it goes.

    Those who did not agree go first, then originators: the reference's order, which RMs know. Then those of which most
    types are wanted, of the lowest priority, of the newest hour, and the smallest.
    """
    wanted, sizes = amount.keys(), _Sizes(leaf, amount)
    found = [
        allocation
        for application_id in leaf.applications
        for allocation in applications[application_id].allocations.values()
        if not allocation.released
        and not allocation.preempted
        and not allocation.shape.required_node
        and not wanted.isdisjoint(allocation.resources)
    ]
    return sorted(found, key=lambda allocation: _rank(allocation, sizes[allocation.shape.amounts]))


def choose_quota_victims(ordered: list[Allocation], amount: Resources) -> list[Allocation]:
    """Of candidates in their order those that have to go: each that leaves the sum of all within the amount."""
    chosen: list[Allocation] = []
    left = dict(amount)
    for allocation in ordered:
        for kind, value in allocation.resources.items():
            if value > left.get(kind, value):
                break
        else:
            chosen.append(allocation)
            for kind in left:
                left[kind] -= allocation.resources.get(kind, 0)
    return chosen


def _overdrawn(room: Resources) -> Resources:
    """By how much room is below zero, of the types of which it is."""
    return {kind: -amount for kind, amount in room.items() if amount < 0}


def _surplus(child: Queue) -> Resources:
    """What counts when siblings divide an amount: the distance from the guarantee, or without one all that is used."""
    if not child.guaranteed:
        return child.allocated
    if admits(child.guaranteed, child.allocated):
        return NOTHING
    return {kind: abs(amount) for kind, amount in less(child.guaranteed, child.allocated).items()}


class _Sizes(dict[Amounts, _Size]):
    """How much of an amount allocations of a leaf use, by what they use of all types: thousands are of a few kinds."""

    def __init__(self, leaf: Queue, amount: Resources) -> None:
        super().__init__()
        self._leaf, self._amount = leaf, amount

    def __missing__(self, amounts: Amounts) -> _Size:
        wanted = {kind: value for kind, value in amounts if kind in self._amount}
        size = self[amounts] = 100 * len(wanted) // len(amounts), descending_shares(wanted, self._leaf.maximum)
        return size


def _rank(allocation: Allocation, size: _Size) -> _Rank:
    score, shares = size
    if allocation.originator:
        score += ORIGINATOR_SCORE
    if not allocation.may_be_victim:
        score += OPTED_OUT_SCORE
    return -score, allocation.priority, -(allocation.created_ns // HOUR_NS), shares
