"""Application lifecycle: fire state machine events, and apply what follows from entering or leaving a state.

That is timers, counters, the update for the RM, events, and leaving the queue. `application_states.py` has the
transition table; callers decide when an event happens.
"""

from typing import Final

from common import event_codes
from common.resources import is_zero
from common.rm_messages import UpdatedApplication
from partition_worker.engine import events
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import ACTIVE, ENDED, LINGER_S, AppEvent, AppState, next_state
from partition_worker.engine.queues.queue import Queue, count_running, discount_allocating, discount_running
from partition_worker.engine.state import PartitionState

STATE_AWARE_OFF: Final = "application.stateaware.disable"
"""Application tag that, if `true`, skips the Starting state."""


def fire(books: PartitionState, application: Application, event: AppEvent, info: str = "") -> None:
    """Fire an event. An event that does not apply in the current state is only logged."""
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
    events.entered(books, application, info)
    if application.queue.state_aware:
        books.readiness.touch_application(application)  # turns in a state-aware leaf depend on states
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


def settle(books: PartitionState, application: Application) -> None:
    """End Starting if the leaf, or its settings, changed and is no longer state-aware."""
    if application.state is AppState.STARTING and not application.queue.state_aware:
        fire(books, application, AppEvent.RUN)


def count(books: PartitionState, queue: Queue, state: AppState) -> None:
    """Count that an application of the queue entered a state."""
    queue.reached[state] += 1
    books.counters.reached[queue.path, state] += 1


def ask_gone(books: PartitionState, application: Application) -> None:
    """After an ask was removed: complete the application if it has nothing left, placeholders included."""
    if is_zero(application.allocated_placeholder):
        _complete_if_done(books, application)


def allocation_gone(books: PartitionState, application: Application) -> None:
    """After a real allocation ended: complete the application if it has no real allocation or ask left, or fail it if
    it is failing and empty.
    """
    if application.state is AppState.FAILING:
        _fail_if_empty(books, application)
    else:
        _complete_if_done(books, application)


def placeholder_gone(books: PartitionState, application: Application) -> None:
    """After a placeholder ended: apply what waited for the last one. A gang of one placeholder completes here and runs
    again when its real ask replaces the placeholder.
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


def emptied(books: PartitionState, application: Application) -> None:
    """After all allocations were removed at once: complete the application if nothing is pending."""
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


def _complete_if_done(books: PartitionState, application: Application) -> None:
    if _has_nothing(application) and (application.state is AppState.ACCEPTED or application.state in ACTIVE):
        fire(books, application, AppEvent.COMPLETE)


def _fail_if_empty(books: PartitionState, application: Application) -> None:
    if not application.allocations:
        fire(books, application, AppEvent.FAIL)


def _has_nothing(application: Application) -> bool:
    return is_zero(application.pending) and is_zero(application.allocated)


def timed_out(books: PartitionState, application: Application) -> None:
    """The state timeout expired: fire the event of the state."""
    fire(books, application, LINGER_S[application.state][1])


def _leave(books: PartitionState, application: Application, after: AppState) -> None:
    books.timers.stop(application, "state")
    if application.state in ACTIVE and after not in ACTIVE:
        discount_running(application.queue)
        books.readiness.relieve()


def _enter(books: PartitionState, application: Application, before: AppState, at_ns: int) -> None:
    state = application.state
    if state in LINGER_S:
        books.timers.start(application, "state", books.now + LINGER_S[state][0])
    if state in ACTIVE and before not in ACTIVE:
        application.started_ns = at_ns
        count_running(application.queue)
        discount_allocating(application.queue, application.application_id)
    elif state is AppState.EXPIRED:
        books.forget_ended(application)
    elif state in ENDED:
        _end(books, application, at_ns)


def _end(books: PartitionState, application: Application, at_ns: int) -> None:
    application.finished_ns = at_ns
    if application.started_ns:
        books.tell_people(application.format_summary())
    leave_queue(books, application)
    books.remember_ended(application)


def leave_queue(books: PartitionState, application: Application) -> None:
    """Remove an application that has nothing left from the partition and its queue. Its id is free at once."""
    assert not application.requests, application.application_id
    assert not application.allocations, application.application_id
    assert not application.swapping, application.application_id
    books.timers.stop(application, "placeholders")
    books.timers.stop(application, "look")
    books.swappable.drop(application)
    del books.applications[application.application_id]
    del application.queue.applications[application.application_id]
    events.queue_application(books, application.queue, event_codes.REMOVE, application.application_id)
    events.application(books, application.application_id, event_codes.REMOVE, event_codes.DETAILS_NONE)
    if discount_allocating(application.queue, application.application_id):
        books.readiness.relieve()
    books.readiness.forget_application(application)
    forget(books, application)
    if not application.queue.managed or application.queue.draining:
        books.expect_cleaning()


def forget(books: PartitionState, application: Application) -> None:
    """Stop counting an application that uses nothing for its user and group."""
    account = books.usage.known(application)
    if account is not None:
        books.readiness.freed(account)
        books.usage.forget(application)
