"""Gang scheduling: real asks replace placeholders of their task group, and placeholders time out.

Swaps are the second phase of the scheduling cycle:

    1. Take the first application that has both real asks and placeholders, and of its asks the first whose group has
       a free placeholder.
    2. Release placeholders that are smaller than the ask.
    3. Replace the first placeholder that is large enough, on its node, or if that node does not admit the ask on
       another one.

Nothing else changes until the RM confirms the release of the placeholder, which is charged already, so a swap needs no
headroom. `ledger.py` does the accounting.

Timeouts:

    placeholder timeout, application running       release the remaining placeholders
    placeholder timeout, gang incomplete           a soft gang continues without placeholders, a hard one fails; also if
                                                   its only placeholder was replaced by a real allocation
    application completes with placeholders left   release them; it has completed when the last one is gone
"""

from collections.abc import Iterable
from typing import Final

from yunishard.common.messages import event_codes, rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import covers, fits, is_positive, is_zero, permits, plus, text, tightest, total_of
from yunishard.partition_worker.engine import events, ledger, lifecycle
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import (
    ACTIVE,
    LINGER_S,
    PLACEHOLDER_TIMEOUT_S,
    AppEvent,
    Application,
    AppState,
)
from yunishard.partition_worker.engine.ledger import may_swap, release_placeholders
from yunishard.partition_worker.engine.predicates.results import WorkSpent
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState, Release, Replace

REFUSED_MAX: Final = 64
"""Ask groups of one application that fit no node of a placeholder, after which the search stops."""


def decide_swap(state: PartitionState) -> Replace | Release | None:
    """The next decision about placeholders, or None."""
    while (application := state.swap_candidates.first(state.readiness.retry_round)) is not None:
        decision = _decide_for(state, application)
        if decision is not None:
            return decision
        if may_swap(application):
            state.swap_candidates.park(application)
        else:
            state.swap_candidates.drop(application)
    return None


def _decide_for(state: PartitionState, application: Application) -> Replace | Release | None:
    """The decision for its first ask that has one. Only the first ask that fits no node of a placeholder may get
    another node. None if it waits for the evaluation of its demands, as its asks are in order.
    """
    try:
        return _decide_in_order(state, application)
    except WorkSpent as spent:
        for group in application.asks.groups:
            if group.shape.constraint is not None and group.shape.constraint.demands == spent.results.demands:
                state.nodes.predicates.table.postpone(spent.results, application.application_id, group)
        return None


def _decide_in_order(state: PartitionState, application: Application) -> Replace | Release | None:
    refused: list[tuple[Allocation, Allocation]] = []
    for group in application.asks.groups:
        if group.task_group:
            state.nodes.predicates.table.subject = group
            free = application.task_groups[group.task_group].free
            decision, placeholder = _decide_in_place(state, application, group.head, free.values())
            if decision is not None:
                return decision
            if placeholder is not None:
                refused.append((group.head, placeholder))
        if len(refused) == REFUSED_MAX:
            break
    for ask, placeholder in refused[:1]:
        state.nodes.predicates.table.subject = ask.group
        node = state.nodes.node_for(ask.shape, application)
        if node is not None:
            return Replace(application, ask, placeholder, node)
    return None


def _decide_in_place(
    state: PartitionState, application: Application, ask: Allocation, free: Iterable[Allocation]
) -> tuple[Replace | Release | None, Allocation | None]:
    """The decision for an ask, up to the first placeholder that it can replace in place; otherwise the first
    placeholder that is large enough.
    """
    small: list[Allocation] = []
    tried: dict[str, None] = {}
    large = replace = None
    limit = state.nodes.predicates.begin_search(ask.shape)
    for placeholder in free:
        if not fits(placeholder.resources, ask.resources):
            small.append(placeholder)
            continue
        large = large or placeholder
        if placeholder.node_id in tried:  # the node would answer the same again
            continue
        tried[placeholder.node_id] = None
        node = state.nodes.get(placeholder.node_id)
        assert node is not None, (placeholder.key, placeholder.node_id)
        if state.nodes.is_accepted(ask.shape, node, allocate=False, limit=limit):
            replace = Replace(application, ask, placeholder, node)
            break
    return (Release(application, ask, tuple(small)) if small else replace), large


def commit_swap(state: PartitionState, decision: Replace | Release) -> None:
    """Carry out a decision: ask the RM for the release."""
    match decision:
        case Replace(application, ask, placeholder, node):
            ledger.begin_swap(state, application, ask, placeholder, node)
            state.emit(
                placeholder.release(state.name, f"replacing allocationKey: {ask.key}", rm_messages.PLACEHOLDER_REPLACED)
            )
        case Release(application, ask, small):
            for placeholder in small:
                message = (
                    f"Task group '{ask.task_group}' in application '{ask.application_id}': allocation resources "
                    f"'{text(ask.resources)}' are not matching placeholder '{text(placeholder.resources)}' allocation "
                    f"with ID '{placeholder.key}'"
                )
                events.record_request(state, placeholder, message, ask.resources)
            release_placeholders(state, application, list(small), "cancel placeholder: resource incompatible")


def unwind_swap(state: PartitionState, application: Application, ask: Allocation) -> None:
    """Cancel a swap; the ask waits again."""
    ledger.undo_swap(state, application, ask)
    if application.state is AppState.COMPLETING:
        lifecycle.fire(state, application, AppEvent.RUN)


# Queues of gangs ---------------------------------------------------------------------------------------------------


def gang_objection(leaf: Queue, application_id: str, gang: Resources) -> str:
    """Why the leaf cannot run a gang with these placeholders in total; empty if it can. Its queues need a fixed order,
    or two gangs could block each other for ever; the cluster may grow, so its size does not count.
    """
    if not is_positive(gang):
        return ""
    if leaf.policies.application_sort == "fair":
        return (
            f"queue {leaf.path} cannot run application {application_id} with task group request: unsupported sort type"
        )
    maximum = tightest([level.maximum for level in leaf.ancestry() if level.parent is not None])
    if maximum is None or permits(maximum, gang):
        return ""
    return (
        f"queue {leaf.path} cannot fit application {application_id}: "
        f"task group request {text(gang)} larger than max queue allocation {text(maximum)}"
    )


# Placeholder timeouts -------------------------------------------------------------------------------------------------

TIMEOUT_CAUSE: Final = "ResourceReservationTimeout"
"""Reason, known to RMs, why an application without all its placeholders resumes or fails."""

ALLOCATED: Final = "releasing allocated placeholders on placeholder timeout"
PENDING: Final = "releasing pending placeholders on placeholder timeout"
COMPLETED: Final = "releasing placeholders on app complete"

CREATION_TIME: Final = "yunikorn.apache.org/creationTime"
"""Application tag with its creation time at the RM, in Unix seconds."""

LEAST_S: Final = 0.001
"""Placeholder timeout of a gang that is older than its timeout."""


def placeholder_timeout_s(submission: rm_messages.AddApplicationRequest, now: float) -> float:
    """The placeholder timeout of a new application, less its age, so that a resubmission does not restart it."""
    asked_ms = submission.execution_timeout_milli_seconds
    timeout_s = asked_ms / 1000 if asked_ms > 0 else PLACEHOLDER_TIMEOUT_S
    tag = submission.tags.get(CREATION_TIME, "")
    if not (tag.isascii() and tag.isdecimal() and len(tag) < 12):
        return timeout_s
    return max(min(int(tag), now) + timeout_s - now, LEAST_S)


def handle_state_timeout(state: PartitionState, application: Application) -> None:
    """The state timeout of an application expired. A completing application first releases its placeholders."""
    if application.state is AppState.COMPLETING and application.holds_placeholders:
        release_placeholders(state, application, _list_unreleased(application), COMPLETED)
    else:
        lifecycle.fire(state, application, LINGER_S[application.state][1])


def handle_placeholder_timeout(state: PartitionState, application: Application) -> None:
    """The placeholder timeout of an application expired."""
    if _is_complete(application):
        lifecycle.fire(state, application, AppEvent.RUN)
    if application.state is AppState.COMPLETING or application.state in ACTIVE:
        release_placeholders(state, application, _list_unreleased(application), ALLOCATED)
    else:
        _give_up(state, application)


def _is_complete(application: Application) -> bool:
    """Whether an accepted gang had all its placeholders, some of which were replaced before the last one was placed."""
    replaced = total_of(
        {kind: amount * group.replaced for kind, amount in group.minimum.items()}
        for group in application.task_groups.values()
    )
    return (
        application.state is AppState.ACCEPTED
        and not is_zero(replaced)
        and covers(plus(replaced, application.allocated_placeholder), application.placeholder_ask)
    )


def _list_unreleased(application: Application) -> list[Allocation]:
    """Placeholders that the RM was not asked to release yet."""
    return [placeholder for group in application.task_groups.values() for placeholder in group.free.values()]


def _give_up(state: PartitionState, application: Application) -> None:
    """The gang never was complete: remove its asks and release its allocations. Swaps in progress finish in a soft gang
    and are undone in a hard one.
    """
    hard = application.gang_style == "Hard"
    lifecycle.fire(state, application, AppEvent.FAIL if hard else AppEvent.RESUME, TIMEOUT_CAUSE)
    if hard:  # before the asks are listed: those of the swaps are among them then
        for ask in tuple(application.swapping.values()):
            ledger.undo_swap(state, application, ask)
    asks = tuple(application.requests.values())
    for ask in asks:
        ledger.remove_ask(state, application, ask, detail=event_codes.REQUEST_TIMEOUT)
    having = [one for one in application.allocations.values() if not one.preempted and not one.released]
    for one in having:
        state.record_application_event(event_codes.REMOVE, event_codes.REQUEST_TIMEOUT, one)
    release_placeholders(state, application, having, ALLOCATED)
    for ask in asks:
        state.emit(ask.release(state.name, PENDING, rm_messages.TIMEOUT))
