"""Describes the checks of attempts (`wait_causes.py`) with their figures, for explanations and the allocation log."""

from collections.abc import Callable

from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.rest.explain import CheckView
from yunishard.common.text_formats import format_count
from yunishard.common.units import format_amount, format_resources
from yunishard.partition_worker.engine.allocation import AskGroup
from yunishard.partition_worker.engine.attempt_log import WaitCause

DescribeCause = Callable[[AskGroup, WaitCause], CheckView]
"""Describes a cause as its viewer may see it."""


def describe_cause(group: AskGroup, cause: WaitCause) -> CheckView:
    """Return the check that failed in an attempt to place an ask of this group."""
    if cause.code is Reason.NO_NODE_FITS:
        asked = format_resources(dict(group.shape.amounts))
        text = f"no node takes it: none of {cause.maximum} has {asked} available and accepts it"
        return CheckView(code=cause.code, passed=False, text=text, maximum=cause.maximum)
    return view_check(cause)


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
        shortfall=0 if passed else max(0, check.used + check.asked - check.maximum),
    )


def _describe(check: WaitCause, *, passed: bool) -> str:
    code, kind, used, maximum, asked = check.code, check.resource, check.used, check.maximum, check.asked
    who = f"user {check.user}" if check.user else f"group {check.group}" if check.group else ""
    subject, place = who or check.queue, f" in {check.queue}" if who else ""
    match code:
        case Reason.QUEUE_APPLICATION_LIMIT | Reason.USER_APPLICATION_LIMIT | Reason.GROUP_APPLICATION_LIMIT:
            ending = ", so this one has to wait" if not passed else "" if asked else ", and this one counts already"
            return describe_running(subject, place, running=used, most=maximum) + ending
        case Reason.USER_LIMIT | Reason.GROUP_LIMIT | Reason.QUEUE_MAXIMUM:
            most = f"{subject} may use {format_amount(kind, maximum)} at most{place}"
            return f"{most}: {count_amount(kind, used)} used, {_describe_need(check)}"
        case Reason.CLUSTER_FULL:
            most = f"the nodes together have {format_amount(kind, maximum)}"
            return f"{most}: {count_amount(kind, used)} used, {_describe_need(check)}"
        case Reason.QUEUE_NOT_LEAF:
            return f"{subject} has become a parent queue, and its own applications get nothing new: move them to a leaf"
        case Reason.QUEUE_STOPPED:
            return f"an operator stopped {subject}, so nothing new runs in it"
        case Reason.QUEUE_DRAINING:
            return f"{subject} is draining: it takes no new applications, and those in it continue"
        case Reason.QUEUE_ROOM_KEPT:
            return f"{check.queue} keeps the room that is left for asks that preempted or waited too long"
        case Reason.REQUIRED_NODE_MISSING:
            return f"it requires the node {check.node}, which does not exist"
        case Reason.REQUIRED_NODE_TOO_SMALL:
            total = f"{format_amount(kind, maximum)} in total"
            return f"it requires the node {check.node}, which has {total}: {_describe_need(check)}"
        case Reason.REQUIRED_NODE_KEPT:
            return f"it requires the node {check.node}, which is kept for an ask for which others were preempted there"
    return MEANINGS[code].rstrip(".")


def _describe_need(check: WaitCause) -> str:
    kind, short = check.resource, check.used + check.asked - check.maximum
    missing = f", so it is short by {format_amount(kind, short)}" if short > 0 else ""
    return f"this ask needs {format_amount(kind, check.asked)}{missing}"


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
