"""How many applications may run at once in a queue.

One that is still Accepted counts as running from the moment it gets something, a node that is kept for it or a
placeholder; otherwise any number could start at once.
"""

from typing import TYPE_CHECKING

from partition_worker.engine.queues.queue import Queue

if TYPE_CHECKING:
    from partition_worker.engine.application import Application


def may_start(leaf: Queue, application: "Application") -> bool:
    """Whether this application may start to run: no level of the path is at its limit, or it counts there already."""
    name = application.application_id
    return name in leaf.allocating or has_opening(leaf)


def has_opening(leaf: Queue) -> bool:
    """Whether one more application may start to run."""
    return all(
        level.max_applications == 0 or level.running + len(level.allocating) < level.max_applications
        for level in leaf.ancestry()
    )


def is_limited(leaf: Queue) -> bool:
    """Whether any level of the path limits how many applications run."""
    return any(level.max_applications for level in leaf.ancestry())


def allocating(leaf: Queue, application_id: str) -> None:
    """An application that is still Accepted got something."""
    for level in leaf.ancestry():
        level.allocating[application_id] = None


def no_longer_allocating(leaf: Queue, application_id: str) -> bool:
    """It entered another state, or left; whether it had counted."""
    if application_id not in leaf.allocating:
        return False
    for level in leaf.ancestry():
        del level.allocating[application_id]
    return True


def started(leaf: Queue) -> None:
    """An application that did not run is Starting or Running now."""
    for level in leaf.ancestry():
        level.running += 1


def stopped(leaf: Queue) -> None:
    """An application that was Starting or Running no longer runs."""
    for level in leaf.ancestry():
        level.running -= 1
        assert level.running >= 0, level.path
