"""The result of a failed attempt to place an ask, and the log of such attempts that equal asks share.

    WaitCause          one failed attempt: the check that failed, what it compared, and what was tried besides
    log_attempt        count it
    list_messages      YuniKorn's messages that follow from the log
    find_latest        what the last attempt failed at

The log is the only record of failed attempts. It has one entry for each check and each message, so it stays small
however often an ask is tried. Texts are made when they are shown (`explain/causes.py`), because most attempts are never
looked at.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from yunishard.common.messages.reasons import Reason
from yunishard.common.resources import NOTHING

LIMITS_FULL: Final = (Reason.USER_LIMIT, Reason.GROUP_LIMIT)
"""The user or the group has no room."""

QUEUES_FULL: Final = (Reason.QUEUE_MAXIMUM, Reason.CLUSTER_FULL, Reason.QUEUE_ROOM_KEPT)
"""The queues have no room; the maximum of the root is the size of the cluster."""

RESERVED: Final = (Reason.RESERVED_NODE_FULL, Reason.REQUIRED_NODE_FULL)
"""The ask has a reservation, and looked for victims all the same. The log has only what came of that."""


class WaitCause(NamedTuple):
    """Why an attempt failed: the first limit, queue or node that had no room, with the figures of that moment."""

    code: Reason
    queue: str = ""
    user: str = ""
    group: str = ""
    node: str = ""
    resource: str = ""
    used: int = 0
    """The amount of the resource in use, or the number of running applications."""
    maximum: int = 0
    """The amount or number that may be used; or the number of nodes."""
    asked: int = 0
    search: str = ""
    """Why a search for victims that the attempt made, too, found none; empty without a search."""
    nodes: Mapping[str, int] = NOTHING
    """Nodes by the reason for which predicates refuse them, if they were counted: before the attempt ends, as the ask
    may still reserve a node.
    """


class LogEntry(NamedTuple):
    """How often attempts failed for one reason, and when the last one did."""

    times: int
    last: float
    """Unix seconds."""
    cause: WaitCause | None = None
    """The last one; None if the reason is a message."""


AttemptLog = dict[str, LogEntry]
"""By code, or by message for what has no code, in the order of the first occurrence."""


def log_attempt(log: AttemptLog, cause: WaitCause, now: float) -> None:
    """Count a failed attempt. Victims come before the check: that is the order of YuniKorn's messages."""
    for message in cause.nodes:
        _count(log, message, None, now)
    if cause.search:
        _count(log, cause.search, None, now)
    if not cause.nodes and cause.code not in RESERVED:
        _count(log, cause.code, cause, now)


def _count(log: AttemptLog, key: str, cause: WaitCause | None, now: float) -> None:
    before = log.get(key)
    log[key] = LogEntry(1 if before is None else before.times + 1, now, cause)


# YuniKorn's messages --------------------------------------------------------------------------------------------------

NO_USER_QUOTA: Final = "Not enough user quota"
NO_QUEUE_QUOTA: Final = "Not enough queue quota"

NO_GUARANTEE: Final = "Preemption queue guarantees check failed"
NO_HELP: Final = "Preemption does not help"
TOO_LITTLE: Final = "Preemption helped but short of resources"

EXHAUSTED: Final = "Preemption max attempts exhausted"
PRECONDITIONS: Final = "Preemption preconditions failed"
NOT_USED_ENOUGH: Final = "Preemption waits until more of the cluster is used"
NO_HELP_ON_REQUIRED_NODE: Final = "No fit on required node, preemption does not help"

_MESSAGES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(LIMITS_FULL, (NO_USER_QUOTA,)),
    **dict.fromkeys(QUEUES_FULL, (NO_QUEUE_QUOTA,)),
    **{one: (one, NO_HELP) for one in (PRECONDITIONS, EXHAUSTED, NOT_USED_ENOUGH, NO_GUARANTEE, TOO_LITTLE)},
}
"""The messages of an entry. An entry that is not here is its own message, or has a code that YuniKorn does not log."""


def list_messages(log: AttemptLog) -> dict[str, LogEntry]:
    """Return YuniKorn's messages about the attempts, in the order of the first occurrence."""
    found: dict[str, LogEntry] = {}
    for key, entry in log.items():
        for message in _MESSAGES.get(key, (key,) if entry.cause is None else ()):
            before = found.get(message, LogEntry(0, 0.0))
            found[message] = LogEntry(before.times + entry.times, max(before.last, entry.last))
    return found


def find_latest(log: AttemptLog) -> WaitCause | str:
    """Return the cause of the last failed attempt, or else its last message; empty without one."""
    last = max((entry.last for entry in log.values()), default=0.0)
    cause = next((entry.cause for entry in log.values() if entry.last == last and entry.cause is not None), None)
    messages = [message for message, entry in list_messages(log).items() if entry.last == last]
    return cause or (messages[-1] if messages else "")
