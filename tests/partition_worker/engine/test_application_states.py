"""The table of states is the specification's table (scheduling.md 2), row by row, with Starting."""

import pytest

from partition_worker.engine.application import ENDED, LINGER_S, RETENTION_S, AppEvent, AppState, next_state

TABLE = """
runApplication       New, Resuming                   Accepted
runApplication       Accepted, Running, Completing   Running
runApplication       Starting                        Running
completeApplication  Accepted, Running, Starting     Completing
completeApplication  Completing                      Completed
failApplication      New, Accepted, Running          Failing
failApplication      Starting                        Failing
failApplication      Failing                         Failed
resumeApplication    New, Accepted                   Resuming
rejectApplication    New                             Rejected
expireApplication    Completed, Failed, Rejected     Expired
"""
ROWS = {
    (AppState(state.strip(",")), AppEvent(event)): AppState(target)
    for event, *states, target in (line.split() for line in TABLE.strip().splitlines())
    for state in states
}


@pytest.mark.parametrize("event", AppEvent)
@pytest.mark.parametrize("state", AppState)
def test_an_event_leads_where_the_table_says_and_otherwise_nowhere(state: AppState, event: AppEvent) -> None:
    assert next_state(state, event) == ROWS.get((state, event))


@pytest.mark.parametrize("event", AppEvent)
@pytest.mark.parametrize("state", AppState)
def test_one_that_begins_slowly_is_starting_first_and_nothing_else_is_different(
    state: AppState, event: AppEvent
) -> None:
    begins = (state, event) == (AppState.ACCEPTED, AppEvent.RUN)
    assert next_state(state, event, state_aware=True) == (AppState.STARTING if begins else ROWS.get((state, event)))


def test_every_state_but_new_can_be_reached() -> None:
    assert set(ROWS.values()) | {AppState.STARTING} == set(AppState) - {AppState.NEW}


def test_what_an_application_waits_for_by_itself_can_happen_to_it() -> None:
    assert all(next_state(state, event) for state, (_, event) in LINGER_S.items())


def test_starting_lasts_five_minutes() -> None:
    assert LINGER_S[AppState.STARTING] == (300, AppEvent.RUN)


def test_completing_lasts_half_a_minute_and_what_has_ended_is_remembered_for_three_days() -> None:
    assert LINGER_S[AppState.COMPLETING][0] == 30
    assert RETENTION_S == 259_200


def test_an_application_that_has_ended_never_runs_again() -> None:
    assert {next_state(state, event) for state in ENDED for event in AppEvent} == {None, AppState.EXPIRED}
