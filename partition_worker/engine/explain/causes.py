"""Describes the causes that failed attempts noted (`wait_causes.py`), for the allocation log: as failed checks, in the
words of an explanation, with the figures of the attempt.
"""

from collections.abc import Callable

from common.reasons import MEANINGS, Reason
from common.rest_explain import CheckView
from common.units import format_amount, format_resources
from partition_worker.engine.allocation import AskGroup, WaitCause
from partition_worker.engine.explain.checks import describe_room, describe_running

DescribeCause = Callable[[AskGroup, WaitCause], CheckView]
"""Describes a cause as its viewer may see it."""


def find_latest_cause(group: AskGroup) -> WaitCause | None:
    """Return the cause of the last failed attempt; None if it noted none."""
    if not group.causes:
        return None
    cause, failure = max(group.causes.values(), key=lambda one: one[1].last)
    is_latest = all(other.last <= failure.last for other in group.failures.values())
    return cause if is_latest else None


def describe_cause(group: AskGroup, cause: WaitCause) -> CheckView:
    """Return the check that failed in an attempt to place an ask of this group."""
    short = cause.used + cause.asked - cause.maximum
    return CheckView(
        code=cause.code,
        passed=False,
        text=_describe(group, cause),
        queue=cause.queue,
        user=cause.user,
        group=cause.group,
        node=cause.node,
        resource=cause.resource,
        used=cause.used,
        maximum=cause.maximum or None,
        asked=cause.asked,
        shortfall=max(0, short) if cause.asked else 0,
    )


def _describe(group: AskGroup, cause: WaitCause) -> str:
    code, used, maximum = cause.code, cause.used, cause.maximum
    who = f"user {cause.user}" if cause.user else f"group {cause.group}" if cause.group else ""
    subject, place = who or cause.queue, f" in {cause.queue}" if who else ""
    match code:
        case Reason.QUEUE_APPLICATION_LIMIT | Reason.USER_APPLICATION_LIMIT | Reason.GROUP_APPLICATION_LIMIT:
            return f"{describe_running(subject, place, running=used, most=maximum)}, so this one has to wait"
        case Reason.USER_LIMIT | Reason.GROUP_LIMIT | Reason.QUEUE_MAXIMUM:
            return describe_room(code, subject, place, cause.resource, used=used, maximum=maximum, asked=cause.asked)
        case Reason.CLUSTER_FULL:
            return describe_room(
                code, "the nodes together", "", cause.resource, used=used, maximum=maximum, asked=cause.asked
            )
        case Reason.QUEUE_ROOM_KEPT:
            return f"{cause.queue} keeps the room that is left for asks for which others were preempted"
        case Reason.NO_NODE_FITS:
            asked = format_resources(dict(group.shape.amounts))
            return f"no node takes it: none of {maximum} has {asked} available and accepts it"
        case Reason.REQUIRED_NODE_MISSING:
            return f"it requires the node {cause.node}, which does not exist"
        case Reason.REQUIRED_NODE_TOO_SMALL:
            has, needed = format_amount(cause.resource, maximum), format_amount(cause.resource, cause.asked)
            missing = format_amount(cause.resource, cause.asked - maximum)
            first = f"it requires the node {cause.node}, which has {has} in total"
            return f"{first}: this ask needs {needed}, so {missing} are missing"
        case Reason.REQUIRED_NODE_KEPT:
            return f"it requires the node {cause.node}, which is kept for an ask for which others were preempted there"
    return MEANINGS[code].rstrip(".")
