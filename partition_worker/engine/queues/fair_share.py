"""Fair share: the share of a queue, and the sort key of queues among their siblings.

The share of a queue is the highest ratio of usage to entitlement over all resource types: weighted dominant resource
fairness (Ghodsi et al., NSDI 2011), with the guarantee, or else the maximum obtainable, as the weight.
`ready_queues.py` keeps the orders.
"""

from collections.abc import Mapping

from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import Limit
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.sorted_items import Key


def share(allocated: Resources, guaranteed: Resources | None, fair_maximum: Limit) -> float:
    """The largest ratio of usage to entitlement over all types; 0.0 if no type has an entitlement.

    Any usage of a type with an entitlement of 0 counts as 1.0.
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
    """The sort key of a queue among its siblings, by the policy of its parent.

    Priority (if the parent sorts by it), then share; ties go to the queue with more pending resources. The reference
    compares those type by type, which leaves some pairs undecided; the sum agrees wherever that decides.
    """
    parent = queue.parent
    assert parent is not None, queue.path
    own_share = share(queue.allocated, queue.guaranteed, queue.fair_maximum)
    waiting = -sum(queue.pending.values())
    if parent.policies.priority_sort:
        return (-queue.priority, own_share, waiting)
    return (own_share, -queue.priority, waiting)


def path_key(leaf: Queue) -> Key:
    """The sort key of a leaf among all leaves, in the order of queue traversal."""
    path = [level for level in leaf.ancestry() if level.parent is not None]
    return tuple(part for level in reversed(path) for part in (*queue_key(level), level.rank))


def descending_shares(used: Resources, total: Mapping[str, int] | None) -> tuple[float, ...]:
    """The ratio of each type to a total (the plain amount without one), largest first, without zeros."""
    total = total or {}
    ratios = [used[kind] / total[kind] if total.get(kind) else float(used[kind]) for kind in used if used[kind]]
    return tuple(sorted(ratios, reverse=True))


def refresh_fair_maximum(queue: Queue) -> None:
    """Compute the default entitlement from this queue down: the cluster size, overridden by maximums of the path."""
    if queue.parent is None:
        queue.fair_maximum = dict(queue.maximum or {})
    else:
        above, maximum = queue.parent.fair_maximum, queue.maximum
        queue.fair_maximum = {**above, **maximum} if above and maximum is not None else dict(above)
    for child in queue.children.values():
        refresh_fair_maximum(child)
