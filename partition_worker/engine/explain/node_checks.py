"""The nodes for an ask: how many take it or do not, by reason, and the nearest misses.

A node is judged as the search for a node does (`nodes.py`): it must be open, not reserved for others unless these have
a lower priority, have room, and be accepted by the predicates. A required node is judged by `Nodes.required_node`. One
pass over the nodes finds all; the predicates are evaluated for nodes with room, and for a few of the nearest misses.
Nothing is cached or requested.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Final

from yunishard.common.messages.reasons import Reason
from yunishard.common.rest.explain import CheckView, NearMissView, ReservationView
from yunishard.common.text_formats import format_amount, format_count, format_seconds
from yunishard.partition_worker.engine.allocation import Allocation, AskShape
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.attempt_log import WAITING, WaitCause
from yunishard.partition_worker.engine.explain.causes import describe_need, view_check
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.predicates.evaluation import RM_PREDICATES
from yunishard.partition_worker.engine.predicates.predicate import (
    ForbiddenNodes,
    NodeSelector,
    Selector,
    Tolerations,
)
from yunishard.partition_worker.engine.preemption.victim_choice import plan_required_node_victims
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.reservations import end_of, has_share, share_max
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.wait_causes import compare_with_size

NODES_MAX: Final = 20_000
"""Nodes that one explanation examines, about 60 ms; of more nodes the first ones count, and the check states it."""

NEAREST_MAX: Final = 5
"""Near misses in an explanation."""

RESERVATIONS_MAX: Final = 5
"""Reservations in an explanation, the first ones that were found."""

_CANDIDATES_MAX: Final = 50
"""Near misses for which predicates are evaluated, until NEAREST_MAX are found that would accept the ask."""

_UNMATCHED_MAX: Final = 3
"""Nodes of which the check of nodes has the attribute that does not match the node selector."""

_CODES: Final = {
    NodeSelector.name: Reason.NODE_SELECTOR,
    ForbiddenNodes.name: Reason.NODE_FORBIDDEN,
    Tolerations.name: Reason.NODE_TAINT,
    RM_PREDICATES: Reason.NODE_REFUSED_BY_RM,
}


@dataclass(slots=True)
class NodeSurvey:
    """All nodes, as they are to one ask shape."""

    counts: Counter[Reason] = field(default_factory=Counter)
    """Nodes by code; `node-fits` for those that would take the ask."""
    nearest: list[tuple[Node, NearMissView]] = field(default_factory=list)
    """The nodes that would take the ask if they had a little more room, or if they were open; the nearest first."""
    first: Node | None = None
    """The first node, in order of arrival, that takes the ask."""
    reserved: list[Node] = field(default_factory=list)
    """The first nodes that would take the ask if they were not reserved for others."""
    unmatched: list[Node] = field(default_factory=list)
    """The first nodes with room that do not match the node selector."""
    total: int = 0
    last: str = ""
    """The last node that was examined, which is the only one if there is one."""

    @property
    def fits(self) -> int:
        """The number of nodes that take the ask."""
        return self.counts[Reason.NODE_FITS]


def judge_node(state: PartitionState, ask: Allocation, node: Node) -> Reason:
    """Return whether a node takes an ask, which may require it, or why not."""
    obstacle = _find_obstacle(state.applications[ask.application_id].queue, ask, node)
    return obstacle or judge_predicates(state, ask.shape, node)


def _find_obstacle(leaf: Queue, ask: Allocation, node: Node) -> Reason | None:
    """Return why a node does not take an ask, apart from the predicates; None if it might."""
    shape = ask.shape
    if not (shape.required_node or ask.key in node.reservations):
        if not node.schedulable:
            return Reason.NODE_UNSCHEDULABLE
        if node.cordon is not None:
            return Reason.NODE_CORDONED
        if not node.gives_way_to(leaf, ask.priority):
            return Reason.NODE_RESERVED
    if node.has_room(shape.amounts):
        return None
    return Reason.NODE_FULL if node.is_large_enough(shape.amounts) else Reason.NODE_TOO_SMALL


def judge_predicates(state: PartitionState, shape: AskShape, node: Node) -> Reason:
    """Return whether the predicates accept such an ask on a node, whatever room it has."""
    name, reason = state.nodes.predicates.explain_refusal(shape, node)
    if not name:
        return Reason.NODE_FITS
    return Reason.VERDICT_PENDING if reason is WAITING else _CODES.get(name, Reason.NODE_PREDICATE)


def find_lacks(code: Reason, node: Node, shape: AskShape) -> list[WaitCause]:
    """Return how each type of which a node has too little left for an ask compares."""
    compared = [compare_with_node(code, node, kind, value) for kind, value in shape.amounts if value > 0]
    return [one for one in compared if one.shortfall]


def compare_with_node(code: Reason, node: Node, kind: str, asked: int = 0) -> WaitCause:
    """Return how the capacity of a node compares with an amount, beside what it has."""
    total = node.capacity.get(kind, 0)
    used = total - node.available.get(kind, 0)
    return WaitCause(code, node=node.node_id, resource=kind, used=used, maximum=total, asked=asked)


def survey_nodes(state: PartitionState, ask: Allocation, now: float) -> NodeSurvey:
    """Judge the nodes for an ask that may run on any."""
    shape, found = ask.shape, NodeSurvey(total=len(state.nodes))
    leaf = state.applications[ask.application_id].queue
    misses: list[tuple[float, int, Node, Reason]] = []
    for node in islice(state.nodes, NODES_MAX):
        code = _find_obstacle(leaf, ask, node)
        if code is None:
            code = judge_predicates(state, shape, node)
            if found.first is None and code is Reason.NODE_FITS:
                found.first = node
            elif code is Reason.NODE_SELECTOR and len(found.unmatched) < _UNMATCHED_MAX:
                found.unmatched.append(node)
        elif found.first is None:
            closed = 0.0 if code in (Reason.NODE_FULL, Reason.NODE_TOO_SMALL) else 1.0
            misses.append((_measure_distance(shape, node) + closed, node.rank, node, code))
        if code is Reason.NODE_RESERVED and len(found.reserved) < RESERVATIONS_MAX and node.has_room(shape.amounts):
            found.reserved += [node] if judge_predicates(state, shape, node) is Reason.NODE_FITS else []
        found.counts[code] += 1
        found.last = node.node_id
    for _, _, node, code in nsmallest(_CANDIDATES_MAX, misses) if found.first is None else ():
        if len(found.nearest) < NEAREST_MAX and judge_predicates(state, shape, node) is Reason.NODE_FITS:
            found.nearest.append((node, _describe_miss(state, shape, node, code, now)))
    return found


def _measure_distance(shape: AskShape, node: Node) -> float:
    """How far a node is from taking an ask: the missing part of the type that is shortest, and a little for others."""
    room = node.available
    parts = [1 - room.get(kind, 0) / value for kind, value in shape.amounts if value > max(0, room.get(kind, 0))]
    return max(parts, default=0.0) + 0.01 * sum(parts)


def _describe_miss(state: PartitionState, shape: AskShape, node: Node, code: Reason, now: float) -> NearMissView:
    """Return why a node does not take an ask, and what it is short by: by its size, if even the empty node is too
    small, and by the room it has now.
    """
    texts = [f"it is {describe_holder(state, node, now)}"] if code is Reason.NODE_RESERVED else []
    texts += [_CLOSED[code]] if code in _CLOSED else []
    lacks = find_lacks(code, node, shape)
    for one in lacks:
        short, beyond = format_amount(one.resource, one.shortfall), one.asked - one.maximum
        if beyond > 0:
            now_too = f", by {short} now" if beyond < one.shortfall else ""
            short = f"{format_amount(one.resource, beyond)} even when it is empty{now_too}"
        texts.append(f"short by {short}")
    worst = max(lacks, key=lambda one: one.shortfall / one.asked, default=WaitCause(code))
    text = ", ".join(texts)
    return NearMissView(node=node.node_id, code=code, text=text, resource=worst.resource, shortfall=worst.shortfall)


_CLOSED: Final = {
    Reason.NODE_UNSCHEDULABLE: "it is drained by the RM",
    Reason.NODE_CORDONED: "an operator cordoned it",
}


# Checks ---------------------------------------------------------------------------------------------------------------


def check_nodes(
    state: PartitionState, application: Application, ask: Allocation, now: float
) -> tuple[list[CheckView], NodeSurvey]:
    """Return the checks of the nodes for an ask, and what all nodes are to it unless it requires one."""
    if ask.shape.required_node:
        return _check_required_node(state, ask, now), NodeSurvey()
    survey = survey_nodes(state, ask, now)
    if not ask.reserved:
        return [_check_survey(survey, ask.shape, _describe_reservations(state, application, survey, now))], survey
    reserved = list(_check_room(state, ask, application.reservations[ask.key].node, now))
    return [_check_survey(survey, ask.shape)] if reserved[0].passed or survey.fits else reserved, survey


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


def _check_survey(survey: NodeSurvey, shape: AskShape, reserved: str = "") -> CheckView:
    """The check whether any node takes an ask; `reserved` is what reservations have to do with it."""
    examined = survey.counts.total()
    beyond = f" of the first {examined}" if examined < survey.total else ""
    if survey.fits:
        text = f"{survey.fits}{beyond} of {survey.total} nodes have room and take it"
        return view_check(WaitCause(Reason.NO_NODE_FITS), text, passed=True)
    if waiting := survey.counts[Reason.VERDICT_PENDING]:
        text = f"the RM has not answered yet whether it may run on {waiting} nodes with room"
        return view_check(WaitCause(Reason.VERDICT_PENDING), text)
    text = f"no node{beyond} takes it: {_describe_counts(survey)}{_describe_unmatched(survey, shape)}{reserved}"
    for node, miss in survey.nearest:
        if miss.resource:
            lack = next(one for one in find_lacks(Reason.NO_NODE_FITS, node, shape) if one.resource == miss.resource)
            asked, total = format_amount(lack.resource, lack.asked), format_amount(lack.resource, lack.maximum)
            nearest = f"the nearest, {node.node_id}, has {total} in total, {miss.text}"
            return view_check(lack._replace(node=""), f"{text}; this ask needs {asked}, {nearest}")
    return view_check(WaitCause(Reason.NO_NODE_FITS), text)


_PHRASES: Final = {
    Reason.NODE_FULL: "full",
    Reason.NODE_TOO_SMALL: "too small even when empty",
    Reason.NODE_UNSCHEDULABLE: "drained",
    Reason.NODE_CORDONED: "cordoned",
    Reason.NODE_RESERVED: "reserved for others",
    Reason.NODE_SELECTOR: "without what its node selector demands",
    Reason.NODE_FORBIDDEN: "forbidden by it",
    Reason.NODE_TAINT: "closed by a taint that it does not tolerate",
    Reason.NODE_PREDICATE: "refused by a predicate",
    Reason.NODE_REFUSED_BY_RM: "refused by the RM",
}
"""The words after a number of nodes that do not take an ask, by code."""


def _describe_counts(survey: NodeSurvey) -> str:
    """Return how many nodes do not take the ask, by reason."""
    number, counted = survey.counts.total(), survey.counts.most_common()
    if len(counted) == 1 and number == survey.total:
        several = "both nodes are" if number == 2 else f"all {number} nodes are"
        which = f"the only node, {survey.last}, is" if number == 1 else several
        return f"{which} {_PHRASES[counted[0][0]]}"
    reasons = [f"{many} {'is' if many == 1 else 'are'} {_PHRASES[code]}" for code, many in counted]
    return f"of {format_count(number, 'node')} {', '.join(reasons)}"


def _describe_unmatched(survey: NodeSurvey, shape: AskShape) -> str:
    """Return what the node selector demands that the first nodes do not have, and what these have instead."""
    demands = () if shape.constraint is None else shape.constraint.demands
    selectors = [demand for demand in demands if isinstance(demand, Selector)]
    every = [term for selector in selectors for terms in selector.alternatives for term in terms]
    missed: dict[str, list[str]] = {}
    for node in survey.unmatched:
        for term in [one for one in every if not one.matches(node.attributes)][:1]:
            value = node.attributes.get(term.key)
            has = f"has no {term.key}" if value is None else f"has {term.key}={value}"
            missed.setdefault(term.text, []).append(f"{node.node_id} {has}")
    return "".join(f"; it needs {text}: {', '.join(nodes)}" for text, nodes in missed.items())


def _check_required_node(state: PartitionState, ask: Allocation, now: float) -> list[CheckView]:
    """Return the checks of an ask that requires a node."""
    shape, name = ask.shape, ask.shape.required_node
    node, obstacle = state.nodes.get(name), state.nodes.find_obstacle(shape, explains=True)
    if obstacle is Reason.REQUIRED_NODE_MISSING or (obstacle is Reason.REQUIRED_NODE_KEPT and not ask.reserved):
        return [view_check(WaitCause(obstacle, node=name))]
    assert node is not None, name
    predicate, reason = state.nodes.predicates.explain_refusal(shape, node)
    text = f"it requires the node {name}, which refuses it: {reason}"
    refusals = [view_check(WaitCause(Reason.REQUIRED_NODE_REFUSES, node=name), text)] if predicate else []
    if obstacle is Reason.REQUIRED_NODE_TOO_SMALL:
        return [*map(view_check, compare_with_size(node, shape.amounts)), *refusals]
    if obstacle is Reason.REQUIRED_NODE_REFUSES:  # an attempt does not look at its room then
        return [*refusals, *_check_room(state, ask, node, now)]
    leaf = state.applications[ask.application_id].queue
    if not (ask.preemption_triggered or node.has_room(shape.amounts)):
        victims = plan_required_node_victims(state.applications, leaf, node, ask)
        if victims:
            text = f"it requires the node {name}, where it may preempt {len(victims)} less important allocations"
            return [view_check(WaitCause(Reason.REQUIRED_NODE_FULL, node=name), text, passed=True)]
    return [*_check_room(state, ask, node, now), *refusals]


def _check_room(state: PartitionState, ask: Allocation, node: Node, now: float) -> Iterator[CheckView]:
    """Yield the checks whether the node that an ask requires, or that is reserved for it, has room."""
    name, reservation = node.node_id, node.reservations.get(ask.key)
    leaving = [one for one in node.allocations.values() if one.is_leaving]
    has_room = node.has_room(ask.shape.amounts)
    if reservation is not None and ask.preemption_triggered and leaving and not has_room:
        text = (
            f"the RM has not released {format_count(len(leaving), 'allocation')} on {name}, preempted for it; "
            f"in {format_seconds(end_of(state, reservation) - now)} it may preempt others"
        )
        yield view_check(WaitCause(Reason.VICTIMS_LEAVING, node=name), text)
        return
    code, has = Reason.REQUIRED_NODE_FULL, f"it requires the node {name}, which has"
    if reservation is not None and not ask.shape.required_node:
        code = Reason.RESERVED_NODE_FULL
        has = f"{name} is reserved for it, {describe_end(state, reservation, now)}, and has"
    for check in find_lacks(code, node, ask.shape):
        left = format_amount(check.resource, max(0, check.maximum - check.used))
        yield view_check(check, f"{has} {left} left: {describe_need(check)}")
    if has_room:
        yield view_check(WaitCause(code, node=name), f"{has} room", passed=True)


# Reservations: the node, the ask for which it is reserved, and when that ends at the latest --------------------------


def describe_end(state: PartitionState, reservation: Reservation, now: float) -> str:
    """Return how long a reservation lasts at most, in words."""
    return f"for another {format_seconds(max(0.0, end_of(state, reservation) - now))} at most"


def describe_ask(key: str, application_id: str) -> str:
    """Return the words for an ask that holds a node. A comma follows them wherever they are used, so that another ask,
    the application of which begins with the same characters, is not taken for it where they are replaced.
    """
    return f"ask {key} of {application_id}"


def view_reservation(state: PartitionState, reservation: Reservation, now: float) -> ReservationView:
    """Return the view of a reservation."""
    ask = reservation.ask
    return ReservationView(
        node=reservation.node.node_id,
        application=ask.application_id,
        ask=ask.key,
        until=int(end_of(state, reservation) * 1e9),
        text=f"reserved for {describe_ask(ask.key, ask.application_id)}, {describe_end(state, reservation, now)}",
    )


def describe_holder(state: PartitionState, node: Node, now: float) -> str:
    """Return for which ask a reserved node is reserved, and how long; several that require it are counted."""
    first, *others = node.reservations.values()
    text = view_reservation(state, first, now).text
    return f"{text}, and for {format_count(len(others), 'other ask')} that require it" if others else text


def view_reservations(state: PartitionState, nodes: Iterable[Node], now: float) -> list[ReservationView]:
    """Return the views of the first reservations of these nodes."""
    found = (one for node in nodes for one in node.reservations.values())
    return [view_reservation(state, one, now) for one in islice(found, RESERVATIONS_MAX)]


def view_reservations_for(
    state: PartitionState, ask: Allocation, survey: NodeSurvey, now: float
) -> list[ReservationView]:
    """Return the reservation of an ask, or those that its checks and the nearest nodes name."""
    if ask.reserved:
        return [view_reservation(state, state.applications[ask.application_id].reservations[ask.key], now)]
    nearest = [node for node, miss in survey.nearest if miss.code == Reason.NODE_RESERVED]
    return view_reservations(state, {node.node_id: node for node in (*survey.reserved, *nearest)}.values(), now)
