"""The quota algebra of the tree: what is charged where, and what room is left.

Free functions over queues. A charge goes to a leaf and to every queue above it, so a question about room walks the
same path; it costs the depth of the tree, however many queues and applications there are.

Not here: limits of users, and room on nodes.
"""

from common.messages import Resources
from common.resources import NOTHING, Limit, add_to, is_positive, is_zero, less, pruned, take_from, tightened
from partition_worker.engine.ask_shapes import Shape
from partition_worker.engine.queues.queue import Queue


def has_room(leaf: Queue, shape: Shape, kept: Resources = NOTHING) -> bool:
    """Whether these amounts may be charged to the queue: no level on its path would exceed its maximum.

    A maximum that does not name a type leaves it unlimited; negative room counts as none, and nothing always fits.
    What is kept for others is not there; `kept` is what is kept for the very ask.
    """
    queue: Queue | None = leaf
    while queue is not None:
        maximum = queue.maximum
        if maximum is not None:
            allocated = queue.allocated
            for kind, value in shape:
                if value > 0 and kind in maximum and allocated.get(kind, 0) + value > maximum[kind]:
                    return False
            if queue.kept and not _leaves_kept(queue, shape, kept):
                return False
        queue = queue.parent
    return True


def allows(queue: Queue, shape: Shape) -> bool:
    """Whether the maximum of this very queue would not be exceeded with these amounts more, whatever is kept there."""
    maximum, allocated = queue.maximum or {}, queue.allocated
    return not any(
        value > 0 and kind in maximum and allocated.get(kind, 0) + value > maximum[kind] for kind, value in shape
    )


def _leaves_kept(queue: Queue, shape: Shape, own: Resources) -> bool:
    """Whether what the queue keeps for others is still there after these amounts were charged. For whom something is
    kept as well it is enough if it is there once all have left who were asked to, or each would wait for the victims of
    all.
    """
    maximum, allocated, leaving = queue.maximum, queue.allocated, queue.preempting if own else NOTHING
    assert maximum is not None, queue.path
    for kind, value in shape:
        others = queue.kept.get(kind, 0) - own.get(kind, 0) - leaving.get(kind, 0)
        if value > 0 and others > 0 and kind in maximum and allocated.get(kind, 0) + value + others > maximum[kind]:
            return False
    return True


def keep(leaf: Queue, amount: Resources) -> None:
    """Let nobody else below the queues of the path have this much. The size of the cluster is no such limit: there it
    is the node that is kept.
    """
    for level in leaf.ancestry():
        if level.parent is not None:
            add_to(level.kept, amount)


def no_longer_keep(leaf: Queue, amount: Resources) -> None:
    """Take back what `keep` counted."""
    for level in leaf.ancestry():
        if level.parent is not None:
            take_from(level.kept, amount)
            level.kept = pruned(level.kept)
            assert is_zero(level.kept) or is_positive(level.kept), (level.path, level.kept, amount)


def headroom(queue: Queue) -> Limit | None:
    """What may still be charged to the queue, per type; None is no limit."""
    room: Limit | None = None
    for level in queue.ancestry():
        if level.maximum is not None:
            room = tightened(room, less(level.maximum, level.allocated))
    return room


def charge(leaf: Queue, amount: Resources) -> None:
    """Count the amount as allocated at the leaf and above, whether or not there is room."""
    for level in leaf.ancestry():
        add_to(level.allocated, amount)


def refund(leaf: Queue, amount: Resources) -> None:
    """Take back what `charge` counted."""
    for level in leaf.ancestry():
        _take_back(level, level.allocated, amount)


def settle(leaf: Queue, amount: Resources) -> None:
    """What was pending is allocated from now on: `no_longer_expect` and `charge` in one walk."""
    amounts = tuple(amount.items())
    for level in leaf.ancestry():
        pending, allocated = level.pending, level.allocated
        for kind, value in amounts:
            left = pending[kind] = pending.get(kind, 0) - value
            assert left >= 0, (level.path, pending, amount)
            allocated[kind] = allocated.get(kind, 0) + value


def preempt(leaf: Queue, amount: Resources) -> None:
    """Of what is charged this much was asked back for somebody else."""
    for level in leaf.ancestry():
        add_to(level.preempting, amount)


def preempted(leaf: Queue, amount: Resources) -> None:
    """Take back what `preempt` counted."""
    for level in leaf.ancestry():
        _take_back(level, level.preempting, amount)


def expect(leaf: Queue, amount: Resources) -> None:
    """Count the amount as pending at the leaf and above."""
    for level in leaf.ancestry():
        add_to(level.pending, amount)


def no_longer_expect(leaf: Queue, amount: Resources) -> None:
    """Take back what `expect` counted."""
    for level in leaf.ancestry():
        _take_back(level, level.pending, amount)


def _take_back(level: Queue, total: Resources, amount: Resources) -> None:
    """Subtract from a sum of this queue what it counts."""
    for kind, value in amount.items():
        left = total[kind] = total.get(kind, 0) - value
        assert left >= 0, (level.path, total, amount)
