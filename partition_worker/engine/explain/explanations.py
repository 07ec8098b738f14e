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
from yunishard.common.rest.explain import AheadView, CheckView, ExplanationView, RemedyView
from yunishard.common.text_formats import format_amount, format_count, format_resources, format_seconds, list_kinds
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup, Standing
from yunishard.partition_worker.engine.application import ENDED, Application
from yunishard.partition_worker.engine.attempt_log import QUEUES_FULL, WaitCause
from yunishard.partition_worker.engine.explain import checks
from yunishard.partition_worker.engine.explain.causes import count_amount, view_check
from yunishard.partition_worker.engine.explain.node_checks import (
    NodeSurvey,
    check_nodes,
    compare_with_node,
    describe_end,
    describe_holder,
    judge_node,
    view_reservations,
    view_reservations_for,
)
from yunishard.partition_worker.engine.explain.preemption_checks import PreemptionOutlook, check_preemption
from yunishard.partition_worker.engine.explain.remedies import StuckAsk, find_remedies
from yunishard.partition_worker.engine.explain.turn import find_ahead
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.preemption.victim_choice import may_ever_help
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.wait_causes import compare_with_queue

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
    return _explain_pending(state, ask, now, stalls)


def _explain_swap(ask: Allocation) -> ExplanationView:
    assert ask.partner is not None, ask.key
    text = f"it replaces the placeholder {ask.partner.key} on {ask.node_id}, whose release the RM has not confirmed"
    check = view_check(WaitCause(Reason.PLACEHOLDER_LEAVING, node=ask.node_id), text)
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


def _explain_pending(
    state: PartitionState, named: Allocation, now: float, stalls: Sequence[Reason], *, with_ahead: bool = True
) -> ExplanationView:
    """Explain an ask that waits for the same as the first one of its group, and for those before it. Of asks with a
    reservation each has a node of its own.
    """
    application, group = state.applications[named.application_id], named.group
    assert group is not None, named.key
    head, is_reserved, is_held = group.head, group.standing is Standing.RESERVED, group.standing is Standing.HELD
    judged = named if is_reserved else head
    found = list(checks.check_application(state, application, now, stalls, reserved=is_reserved))
    survey = NodeSurvey()
    if is_held:
        found.append(_check_gang(application, group))
    else:
        keeps = application.reservations[judged.key].keeps if is_reserved else NOTHING
        found += checks.check_amounts(state, application, group.shape.amounts, keeps)
        at_nodes, survey = check_nodes(state, application, judged, now)
        found += at_nodes
    failed = [one for one in found if not one.passed]
    stuck = StuckAsk(state, application, group, judged, now, failed, survey)
    stuck.outlook = _find_outlook(stuck)
    if stuck.outlook is not None:
        found.append(stuck.outlook.check)
    gang_alone = is_held and len(failed) == 1
    nodes: dict[str, int] = {code: survey.counts[code] for code in sorted(survey.counts)}
    ahead = find_ahead(state, group, now, failed, nodes) if with_ahead else []
    return ExplanationView(
        kind="ask",
        name=named.key,
        state="reserved" if is_reserved else "pending",
        summary=_summarize_ask(failed, ahead, head, named) + _name_reservation(state, named, failed, now),
        since=named.created_ns,
        stopped_by=failed[0].code if failed else (Reason.BEHIND_OTHERS if ahead else Reason.NOT_TRIED),
        count=len(group),
        checks=found,
        ahead=ahead,
        nodes=nodes,
        nearest=[miss for _, miss in survey.nearest],
        reservations=view_reservations_for(state, named, survey, now),
        remedies=_find_gang_remedies(stuck, stalls) if gang_alone else find_remedies(stuck),
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


def _find_outlook(stuck: StuckAsk) -> PreemptionOutlook | None:
    """Return the outlook of preemption; None if the scheduler does not come so far, if the ask needs no victims, or if
    no victims could help: without a guarantee on its path, or without a node that would have room.
    """
    codes, survey = stuck.codes, stuck.survey
    to_queue = codes & QUEUES_FULL
    if not codes or not codes - to_queue <= {Reason.NO_NODE_FITS, Reason.RESERVED_NODE_FULL}:
        return None
    might_fit = survey.counts[Reason.NODE_FULL] or survey.counts[Reason.NODE_RESERVED]
    if (Reason.NO_NODE_FITS in codes and not might_fit) or not may_ever_help(stuck.application.queue):
        return None
    return check_preemption(stuck.state, stuck.application, stuck.group, stuck.now, nodes_tried=not to_queue)


# Gangs ----------------------------------------------------------------------------------------------------------------


def _check_gang(application: Application, group: AskGroup) -> CheckView:
    name, task_group = group.task_group, application.task_groups[group.task_group]
    pending = sum(len(one) for one in _list_placeholder_groups(application, name))
    left = f"{task_group.outstanding} left for {format_count(task_group.waiting, 'ask')}"
    which = f"of the {left}, {len(task_group.free)} can be replaced, and {pending} have no node yet"
    text = f"it needs a placeholder of task group {name}: {which}"
    return view_check(WaitCause(Reason.GANG_PLACEHOLDER, application.queue.path), text)


def _list_placeholder_groups(application: Application, name: str) -> Iterator[AskGroup]:
    """Yield the groups of pending placeholders of a task group."""
    for group in application.asks.groups:
        if group.head.placeholder and group.head.task_group == name:
            yield group


def _find_gang_remedies(stuck: StuckAsk, stalls: Sequence[Reason]) -> list[RemedyView]:
    """Return the remedies of the next placeholder, which an ask then replaces."""
    group, application = stuck.group, stuck.application
    placeholders = next(_list_placeholder_groups(application, group.task_group), None)
    if placeholders is None or not fits(placeholders.head.resources, group.head.resources):
        return []  # a placeholder that is too small is released, and the ask then waits like any other
    return _explain_pending(stuck.state, placeholders.head, stuck.now, stalls, with_ahead=False).remedies


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
    found = list(checks.check_application(state, application, now, stalls))
    reasons = checks.survey_waiting(state, [application], now, COUNTED_MAX).sorted_reasons
    first = [
        _explain_pending(state, group.head, now, stalls, with_ahead=group is application.asks.first_group)
        for group in islice(application.asks.groups, GROUPS_MAX)
    ]
    failed = [one for one in found if not one.passed]
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
        checks=found,
        ahead=first[0].ahead if first else [],
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
    first = asks[0]
    if failed:
        return f"{f'Ask {first.name} waits' if waiting == 1 else f'{waiting} asks wait'} because {failed[0].text}."
    which = f"Ask {first.name}" if waiting == 1 else f"{waiting} asks wait. The first, {first.name},"
    return f"{which} {first.summary[0].lower()}{first.summary[1:]}"


# Queues ---------------------------------------------------------------------------------------------------------------


def explain_queue(state: PartitionState, queue: Queue, now: float, stalls: Sequence[Reason] = ()) -> ExplanationView:
    """Explain why asks wait in a queue and below it, and which level is fullest."""
    names = (name for level in queue.list_below() for name in level.applications)
    waiting = checks.survey_waiting(state, (state.applications[name] for name in names), now, COUNTED_MAX)
    levels = [_check_level(level) for level in queue.ancestry() if level.maximum]
    found = [*checks.check_partition(state, stalls), *levels]
    oldest = sorted(waiting.oldest.values(), key=lambda one: one[:2])[:EXAMPLES_MAX]
    explained = [_explain_pending(state, group.head, now, stalls, with_ahead=False) for *_, group in oldest]
    return ExplanationView(
        kind="queue",
        name=queue.path,
        state=queue.status.lower(),
        summary=_summarize_queue(queue, waiting, explained, now),
        since=min((one.since for one in explained), default=0),
        stopped_by=waiting.main_reason,
        count=waiting.asks,
        checks=found,
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
    return view_check(compare_with_queue(level, kind, 0), text, passed=used < most)


def _summarize_queue(queue: Queue, waiting: checks.WaitingAsks, explained: list[ExplanationView], now: float) -> str:
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
    reasons: Counter[str] = Counter()
    for application, group in islice(_list_groups(state.applications.values()), COUNTED_MAX):
        if group.standing is Standing.HELD or group.shape.required_node not in ("", node.node_id):
            continue
        code = judge_node(state, group.head, node)
        if code is Reason.NODE_FITS:
            code = checks.find_reason(state, application, group, now)
            code = Reason.NODE_FITS if code in (Reason.NO_NODE_FITS, Reason.NOT_TRIED) else code
        reasons[code] += len(group)
    found = [*checks.check_partition(state, stalls), *_check_node(state, node, now)]
    failed = [one for one in found if not one.passed]
    counts = dict(sorted(reasons.items()))
    return ExplanationView(
        kind="node",
        name=node.node_id,
        state="cordoned" if node.cordon is not None else "schedulable" if node.schedulable else "unschedulable",
        summary=_summarize_node(node, failed, counts),
        stopped_by=failed[0].code if failed else "",
        count=sum(counts.values()),
        checks=found,
        reservations=view_reservations(state, [node], now),
        reasons=counts,
    )


def _check_node(state: PartitionState, node: Node, now: float) -> Iterator[CheckView]:
    name = node.node_id
    text = "it takes new allocations" if node.schedulable else "the RM drains it, so it takes nothing new"
    yield view_check(WaitCause(Reason.NODE_UNSCHEDULABLE, node=name), text, passed=node.schedulable)
    if node.cordon is not None:
        yield view_check(WaitCause(Reason.NODE_CORDONED, node=name), "an operator cordoned it, so it takes nothing new")
    text = f"it is {describe_holder(state, node, now)}" if node.reservations else "it is not reserved"
    yield view_check(WaitCause(Reason.NODE_RESERVED, node=name), text, passed=not node.reservations)
    for kind in list_kinds(node.capacity):
        check, occupied = compare_with_node(Reason.NODE_FULL, node, kind), node.occupied.get(kind, 0)
        left = max(0, check.maximum - check.used)
        others = f", {format_amount(kind, occupied)} of it by other schedulers" if occupied else ""
        text = f"{format_amount(kind, left)} of {format_amount(kind, check.maximum)} left{others}"
        yield view_check(check, text, passed=left > 0)
    if node.guarded:
        text = "it has a taint, or a predicate refuses asks without a constraint"
        yield view_check(WaitCause(Reason.NODE_TAINT, node=name), text)


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
