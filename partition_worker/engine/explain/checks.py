"""The checks of an application and its asks, in the order of the scheduler, except those of nodes.

Each check is a `CheckView` that passed or not, with the amounts it compared. The scheduler stops at the first check
that fails; here all are evaluated, because the ask has to pass all of them before it runs. Conditions are those of
`queue_traversal.py`: the functions of queues and limits decide whether a check passes, this module gives the reason.

Nothing is changed: an account that the application does not have yet is previewed (`Usage.preview`) and dropped.
"""

from collections.abc import Iterator, Sequence

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.resources import NOTHING
from yunishard.common.rest.explain import CheckView
from yunishard.common.text_formats import format_count
from yunishard.common.units import format_amount, format_seconds
from yunishard.partition_worker.engine.allocation import Amounts, AskGroup, Standing
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import QueueUsage, UsageAccount
from yunishard.partition_worker.engine.wait_causes import (
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
        yield from _check_queue_applications(application)
        yield from _check_limit_applications(state, application)
    if leaf.policies.back_off_after:
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


def _check_queue_applications(application: Application) -> Iterator[CheckView]:
    """The limits of running applications; an application that counts already passes them."""
    counts = application.application_id in application.queue.allocating
    for level in application.queue.ancestry():
        most = level.max_applications
        if most:
            running = level.running + len(level.allocating)
            yield _check_count(
                Reason.QUEUE_APPLICATION_LIMIT,
                describe_running(level.path, "", running=running, most=most),
                queue=level.path,
                running=running,
                most=most,
                counts=counts,
            )


def _check_limit_applications(state: PartitionState, application: Application) -> Iterator[CheckView]:
    account = find_account(state, application)
    for kind, name, level in _limits(account):
        most = level.allowance.applications if level.allowance is not None else 0
        if most:
            running = len(level.applications)
            yield _check_count(
                Reason.USER_APPLICATION_LIMIT if kind == "user" else Reason.GROUP_APPLICATION_LIMIT,
                describe_running(f"{kind} {name}", f" in {level.path}", running=running, most=most),
                queue=level.path,
                running=running,
                most=most,
                counts=account.counted,
                user=name if kind == "user" else "",
                group=name if kind == "group" else "",
            )


def _check_count(
    code: Reason, text: str, *, queue: str, running: int, most: int, counts: bool, user: str = "", group: str = ""
) -> CheckView:
    passed = counts or running < most
    ending = ", and this one counts already" if counts else "" if passed else ", so this one has to wait"
    return CheckView(
        code=code,
        passed=passed,
        text=text + ending,
        queue=queue,
        user=user,
        group=group,
        used=running,
        maximum=most,
        asked=0 if counts else 1,
        shortfall=0 if passed else running + 1 - most,
    )


def describe_running(subject: str, place: str, *, running: int, most: int) -> str:
    """Return the sentence about a limit of running applications.

    >>> describe_running("user ann", " in root.a", running=2, most=2)
    'user ann may run 2 applications at a time in root.a: 2 are running'
    """
    now = "none is running" if not running else "1 is running" if running == 1 else f"{running} are running"
    return f"{subject} may run {format_count(most, 'application')} at a time{place}: {now}"


def _check_back_off(application: Application, now: float) -> CheckView:
    left, leaf = application.back_off_until - now, application.queue
    enough = leaf.policies.back_off_after
    if left > 0:
        asks = format_count(enough, "ask")
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
    for kind, name, level in _limits(find_account(state, application)):
        assert level.allowance is not None, level.path
        code = Reason.USER_LIMIT if kind == "user" else Reason.GROUP_LIMIT
        yield from _check_amounts(
            code,
            f"{kind} {name}",
            f" in {level.path}",
            level.path,
            maximum=level.allowance.resources,
            used=level.used,
            amounts=amounts,
            is_full=not level.has_room(amounts),
            user=name if kind == "user" else "",
            group=name if kind == "group" else "",
        )


def check_queues(leaf: Queue, amounts: Amounts, keeps: Resources = NOTHING) -> Iterator[CheckView]:
    """Yield the maximum of each queue from the leaf up, the cluster size last; one check for each type that is short.
    `keeps` is the room that the queues keep for this very ask.
    """
    for level in leaf.ancestry():
        if level.maximum is None:
            continue
        is_root = level.parent is None
        is_short = _is_short(level.maximum, level.allocated, amounts)
        yield from _check_amounts(
            Reason.CLUSTER_FULL if is_root else Reason.QUEUE_MAXIMUM,
            "the nodes together" if is_root else level.path,
            "",
            level.path,
            maximum=level.maximum,
            used=level.allocated,
            amounts=amounts,
            is_full=is_short,
        )
        if level.kept and not level.leaves_kept(amounts, keeps):
            text = describe_kept_room(level.path)
            yield CheckView(code=Reason.QUEUE_ROOM_KEPT, passed=False, text=text, queue=level.path)


def _is_short(maximum: Resources, used: Resources, amounts: Amounts) -> bool:
    return any(value > 0 and kind in maximum and used.get(kind, 0) + value > maximum[kind] for kind, value in amounts)


def _check_amounts(
    code: Reason,
    subject: str,
    place: str,
    queue: str,
    *,
    maximum: Resources,
    used: Resources,
    amounts: Amounts,
    is_full: bool,
    user: str = "",
    group: str = "",
) -> Iterator[CheckView]:
    """Yield a failed check for each type that is short, or else one check about the type with the least room."""
    named = [(kind, value) for kind, value in amounts if value > 0 and kind in maximum]
    if is_full:
        shown = [(kind, value) for kind, value in named if used.get(kind, 0) + value > maximum[kind]]
    else:
        shown = sorted(named, key=lambda one: (maximum[one[0]] - used.get(one[0], 0)) / one[1])[:1]
    for kind, value in shown:
        has, most = used.get(kind, 0), maximum[kind]
        short = max(0, has + value - most)
        yield CheckView(
            code=code,
            passed=not short,
            text=describe_room(code, subject, place, kind, used=has, maximum=most, asked=value),
            queue=queue,
            user=user,
            group=group,
            resource=kind,
            used=has,
            maximum=most,
            asked=value,
            shortfall=short,
        )


def describe_room(code: Reason, subject: str, place: str, kind: str, *, used: int, maximum: int, asked: int) -> str:
    """Return the sentence about one type: what may be used, what is, what is asked for, and what is missing.

    >>> describe_room(Reason.QUEUE_MAXIMUM, "root.a", "", "vcore", used=38000, maximum=40000, asked=4000)
    'root.a may use 40 vcore at most: 38 vcore are used, this ask needs 4 vcore, so it is short by 2 vcore'
    """
    may = "have" if code is Reason.CLUSTER_FULL else "may use"
    most = "" if code is Reason.CLUSTER_FULL else " at most"
    first = f"{subject} {may} {format_amount(kind, maximum)}{most}{place}: {count_amount(kind, used)} used"
    short = used + asked - maximum
    missing = f", so it is short by {format_amount(kind, short)}" if short > 0 else ""
    return f"{first}, this ask needs {format_amount(kind, asked)}{missing}"


def describe_kept_room(path: str) -> str:
    """Return the sentence about a queue with room that others get."""
    return f"{path} keeps the room that is left for asks that preempted or waited too long"


def count_amount(kind: str, value: int) -> str:
    """Return an amount with its verb.

    >>> count_amount("vcore", 1000), count_amount("vcore", 2000)
    ('1 vcore is', '2 vcore are')
    """
    text = format_amount(kind, value)
    return f"{text} is" if text.startswith("1 ") else f"{text} are"


def _limits(account: UsageAccount) -> Iterator[tuple[str, str, QueueUsage]]:
    """Yield the usages with a limit, as (user or group, name, usage), those of the user first, from the leaf up."""
    for level in account.user.limits:
        yield "user", account.application.user.name, level
    if account.group is not None:
        for level in account.group.limits:
            yield "group", account.group_name or "", level


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
    if not account.has_room(amounts):
        return find_limit_cause(account, amounts).code
    keeps = application.reservations[head.key].keeps if head.reserved else NOTHING
    if not application.queue.has_room(amounts, keeps):
        return find_queue_cause(application.queue, amounts).code
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
