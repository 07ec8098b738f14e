"""Describes the causes that failed attempts noted (`wait_causes.py`), for the allocation log: as failed checks, in the
words of an explanation, with the figures of the attempt.
"""

from collections.abc import Callable

from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.rest.explain import CheckView
from yunishard.common.units import format_resources
from yunishard.partition_worker.engine.allocation import AskGroup
from yunishard.partition_worker.engine.attempt_log import WaitCause
from yunishard.partition_worker.engine.explain.checks import describe_kept_room, describe_room, describe_running
from yunishard.partition_worker.engine.explain.node_checks import (
    describe_kept_node,
    describe_missing_node,
    describe_small_node,
)

DescribeCause = Callable[[AskGroup, WaitCause], CheckView]
"""Describes a cause as its viewer may see it."""


def find_latest_cause(group: AskGroup) -> WaitCause | None:
    """Return the cause of the last failed attempt; None if it noted none."""
    latest = max((entry.last for entry in group.log.values()), default=0.0)
    return next((one.cause for one in group.log.values() if one.last == latest and one.cause is not None), None)


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
            return describe_kept_room(cause.queue)
        case Reason.NO_NODE_FITS:
            asked = format_resources(dict(group.shape.amounts))
            return f"no node takes it: none of {maximum} has {asked} available and accepts it"
        case Reason.REQUIRED_NODE_MISSING:
            return describe_missing_node(cause.node)
        case Reason.REQUIRED_NODE_TOO_SMALL:
            return describe_small_node(cause.node, cause.resource, total=maximum, asked=cause.asked)
        case Reason.REQUIRED_NODE_KEPT:
            return describe_kept_node(cause.node)
    return MEANINGS[code].rstrip(".")
