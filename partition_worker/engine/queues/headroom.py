"""Headroom: quota accounting of queues, gang fit, and the start of quota preemption.

Functions that charge or check a leaf and every queue above it; they cost the depth of the tree. Limits of users and
room on nodes are separate.
"""

from typing import Literal, NamedTuple

from common.messages import Resources
from common.resources import (
    NOTHING,
    Limit,
    add_to,
    drop_zeros,
    equal,
    is_positive,
    is_zero,
    less,
    permits,
    take_from,
    text,
    tighten,
)
from partition_worker.engine.ask_shapes import Amounts
from partition_worker.engine.queues.queue import Queue

Total = Literal["allocated", "pending", "preempting"]
"""The sum of native allocations, of asks without a node, or of preempted allocations."""


def has_room(leaf: Queue, amounts: Amounts, kept: Resources = NOTHING) -> bool:
    """Whether an ask of this shape fits: no queue on the path would exceed its maximum.

    A type that a maximum does not name is unlimited; negative room counts as none. Room kept for other asks is not
    available; `kept` is the room kept for this ask.
    """
    queue: Queue | None = leaf
    while queue is not None:
        maximum = queue.maximum
        if maximum is not None:
            allocated = queue.allocated
            for kind, value in amounts:
                if value > 0 and kind in maximum and allocated.get(kind, 0) + value > maximum[kind]:
                    return False
            if queue.kept and not _leaves_kept(queue, amounts, kept):
                return False
        queue = queue.parent
    return True


def allows(queue: Queue, amounts: Amounts) -> bool:
    """Whether this very queue would stay within its maximum, ignoring kept room."""
    maximum, allocated = queue.maximum or {}, queue.allocated
    return not any(
        value > 0 and kind in maximum and allocated.get(kind, 0) + value > maximum[kind] for kind, value in amounts
    )


def _leaves_kept(queue: Queue, amounts: Amounts, own: Resources) -> bool:
    """Whether the room that the queue keeps for other asks stays free. For an ask with kept room of its own, room of
    victims that are still leaving counts as free, or each such ask would wait for the victims of all.
    """
    maximum, allocated, leaving = queue.maximum, queue.allocated, queue.preempting if own else NOTHING
    assert maximum is not None, queue.path
    for kind, value in amounts:
        others = queue.kept.get(kind, 0) - own.get(kind, 0) - leaving.get(kind, 0)
        if value > 0 and others > 0 and kind in maximum and allocated.get(kind, 0) + value + others > maximum[kind]:
            return False
    return True


def keep(leaf: Queue, amount: Resources) -> None:
    """Keep room for one ask, below all queues of the path. The root keeps none: there the node is reserved."""
    for level in leaf.ancestry():
        if level.parent is not None:
            add_to(level.kept, amount)


def no_longer_keep(leaf: Queue, amount: Resources) -> None:
    """Undo `keep`."""
    for level in leaf.ancestry():
        if level.parent is not None:
            take_from(level.kept, amount)
            level.kept = drop_zeros(level.kept)
            assert is_zero(level.kept) or is_positive(level.kept), (level.path, level.kept, amount)


def headroom(queue: Queue) -> Limit | None:
    """The headroom of the queue, per type; None is unlimited."""
    room: Limit | None = None
    for level in queue.ancestry():
        if level.maximum is not None:
            room = tighten(room, less(level.maximum, level.allocated))
    return room


def add(leaf: Queue, total: Total, amount: Resources) -> None:
    """Add an amount to a sum of every queue of the path, whether or not there is room."""
    for level in leaf.ancestry():
        add_to(getattr(level, total), amount)


def subtract(leaf: Queue, total: Total, amount: Resources) -> None:
    """Subtract an amount from a sum of every queue of the path; no sum may become negative."""
    for level in leaf.ancestry():
        amounts = getattr(level, total)
        for kind, value in amount.items():
            left = amounts[kind] = amounts.get(kind, 0) - value
            assert left >= 0, (level.path, total, amounts, amount)


def settle(leaf: Queue, amount: Resources) -> None:
    """Turn a pending amount into an allocated one: as `subtract` and `add` do, but in one walk."""
    amounts = tuple(amount.items())
    for level in leaf.ancestry():
        pending, allocated = level.pending, level.allocated
        for kind, value in amounts:
            left = pending[kind] = pending.get(kind, 0) - value
            assert left >= 0, (level.path, pending, amount)
            allocated[kind] = allocated.get(kind, 0) + value


# Gangs ----------------------------------------------------------------------------------------------------------------


def gang_objection(leaf: Queue, application_id: str, gang: Resources) -> str:
    """Why the leaf cannot run a gang with these placeholders in total; empty if it can. Its queues need a fixed order,
    or two gangs could block each other for ever; the cluster may grow, so its size does not count.
    """
    if not is_positive(gang):
        return ""
    if leaf.policies.application_sort == "fair":
        return (
            f"queue {leaf.path} cannot run application {application_id} with task group request: unsupported sort type"
        )
    maximum: Limit | None = None
    for level in leaf.ancestry():
        if level.parent is not None:
            maximum = tighten(maximum, level.maximum)
    if maximum is None or permits(maximum, gang):
        return ""
    return (
        f"queue {leaf.path} cannot fit application {application_id}: "
        f"task group request {text(gang)} larger than max queue allocation {text(maximum)}"
    )


# Quota preemption -----------------------------------------------------------------------------------------------------

NO_QUOTA_PREEMPTION = 0.0
"""No quota preemption is due."""


class QuotaTerms(NamedTuple):
    """The settings of a queue that decide about quota preemption."""

    maximum: Limit | None
    delay_s: float
    """0 disables it."""


def quota_preemption_time(
    before: QuotaTerms, after: QuotaTerms, *, allocated: Resources, at: float, now: float
) -> float:
    """When quota preemption of a reconfigured queue starts, in Unix seconds, if it was to start `at` before;
    NO_QUOTA_PREEMPTION if never.

    As in YuniKorn, a new maximum counts as raised, and a change that raises some types and lowers others changes
    nothing.
    """
    if not after.delay_s or not after.maximum or permits(after.maximum, allocated):
        return NO_QUOTA_PREEMPTION
    old, new = before.maximum or {}, after.maximum
    same = before.maximum is not None and equal(old, new)
    if not same and not _at_least(old, new) and not _at_least(new, old):
        return at
    if at:
        return at + after.delay_s - before.delay_s
    lowered = not same and _at_least(old, new)
    return now + after.delay_s if lowered or (same and not before.delay_s) else NO_QUOTA_PREEMPTION


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


def _at_least(left: Limit, right: Limit) -> bool:
    """Whether every type is at least as large; a missing one is 0."""
    return all(left.get(kind, 0) >= right.get(kind, 0) for kind in {**left, **right})
