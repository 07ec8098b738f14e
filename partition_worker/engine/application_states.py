"""The state machine of an application, as a transition table.

    New --RUN--> Accepted --RUN--> Running --COMPLETE--> Completing --COMPLETE--> Completed --EXPIRE--> Expired
     |               |--RUN--> Starting --RUN--> Running     (in a state-aware leaf; otherwise like Running)
     |               \\--COMPLETE--> Completing <--RUN-- (back to Running when the application has work again)
     |--REJECT--> Rejected --EXPIRE--> Expired
     |--FAIL--> Failing --FAIL--> Failed --EXPIRE--> Expired          (FAIL also from Accepted and Running)
     \\--RESUME--> Resuming --RUN--> Accepted                         (RESUME also from Accepted)

`lifecycle.py` implements what follows from entering a state.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class AppState(StrEnum):
    """The state of an application; RMs and users read the values."""

    NEW = "New"
    ACCEPTED = "Accepted"
    STARTING = "Starting"
    RUNNING = "Running"
    RESUMING = "Resuming"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILING = "Failing"
    FAILED = "Failed"
    REJECTED = "Rejected"
    EXPIRED = "Expired"


class AppEvent(StrEnum):
    """A state machine event; the value is the message that the RM gets when there is no more specific one."""

    RUN = "runApplication"
    COMPLETE = "completeApplication"
    FAIL = "failApplication"
    RESUME = "resumeApplication"
    REJECT = "rejectApplication"
    EXPIRE = "expireApplication"


_S = AppState
TRANSITIONS: Final[Mapping[AppEvent, Mapping[AppState, AppState]]] = {
    AppEvent.RUN: {
        **dict.fromkeys((_S.NEW, _S.RESUMING), _S.ACCEPTED),
        **dict.fromkeys((_S.ACCEPTED, _S.STARTING, _S.RUNNING, _S.COMPLETING), _S.RUNNING),
    },
    AppEvent.COMPLETE: {
        **dict.fromkeys((_S.ACCEPTED, _S.STARTING, _S.RUNNING), _S.COMPLETING),
        _S.COMPLETING: _S.COMPLETED,
    },
    AppEvent.FAIL: {
        **dict.fromkeys((_S.NEW, _S.ACCEPTED, _S.STARTING, _S.RUNNING), _S.FAILING),
        _S.FAILING: _S.FAILED,
    },
    AppEvent.RESUME: dict.fromkeys((_S.NEW, _S.ACCEPTED), _S.RESUMING),
    AppEvent.REJECT: {_S.NEW: _S.REJECTED},
    AppEvent.EXPIRE: dict.fromkeys((_S.COMPLETED, _S.FAILED, _S.REJECTED), _S.EXPIRED),
}

LINGER_S: Final[Mapping[AppState, tuple[float, AppEvent]]] = {
    AppState.STARTING: (300.0, AppEvent.RUN),
    AppState.COMPLETING: (30.0, AppEvent.COMPLETE),
}
"""For how many seconds an application stays in a state, and the event that then fires."""

RETENTION_S: Final = 3 * 24 * 3600.0
"""Seconds after which an ended or rejected application expires."""

ENDED: Final = frozenset({AppState.COMPLETED, AppState.FAILED, AppState.REJECTED, AppState.EXPIRED})
"""States in which an application has left its queue."""

ACTIVE: Final = frozenset({AppState.STARTING, AppState.RUNNING})
"""States in which an application counts as running, also for the application limits of queues."""


def next_state(state: AppState, event: AppEvent, *, state_aware: bool = False) -> AppState | None:
    """The state that the event leads to; None if the event does not apply in this state.

    With `state_aware`, an accepted application enters Starting before Running.
    """
    if state_aware and event is AppEvent.RUN and state is AppState.ACCEPTED:
        return AppState.STARTING
    return TRANSITIONS[event].get(state)
