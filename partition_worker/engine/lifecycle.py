"""What follows when an application enters or leaves a state: timers, counts, the RM's news, and the end.

The table of states is in `applications/states.py`; here is what each entry of it means to the partition.

Not here: the events themselves; the modules that call know when they happen.
"""

from typing import Final

from common import event_codes
from common.resources import is_zero
from common.rm_messages import UpdatedApplication
from partition_worker.engine import happenings
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import ACTIVE, ENDED, LINGER_S, AppEvent, AppState, next_state
from partition_worker.engine.books import Books
from partition_worker.engine.queues import admission
from partition_worker.engine.queues.queue import Queue

STATE_AWARE_OFF: Final = "application.stateaware.disable"
"""The tag of an application that, if it says `true`, is never Starting."""


def fire(books: Books, application: Application, event: AppEvent, info: str = "") -> None:
    """Let an event happen to an application. One that does not apply in its state changes nothing and is noted."""
    before = application.state
    after = next_state(before, event, state_aware=before is AppState.ACCEPTED and _starts_slowly(application))
    if after is None:
        books.note(f"application {application.application_id}: event {event} inappropriate in current state {before}")
        return
    if after == before:
        return
    _leave(books, application, after)
    application.state = after
    count(books, application.queue, after)
    at_ns = books.stamp_ns()
    application.state_log.append((at_ns, after))
    happenings.entered(books, application, info)
    if application.queue.state_aware:
        books.readiness.touch_application(application)  # whose turn it is depends on states there
    _enter(books, application, before, at_ns)
    books.emit(
        UpdatedApplication(
            application_id=application.application_id,
            state=after,
            state_transition_timestamp=at_ns,
            message=info or event,
        )
    )


def _starts_slowly(application: Application) -> bool:
    return application.queue.state_aware and application.tags.get(STATE_AWARE_OFF, "").lower() != "true"


def settle(books: Books, application: Application) -> None:
    """The application is in another leaf, or its leaf has other settings: only where states count is one Starting."""
    if application.state is AppState.STARTING and not application.queue.state_aware:
        fire(books, application, AppEvent.RUN)


def count(books: Books, queue: Queue, state: AppState) -> None:
    """An application of this queue entered this state."""
    queue.reached[state] += 1
    books.counters.reached[queue.path, state] += 1


def ask_gone(books: Books, application: Application) -> None:
    """An ask was taken back: an application that has nothing else, placeholders neither, starts to complete."""
    if is_zero(application.allocated_placeholder):
        _complete_if_done(books, application)


def allocation_gone(books: Books, application: Application) -> None:
    """A real allocation is gone: an application that runs and neither has nor asks for another one starts to
    complete; placeholders do not count.
    """
    if application.state is AppState.FAILING:
        _fail_if_empty(books, application)
    else:
        _complete_if_done(books, application)


def placeholder_gone(books: Books, application: Application) -> None:
    """A placeholder is gone. What waited for the last of them to go happens now; a gang of one placeholder, whose real
    ask is about to take the place, starts to complete and will run again.
    """
    if not is_zero(application.allocated_placeholder):
        return
    books.timers.stop(application, "placeholders")
    match application.state:
        case AppState.FAILING:
            _fail_if_empty(books, application)
        case AppState.RESUMING:
            fire(books, application, AppEvent.RUN)
        case AppState.COMPLETING:
            if not application.swapping:
                fire(books, application, AppEvent.COMPLETE)
        case _:
            _complete_if_done(books, application)


def emptied(books: Books, application: Application) -> None:
    """All allocations were taken from an application at once: if nothing is asked for either it starts to complete, or
    has completed if it already did.
    """
    books.timers.stop(application, "placeholders")
    match application.state:
        case AppState.FAILING:
            _fail_if_empty(books, application)
        case AppState.COMPLETING if _has_nothing(application):
            fire(books, application, AppEvent.COMPLETE)
        case AppState.RESUMING:
            fire(books, application, AppEvent.RUN)
            _complete_if_done(books, application)
        case _:
            _complete_if_done(books, application)


def _complete_if_done(books: Books, application: Application) -> None:
    if _has_nothing(application) and (application.state is AppState.ACCEPTED or application.state in ACTIVE):
        fire(books, application, AppEvent.COMPLETE)


def _fail_if_empty(books: Books, application: Application) -> None:
    if not application.allocations:
        fire(books, application, AppEvent.FAIL)


def _has_nothing(application: Application) -> bool:
    return is_zero(application.pending) and is_zero(application.allocated)


def timed_out(books: Books, application: Application) -> None:
    """The application stayed in its state for as long as it may."""
    fire(books, application, LINGER_S[application.state][1])


def _leave(books: Books, application: Application, after: AppState) -> None:
    books.timers.stop(application, "state")
    if application.state in ACTIVE and after not in ACTIVE:
        admission.stopped(application.queue)
        books.readiness.relieve()


def _enter(books: Books, application: Application, before: AppState, at_ns: int) -> None:
    state = application.state
    if state in LINGER_S:
        books.timers.start(application, "state", books.now + LINGER_S[state][0])
    if state in ACTIVE and before not in ACTIVE:
        application.started_ns = at_ns
        admission.started(application.queue)
        admission.no_longer_allocating(application.queue, application.application_id)
    elif state is AppState.EXPIRED:
        books.forget_ended(application)
    elif state in ENDED:
        _end(books, application, at_ns)


def _end(books: Books, application: Application, at_ns: int) -> None:
    application.finished_ns = at_ns
    if application.started_ns:
        books.tell_people(application.format_summary())
    leave_queue(books, application)
    books.remember_ended(application)


def leave_queue(books: Books, application: Application) -> None:
    """Take an application, which has nothing any more, out of the partition and its queue. Its id is free at once."""
    assert not application.requests, application.application_id
    assert not application.allocations, application.application_id
    assert not application.swapping, application.application_id
    books.timers.stop(application, "placeholders")
    books.timers.stop(application, "look")
    books.swappable.drop(application)
    del books.applications[application.application_id]
    del application.queue.applications[application.application_id]
    happenings.queue_application(books, application.queue, event_codes.REMOVE, application.application_id)
    happenings.application(books, application.application_id, event_codes.REMOVE, event_codes.DETAILS_NONE)
    if admission.no_longer_allocating(application.queue, application.application_id):
        books.readiness.relieve()
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
