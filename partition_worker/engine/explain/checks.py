"""The checks of an application and its asks, in the order of the scheduler, except those of nodes; and the first that
fails, without texts, for counts and tables.

Each check is a `CheckView` that passed or not, with the amounts it compared. The scheduler stops at the first check
that fails; here all are evaluated, because the ask has to pass all of them before it runs. The comparisons and their
figures are those of an attempt (`wait_causes.py`).

Nothing is changed: an account that the application does not have yet is previewed (`Usage.preview`) and dropped.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.resources import NOTHING
from yunishard.common.rest.explain import CheckView
from yunishard.common.text_formats import format_count, format_seconds
from yunishard.partition_worker.engine.allocation import AskGroup, AskShape, Standing
from yunishard.partition_worker.engine.amounts import Amounts
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.attempt_log import WaitCause
from yunishard.partition_worker.engine.explain.causes import view_check
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import UsageAccount
from yunishard.partition_worker.engine.wait_causes import (
    compare_with_limit,
    compare_with_queue,
    count_in_limit,
    count_in_queue,
    find_limit_cause,
    find_queue_cause,
)


def check_partition(state: PartitionState, stalls: Sequence[Reason] = ()) -> Iterator[CheckView]:
    """Yield a failed check for each reason why the partition decides nothing; `stalls` are those of its worker."""
    found = list(stalls)
    if state.retired:
        found.append(Reason.PARTITION_REMOVED)
    if state.report is not None:
        found.append(Reason.RM_REPORTING)
    if state.pending_submissions.running_count:
        found.append(Reason.RUNNING_GROUPS_RESOLVING)
    if state.tree.root.maximum is None:
        found.append(Reason.NO_NODES)
    for reason in found:
        text = MEANINGS[reason].rstrip(".")
        yield CheckView(code=reason, passed=False, text=text[0].lower() + text[1:])  # "Waits because" precedes it


# The application ------------------------------------------------------------------------------------------------------


def check_application(
    state: PartitionState, application: Application, now: float, stalls: Sequence[Reason], *, reserved: bool = False
) -> Iterator[CheckView]:
    """Yield the checks that hold for all asks of an application that has not ended, or for those with a reservation."""
    leaf, account = application.queue, find_account(state, application)
    yield from check_partition(state, stalls)
    yield CheckView(code=Reason.PLACEMENT_REJECTED, passed=True, text=f"It was placed in {leaf.path}", queue=leaf.path)
    for check, passed in _list_application_checks(state, application, account, now, reserved=reserved):
        text = ""
        if check.code is Reason.STATE_AWARE_TURN:
            text = f"{leaf.path} starts one application at a time, and {_describe_turn(state, leaf, passed=passed)}"
        elif check.code is Reason.BACK_OFF:
            text = _describe_back_off(application, now)
        yield view_check(check, text, passed=passed)


def _list_application_checks(
    state: PartitionState, application: Application, account: UsageAccount, now: float, *, reserved: bool
) -> Iterator[tuple[WaitCause, bool]]:
    """Yield what each check compares, and whether it passes. Asks with a reservation need no leaf, and wait neither for
    a turn nor for the end of a back-off.
    """
    leaf = application.queue
    if not (leaf.leaf or reserved):
        yield WaitCause(Reason.QUEUE_NOT_LEAF, leaf.path), False
    for queue in reversed(leaf.ancestry()):
        if queue.stopped:
            yield WaitCause(Reason.QUEUE_STOPPED, queue.path), False
        if queue.draining:
            yield WaitCause(Reason.QUEUE_DRAINING, queue.path), True
    if leaf.state_aware and not reserved:
        yield WaitCause(Reason.STATE_AWARE_TURN, leaf.path), state.readiness.turns.is_turn_of(application)
    if application.state is AppState.ACCEPTED:
        counts = application.application_id in leaf.allocating
        for queue in leaf.ancestry():
            if queue.max_applications:
                yield _check_count(count_in_queue(queue), counts=counts)
        for level in account.limits:
            if level.allowance is not None and level.allowance.applications:
                yield _check_count(count_in_limit(account, level), counts=account.counted)
    is_paused = now < application.back_off_until  # also after a move to a queue without back-off
    if (leaf.policies.back_off_after or is_paused) and not reserved:
        yield WaitCause(Reason.BACK_OFF, leaf.path), not is_paused


def _check_count(check: WaitCause, *, counts: bool) -> tuple[WaitCause, bool]:
    """An application that counts already asks for nothing, and passes."""
    return (check._replace(asked=0), True) if counts else (check, check.used < check.maximum)


def _describe_turn(state: PartitionState, leaf: Queue, *, passed: bool) -> str:
    if passed:
        return "it is the turn of this one or it has started"
    turns = state.readiness.turns.leaves.get(leaf.rank)
    starting = 0 if turns is None else len(turns.starting)
    if not starting:
        return "it is the turn of another one"
    return f"{starting} are starting" if starting > 1 else "another one is starting"


def _describe_back_off(application: Application, now: float) -> str:
    left, enough = application.back_off_until - now, application.queue.policies.back_off_after
    if left <= 0:
        return "It is not in a pause after asks that fitted no node"
    asks = format_count(enough, "ask") if enough else "too many asks"
    return f"{asks} of the application fitted no node, so it is skipped for {format_seconds(left)}"


# Limits and queues ----------------------------------------------------------------------------------------------------


def find_account(state: PartitionState, application: Application) -> UsageAccount:
    """Return the account of the application, or what the account would be if it has none yet."""
    return state.usage.find(application) or state.usage.preview(application)


def check_amounts(
    state: PartitionState, application: Application, amounts: Amounts, keeps: Resources
) -> Iterator[CheckView]:
    """Yield the limits of the user and the group, then the maximum of each queue, the cluster size last; both from the
    leaf up, and one check for each type that is short. `keeps` is the room that the queues keep for this very ask.
    """
    account = find_account(state, application)
    for level in account.limits:
        assert level.allowance is not None, level.path
        kinds = level.allowance.resources
        yield from _view_short([compare_with_limit(account, level, *one) for one in amounts if one[0] in kinds])
    for queue in application.queue.ancestry():
        if queue.maximum is not None:
            kinds = queue.maximum
            yield from _view_short([compare_with_queue(queue, *one) for one in amounts if one[0] in kinds])
            if queue.kept and not queue.leaves_kept(amounts, keeps):
                yield view_check(WaitCause(Reason.QUEUE_ROOM_KEPT, queue.path))


def _view_short(compared: list[WaitCause]) -> list[CheckView]:
    """Return the check of each type that is asked and short, or else the one of the type with the least room."""
    asked = [one for one in compared if one.asked > 0]
    short = [view_check(one) for one in asked if one.shortfall]
    asked.sort(key=lambda one: (one.maximum - one.used) / one.asked)
    return short or [view_check(one, passed=True) for one in asked[:1]]


# Reasons without texts ------------------------------------------------------------------------------------------------


def find_reason(
    state: PartitionState, application: Application, group: AskGroup, now: float, account: UsageAccount | None = None
) -> Reason:
    """Return why the asks of a group wait, without a look at nodes; for counts and tables.

    It costs the depth of the queue. An ask that passes all checks but has been tried without success waits for a node.
    """
    account = account or find_account(state, application)
    is_reserved = group.standing is Standing.RESERVED
    for check, passed in _list_application_checks(state, application, account, now, reserved=is_reserved):
        if not passed:
            return check.code
    if group.standing is Standing.HELD:
        return Reason.GANG_PLACEHOLDER
    amounts, head = group.shape.amounts, group.head
    level = account.find_full(amounts)
    if level is not None:
        return find_limit_cause(account, level, amounts).code
    queue = application.queue.find_full(amounts, application.reservations[head.key].keeps if head.reserved else NOTHING)
    if queue is not None:
        return find_queue_cause(queue, amounts).code
    return _find_node_reason(state, application, group)


def _find_node_reason(state: PartitionState, application: Application, group: AskGroup) -> Reason:
    head, shape, nodes = group.head, group.shape, state.nodes
    if head.reserved:
        node = application.reservations[head.key].node
        if any(one.is_leaving for one in node.allocations.values()) and head.preemption_triggered:
            return Reason.VICTIMS_LEAVING
        return Reason.REQUIRED_NODE_FULL if shape.required_node else Reason.RESERVED_NODE_FULL
    obstacle = nodes.find_obstacle(shape, explains=True) if shape.required_node else None
    if obstacle is not None:
        return obstacle
    verdicts = nodes.predicates.verdicts
    asked = "" if shape.constraint is None else shape.constraint.asked
    if asked in verdicts.deferred or asked in verdicts.deferred_wide:
        return Reason.VERDICT_PENDING
    return Reason.NO_NODE_FITS if group.attempted else Reason.NOT_TRIED


# Counts ---------------------------------------------------------------------------------------------------------------

GROUPS_MAX: Final = 20_000
"""Groups of equal asks that the metrics look at, some 50 ms; the asks of further ones count as `UNCOUNTED`."""

UNCOUNTED: Final = "uncounted"
"""In place of a reason: asks beyond `GROUPS_MAX`."""

_Alike = tuple[int, AskShape, bool, bool]
"""Leaf, shape, whether the application has to start first, whether the group was tried."""


class ReasonFinder:
    """Finds why asks wait, for many of them at one moment.

    `find_reason` costs several microseconds. In a large partition most asks of a queue have the same few shapes and
    wait for the same, so the reason is looked up once for each queue and shape, where nothing about the application
    itself can make a difference.
    """

    def __init__(self, state: PartitionState, now: float) -> None:
        self._state = state
        self._now = now
        self._known: dict[_Alike, Reason] = {}

    def find(self, application: Application, group: AskGroup) -> Reason:
        """The reason of `find_reason`."""
        account, leaf = self._state.usage.find(application), application.queue
        is_limited = account is None or bool(account.limits) or self._now < application.back_off_until
        is_alike = group.is_plain and not is_limited and not leaf.state_aware
        starts = application.state is AppState.ACCEPTED and application.application_id not in leaf.allocating
        key = (leaf.rank, group.shape, starts, group.attempted)
        reason = self._known.get(key) if is_alike else None
        if reason is None:
            reason = find_reason(self._state, application, group, self._now, account)
            if is_alike:  # asks of others in its queue wait for the same
                self._known[key] = reason
        return reason


@dataclass(slots=True)
class WaitingAsks:
    """The asks that wait, by reason."""

    asks: int = 0
    applications: int = 0
    counted: int = 0
    """The asks of which the reason was found; fewer than all beyond a number of groups."""
    reasons: Counter[str] = field(default_factory=Counter)
    oldest: dict[str, tuple[int, int, AskGroup]] = field(default_factory=dict)
    """By reason, the group that has waited longest, after its creation time and the rank of the application."""

    @property
    def main_reason(self) -> str:
        """The reason of most asks; empty if nothing waits."""
        return max(self.reasons, key=lambda code: self.reasons[code], default="")

    @property
    def sorted_reasons(self) -> dict[str, int]:
        return dict(sorted(self.reasons.items()))


def survey_waiting(
    state: PartitionState, applications: Iterable[Application], now: float, groups_max: int
) -> WaitingAsks:
    """Count the asks of applications that wait, by reason, without a look at nodes; up to so many groups of them."""
    found, finder, left = WaitingAsks(), ReasonFinder(state, now), groups_max
    for application in applications:
        if not application.requests:
            continue
        found.asks += len(application.requests)
        found.applications += 1
        for group in application.asks.groups if left else ():
            left -= 1
            reason, number = finder.find(application, group), len(group)
            found.reasons[reason] += number
            found.counted += number
            place = group.head.created_ns, application.rank
            if reason not in found.oldest or place < found.oldest[reason][:2]:
                found.oldest[reason] = (*place, group)
            if not left:
                break
    return found


def count_waiting_asks(state: PartitionState, now: float, *, groups_max: int = GROUPS_MAX) -> Counter[str]:
    """Return the number of asks by reason code, in the order of the applications' arrival."""
    found = survey_waiting(state, state.applications.values(), now, groups_max)
    if found.counted < found.asks:
        found.reasons[UNCOUNTED] = found.asks - found.counted
    return found.reasons
