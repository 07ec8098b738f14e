"""Who deserves the next allocation: shares, and the keys by which queues and applications are ordered.

A queue's share is that of the resource type it uses most of, relative to what it is guaranteed or else to the most it
could get: dominant resource fairness with weights (Ghodsi et al., NSDI 2011), where the guarantee is the weight.

Not here: keeping the orders (`engine/readiness/readiness.py`).
"""

from collections.abc import Mapping

from common.messages import Resources
from common.resources import Limit
from partition_worker.engine.order import Key
from partition_worker.engine.queues.queue import Queue


def share(allocated: Resources, guaranteed: Resources | None, fair_maximum: Limit) -> float:
    """The largest ratio of use to entitlement over all types; 0.0 when no type has an entitlement.

    An entitlement of 0 counts as fully used (1.0) by any use at all.
    """
    largest = 0.0
    for kind, used in allocated.items():
        if guaranteed is not None and kind in guaranteed:
            entitled = guaranteed[kind]
        elif kind in fair_maximum:
            entitled = fair_maximum[kind]
        else:
            continue
        if used > 0:
            ratio = used / entitled if entitled > 0 else 1.0
            if ratio > largest:
                largest = ratio
    return largest


def queue_key(queue: Queue) -> Key:
    """Where a queue stands among its siblings, as its parent's policy says.

    First priority (if the parent sorts by it) and share; of equals the one that waits for more goes first. "More"
    compares pending resources type by type and leaves some pairs undecided; their sum decides every pair it decides,
    and the others too.
    """
    parent = queue.parent
    assert parent is not None, queue.path
    own_share = share(queue.allocated, queue.guaranteed, queue.fair_maximum)
    waiting = -sum(queue.pending.values())
    if parent.policies.priority_sort:
        return (-queue.priority, own_share, waiting)
    return (own_share, -queue.priority, waiting)


def path_key(leaf: Queue) -> Key:
    """Where a leaf stands among all leaves of the tree, if queues are asked in their order from the root down."""
    path = [level for level in leaf.ancestry() if level.parent is not None]
    return tuple(part for level in reversed(path) for part in (*queue_key(level), level.rank))


def descending_shares(used: Resources, total: Mapping[str, int] | None) -> tuple[float, ...]:
    """Each type's ratio to a total (the plain amount where the total has none), the largest first, without zeros."""
    total = total or {}
    ratios = [used[kind] / total[kind] if total.get(kind) else float(used[kind]) for kind in used if used[kind]]
    return tuple(sorted(ratios, reverse=True))


def refresh_fair_maximum(queue: Queue) -> None:
    """Work out, from the root down, what shares are relative to: the cluster's size, overridden by each maximum on
    the way.
    """
    if queue.parent is None:
        queue.fair_maximum = dict(queue.maximum or {})
    else:
        above, maximum = queue.parent.fair_maximum, queue.maximum
        queue.fair_maximum = {**above, **maximum} if above and maximum is not None else dict(above)
    for child in queue.children.values():
        refresh_fair_maximum(child)
