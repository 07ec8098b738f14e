"""The checks of an application and its asks, in the order of the scheduler, except those of nodes.

Each check is a `CheckView` that passed or not, with the amounts it compared. The scheduler stops at the first check
that fails; here all are evaluated, because the ask has to pass all of them before it runs. The comparisons and their
figures are those of an attempt (`wait_causes.py`).

Nothing is changed: an account that the application does not have yet is previewed (`Usage.preview`) and dropped.
"""

from collections.abc import Iterator, Sequence

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.resources import NOTHING, Limit
from yunishard.common.rest.explain import CheckView
from yunishard.common.text_formats import format_count
from yunishard.common.units import format_seconds
from yunishard.partition_worker.engine.allocation import Amounts, AskGroup, Standing, find_excess
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
    find_required_node_cause,
    find_start_cause,
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


def check_application(state: PartitionState, application: Application, now: float) -> Iterator[CheckView]:
    """Yield the checks that hold for all asks of an application that has not ended."""
    leaf = application.queue
    yield CheckView(code=Reason.PLACEMENT_REJECTED, passed=True, text=f"It was placed in {leaf.path}", queue=leaf.path)
    yield from _check_queue_state(leaf)
    if leaf.state_aware:
        yield _check_turn(state, application)
    if application.state is AppState.ACCEPTED:
        yield from _check_start(state, application)
    if leaf.policies.back_off_after or now < application.back_off_until:  # it continues after a move
        yield _check_back_off(application, now)


def _check_queue_state(leaf: Queue) -> Iterator[CheckView]:
    if not leaf.leaf:
        text = f"{leaf.path} has become a parent queue, and its own applications get nothing new: move them to a leaf"
        yield CheckView(code=Reason.QUEUE_NOT_LEAF, passed=False, text=text, queue=leaf.path)
    for level in reversed(leaf.ancestry()):
        if level.stopped:
            text = f"an operator stopped {level.path}, so nothing new runs in it"
            yield CheckView(code=Reason.QUEUE_STOPPED, passed=False, text=text, queue=level.path)
        if level.draining:
            text = f"{level.path} is draining: it takes no new applications, and those in it continue"
            yield CheckView(code=Reason.QUEUE_DRAINING, passed=True, text=text, queue=level.path)


def _check_turn(state: PartitionState, application: Application) -> CheckView:
    leaf = application.queue
    if state.readiness.turns.is_turn_of(application):
        text = f"{leaf.path} starts one application at a time, and it is the turn of this one or it has started"
        return CheckView(code=Reason.STATE_AWARE_TURN, passed=True, text=text, queue=leaf.path)
    turns = state.readiness.turns.leaves.get(leaf.rank)
    starting = [] if turns is None else list(turns.starting.values())
    if starting:
        why = f"{len(starting)} are starting" if len(starting) > 1 else "another one is starting"
    else:
        why = "it is the turn of another one"
    text = f"{leaf.path} starts one application at a time, and {why}"
    return CheckView(code=Reason.STATE_AWARE_TURN, passed=False, text=text, queue=leaf.path)


def _check_start(state: PartitionState, application: Application) -> Iterator[CheckView]:
    """The limits of running applications; an application that counts already passes them."""
    counts = application.application_id in application.queue.allocating
    for queue in application.queue.ancestry():
        if queue.max_applications:
            yield _check_count(count_in_queue(queue), counts=counts)
    account = find_account(state, application)
    for level in account.limits:
        if level.allowance is not None and level.allowance.applications:
            yield _check_count(count_in_limit(account, level), counts=account.counted)


def _check_count(check: WaitCause, *, counts: bool) -> CheckView:
    if counts:
        return view_check(check._replace(asked=0), passed=True)
    return view_check(check, passed=check.used < check.maximum)


def _check_back_off(application: Application, now: float) -> CheckView:
    left, leaf = application.back_off_until - now, application.queue
    enough = leaf.policies.back_off_after
    if left > 0:
        asks = format_count(enough, "ask") if enough else "too many asks"
        text = f"{asks} of the application fitted no node, so it is skipped for {format_seconds(left)}"
        return CheckView(code=Reason.BACK_OFF, passed=False, text=text, queue=leaf.path)
    text = "It is not in a pause after asks that fitted no node"
    return CheckView(code=Reason.BACK_OFF, passed=True, text=text, queue=leaf.path)


# Limits and queues ----------------------------------------------------------------------------------------------------


def find_account(state: PartitionState, application: Application) -> UsageAccount:
    """Return the account of the application, or what the account would be if it has none yet."""
    return state.usage.accounts.get(application.rank) or state.usage.preview(application)


def check_limits(state: PartitionState, application: Application, amounts: Amounts) -> Iterator[CheckView]:
    """Yield the limits of the user and the group, from the leaf up; one check for each type that is short."""
    account = find_account(state, application)
    for level in account.limits:
        assert level.allowance is not None, level.path
        for one, passed in _choose_types(level.allowance.resources, level.used, amounts):
            yield view_check(compare_with_limit(account, level, *one), passed=passed)


def check_queues(leaf: Queue, amounts: Amounts, keeps: Resources = NOTHING) -> Iterator[CheckView]:
    """Yield the maximum of each queue from the leaf up, the cluster size last; one check for each type that is short.
    `keeps` is the room that the queues keep for this very ask.
    """
    for queue in leaf.ancestry():
        if queue.maximum is None:
            continue
        for one, passed in _choose_types(queue.maximum, queue.allocated, amounts):
            yield view_check(compare_with_queue(queue, *one), passed=passed)
        if queue.kept and not queue.leaves_kept(amounts, keeps):
            yield view_check(WaitCause(Reason.QUEUE_ROOM_KEPT, queue.path))


def _choose_types(limit: Limit, used: Resources, amounts: Amounts) -> list[tuple[tuple[str, int], bool]]:
    """Return each type that is short, or else the one with the least room, and whether it passes."""
    short = [(one, False) for one in amounts if find_excess(limit, used, (one,)) is not None]
    named = [(one, True) for one in amounts if one[1] > 0 and one[0] in limit]
    return short or sorted(named, key=lambda one: (limit[one[0][0]] - used.get(one[0][0], 0)) / one[0][1])[:1]


# Reasons without texts ------------------------------------------------------------------------------------------------


def find_reason(
    state: PartitionState, application: Application, group: AskGroup, now: float, account: UsageAccount | None = None
) -> Reason:
    """Return why the asks of a group wait, without a look at nodes; for counts and tables.

    It costs the depth of the queue. An ask that passes all checks but has been tried without success waits for a node.
    """
    account = account or find_account(state, application)
    reason = find_application_reason(
        state, application, account, now, reserved=group.kind.standing is Standing.RESERVED
    )
    if reason is not None:
        return reason
    if group.kind.standing is Standing.HELD:
        return Reason.GANG_PLACEHOLDER
    amounts, head = group.shape.amounts, group.head
    level = account.find_full(amounts)
    if level is not None:
        return find_limit_cause(account, level, amounts).code
    queue = application.queue.find_full(amounts, application.reservations[head.key].keeps if head.reserved else NOTHING)
    if queue is not None:
        return find_queue_cause(queue, amounts).code
    return _find_node_reason(state, application, group)


def find_application_reason(
    state: PartitionState, application: Application, account: UsageAccount, now: float, *, reserved: bool = False
) -> Reason | None:
    """Return which check of the application fails, None if none does. Asks with a reservation do not wait for a turn
    or for the end of a back-off.
    """
    leaf = application.queue
    if leaf.find_stopped() is not None:
        return Reason.QUEUE_STOPPED
    if not reserved and not leaf.leaf:
        return Reason.QUEUE_NOT_LEAF
    if not reserved and leaf.state_aware and not state.readiness.turns.is_turn_of(application):
        return Reason.STATE_AWARE_TURN
    if application.state is AppState.ACCEPTED and not (
        leaf.may_start(application.application_id) and account.may_start()
    ):
        return find_start_cause(application, account).code
    if not reserved and now < application.back_off_until:
        return Reason.BACK_OFF
    return None


def _find_node_reason(state: PartitionState, application: Application, group: AskGroup) -> Reason:
    head, shape, nodes = group.head, group.shape, state.nodes
    if head.reserved:
        node = application.reservations[head.key].node
        if any(one.is_leaving for one in node.allocations.values()) and head.preemption_triggered:
            return Reason.VICTIMS_LEAVING
        return Reason.REQUIRED_NODE_FULL if shape.required_node else Reason.RESERVED_NODE_FULL
    cause = find_required_node_cause(nodes, shape) if shape.required_node else None
    if cause is not None:
        return cause.code
    verdicts = nodes.predicates.verdicts
    asked = "" if shape.constraint is None else shape.constraint.asked
    if asked in verdicts.deferred or asked in verdicts.deferred_wide:
        return Reason.VERDICT_PENDING
    return Reason.NO_NODE_FITS if group.attempted else Reason.NOT_TRIED
