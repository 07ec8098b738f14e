"""How the priority of what waits travels up the tree."""

from partition_worker.engine.queues.queue import NOTHING_PENDING, Queue


def exported(queue: Queue, before: int) -> None:
    """What a queue shows its parent was `before`, and may be another now that its policies or its type are."""
    _pass_up(queue.parent, before, queue.priority)


def exchange(queue: Queue, old: int | None, new: int | None) -> None:
    """An application's highest ask priority went from `old` to `new` (None: it asks for nothing)."""
    if old == new:
        return
    before = queue.priority
    queue.priorities.exchange(old, new)
    _pass_up(queue.parent, before, queue.priority)


def _pass_up(queue: Queue | None, old: int, new: int) -> None:
    """A child shows `new` instead of `old`. Goes up only as far as what a queue shows its parent changes."""
    while queue is not None and old != new:
        before = queue.priority
        queue.child_priorities.exchange(
            None if old == NOTHING_PENDING else old, None if new == NOTHING_PENDING else new
        )
        old, new, queue = before, queue.priority, queue.parent
