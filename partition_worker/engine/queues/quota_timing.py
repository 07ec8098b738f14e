"""When a queue that uses more than its maximum is brought down to it: some time after the maximum was lowered.

The time comes from the property `quota.preemption.delay`; without it a queue keeps what it has. Only configured queues
have such a time, as `Queue.quota_preemption_at`. Rules of YuniKorn's core: a maximum where there was none counts as
raised, and a change that raises some types and lowers others changes nothing.

Not here: what is preempted then (`engine/preemption/quota.py`), and who looks whether it is time
(`engine/preemption/quota_enforcement.py`).
"""

from typing import NamedTuple

from common.messages import Resources
from common.resources import Limit, admits, equal
from partition_worker.engine.queues.queue import Queue

NO_TIME = 0.0
"""Nothing is to be brought down."""


class Terms(NamedTuple):
    """What a configuration says about it."""

    maximum: Limit | None
    delay_s: float
    """0 is never."""


def terms_of(queue: Queue) -> Terms:
    """The terms that a queue has now."""
    return Terms(queue.maximum, queue.policies.quota_preemption_delay_s)


def starts_at(before: Terms, after: Terms, *, allocated: Resources, at: float, now: float) -> float:
    """The Unix time at which the queue is brought down under its new terms, if it was `at` under the old ones; NO_TIME
    if it is not.
    """
    if not after.delay_s or not after.maximum or admits(after.maximum, allocated):
        return NO_TIME
    old, new = before.maximum or {}, after.maximum
    same = before.maximum is not None and equal(old, new)
    if not same and not _at_least(old, new) and not _at_least(new, old):
        return at
    if at:
        return at + after.delay_s - before.delay_s
    lowered = not same and _at_least(old, new)
    return now + after.delay_s if lowered or (same and not before.delay_s) else NO_TIME


def exceeds(queue: Queue) -> bool:
    """Whether more is allocated than the maximum of this queue."""
    return queue.maximum is not None and not admits(queue.maximum, queue.allocated)


def grown(leaf: Queue, now: float) -> bool:
    """Something was charged to a leaf without asking whether there is room: set the time of each level that exceeds its
    maximum now and has none yet. Whether there was such a level.
    """
    found = False
    for level in leaf.ancestry():
        delay_s = level.policies.quota_preemption_delay_s
        if level.managed and delay_s and not level.quota_preemption_at and exceeds(level):
            level.quota_preemption_at = now + delay_s
            found = True
    return found


def _at_least(left: Limit, right: Limit) -> bool:
    """Whether every type is at least as large, where one that is missing is 0."""
    return all(left.get(kind, 0) >= right.get(kind, 0) for kind in {**left, **right})
