"""Application lifecycle: fire state machine events, and apply what follows from entering or leaving a state.

That is timers, counters, the update for the RM, events, and leaving the queue. `application.py` has the
transition table; callers decide when an event happens.
"""

from typing import Final

from yunishard.common.messages import event_codes
from yunishard.common.messages.rm_messages import UpdatedApplication
from yunishard.partition_worker.engine import events
from yunishard.partition_worker.engine.application import (
    ACTIVE,
    ENDED,
    LINGER_S,
    AppEvent,
    Application,
    AppState,
    next_state,
)
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState

STATE_AWARE_OFF: Final = "application.stateaware.disable"
"""Application tag that, if `true`, skips the Starting state."""


def fire(state: PartitionState, application: Application, event: AppEvent, info: str = "") -> None:
    """Fire an event. An event that does not apply in the current state is only logged."""
    name, before, queue = application.application_id, application.state, application.queue
    slow_start = queue.state_aware and application.tags.get(STATE_AWARE_OFF, "").lower() != "true"
    after = next_state(before, event, state_aware=slow_start)
    if after is None:
        state.log_debug(f"application {name}: event {event} inappropriate in current state {before}")
        return
    if after == before:
        return
    state.timers.stop(application, "state")
    if before in ACTIVE and after not in ACTIVE:
        queue.add_running(-1)
        state.readiness.reopen_starts(queue)
    application.state = after
    state.changes.applications[application.rank] = application
    count_entry(state, queue, after)
    at_ns = state.stamp_ns()
    application.state_log.append((at_ns, after))
    state.changes.entered[application.rank] = None
    state.record_event(event_codes.APP, name, event_codes.SET, events.ENTERED[after], message=info)
    if queue.state_aware:
        state.readiness.touch_application(application)  # turns in a state-aware leaf depend on states
    _apply_entry(state, application, before, at_ns)
    state.emit(
        UpdatedApplication(
            application_id=application.application_id,
            state=after,
            state_transition_timestamp=at_ns,
            message=info or event,
        )
    )


def run_again(state: PartitionState, application: Application) -> None:
    """A completing application has work again. It runs, or waits like one that has not started if its queue, user or
    group may not run one more: others may have started since. One that still has placeholders never waits: it counts in
    its queue, and the timeout of an accepted gang would take its asks.
    """
    may_run = application.holds_placeholders or (
        application.queue.may_start(application.application_id) and state.usage.account(application).may_start()
    )
    fire(state, application, AppEvent.RUN if may_run else AppEvent.WAIT)


def end_starting(state: PartitionState, application: Application) -> None:
    """End Starting if the leaf, or its settings, changed and is no longer state-aware."""
    if application.state is AppState.STARTING and not application.queue.state_aware:
        fire(state, application, AppEvent.RUN)


def count_entry(state: PartitionState, queue: Queue, entered: AppState) -> None:
    """Count that an application of the queue entered a state."""
    queue.reached[entered] += 1
    state.counters.reached[queue.path, entered] += 1


def update_after_ask_removal(state: PartitionState, application: Application) -> None:
    """After an ask was removed: complete the application if it has nothing left, placeholders included."""
    if not application.holds_placeholders:
        _complete_if_done(state, application)


def update_after_release(state: PartitionState, application: Application) -> None:
    """After a real allocation ended: complete the application if it has no real allocation or ask left, or fail it if
    it is failing and empty.
    """
    if application.state is not AppState.FAILING:
        if not (application.allocations or application.swapping):  # a gang that holds nothing has no timeout
            state.timers.stop(application, "placeholders")
            state.changes.applications[application.rank] = application
        _complete_if_done(state, application)
    elif not application.allocations:
        fire(state, application, AppEvent.FAIL)


def update_after_placeholder(state: PartitionState, application: Application) -> None:
    """After a placeholder ended: apply what waited for the last one. A gang of one placeholder completes here and runs
    again when its real ask replaces the placeholder.

    The timeout of a hard gang that has not started continues while something real runs: the gang is not complete.
    """
    if application.holds_placeholders:
        return
    runs_incomplete = application.state is AppState.ACCEPTED and bool(application.allocations or application.swapping)
    if not runs_incomplete or application.gang_style != "Hard":
        state.timers.stop(application, "placeholders")
    state.changes.applications[application.rank] = application
    if application.state is AppState.RESUMING:
        fire(state, application, AppEvent.RUN)
    elif application.state is not AppState.COMPLETING:
        update_after_release(state, application)
    elif not application.swapping:
        fire(state, application, AppEvent.COMPLETE)


def update_after_removal_of_all(state: PartitionState, application: Application) -> None:
    """After all allocations were removed at once: complete the application if nothing is pending."""
    state.timers.stop(application, "placeholders")
    state.changes.applications[application.rank] = application
    if application.state is AppState.RESUMING:
        fire(state, application, AppEvent.RUN)
    if application.state is not AppState.COMPLETING:
        update_after_release(state, application)
    elif _has_nothing(application):
        fire(state, application, AppEvent.COMPLETE)


def _complete_if_done(state: PartitionState, application: Application) -> None:
    if _has_nothing(application) and (application.state is AppState.ACCEPTED or application.state in ACTIVE):
        fire(state, application, AppEvent.COMPLETE)


def _has_nothing(application: Application) -> bool:
    return not (application.requests or any(application.allocated_sum))


def _apply_entry(state: PartitionState, application: Application, before: AppState, at_ns: int) -> None:
    """Start the timer of the entered state, and update counts, or end the application."""
    after = application.state
    if after in LINGER_S:
        state.timers.start(application, "state", state.now + LINGER_S[after][0])
    if after in ACTIVE and before not in ACTIVE:
        application.started_ns = at_ns
        application.queue.add_running(1)
        application.queue.discount_allocating(application.application_id)
        if not application.holds_placeholders:
            state.timers.stop(application, "placeholders")
    elif after is AppState.COMPLETING:
        if application.holds_placeholders:  # it may run again without a check
            application.queue.count_allocating(application.application_id)
    elif after is AppState.EXPIRED:
        state.drop_ended(application)
    elif after in ENDED:
        application.finished_ns = at_ns
        if application.started_ns:
            state.log_info(application.format_summary())
        leave_queue(state, application)
        state.keep_ended(application)


def leave_queue(state: PartitionState, application: Application) -> None:
    """Remove an application that has nothing left from the partition and its queue. Its id is free at once."""
    name = application.application_id
    assert not application.requests, name
    assert not application.allocations, name
    assert not application.swapping, name
    state.timers.stop(application, "placeholders")
    state.timers.stop(application, "look")
    state.swap_candidates.drop(application)
    state.changes.applications[application.rank] = application
    del state.applications[name]
    del application.queue.applications[name]
    state.record_event(event_codes.QUEUE, application.queue.path, event_codes.REMOVE, event_codes.QUEUE_APP, name)
    state.record_event(event_codes.APP, name, event_codes.REMOVE, event_codes.DETAILS_NONE)
    if application.queue.discount_allocating(name):
        state.readiness.reopen_starts(application.queue)
    state.readiness.forget_application(application)
    drop_account(state, application)


def drop_account(state: PartitionState, application: Application) -> None:
    """Stop counting an application that uses nothing for its user and group."""
    account = state.usage.find(application)
    if account is not None:
        state.changes.applications[application.rank] = application
        state.readiness.reopen_limits(account)  # first: it finds what waits by the usages, which may be dropped now
        state.usage.remove(application)
