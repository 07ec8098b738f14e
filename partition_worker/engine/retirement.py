"""A partition that left the configuration ends: whatever is in it fails or goes, and nothing comes in any more.

Its RM hears that each application fails and which allocations were released, for over a network it cannot know.

Not here: when a partition has to go (the broker knows).
"""

from typing import Final

from common.rm_messages import AllocationRelease
from partition_worker.engine import happenings, lifecycle
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import AppEvent, AppState
from partition_worker.engine.books import Books
from partition_worker.engine.updates import allocation_updates, application_updates, removal

CAUSE: Final = "PartitionRemoved"
"""Why every application fails, as RMs know it."""


def retire(books: Books) -> None:
    """Take everything out of the partition, and let nothing in again."""
    books.retired = True
    for queue in books.tree:
        queue.state = "Draining"
        queue.draining_since_ns = queue.draining_told_ns = books.stamp_ns()
    allocation_updates.follow(books, application_updates.give_up(books))
    released = [one for application in tuple(books.applications.values()) for one in _end(books, application)]
    for release in released:
        books.emit(release)
    for node in tuple(books.fleet):
        books.fleet.withdraw(node)
        total = books.fleet.total
        books.fleet.remove(node)
        happenings.cluster_resized(books, total)
        happenings.node_gone(books, node.node_id)
        books.counters.decommissioned += 1
    books.foreign.clear()
    books.readiness.resized()
    books.expect_cleaning()


def _end(books: Books, application: Application) -> list[AllocationRelease]:
    """Fail an application and take all it has; what ran. One that already completes has nothing and has completed."""
    completes = application.state is AppState.COMPLETING
    if application.state is AppState.RESUMING:  # from there it cannot fail
        lifecycle.fire(books, application, AppEvent.RUN)
    if not completes and application.state is not AppState.FAILING:
        lifecycle.fire(books, application, AppEvent.FAIL, CAUSE)
    running = removal.empty(books, application)
    application.queue.released += len(running)
    if completes:
        lifecycle.fire(books, application, AppEvent.COMPLETE, CAUSE)
    else:
        books.timers.stop(application, "state")
        lifecycle.leave_queue(books, application)
    return [allocation.release(books.name, f"Partition {books.name} Removed") for allocation in running]
