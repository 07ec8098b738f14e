"""Queues whose time has come are brought down to their maximum: victims are marked and the RM is asked to let them go.

Looked at every second while a queue has such a time, from the root down; one that is brought down keeps those below it
from being so in the same look. It is done once for each time that was set, whatever comes of it.

Not here: when a queue's time is (`queues/quota_timing.py`), who the victims are (`quota.py`).
"""

from common import event_codes
from common.machine import NEVER
from common.resources import described, total_of
from common.rm_messages import PREEMPTED_BY_SCHEDULER
from partition_worker.engine import happenings, ledger
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.books import Books
from partition_worker.engine.preemption import quota
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.quota_timing import NO_TIME, exceeds


def look(books: Books) -> None:
    """Bring down every queue whose time has come, and look again in a second if others wait for theirs.

    A time that is not needed any more, as the queue no longer exceeds its maximum, is forgotten. Costs a look at each
    queue.
    """
    books.quota_look_at = NEVER
    if not books.config.preemption.is_quota_enabled:
        return
    brought_down: dict[str, Queue] = {}
    for queue in books.tree:
        if not queue.quota_preemption_at:
            continue
        if not exceeds(queue):
            queue.quota_preemption_at = NO_TIME
        elif queue.quota_preemption_at > books.now or any(one.path in brought_down for one in queue.ancestry()):
            books.expect_quota_look()
        else:
            brought_down[queue.path] = queue
            queue.quota_preemption_at = NO_TIME
            _bring_down(books, queue)


def _bring_down(books: Books, queue: Queue) -> None:
    amount = quota.target(queue)
    if not amount:
        return
    found = 0
    gone: list[Allocation] = []
    for leaf, part in quota.leaf_targets(queue, amount):
        ordered = quota.candidates(leaf, part)
        chosen = quota.victims(ordered, part)
        _preempt(books, leaf, chosen)
        found += len(ordered)
        gone += chosen
    if gone:
        books.preemptions.record_quota(books.now, queue, gone)
    if found:
        claimed = total_of(one.resources for one in gone)
        books.happened(
            event_codes.QUEUE,
            queue.path,
            event_codes.SET,
            event_codes.QUEUE_PREEMPTION,
            message=f"Quota change enforcement process: preemptable {described(amount)}, claimed {described(claimed)}, "
            f"selected {found}, preempted {len(gone)}",
            resource=dict(queue.maximum or {}),
        )


def _preempt(books: Books, leaf: Queue, chosen: list[Allocation]) -> None:
    """Ask the RM to let these go, application after application."""
    by_application: dict[str, list[Allocation]] = {}
    for allocation in chosen:
        by_application.setdefault(allocation.application_id, []).append(allocation)
    for application_id, allocations in by_application.items():
        application = leaf.applications[application_id]
        for allocation in allocations:
            ledger.mark_preempted(books, application, allocation)
            happenings.request(books, allocation, f"Preempted by Quota change enforcement process in {leaf.path}")
            reason = f"preempting allocations to enforce new max quota for queue : {leaf.path}"
            books.emit(allocation.release(books.name, reason, PREEMPTED_BY_SCHEDULER))
