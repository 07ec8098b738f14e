"""Explanations of an ask, an application, a queue and a node: checks, who is ahead, nodes and remedies in one view.

    explain_ask(state, application, key, now)        why one ask waits, and what would help
    explain_application(state, application, now)     its own checks, and one explanation for each group of equal asks
    explain_queue(state, queue, now)                 why asks wait below it, and for what most
    explain_node(state, node, now)                   what it takes, and why waiting asks do not get it

`stalls` are reasons of the worker why the partition decides nothing now. Nothing is changed: no cache, no event, no
mark; the tests compare the whole state before and after. Costs are bounded by the constants here and in the other
modules of the package.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.resources import NOTHING, fits
from yunishard.common.rest.explain import AheadView, CheckView, ExplanationView, RemedyView, ReservationView
from yunishard.common.text_formats import format_count
from yunishard.common.units import format_amount, format_resources, format_seconds, list_kinds
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup, Standing
from yunishard.partition_worker.engine.application import ENDED, Application
from yunishard.partition_worker.engine.attempt_log import QUEUES_FULL
from yunishard.partition_worker.engine.explain.causes import count_amount
from yunishard.partition_worker.engine.explain.checks import (
    check_application,
    check_limits,
    check_partition,
    check_queues,
    find_reason,
)
from yunishard.partition_worker.engine.explain.counts import WaitingAsks, survey_waiting
from yunishard.partition_worker.engine.explain.node_checks import (
    NodeSurvey,
    check_nodes,
    check_required_node,
    check_reserved_node,
    describe_end,
    describe_holder,
    describe_miss,
    judge_node,
    survey_nodes,
    view_reservation,
    view_reservations,
)
from yunishard.partition_worker.engine.explain.preemption_checks import PreemptionOutlook, check_preemption
from yunishard.partition_worker.engine.explain.remedies import StuckAsk, find_remedies
from yunishard.partition_worker.engine.explain.turn import find_ahead, keep_rivals
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.preemption.victim_choice import may_ever_help
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.reservations import has_share, share_max
from yunishard.partition_worker.engine.state import PartitionState

GROUPS_MAX: Final = 5
"""Ask groups of one application that are explained, the first ones in its order."""

COUNTED_MAX: Final = 5_000
"""Ask groups that an explanation of a queue, a node or an application counts, about 100 ms; others are left out."""

EXAMPLES_MAX: Final = 2
"""Asks that the explanation of a queue explains: those that have waited longest, of different reasons."""

_NS: Final = 1_000_000_000


# Asks -----------------------------------------------------------------------------------------------------------------


def explain_ask(
    state: PartitionState, application: Application, ask: Allocation, now: float, stalls: Sequence[Reason] = ()
) -> ExplanationView:
    """Explain why an ask of an application waits, or that it does not."""
    if ask.key in application.swapping:
        return _explain_swap(ask)
    if ask.group is None:
        ago = format_seconds(max(0.0, now - ask.bound_ns / _NS))
        text = f"Runs on node {ask.node_id} since {ago} ago" if ask.bound_ns else f"Runs on node {ask.node_id}"
        return ExplanationView(kind="ask", name=ask.key, state="allocated", summary=f"{text}.", stopped_by="")
    return _explain_group(state, application, ask.group, now, stalls, ask=ask)


def _explain_swap(ask: Allocation) -> ExplanationView:
    assert ask.partner is not None, ask.key
    text = f"it replaces the placeholder {ask.partner.key} on {ask.node_id}, whose release the RM has not confirmed"
    check = CheckView(code=Reason.PLACEHOLDER_LEAVING, passed=False, text=text, node=ask.node_id)
    return ExplanationView(
        kind="ask",
        name=ask.key,
        state="replacing",
        summary=f"Waits because {text}.",
        since=ask.created_ns,
        stopped_by=check.code,
        count=1,
        checks=[check],
    )


def _explain_group(
    state: PartitionState,
    application: Application,
    group: AskGroup,
    now: float,
    stalls: Sequence[Reason],
    *,
    ask: Allocation | None = None,
    with_ahead: bool = True,
) -> ExplanationView:
    """Explain the first ask of a group, or another one of it, which waits for the same and for those before it. Of asks
    with a reservation each has a node of its own.
    """
    head, named = group.head, ask or group.head
    is_reserved = group.standing is Standing.RESERVED
    judged = named if is_reserved else head
    checks = [*check_partition(state, stalls)]
    checks += check_application(state, application, now, reserved=is_reserved)
    survey: NodeSurvey | None = None
    outlook: PreemptionOutlook | None = None
    if group.standing is Standing.HELD:
        checks.append(_check_gang(application, group))
    else:
        amounts = group.shape.amounts
        checks += check_limits(state, application, amounts)
        keeps = application.reservations[judged.key].keeps if is_reserved else NOTHING
        checks += check_queues(application.queue, amounts, keeps)
        node_checks, survey = _check_nodes(state, application, judged, now)
        checks += node_checks
        outlook = _find_outlook(state, application, group, checks, survey, now)
    failed = [one for one in checks if not one.passed]
    if outlook is not None:
        checks.append(outlook.check)
    remedies: list[RemedyView] = []
    if group.standing is Standing.HELD:
        remedies = _find_gang_remedies(state, application, group, now, stalls) if len(failed) == 1 else []
    elif failed:
        remedies = find_remedies(StuckAsk(state, application, group, judged, now, failed, survey, outlook))
    nodes: dict[str, int] = {} if survey is None else {code: survey.counts[code] for code in sorted(survey.counts)}
    ahead = keep_rivals(find_ahead(state, application, group, now), failed, nodes) if with_ahead else []
    return ExplanationView(
        kind="ask",
        name=named.key,
        state="reserved" if is_reserved else "pending",
        summary=_summarize_ask(failed, ahead, head, named) + _name_reservation(state, named, failed, now),
        since=named.created_ns,
        stopped_by=failed[0].code if failed else (Reason.BEHIND_OTHERS if ahead else Reason.NOT_TRIED),
        count=len(group),
        checks=checks,
        ahead=ahead,
        nodes=nodes,
        nearest=[] if survey is None else [describe_miss(node, verdict) for node, verdict in survey.nearest],
        reservations=_view_reservations(state, named, survey, now),
        remedies=remedies,
    )


def _summarize_ask(failed: list[CheckView], ahead: list[AheadView], head: Allocation, named: Allocation) -> str:
    if failed:
        others = {one.code for one in failed[1:]} - {failed[0].code}
        if failed[0].code == Reason.CLUSTER_FULL:  # then no node has room, which is the same shortage
            others.discard(Reason.NO_NODE_FITS)
        more = f" {format_count(len(others), 'other check')} would stop it, too." if others else ""
        return f"Waits because {failed[0].text}.{more}"
    if named is not head:
        return f"Waits for its turn: {head.key} and other equal asks of the application come first."
    if ahead:
        return f"Passes all checks, and waits for its turn: {ahead[0].text}."
    return "Passes all checks: it is tried in the next scheduling cycle."


def _name_reservation(state: PartitionState, ask: Allocation, failed: list[CheckView], now: float) -> str:
    """Return the sentence about the reservation of an ask; none if the ask waits for room there, as that names it."""
    if not ask.reserved or (failed and failed[0].code == Reason.RESERVED_NODE_FULL):
        return ""
    reservation = state.applications[ask.application_id].reservations[ask.key]
    return f" {reservation.node.node_id} is reserved for it, {describe_end(state, reservation, now)}."


def _check_nodes(
    state: PartitionState, application: Application, ask: Allocation, now: float
) -> tuple[list[CheckView], NodeSurvey | None]:
    if ask.shape.required_node:
        return [*check_required_node(state, ask, now)], None
    survey = survey_nodes(state, ask, now)
    if not ask.reserved:
        return [check_nodes(survey, ask.shape, _describe_reservations(state, application, survey, now))], survey
    reserved = check_reserved_node(state, application.reservations[ask.key], now)
    if reserved.passed or survey.fits:
        return [check_nodes(survey, ask.shape)], survey
    return [reserved], survey


def _describe_reservations(state: PartitionState, application: Application, survey: NodeSurvey, now: float) -> str:
    """Return which node an ask does not get because it is reserved, and that its application may reserve no more."""
    text = ""
    if survey.reserved:
        first, *others = survey.reserved
        text = f"; {first.node_id} would take it, and is {describe_holder(state, first, now)}"
        text += f"; {format_count(len(others), 'more node')} would take it and are reserved" if others else ""
    if has_share(state, application):
        count = format_count(share_max(state), "node")
        text += f"; its application has {count} reserved for other asks, as many as it may"
    return text


def _view_reservations(
    state: PartitionState, ask: Allocation, survey: NodeSurvey | None, now: float
) -> list[ReservationView]:
    """Return the reservation of an ask, or those that its checks and the nearest nodes name."""
    if ask.reserved:
        return [view_reservation(state, state.applications[ask.application_id].reservations[ask.key], now)]
    if survey is None:
        return []
    nearest = [node for node, verdict in survey.nearest if verdict.code is Reason.NODE_RESERVED]
    return view_reservations(state, {node.node_id: node for node in (*survey.reserved, *nearest)}.values(), now)


def _find_outlook(
    state: PartitionState,
    application: Application,
    group: AskGroup,
    checks: list[CheckView],
    survey: NodeSurvey | None,
    now: float,
) -> PreemptionOutlook | None:
    """Return the outlook of preemption; None if the scheduler does not come so far, if the ask needs no victims, or if
    no victims could help: without a guarantee on its path, or without a node that would have room.
    """
    failed = {one.code for one in checks if not one.passed}
    to_queue = failed.intersection(QUEUES_FULL)
    if not failed or not failed - to_queue <= {Reason.NO_NODE_FITS, Reason.RESERVED_NODE_FULL}:
        return None
    might_fit = survey is None or bool(survey.counts[Reason.NODE_FULL] or survey.counts[Reason.NODE_RESERVED])
    if (Reason.NO_NODE_FITS in failed and not might_fit) or not may_ever_help(application.queue):
        return None
    return check_preemption(state, application, group, now, nodes_tried=not to_queue)


# Gangs ----------------------------------------------------------------------------------------------------------------


def _check_gang(application: Application, group: AskGroup) -> CheckView:
    name = group.task_group
    task_group = application.task_groups[name]
    pending = sum(len(one) for one in _list_placeholder_groups(application, name))
    left, free = task_group.outstanding, len(task_group.free)
    if left == pending:
        none = f"none of the {left} left has" if left > 1 else "the only one left does not have"
        which = f", but {none} a node yet"
    else:
        which = f": of the {left} left, {free} can be replaced, and {pending} have no node yet"
        which += (
            f"; {format_count(task_group.waiting, 'ask')} of the group need{'s' if task_group.waiting == 1 else ''} one"
        )
    text = f"it needs a placeholder of task group {name}{which}"
    return CheckView(code=Reason.GANG_PLACEHOLDER, passed=False, text=text, queue=application.queue.path)


def _list_placeholder_groups(application: Application, name: str) -> Iterator[AskGroup]:
    """Yield the groups of pending placeholders of a task group."""
    for group in application.asks.groups:
        if group.head.placeholder and group.head.task_group == name:
            yield group


def _find_gang_remedies(
    state: PartitionState, application: Application, group: AskGroup, now: float, stalls: Sequence[Reason]
) -> list[RemedyView]:
    """Return the remedies of the next placeholder, which an ask then replaces."""
    placeholders = next(_list_placeholder_groups(application, group.task_group), None)
    if placeholders is None or not fits(placeholders.head.resources, group.head.resources):
        return []  # a placeholder that is too small is released, and the ask then waits like any other
    return _explain_group(state, application, placeholders, now, stalls, with_ahead=False).remedies


# Applications ---------------------------------------------------------------------------------------------------------


def explain_application(
    state: PartitionState, application: Application, now: float, stalls: Sequence[Reason] = ()
) -> ExplanationView:
    """Explain what the asks of an application wait for, which may have ended."""
    name = application.application_id
    if application.state in ENDED:
        text = f"The application has ended: it is {application.state}."
        return ExplanationView(
            kind="application", name=name, state=application.state.lower(), summary=text, stopped_by="application-ended"
        )
    checks = [*check_partition(state, stalls), *check_application(state, application, now)]
    reasons = survey_waiting(state, [application], now, COUNTED_MAX).sorted_reasons
    first = [
        _explain_group(state, application, group, now, stalls, with_ahead=False)
        for group in islice(application.asks.groups, GROUPS_MAX)
    ]
    failed = [one for one in checks if not one.passed]
    waiting = len(application.requests)
    stop = failed[0].code if failed else (first[0].stopped_by if first else "")
    return ExplanationView(
        kind="application",
        name=name,
        state=application.state.lower(),
        summary=_summarize_application(application, failed, first),
        since=min((one.since for one in first), default=0),
        stopped_by=stop,
        count=waiting,
        checks=checks,
        ahead=_find_rivals(state, application, checks, first, now) if waiting else [],
        remedies=first[0].remedies if first else [],
        asks=first,
        reasons=reasons,
    )


def _summarize_application(application: Application, failed: list[CheckView], asks: list[ExplanationView]) -> str:
    waiting, swapping = len(application.requests), len(application.swapping)
    if not waiting:
        if swapping:
            return f"{swapping} asks have their node and wait until the RM confirms the release of their placeholders."
        return f"Nothing waits: {len(application.allocations)} allocations, and no ask is pending."
    if failed:
        return f"{f'Ask {asks[0].name} waits' if waiting == 1 else f'{waiting} asks wait'} because {failed[0].text}."
    summary = asks[0].summary
    summary = f"{summary[0].lower()}{summary[1:]}"
    return (
        f"Ask {asks[0].name} {summary}"
        if waiting == 1
        else f"{waiting} asks wait. The first, {asks[0].name}, {summary}"
    )


def _find_rivals(
    state: PartitionState, application: Application, checks: list[CheckView], asks: list[ExplanationView], now: float
) -> list[AheadView]:
    """Return who is ahead of the application and may take what its first ask waits for."""
    failed = [one for one in checks if not one.passed]
    nodes = asks[0].nodes if asks else {}
    return keep_rivals(find_ahead(state, application, None, now), failed or (asks[0].checks if asks else ()), nodes)


# Queues ---------------------------------------------------------------------------------------------------------------


def explain_queue(state: PartitionState, queue: Queue, now: float, stalls: Sequence[Reason] = ()) -> ExplanationView:
    """Explain why asks wait in a queue and below it, and which level is fullest."""
    names = (name for level in queue.list_below() for name in level.applications)
    waiting = survey_waiting(state, (state.applications[name] for name in names), now, COUNTED_MAX)
    checks = [*check_partition(state, stalls), *(_check_level(level) for level in queue.ancestry() if level.maximum)]
    oldest = sorted(waiting.oldest.values(), key=lambda one: one[:2])[:EXAMPLES_MAX]
    explained = [
        _explain_group(state, application, group, now, stalls, with_ahead=False) for *_, application, group in oldest
    ]
    return ExplanationView(
        kind="queue",
        name=queue.path,
        state=queue.status.lower(),
        summary=_summarize_queue(queue, waiting, explained, now),
        since=min((one.since for one in explained), default=0),
        stopped_by=waiting.main_reason,
        count=waiting.asks,
        checks=checks,
        asks=explained,
        reasons=waiting.sorted_reasons,
    )


def _check_level(level: Queue) -> CheckView:
    """How full a queue is, by its fullest type."""
    maximum = level.maximum or {}
    shares = {kind: level.allocated.get(kind, 0) / most if most else 1.0 for kind, most in maximum.items()}
    kind = max(shares, key=lambda one: (shares[one], one))
    used, most = level.allocated.get(kind, 0), maximum[kind]
    what = "the nodes together have" if level.parent is None else f"{level.path} may use"
    text = f"{what} {format_amount(kind, most)}, and {count_amount(kind, used)} used ({shares[kind]:.0%})"
    return CheckView(
        code=Reason.CLUSTER_FULL if level.parent is None else Reason.QUEUE_MAXIMUM,
        passed=used < most,
        text=text,
        queue=level.path,
        resource=kind,
        used=used,
        maximum=most,
    )


def _summarize_queue(queue: Queue, waiting: WaitingAsks, explained: list[ExplanationView], now: float) -> str:
    if not waiting.asks:
        return f"Nothing waits below {queue.path}: it uses {format_resources(queue.allocated)}."
    reason = waiting.main_reason
    asks, apps = format_count(waiting.asks, "ask"), format_count(waiting.applications, "application")
    of = f"the first {waiting.counted}" if waiting.counted < waiting.asks else "them"
    counted = "" if len(waiting.reasons) == 1 else f" {waiting.reasons[reason]} of {of}:"
    oldest = min(explained, key=lambda one: one.since)
    ago = format_seconds(max(0.0, now - oldest.since / _NS))
    return (
        f"{asks} of {apps} wait below {queue.path}.{counted} {MEANINGS[Reason(reason)]} "
        f"The longest wait has {oldest.name}, for {ago}: {oldest.summary.removeprefix('Waits because ')}"
    )


# Nodes ----------------------------------------------------------------------------------------------------------------


def explain_node(state: PartitionState, node: Node, now: float, stalls: Sequence[Reason] = ()) -> ExplanationView:
    """Explain what a node takes, and why it does not get the asks that wait."""
    waiting = [one for one in state.applications.values() if one.requests]
    reasons: Counter[str] = Counter()
    for application, group in islice(_list_groups(waiting), COUNTED_MAX):
        if group.standing is Standing.HELD:
            continue
        required = group.shape.required_node
        if required and required != node.node_id:
            continue
        code = judge_node(state, group.head, node).code
        if code is Reason.NODE_FITS:
            code = find_reason(state, application, group, now)
            code = Reason.NODE_FITS if code in (Reason.NO_NODE_FITS, Reason.NOT_TRIED) else code
        reasons[code] += len(group)
    checks = [*check_partition(state, stalls), *_check_node(state, node, now)]
    failed = [one for one in checks if not one.passed]
    counts = {code: reasons[code] for code in sorted(reasons)}
    return ExplanationView(
        kind="node",
        name=node.node_id,
        state="cordoned" if node.cordon is not None else "schedulable" if node.schedulable else "unschedulable",
        summary=_summarize_node(node, failed, counts),
        stopped_by=failed[0].code if failed else "",
        count=sum(counts.values()),
        checks=checks,
        reservations=view_reservations(state, [node], now),
        reasons=counts,
    )


def _check_node(state: PartitionState, node: Node, now: float) -> Iterator[CheckView]:
    text = "it takes new allocations" if node.schedulable else "the RM drains it, so it takes nothing new"
    yield CheckView(code=Reason.NODE_UNSCHEDULABLE, passed=node.schedulable, text=text, node=node.node_id)
    if node.cordon is not None:
        text = "an operator cordoned it, so it takes nothing new"
        yield CheckView(code=Reason.NODE_CORDONED, passed=False, text=text, node=node.node_id)
    text = f"it is {describe_holder(state, node, now)}" if node.reservations else "it is not reserved"
    yield CheckView(code=Reason.NODE_RESERVED, passed=not node.reservations, text=text, node=node.node_id)
    for kind in list_kinds(node.capacity):
        total, left = node.capacity[kind], node.available.get(kind, 0)
        occupied = node.occupied.get(kind, 0)
        others = f", {format_amount(kind, occupied)} of it by other schedulers" if occupied else ""
        text = f"{format_amount(kind, max(0, left))} of {format_amount(kind, total)} left{others}"
        yield CheckView(
            code=Reason.NODE_FULL,
            passed=left > 0,
            text=text,
            node=node.node_id,
            resource=kind,
            used=total - left,
            maximum=total,
        )
    if node.guarded:
        text = "it has a taint, or a predicate refuses asks without a constraint"
        yield CheckView(code=Reason.NODE_TAINT, passed=False, text=text, node=node.node_id)


def _summarize_node(node: Node, failed: list[CheckView], reasons: dict[str, int]) -> str:
    left = {kind: max(0, node.available.get(kind, 0)) for kind in node.capacity}
    room = format_resources(left)
    first = f"{node.node_id} has {room} left" if room != "none" else f"{node.node_id} has nothing left"
    if failed:
        first = f"{first}, and {failed[0].text}" if failed[0].code != Reason.NODE_FULL else first
    waiting = sum(reasons.values())
    if not waiting:
        return f"{first}. No ask waits that might run on it."
    most = max(reasons, key=lambda code: reasons[code])
    meaning = MEANINGS[Reason(most)]
    counted = f"{reasons[most]} of " if len(reasons) > 1 else ""
    return f"{first}. Of the asks that wait, {counted}{waiting}: {meaning[0].lower()}{meaning[1:]}"


def _list_groups(applications: Iterable[Application]) -> Iterator[tuple[Application, AskGroup]]:
    for application in applications:
        for group in application.asks.groups:
            yield application, group
