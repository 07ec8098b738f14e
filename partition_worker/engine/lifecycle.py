"""What follows when an application enters or leaves a state: timers, counts, the RM's news, and the end.

The table of states is in `applications/states.py`; here is what each entry of it means to the partition.

Not here: the events themselves; the modules that call know when they happen.
"""

from common.messages import UpdatedApplication
from common.resources import is_zero
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.states import ENDED, LINGER_S, AppEvent, AppState, next_state
from partition_worker.engine.books import Books
from partition_worker.engine.queues import admission
from partition_worker.engine.queues.queue import Queue


def fire(books: Books, application: Application, event: AppEvent, info: str = "") -> None:
    """Let an event happen to an application. One that does not apply in its state changes nothing and is noted."""
    before = application.state
    after = next_state(before, event)
    if after is None:
        books.note(f"application {application.application_id}: event {event} inappropriate in current state {before}")
        return
    if after == before:
        return
    _leave(books, application)
    application.state = after
    count(books, application.queue, after)
    at_ns = books.stamp_ns()
    application.state_log.append((at_ns, after))
    _enter(books, application, at_ns)
    books.emit(
        UpdatedApplication(
            application_id=application.application_id,
            state=after,
            state_transition_timestamp=at_ns,
            message=info or event,
        )
    )


def count(books: Books, queue: Queue, state: AppState) -> None:
    """An application of this queue entered this state."""
    queue.reached[state] += 1
    books.counters.reached[queue.path, state] += 1


def complete_if_done(books: Books, application: Application) -> None:
    """An application that runs and has neither asks nor allocations any more starts to complete."""
    if application.state in (AppState.ACCEPTED, AppState.RUNNING) and _has_nothing(application):
        fire(books, application, AppEvent.COMPLETE)


def complete_emptied(books: Books, application: Application) -> None:
    """Everything was taken from an application at once: it starts to complete, or if it already did it has
    completed.
    """
    if application.state is AppState.COMPLETING and _has_nothing(application):
        fire(books, application, AppEvent.COMPLETE)
    else:
        complete_if_done(books, application)


def _has_nothing(application: Application) -> bool:
    return is_zero(application.pending) and is_zero(application.allocated)


def timed_out(books: Books, application: Application) -> None:
    """The application stayed in its state for as long as it may."""
    fire(books, application, LINGER_S[application.state][1])


def _leave(books: Books, application: Application) -> None:
    books.timers.stop(application)
    if application.state is AppState.RUNNING:
        admission.stopped(application.queue)
        books.readiness.relieve()


def _enter(books: Books, application: Application, at_ns: int) -> None:
    state = application.state
    if state in LINGER_S:
        books.timers.start(application, books.now + LINGER_S[state][0])
    if state is AppState.RUNNING:
        application.started_ns = at_ns
        admission.started(application.queue)
    elif state is AppState.EXPIRED:
        books.forget_ended(application)
    elif state in ENDED:
        _end(books, application, at_ns)


def _end(books: Books, application: Application, at_ns: int) -> None:
    application.finished_ns = at_ns
    leave_queue(books, application)
    books.remember_ended(application)


def leave_queue(books: Books, application: Application) -> None:
    """Take an application, which has nothing any more, out of the partition and its queue. Its id is free at once."""
    assert not application.requests, application.application_id
    assert not application.allocations, application.application_id
    del books.applications[application.application_id]
    del application.queue.applications[application.application_id]
    books.readiness.forget_application(application)
    forget(books, application)
    if not application.queue.managed or application.queue.draining:
        books.expect_cleaning()


def forget(books: Books, application: Application) -> None:
    """An application that uses nothing any more no longer counts for its user and group."""
    account = books.usage.known(application)
    if account is not None:
        books.readiness.freed(account)
        books.usage.forget(application)
