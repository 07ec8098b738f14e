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

LIMITS_FULL: Final = frozenset((Reason.USER_LIMIT, Reason.GROUP_LIMIT))
"""The user or the group has no room."""

QUEUES_FULL: Final = frozenset((Reason.QUEUE_MAXIMUM, Reason.CLUSTER_FULL, Reason.QUEUE_ROOM_KEPT))
"""The queues have no room; the maximum of the root is the size of the cluster."""


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
    search: Reason | None = None
    """Why a search for victims, which the attempt made, too, found none; None without a search."""
    nodes: Mapping[str, int] = NOTHING
    """Nodes by the reason for which predicates refuse them, if they were counted: before the attempt ends, as the ask
    may still reserve a node.
    """

    @property
    def shortfall(self) -> int:
        """How much of the resource, or how many applications, are missing."""
        return max(0, self.used + self.asked - self.maximum)


class LogEntry(NamedTuple):
    """How often attempts failed for one reason, and when the last one did."""

    times: int
    last: float
    """Unix seconds."""
    cause: WaitCause | None = None
    """The last one; None if the log shows only messages for the reason."""


AttemptLog = dict[str, LogEntry]
"""By code, or by the message of a predicate that refuses nodes, in the order of the first occurrence."""


def log_attempt(log: AttemptLog, cause: WaitCause, now: float) -> None:
    """Count a failed attempt. Victims come before the check: that is the order of YuniKorn's messages. Of an ask with a
    reservation the log has only what came of a search for victims.
    """
    code = cause.code
    if cause.nodes:
        for message in cause.nodes:
            _count(log, message, None, now)
        return
    if cause.search is not None:
        _count(log, cause.search, None, now)
    if code is not Reason.RESERVED_NODE_FULL:
        _count(log, code, None if code is Reason.REQUIRED_NODE_FULL else cause, now)


def _count(log: AttemptLog, key: str, cause: WaitCause | None, now: float) -> None:
    before = log.get(key)
    log[key] = LogEntry(1 if before is None else before.times + 1, now, cause)


# YuniKorn's messages --------------------------------------------------------------------------------------------------

PRECONDITIONS: Final = "Preemption preconditions failed"
NO_HELP: Final = "Preemption does not help"
WAITING: Final = "waits for the verdict of the resource manager"

_MESSAGES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(LIMITS_FULL, ("Not enough user quota",)),
    **dict.fromkeys(QUEUES_FULL, ("Not enough queue quota",)),
    Reason.REQUIRED_NODE_FULL: ("No fit on required node, preemption does not help",),
    Reason.PREEMPTION_NOT_ALLOWED: (PRECONDITIONS, NO_HELP),
    Reason.PREEMPTION_DELAY: (PRECONDITIONS, NO_HELP),
    Reason.PREEMPTION_PAUSE: (PRECONDITIONS, NO_HELP),
    Reason.PREEMPTION_ATTEMPTS: ("Preemption max attempts exhausted", NO_HELP),
    Reason.PREEMPTION_CLUSTER_UNUSED: ("Preemption waits until more of the cluster is used", NO_HELP),
    Reason.PREEMPTION_GUARANTEE_USED: ("Preemption queue guarantees check failed", NO_HELP),
    Reason.PREEMPTION_TOO_LITTLE: ("Preemption helped but short of resources", NO_HELP),
    Reason.PREEMPTION_NO_VICTIM: (NO_HELP,),
    Reason.VERDICT_PENDING: (WAITING,),
}
"""The messages of a code. Other codes have none; a refusal by nodes is its own message."""


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
