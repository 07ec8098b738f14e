"""The queues, applications and asks that the scheduler tries before an ask.

The order is that of `queue_traversal.py`: at each level the queues by `queue_key`, in the leaf the applications by
`application_key`, then the asks of the application. Those ahead may be unable to run themselves; the text states it.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final, TypeVar

from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.resources import is_zero
from yunishard.common.rest.explain import AheadView, CheckView
from yunishard.common.text_formats import format_count, format_resources
from yunishard.partition_worker.engine.allocation import AskGroup, Standing
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.explain.checks import find_reason
from yunishard.partition_worker.engine.queues.queue import Queue, queue_key, share
from yunishard.partition_worker.engine.ready_queues import application_key
from yunishard.partition_worker.engine.sorted_items import Key
from yunishard.partition_worker.engine.state import PartitionState

_T = TypeVar("_T")

AHEAD_MAX: Final = 10
"""Queues or applications that an explanation lists as ahead; there may be more, which the last entry counts."""

COMPARED_MAX: Final = 20_000
"""Siblings of a queue or an application that are compared with it, about 40 ms; further ones are not counted."""


def find_ahead(
    state: PartitionState, group: AskGroup, now: float, failed: Sequence[CheckView], nodes: Mapping[str, int]
) -> list[AheadView]:
    """Return what is tried before an ask: first queues, from the root down, then applications, then own asks. If checks
    failed, return only what may take what the ask waits for, by these and by its nodes by reason.
    """
    application = state.applications[group.head.application_id]
    found: list[AheadView] = []
    for level in reversed(application.queue.ancestry()):
        if level.parent is not None:
            found += _find_queues(level, level.parent)
    found += [*_find_applications(state, application, now), *_find_own_asks(application, group)]
    return [one for one in found if not failed or any(_is_rival(one, check, nodes) for check in failed)]


def _is_rival(one: AheadView, check: CheckView, nodes: Mapping[str, int]) -> bool:
    code = Reason(check.code)
    if code is Reason.NO_NODE_FITS:
        return any(nodes.get(reason) for reason in (Reason.NODE_FULL, Reason.NODE_TOO_SMALL, Reason.NODE_RESERVED))
    if code in (Reason.USER_LIMIT, Reason.USER_APPLICATION_LIMIT):
        return one.user == check.user
    if code in _OF_QUEUE:
        return one.queue == check.queue or one.queue.startswith(f"{check.queue}.")
    return code in _OF_ALL


_OF_QUEUE: Final = frozenset((Reason.QUEUE_MAXIMUM, Reason.QUEUE_APPLICATION_LIMIT, Reason.STATE_AWARE_TURN))
"""Checks of something for which all below a queue compete."""

_OF_ALL: Final = frozenset((Reason.CLUSTER_FULL, Reason.RESERVED_NODE_FULL, Reason.REQUIRED_NODE_FULL))
"""Checks of something for which all compete."""


_Placed = tuple[Key, int, _T]
"""A queue or an application, after its place among its siblings."""


def _choose_first(
    siblings: Iterable[_Placed[_T]], own: tuple[Key, int], queue: Queue, what: str
) -> tuple[list[_T], list[AheadView]]:
    """Return the first of those that come before this place, and the entry that counts further ones."""
    ahead = [one for one in siblings if one[:2] < own]
    more = len(ahead) - AHEAD_MAX
    first = [one for _, _, one in nsmallest(AHEAD_MAX, ahead, key=lambda one: one[:2])]
    return first, [AheadView(queue=queue.path, text=f"{more} more {what} in {queue.path}")] if more > 0 else []


def _find_queues(queue: Queue, parent: Queue) -> list[AheadView]:
    children = islice(parent.children.values(), COMPARED_MAX)
    placed = [(queue_key(one), one.rank, one) for one in children if not is_zero(one.pending)]
    first, more = _choose_first(placed, (queue_key(queue), queue.rank), parent, "queues")
    return [*(AheadView(queue=one.path, text=_compare_queues(one, queue)) for one in first), *more]


def _compare_queues(other: Queue, queue: Queue) -> str:
    pending = f"{other.path} has {format_resources(other.pending)} pending"
    if other.priority != queue.priority and queue.parent is not None and queue.parent.policies.priority_sort:
        return f"{pending}, and asks of priority {other.priority}: those below {queue.path} have {queue.priority}"
    shares = [share(one.allocated_sum, one.entitlements) for one in (other, queue)]
    if shares[0] < shares[1]:
        return f"{pending}, and uses {shares[0]:.0%} of its share: {queue.path} uses {shares[1]:.0%}"
    return f"{pending}, is equal to {queue.path}, and comes first"


def _find_applications(state: PartitionState, application: Application, now: float) -> list[AheadView]:
    leaf = application.queue
    others = [state.applications[name] for name in islice(leaf.applications, COMPARED_MAX)]
    placed = [(application_key(one), one.rank, one) for one in others if one.requests]
    first, more = _choose_first(placed, (application_key(application), application.rank), leaf, "applications")
    found = [
        AheadView(
            application=one.application_id,
            queue=leaf.path,
            user=one.user.name,
            text=_compare_applications(state, one, application, now),
        )
        for one in first
    ]
    return found + more


def _compare_applications(state: PartitionState, other: Application, application: Application, now: float) -> str:
    text = (
        f"{other.application_id} has {format_count(len(other.requests), 'ask')} for {format_resources(other.pending)}"
    )
    if other.priority > application.priority and other.queue.policies.priority_sort:
        text += f" of priority {other.priority}"
    elif other.queue.policies.application_sort == "fair":
        text += ", and uses less"
    else:
        text += ", and was submitted before"
    first = other.asks.first_group
    assert first is not None, "it waits"
    meaning = MEANINGS[find_reason(state, other, first, now)]
    return f"{text}; it also waits: {meaning[0].lower()}{meaning[1:].rstrip('.')}"


def _find_own_asks(application: Application, group: AskGroup) -> list[AheadView]:
    number = 0
    for other in application.asks.groups:
        if other is group:
            break
        number += 0 if other.standing is Standing.HELD else len(other)
    if not number:
        return []
    text = f"{format_count(number, 'earlier or more important ask')} of the application itself"
    return [AheadView(application=application.application_id, queue=application.queue.path, text=text)]
