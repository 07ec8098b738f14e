"""What a queue gives up that uses more than its lowered maximum: how much, from which leaves, which allocations.

Never more than the queue is above its maximum, and never so much that it falls below what is guaranteed to it or above
it. It is a best effort: allocations are taken whole, and what would take too much is left. Priorities, fences and
`preemption.policy` play no part, and allocations that did not agree to be preempted are taken as well.

Pure: who has to go is returned, nothing is changed. Not here: when (`queues/quota_timing.py`), telling anybody
(`quota_enforcement.py`).
"""

from collections.abc import Iterator
from typing import Final

from common.messages import Resources
from common.resources import NOTHING, add_to, admits, less, minus
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.needs import Shape
from partition_worker.engine.queues.fairness import descending_shares
from partition_worker.engine.queues.queue import Queue

HOUR_NS: Final = 3_600_000_000_000
OPTED_OUT_SCORE: Final = 2**34
ORIGINATOR_SCORE: Final = 2**33

_Size = tuple[int, tuple[float, ...]]
"""Which part of its types is wanted, in per cent, and the shares of those, the largest first."""

_Rank = tuple[int, int, int, tuple[float, ...]]


def target(queue: Queue) -> Resources:
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


def leaf_targets(queue: Queue, amount: Resources) -> Iterator[tuple[Queue, Resources]]:
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
        yield from leaf_targets(queue.children[name], part)


def candidates(leaf: Queue, amount: Resources) -> list[Allocation]:
    """What might go from a leaf that is to give up this amount, in the order in which it goes.

    Those who did not agree go first, then originators: the reference's order, which RMs know. Then those of which most
    types are wanted, of the lowest priority, of the newest hour, and the smallest.
    """
    wanted, sizes = amount.keys(), _Sizes(leaf, amount)
    found = [
        allocation
        for application in leaf.applications.values()
        for allocation in application.allocations.values()
        if not allocation.released
        and not allocation.preempted
        and not allocation.need.required_node
        and not wanted.isdisjoint(allocation.resources)
    ]
    return sorted(found, key=lambda allocation: _rank(allocation, sizes[allocation.need.shape]))


def victims(ordered: list[Allocation], amount: Resources) -> list[Allocation]:
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


class _Sizes(dict[Shape, _Size]):
    """How much of an amount allocations of a leaf use, by what they use of all types: thousands are of a few kinds."""

    def __init__(self, leaf: Queue, amount: Resources) -> None:
        super().__init__()
        self._leaf, self._amount = leaf, amount

    def __missing__(self, shape: Shape) -> _Size:
        wanted = {kind: value for kind, value in shape if kind in self._amount}
        size = self[shape] = 100 * len(wanted) // len(shape), descending_shares(wanted, self._leaf.maximum)
        return size


def _rank(allocation: Allocation, size: _Size) -> _Rank:
    score, shares = size
    if allocation.originator:
        score += ORIGINATOR_SCORE
    if not allocation.may_be_victim:
        score += OPTED_OUT_SCORE
    return -score, allocation.priority, -(allocation.created_ns // HOUR_NS), shares
