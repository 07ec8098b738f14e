"""The time that a gang has: placeholders are not held for ever, nor by an application that has come to its end.

    placeholders are held for too long
        and all were there, so that the application began    those that are left are let go
        and they never all were                              a soft gang goes on without them, a hard one fails
    an application completes and has placeholders left       they are let go; when the last is gone it has completed

Not here: states (`lifecycle.py`), and taking the place of a placeholder (`swaps.py`).
"""

from typing import Final

from common import event_codes
from common.resources import is_zero
from common.rm_messages import TIMEOUT, AddApplicationRequest
from partition_worker.engine import happenings, ledger, lifecycle, placeholders
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import PLACEHOLDER_TIMEOUT_S, Application
from partition_worker.engine.application_states import ACTIVE, AppEvent, AppState
from partition_worker.engine.books import Books

CAUSE: Final = "ResourceReservationTimeout"
"""Why an application resumes or fails that never got all its placeholders, as RMs know it."""

ALLOCATED: Final = "releasing allocated placeholders on placeholder timeout"
PENDING: Final = "releasing pending placeholders on placeholder timeout"
COMPLETED: Final = "releasing placeholders on app complete"

CREATION_TIME: Final = "yunikorn.apache.org/creationTime"
"""The tag of an application that says since when its RM has known it, in Unix seconds."""

LEAST_S: Final = 0.001
"""The time that a gang gets that is known for longer than it may hold placeholders."""


def placeholder_timeout_s(submission: AddApplicationRequest, now: float) -> float:
    """How long a new application may hold placeholders. What it has been known for is gone from that, so one that
    comes again does not begin anew.
    """
    asked_ms = submission.execution_timeout_milli_seconds
    timeout_s = asked_ms / 1000 if asked_ms > 0 else PLACEHOLDER_TIMEOUT_S
    tag = submission.tags.get(CREATION_TIME, "")
    if not (tag.isascii() and tag.isdecimal() and len(tag) < 12):
        return timeout_s
    return max(min(int(tag), now) + timeout_s - now, LEAST_S)


def lingered(books: Books, application: Application) -> None:
    """An application stayed in its state for as long as it may. One that completes waits for its placeholders to go."""
    if application.state is AppState.COMPLETING and not is_zero(application.allocated_placeholder):
        placeholders.let_go(books, application, _held(application), COMPLETED)
    else:
        lifecycle.timed_out(books, application)


def timed_out(books: Books, application: Application) -> None:
    """An application held placeholders for as long as it may."""
    if application.state is AppState.COMPLETING or application.state in ACTIVE:
        placeholders.let_go(books, application, _held(application), ALLOCATED)
    else:
        _give_up(books, application)


def _held(application: Application) -> list[Allocation]:
    """The placeholders that nobody was asked to let go yet."""
    return [placeholder for group in application.task_groups.values() for placeholder in group.free.values()]


def _give_up(books: Books, application: Application) -> None:
    """The gang was never complete: all that it has and asks for goes. Swaps under way come to their end in a soft gang;
    a hard one has no use for them.
    """
    hard = application.gang_style == "Hard"
    lifecycle.fire(books, application, AppEvent.FAIL if hard else AppEvent.RESUME, CAUSE)
    if hard:
        for ask in tuple(application.swapping.values()):
            ledger.undo_swap(books, application, ask)
    asks = tuple(application.requests.values())
    for ask in asks:
        ledger.remove_ask(books, application, ask, detail=event_codes.REQUEST_TIMEOUT)
    having = [one for one in application.allocations.values() if not one.preempted and not one.released]
    for one in having:
        happenings.ask_removed(books, one, event_codes.REQUEST_TIMEOUT)
    placeholders.let_go(books, application, having, ALLOCATED)
    for ask in asks:
        books.emit(ask.release(books.name, PENDING, TIMEOUT))
