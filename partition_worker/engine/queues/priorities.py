"""How the priority of what waits travels up the tree."""

from partition_worker.engine.queues.queue import NOTHING_PENDING, Queue


def exported(queue: Queue, before: int) -> None:
    """What a queue shows its parent was `before`, and may be another now that its policies are."""
    if queue.parent is not None:
        after = queue.priority
        exchange(
            queue.parent,
            None if before == NOTHING_PENDING else before,
            None if after == NOTHING_PENDING else after,
        )


def exchange(leaf: Queue, old: int | None, new: int | None) -> None:
    """An application's highest ask priority went from `old` to `new` (None: it asks for nothing).

    Goes up only as far as what a queue shows its parent changes.
    """
    queue: Queue | None = leaf
    while queue is not None and old != new:
        before = queue.priority
        queue.priorities.exchange(old, new)
        after = queue.priority
        old = None if before == NOTHING_PENDING else before
        new = None if after == NOTHING_PENDING else after
        queue = queue.parent
