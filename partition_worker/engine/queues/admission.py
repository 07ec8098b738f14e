"""How many applications may run at once in a queue."""

from partition_worker.engine.queues.queue import Queue


def may_start(leaf: Queue) -> bool:
    """Whether one more application may start to run: no level of the path is at its limit."""
    return all(level.max_applications == 0 or level.running < level.max_applications for level in leaf.ancestry())


def is_limited(leaf: Queue) -> bool:
    """Whether any level of the path limits how many applications run."""
    return any(level.max_applications for level in leaf.ancestry())


def started(leaf: Queue) -> None:
    """An application entered Running."""
    for level in leaf.ancestry():
        level.running += 1


def stopped(leaf: Queue) -> None:
    """An application left Running."""
    for level in leaf.ancestry():
        level.running -= 1
        assert level.running >= 0, level.path
