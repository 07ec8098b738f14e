"""Describes the checks of attempts (`wait_causes.py`) with their figures, for explanations and the allocation log."""

from collections.abc import Callable
from typing import Final

from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.rest.explain import CheckView
from yunishard.common.text_formats import format_amount, format_count, format_resources
from yunishard.partition_worker.engine.allocation import AskGroup
from yunishard.partition_worker.engine.attempt_log import WaitCause

DescribeCause = Callable[[AskGroup, WaitCause], CheckView]
"""Describes a cause as its viewer may see it."""


def describe_cause(group: AskGroup, cause: WaitCause) -> CheckView:
    """Return the check that failed in an attempt to place an ask of this group."""
    asked = format_resources(dict(group.shape.amounts))
    text = f"no node takes it: none of {cause.maximum} has {asked} available and accepts it"
    return view_check(cause, text if cause.code is Reason.NO_NODE_FITS else "")


def view_check(check: WaitCause, text: str = "", *, passed: bool = False) -> CheckView:
    """Return the view of a check that failed, or passed, with this text or its own. It asks for nothing if the
    application counts already.
    """
    return CheckView(
        code=check.code,
        passed=passed,
        text=text or _describe(check, passed=passed),
        queue=check.queue,
        user=check.user,
        group=check.group,
        node=check.node,
        resource=check.resource,
        used=check.used,
        maximum=check.maximum if check.maximum or check.resource else None,
        asked=check.asked,
        shortfall=0 if passed else check.shortfall,
    )


_LIMITED: Final = "{subject} may use {most} at most{place}: {taken} used, {need}"

_TEXTS: Final = {
    Reason.USER_LIMIT: _LIMITED,
    Reason.GROUP_LIMIT: _LIMITED,
    Reason.QUEUE_MAXIMUM: _LIMITED,
    Reason.CLUSTER_FULL: "the nodes together have {most}: {taken} used, {need}",
    Reason.QUEUE_NOT_LEAF: (
        "{queue} has become a parent queue, and its own applications get nothing new: move them to a leaf"
    ),
    Reason.QUEUE_STOPPED: "an operator stopped {queue}, so nothing new runs in it",
    Reason.QUEUE_DRAINING: "{queue} is draining: it takes no new applications, and those in it continue",
    Reason.QUEUE_ROOM_KEPT: "{queue} keeps the room that is left for asks that preempted or waited too long",
    Reason.REQUIRED_NODE_MISSING: "it requires the node {node}, which does not exist",
    Reason.REQUIRED_NODE_TOO_SMALL: "it requires the node {node}, which has {most} in total: {need}",
    Reason.REQUIRED_NODE_KEPT: "it requires the node {node}, which is kept for an ask that preempted others there",
}


def _describe(check: WaitCause, *, passed: bool) -> str:
    who = f"user {check.user}" if check.user else f"group {check.group}" if check.group else ""
    subject, place = who or check.queue, f" in {check.queue}" if who else ""
    if check.maximum and not check.resource:  # it compares numbers of applications
        ending = ", so this one has to wait" if not passed else "" if check.asked else ", and this one counts already"
        return describe_running(subject, place, running=check.used, most=check.maximum) + ending
    text = _TEXTS.get(check.code, MEANINGS[check.code].rstrip("."))
    most, taken = format_amount(check.resource, check.maximum), count_amount(check.resource, check.used)
    return text.format(
        **check._asdict(), subject=subject, place=place, most=most, taken=taken, need=describe_need(check)
    )


def describe_need(check: WaitCause) -> str:
    """Return what an ask needs of what a check compared, and how much of it is missing."""
    short = f", so it is short by {format_amount(check.resource, check.shortfall)}" if check.shortfall else ""
    return f"this ask needs {format_amount(check.resource, check.asked)}{short}"


def describe_running(subject: str, place: str, *, running: int, most: int) -> str:
    """Return the sentence about a limit of running applications.

    >>> describe_running("user ann", " in root.a", running=2, most=2)
    'user ann may run 2 applications at a time in root.a: 2 are running'
    """
    now = "none is running" if not running else "1 is running" if running == 1 else f"{running} are running"
    return f"{subject} may run {format_count(most, 'application')} at a time{place}: {now}"


def count_amount(kind: str, value: int) -> str:
    """Return an amount with its verb.

    >>> count_amount("vcore", 1000), count_amount("vcore", 2000)
    ('1 vcore is', '2 vcore are')
    """
    text = format_amount(kind, value)
    return f"{text} is" if text.startswith("1 ") else f"{text} are"
