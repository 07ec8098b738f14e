"""Queues that go: those that left the configuration drain, and whatever is temporary and empty is removed.

A draining queue goes on with what is in it and takes nothing new. That concerns people, so it is told: to the RM of
each application in it and to the administrators by events when it starts, to the log then and as long as it lasts.

Not here: which queues have to go (`queues/changes.py`).
"""

from typing import Final

from common import event_codes
from common.machine import NEVER
from common.rm_messages import EventRecord
from common.wording import counted
from partition_worker.engine import happenings
from partition_worker.engine.books import Books
from partition_worker.engine.queues.queue import Queue

DRAINING_TOLD_EVERY_S: Final = 3600.0
"""How often the log is told again that a queue still drains."""


def begin(books: Books, queue: Queue) -> None:
    """The queue takes nothing new from now on, and goes once it is empty."""
    assert queue.managed, queue.path
    if queue.draining:
        return
    queue.state = "Draining"
    queue.draining_since_ns = queue.draining_told_ns = books.stamp_ns()
    told = f"queue {queue.path} left the configuration and drains: {_left(queue)}"
    books.tell_people(told)
    books.emit(_event(event_codes.QUEUE, queue.path, told, queue.draining_since_ns))
    for application_id in queue.applications:
        text = f"application {application_id} goes on, but its queue takes nothing new: {told}"
        books.emit(_event(event_codes.APP, application_id, text, queue.draining_since_ns, queue.path))


def end(queue: Queue) -> None:
    """The queue is wanted again, if it was not."""
    queue.state = "Active"
    queue.draining_since_ns = queue.draining_told_ns = 0


def clean(books: Books) -> None:
    """Remove queues that are to go and have nothing in them; come back while there are others that may."""
    books.clean_at = NEVER
    for queue in books.tree.remove_empty():
        happenings.queue_gone(books, queue)
        books.readiness.forget_queue(queue)
        books.counters.fold(queue.path, queue.path.rpartition(".")[0])
    _remind(books)
    if books.tree.has_temporary():
        books.expect_cleaning()


def _remind(books: Books) -> None:
    now_ns = int(books.now * 1e9)
    for queue in books.tree:
        if queue.draining and now_ns - queue.draining_told_ns >= DRAINING_TOLD_EVERY_S * 1e9:
            queue.draining_told_ns = now_ns
            hours = (now_ns - queue.draining_since_ns) / 3.6e12
            books.tell_people(f"queue {queue.path} has been draining for {hours:.1f} hours: {_left(queue)}")


def _left(queue: Queue) -> str:
    """How many applications, and who may administer the queue: the lists that apply, as the configuration has them."""
    lists = [f"{level.admin_text.strip()!r} of {level.path}" for level in queue.ancestry() if level.admin_text.strip()]
    return f"{counted(queue.population, 'application')} in it, administrators: {', '.join(lists) or 'none'}"


def _event(kind: int, object_id: str, message: str, at_ns: int, reference_id: str = "") -> EventRecord:
    return EventRecord(
        type=kind,
        object_id=object_id,
        message=message,
        timestamp_nano=at_ns,
        event_change_type=event_codes.SET,
        event_change_detail=event_codes.DETAILS_NONE,
        reference_id=reference_id,
    )
