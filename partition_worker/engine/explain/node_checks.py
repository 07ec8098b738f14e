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
from typing import Final, NamedTuple

from msgspec.structs import replace

from yunishard.common.messages.reasons import Reason
from yunishard.common.rest.explain import CheckView, NearMissView, ReservationView
from yunishard.common.text_formats import format_count
from yunishard.common.units import format_amount, format_seconds
from yunishard.partition_worker.engine.allocation import Allocation, AskShape
from yunishard.partition_worker.engine.attempt_log import WAITING, WaitCause
from yunishard.partition_worker.engine.explain.causes import count_amount, view_check
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.predicates.evaluation import RM_PREDICATES
from yunishard.partition_worker.engine.predicates.predicate import (
    ForbiddenNodes,
    NodeSelector,
    Selector,
    Terms,
    Tolerations,
)
from yunishard.partition_worker.engine.preemption.victim_choice import plan_required_node_victims
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.reservations import end_of
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

Lacks = tuple[tuple[str, int, int], ...]
"""The amounts that a node lacks for an ask: type, missing amount, asked amount."""


class Verdict(NamedTuple):
    """Whether a node takes an ask, and if not why."""

    code: Reason
    text: str = ""
    lacks: Lacks = ()


@dataclass(slots=True)
class NodeSurvey:
    """All nodes, as they are to one ask shape."""

    counts: Counter[Reason] = field(default_factory=Counter)
    """Nodes by code; `node-fits` for those that would take the ask."""
    nearest: list[tuple[Node, Verdict]] = field(default_factory=list)
    """The nodes that would take the ask if they had a little more room, or if they were open; the nearest first."""
    first: Node | None = None
    """The first node, in order of arrival, that takes the ask."""
    reserved: list[Node] = field(default_factory=list)
    """The first nodes that would take the ask if they were not reserved for others."""
    unmatched: list[Node] = field(default_factory=list)
    """The first nodes with room that do not match the node selector."""
    examined: int = 0
    total: int = 0
    last: str = ""
    """The last node that was examined, which is the only one if there is one."""

    @property
    def fits(self) -> int:
        """The number of nodes that take the ask."""
        return self.counts[Reason.NODE_FITS]

    @property
    def best(self) -> Reason | None:
        """The code of most nodes; None without nodes."""
        return max(self.counts, key=lambda code: self.counts[code], default=None)


def judge_node(state: PartitionState, ask: Allocation, node: Node) -> Verdict:
    """Return whether a node takes an ask, which may require it."""
    code, shape = _find_obstacle(state.applications[ask.application_id].queue, ask, node), ask.shape
    if code is not None:
        return Verdict(code, _CLOSED.get(code, ""), () if code in _CLOSED else find_lacks(shape, node))
    return judge_predicates(state, shape, node)


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


_CLOSED: Final = {
    Reason.NODE_UNSCHEDULABLE: "it is drained by the RM",
    Reason.NODE_CORDONED: "an operator cordoned it",
    Reason.NODE_RESERVED: "it is reserved for another ask",
}
"""Reasons that do not depend on the room of a node, as texts."""


def judge_predicates(state: PartitionState, shape: AskShape, node: Node, *, allocate: bool = True) -> Verdict:
    """Return whether the predicates accept such an ask on a node, whatever room it has."""
    name, reason = state.nodes.predicates.explain_refusal(shape, node, allocate=allocate)
    if not name:
        return Verdict(Reason.NODE_FITS)
    if reason is WAITING:
        return Verdict(Reason.VERDICT_PENDING, reason)
    return Verdict(_CODES.get(name, Reason.NODE_PREDICATE), reason)


def find_lacks(shape: AskShape, node: Node) -> Lacks:
    """Return what a node lacks for such an ask."""
    available = node.available
    return tuple(
        (kind, value - available.get(kind, 0), value)
        for kind, value in shape.amounts
        if value > 0 and available.get(kind, 0) < value
    )


def survey_nodes(state: PartitionState, ask: Allocation, now: float) -> NodeSurvey:
    """Judge the nodes for an ask that may run on any."""
    shape, found = ask.shape, NodeSurvey(total=len(state.nodes))
    leaf = state.applications[ask.application_id].queue
    wanted = [(kind, value) for kind, value in shape.amounts if value > 0]
    misses: list[tuple[float, int, Node, Reason]] = []
    counts: dict[Reason, int] = {}
    for node in islice(state.nodes, NODES_MAX):
        code = _find_obstacle(leaf, ask, node)
        if code is None:
            code = judge_predicates(state, shape, node).code
            if found.first is None and code is Reason.NODE_FITS:
                found.first = node
            elif code is Reason.NODE_SELECTOR and len(found.unmatched) < _UNMATCHED_MAX:
                found.unmatched.append(node)
        elif found.first is None:
            closed = 0.0 if code in (Reason.NODE_FULL, Reason.NODE_TOO_SMALL) else 1.0
            misses.append((_measure_distance(wanted, node) + closed, node.rank, node, code))
        is_closed = code is not Reason.NODE_RESERVED or not node.has_room(shape.amounts)
        if not is_closed and len(found.reserved) < RESERVATIONS_MAX:
            found.reserved += [node] if judge_predicates(state, shape, node).code is Reason.NODE_FITS else []
        counts[code] = counts.get(code, 0) + 1
        found.last = node.node_id
    found.counts.update(counts)
    found.examined = min(found.total, NODES_MAX)
    if found.fits:
        return found
    for _, _, node, code in nsmallest(_CANDIDATES_MAX, misses):
        if len(found.nearest) == NEAREST_MAX:
            break
        if judge_predicates(state, shape, node).code is Reason.NODE_FITS:
            text = _CLOSED.get(code, "")
            if code is Reason.NODE_RESERVED:
                text = f"it is {describe_holder(state, node, now)}"
            found.nearest.append((node, Verdict(code, text, find_lacks(shape, node))))
    return found


def _measure_distance(wanted: list[tuple[str, int]], node: Node) -> float:
    """How far a node is from taking an ask: the missing part of the type that is shortest, and a little for others."""
    available, worst, total = node.available, 0.0, 0.0
    for kind, value in wanted:
        left = available.get(kind, 0)
        if left < value:
            part = (value - left) / value
            total += part
            worst = max(worst, part)
    return worst + 0.01 * total


def describe_miss(node: Node, verdict: Verdict) -> NearMissView:
    """Return the view of a near miss."""
    parts = [_describe_lack(node, *lack) for lack in verdict.lacks]
    text = ", ".join([verdict.text, *parts] if verdict.text else parts)
    kind, missing, _ = max(verdict.lacks, key=lambda one: one[1] / one[2], default=("", 0, 1))
    return NearMissView(node=node.node_id, code=verdict.code, text=text, resource=kind, shortfall=missing)


def _describe_lack(node: Node, kind: str, missing: int, asked: int) -> str:
    """Say what a node is short by: by its size, if even the empty node is too small, and by the room it has now."""
    text = f"short by {format_amount(kind, missing)}"
    beyond = asked - node.capacity.get(kind, 0)
    if beyond <= 0:
        return text
    always = f"short by {format_amount(kind, beyond)} even when it is empty"
    return always if beyond >= missing else f"{always}, by {format_amount(kind, missing)} now"


# Checks ---------------------------------------------------------------------------------------------------------------


def check_nodes(survey: NodeSurvey, shape: AskShape, reserved: str = "") -> CheckView:
    """The check whether any node takes an ask; `reserved` is what reservations have to do with it."""
    beyond = f" of the first {survey.examined}" if survey.examined < survey.total else ""
    if survey.fits:
        text = f"{survey.fits}{beyond} of {survey.total} nodes have room and take it"
        return CheckView(code=Reason.NO_NODE_FITS, passed=True, text=text)
    if survey.counts[Reason.VERDICT_PENDING]:
        waiting = survey.counts[Reason.VERDICT_PENDING]
        text = f"the RM has not answered yet whether it may run on {waiting} nodes with room"
        return CheckView(code=Reason.VERDICT_PENDING, passed=False, text=text)
    text = f"no node{beyond} takes it: {_describe_counts(survey)}{_describe_unmatched(survey, shape)}{reserved}"
    nearest = next(((node, verdict) for node, verdict in survey.nearest if verdict.lacks), None)
    if nearest is None:
        return CheckView(code=Reason.NO_NODE_FITS, passed=False, text=text)
    node, verdict = nearest
    if verdict.code is Reason.NODE_TOO_SMALL:
        return _check_size(node, verdict, text)
    miss = describe_miss(node, verdict)
    asked = next(asked for kind, _, asked in verdict.lacks if kind == miss.resource)
    check = _compare_with_node(Reason.NO_NODE_FITS, node, miss.resource, asked)
    return view_check(check._replace(node=""), f"{text}; {node.node_id} is nearest, {miss.text}")


def _compare_with_node(code: Reason, node: Node, kind: str, asked: int) -> WaitCause:
    total = node.capacity.get(kind, 0)
    used = total - node.available.get(kind, 0)
    return WaitCause(code, node=node.node_id, resource=kind, used=used, maximum=total, asked=asked)


def _check_size(node: Node, verdict: Verdict, text: str) -> CheckView:
    """The check that fails because even the nearest node is too small: it compares the size of the node."""
    beyond = [(kind, asked - node.capacity.get(kind, 0), asked) for kind, _, asked in verdict.lacks]
    kind, short, asked = max(beyond, key=lambda one: one[1] / one[2])
    size, left = node.capacity.get(kind, 0), max(0, node.available.get(kind, 0))
    free = f", of which {count_amount(kind, left)} free" if left < size else ""
    compared = (
        f"this ask needs {format_amount(kind, asked)}, the nearest, {node.node_id}, has {format_amount(kind, size)}"
    )
    check = _compare_with_node(Reason.NO_NODE_FITS, node, kind, asked)
    return replace(view_check(check._replace(node=""), f"{text}; {compared}{free}"), shortfall=short)


_PHRASES: Final = {
    Reason.NODE_FITS: "take it",
    Reason.NODE_FULL: "are full",
    Reason.NODE_TOO_SMALL: "are too small even when empty",
    Reason.NODE_UNSCHEDULABLE: "are drained",
    Reason.NODE_CORDONED: "are cordoned",
    Reason.NODE_RESERVED: "are reserved for others",
    Reason.NODE_SELECTOR: "do not match its node selector",
    Reason.NODE_FORBIDDEN: "are forbidden by it",
    Reason.NODE_TAINT: "have a taint that it does not tolerate",
    Reason.NODE_PREDICATE: "are refused by a predicate",
    Reason.NODE_REFUSED_BY_RM: "are refused by the RM",
    Reason.VERDICT_PENDING: "wait for a verdict of the RM",
}
"""The words after the number of nodes, by code."""


def _describe_counts(survey: NodeSurvey) -> str:
    """Return how many nodes do not take the ask, by reason."""
    phrases = [(number, _PHRASES[code]) for code, number in survey.counts.most_common()]
    number = survey.examined
    if len(phrases) != 1 or number < survey.total:
        counted = ", ".join(_count_phrase(many, phrase) for many, phrase in phrases)
        return f"of {format_count(number, 'node')} {counted}"
    phrase = phrases[0][1]
    if number == 1:
        named = f"the only node, {survey.last}," if survey.last else "the only node"
        return f"{named} {_count_phrase(1, phrase).removeprefix('1 ')}"
    if phrase.startswith("do not match "):
        none = "neither" if number == 2 else "none"
        return f"{none} of the {number} nodes matches {phrase.removeprefix('do not match ')}"
    return f"both nodes {phrase}" if number == 2 else f"all {number} nodes {phrase}"


def _describe_unmatched(survey: NodeSurvey, shape: AskShape) -> str:
    """Return what the node selector demands that the first nodes do not have, and what these have instead."""
    missed: dict[str, list[str]] = {}
    for node in survey.unmatched:
        terms = (one for terms in _list_alternatives(shape) for one in terms)
        term = next((one for one in terms if not one.matches(node.attributes)), None)
        if term is not None:
            value = node.attributes.get(term.key)
            has = f"has no {term.key}" if value is None else f"has {term.key}={value}"
            missed.setdefault(term.text, []).append(f"{node.node_id} {has}")
    return "".join(f"; it needs {text}: {', '.join(nodes)}" for text, nodes in missed.items())


def _list_alternatives(shape: AskShape) -> Iterator[Terms]:
    """Yield the alternatives of the node selector of an ask; none if it has no selector."""
    for demand in () if shape.constraint is None else shape.constraint.demands:
        yield from demand.alternatives if isinstance(demand, Selector) else ()


def _count_phrase(number: int, phrase: str) -> str:
    """Return a number of nodes with what they are or do, of which the phrase has the plural."""
    verb, _, rest = phrase.partition(" ")
    singular = {"are": "is", "have": "has", "do": "does"}.get(verb, f"{verb}s")
    return f"1 {singular} {rest}" if number == 1 else f"{number} {phrase}"


def check_required_node(state: PartitionState, ask: Allocation, now: float) -> Iterator[CheckView]:
    """Yield the checks of an ask that requires a node."""
    shape, name = ask.shape, ask.shape.required_node
    node, obstacle = state.nodes.get(name), state.nodes.find_obstacle(shape, explains=True)
    if node is None:
        yield view_check(WaitCause(Reason.REQUIRED_NODE_MISSING, node=name))
        return
    if obstacle is Reason.REQUIRED_NODE_TOO_SMALL:
        for one in compare_with_size(node, shape.amounts):
            yield replace(view_check(one), used=one.maximum - node.available.get(one.resource, 0))
        return
    if obstacle is Reason.REQUIRED_NODE_KEPT and not ask.reserved:
        yield view_check(WaitCause(obstacle, node=name))
        return
    is_refused = obstacle is Reason.REQUIRED_NODE_REFUSES
    lacks, verdict = find_lacks(shape, node), judge_predicates(state, shape, node)
    refusals: list[CheckView] = []
    if verdict.code is not Reason.NODE_FITS:
        text = f"it requires the node {name}, which refuses it: {verdict.text}"
        refusals = [view_check(WaitCause(Reason.REQUIRED_NODE_REFUSES, node=name), text)]
    if is_refused:  # an attempt does not look at its room then
        yield from refusals
        refusals = []
    if lacks and not ask.preemption_triggered and not is_refused:
        leaf = state.applications[ask.application_id].queue
        victims = plan_required_node_victims(state.applications, leaf, node, ask)
        if victims:
            text = f"it requires the node {name}, where it may preempt {len(victims)} less important allocations"
            yield CheckView(code=Reason.REQUIRED_NODE_FULL, passed=True, text=text, node=name)
            return
    leaving = [one for one in node.allocations.values() if one.is_leaving]
    if lacks and leaving and ask.preemption_triggered:
        yield _check_leaving(state, node.reservations[ask.key], len(leaving), now)
        return
    for kind, missing, asked in lacks:
        left = max(0, node.available.get(kind, 0))
        text = (
            f"it requires the node {name}, which has {format_amount(kind, left)} left: this ask needs "
            f"{format_amount(kind, asked)}, so it is short by {format_amount(kind, missing)}"
        )
        yield view_check(_compare_with_node(Reason.REQUIRED_NODE_FULL, node, kind, asked), text)
    yield from refusals
    if not lacks and verdict.code is Reason.NODE_FITS:
        text = f"it requires the node {name}, which has room"
        yield CheckView(code=Reason.REQUIRED_NODE_FULL, passed=True, text=text, node=name)


def check_reserved_node(state: PartitionState, reservation: Reservation, now: float) -> CheckView:
    """The check whether the node that is reserved for an ask has room."""
    node, ask = reservation.node, reservation.ask
    lacks = find_lacks(ask.shape, node)
    leaving = [one for one in node.allocations.values() if one.is_leaving]
    if ask.preemption_triggered and leaving:
        return _check_leaving(state, reservation, len(leaving), now)
    ends = describe_end(state, reservation, now)
    if not lacks:
        text = f"{node.node_id} is reserved for it, {ends}, and has room"
        return CheckView(code=Reason.RESERVED_NODE_FULL, passed=True, text=text, node=node.node_id)
    kind, missing, asked = max(lacks, key=lambda one: one[1] / one[2])
    text = f"{node.node_id} is reserved for it, {ends}, and still short by {format_amount(kind, missing)}"
    return view_check(_compare_with_node(Reason.RESERVED_NODE_FULL, node, kind, asked), text)


def _check_leaving(state: PartitionState, reservation: Reservation, number: int, now: float) -> CheckView:
    name, left = reservation.node.node_id, end_of(state, reservation) - now
    text = (
        f"the RM has not released {format_count(number, 'allocation')} on {name}, preempted for it; "
        f"in {format_seconds(left)} it may preempt others"
    )
    return view_check(WaitCause(Reason.VICTIMS_LEAVING, node=name), text)


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
