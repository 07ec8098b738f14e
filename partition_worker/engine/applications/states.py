"""The states of an application, as a table.

    New --RUN--> Accepted --RUN--> Running --COMPLETE--> Completing --COMPLETE--> Completed --EXPIRE--> Expired
     |               |--RUN--> Starting --RUN--> Running     (in a leaf that is aware of states; goes on as Running)
     |               \\--COMPLETE--> Completing <--RUN-- (back to Running when there is something to do again)
     |--REJECT--> Rejected --EXPIRE--> Expired
     |--FAIL--> Failing --FAIL--> Failed --EXPIRE--> Expired          (FAIL also from Accepted and Running)
     \\--RESUME--> Resuming --RUN--> Accepted                         (RESUME also from Accepted)

Not here: what follows from entering a state (`lifecycle.py`).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class AppState(StrEnum):
    """Where an application stands; the values are what RMs and users read."""

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
    """What happens to an application; the values are the message that an RM gets where no better one is known."""

    RUN = "runApplication"
    COMPLETE = "completeApplication"
    FAIL = "failApplication"
    RESUME = "resumeApplication"
    REJECT = "rejectApplication"
    EXPIRE = "expireApplication"


TRANSITIONS: Final[Mapping[AppEvent, Mapping[AppState, AppState]]] = {
    AppEvent.RUN: {
        AppState.NEW: AppState.ACCEPTED,
        AppState.RESUMING: AppState.ACCEPTED,
        AppState.ACCEPTED: AppState.RUNNING,
        AppState.STARTING: AppState.RUNNING,
        AppState.RUNNING: AppState.RUNNING,
        AppState.COMPLETING: AppState.RUNNING,
    },
    AppEvent.COMPLETE: {
        AppState.ACCEPTED: AppState.COMPLETING,
        AppState.STARTING: AppState.COMPLETING,
        AppState.RUNNING: AppState.COMPLETING,
        AppState.COMPLETING: AppState.COMPLETED,
    },
    AppEvent.FAIL: {
        AppState.NEW: AppState.FAILING,
        AppState.ACCEPTED: AppState.FAILING,
        AppState.STARTING: AppState.FAILING,
        AppState.RUNNING: AppState.FAILING,
        AppState.FAILING: AppState.FAILED,
    },
    AppEvent.RESUME: {AppState.NEW: AppState.RESUMING, AppState.ACCEPTED: AppState.RESUMING},
    AppEvent.REJECT: {AppState.NEW: AppState.REJECTED},
    AppEvent.EXPIRE: {
        AppState.COMPLETED: AppState.EXPIRED,
        AppState.FAILED: AppState.EXPIRED,
        AppState.REJECTED: AppState.EXPIRED,
    },
}

LINGER_S: Final[Mapping[AppState, tuple[float, AppEvent]]] = {
    AppState.STARTING: (300.0, AppEvent.RUN),
    AppState.COMPLETING: (30.0, AppEvent.COMPLETE),
}
"""How long an application stays in a state before this happens to it, in seconds."""

RETENTION_S: Final = 3 * 24 * 3600.0
"""How long an ended or rejected application is remembered; then it expires."""

ENDED: Final = frozenset({AppState.COMPLETED, AppState.FAILED, AppState.REJECTED, AppState.EXPIRED})
"""States in which an application has left its queue."""


ACTIVE: Final = frozenset({AppState.STARTING, AppState.RUNNING})
"""States in which an application counts as running, for the limits of queues too."""


def next_state(state: AppState, event: AppEvent, *, slowly: bool = False) -> AppState | None:
    """Where the event leads, or None when it does not apply in this state and changes nothing. `slowly` says that an
    application which begins is Starting first.
    """
    if slowly and event is AppEvent.RUN and state is AppState.ACCEPTED:
        return AppState.STARTING
    return TRANSITIONS[event].get(state)
