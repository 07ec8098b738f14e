"""Fair share: the share of a queue, and the sort key of queues among their siblings.

The share of a queue is the highest ratio of usage to entitlement over all resource types: weighted dominant resource
fairness (Ghodsi et al., NSDI 2011), with the guarantee, or else the maximum obtainable, as the weight.
`ready_queues.py` keeps the orders.
"""

from yunishard.partition_worker.engine.amounts import Sum
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.sorted_items import NO_SHARES, Key, Shares, SortKey


def share(allocated: Sum, entitlements: Sum) -> float:
    """The largest ratio of usage to entitlement over all types; 0.0 if no type has an entitlement.

    Any usage of a type with an entitlement of 0 counts as 1.0.
    """
    largest = 0.0
    width = len(entitlements)
    for number, used in enumerate(allocated):
        if used > 0 and number < width:
            entitled = entitlements[number]
            if entitled >= 0:
                ratio = used / entitled if entitled > 0 else 1.0
                if ratio > largest:
                    largest = ratio
    return largest


def queue_key(queue: Queue) -> SortKey:
    """The sort key of a queue among its siblings, by the policy of its parent.

    Priority (if the parent sorts by it), then share; ties go to the queue with more pending resources. The reference
    compares those type by type, which leaves some pairs undecided; the sum agrees wherever that decides.
    """
    parent = queue.parent
    assert parent is not None, queue.path
    own_share = share(queue.allocated_sum, queue.entitlements)
    waiting = 0
    for value in queue.pending_sum:
        waiting -= value
    if parent.policies.priority_sort:
        return -queue.priority, own_share, NO_SHARES, 0, waiting
    return 0, own_share, NO_SHARES, -queue.priority, waiting


def path_key(leaf: Queue) -> Key:
    """The sort key of a leaf among all leaves, in the order of queue traversal."""
    path = [level for level in leaf.ancestry() if level.parent is not None]
    return tuple(part for level in reversed(path) for part in (*queue_key(level), level.rank))


def descending_shares(used: Sum, guarantees: Sum) -> Shares:
    """The ratio of each type to its guarantee (the plain amount without one), largest first, without zeros."""
    ratios: list[float] = []
    width = len(guarantees)
    for number, value in enumerate(used):
        if value:
            guaranteed = guarantees[number] if number < width else 0
            ratios.append(value / guaranteed if guaranteed > 0 else float(value))
    if len(ratios) > 1:
        ratios.sort(reverse=True)
    return tuple(ratios)


def refresh_fair_maximum(queue: Queue) -> None:
    """Compute the default entitlement from this queue down: the cluster size, overridden by maximums of the path."""
    if queue.parent is None:
        queue.fair_maximum = dict(queue.maximum or {})
    else:
        above, maximum = queue.parent.fair_maximum, queue.maximum
        queue.fair_maximum = {**above, **maximum} if above and maximum is not None else dict(above)
    for child in queue.children.values():
        refresh_fair_maximum(child)
