"""Differences that are meant: each is in docs/compatibility.md, which has the reasons.

Not here: what the generator avoids altogether, such as keys that two applications use.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tests.conformance.items import Item
from tests.conformance.play import differences
from tests.conformance.state import Json
from tests.differential.moment import Moment, moment_of
from yunishard.common.messages.event_codes import APP_COMPLETED


@dataclass(frozen=True)
class Known:
    """Differences that `explains` recognises, in traces with such a step."""

    why: str
    explains: Callable[[str], bool]
    step: Callable[[str, Item], bool]
    has_consequences: bool = False
    """Whether everything differs in the records after such a difference, and in its own."""


def _is_usage(line: str) -> bool:
    """Something that a user or group uses only in the reference, or an amount that is larger there."""
    found = re.match(rf"\[\d+\]/({_USAGE})/\S+: expected (.*), got (\d+|null)$", line)
    return found is not None and (found[3] == "null" or (found[2].isdecimal() and int(found[2]) > int(found[3])))


_USAGE: Final = r"partitions/default/(?:users|groups)|/ws/v1/partition/default/usage/\w+"


def _releases_everything(name: str, body: Item) -> bool:
    return name == "release" and any("key" not in item for item in body.get("items", []))


def _is_completed_left_out(line: str) -> bool:
    found = re.match(r"\[\d+\]/rms/rm-1/appStates/[\w-]+: expected (\[.*\]), got (\[.*\])$", line)
    if found is None:
        return False
    theirs, mine = ([one for one in json.loads(text) if one != "Completed"] for text in found.groups())
    return theirs == mine


def _is_completed_shown(line: str) -> bool:
    """In documents: as a state of the history of an application, or as a figure."""
    if re.search(r"/metrics/body/\S+state=\"completed\"\}", line):
        return True
    theirs, _, mine = line.partition(", got ")
    return "/events/batch/body/EventRecords/2 " in line and _COMPLETED in theirs and _COMPLETED not in mine


_COMPLETED: Final = f'"eventChangeDetail": {APP_COMPLETED}'


def _is_new_application(line: str) -> bool:
    """A series of new applications that is higher than the reference's by those that it rejected."""
    found = re.search(r"/metrics/body/yunikorn_queue_app\{.*state=\"new\"\}: expected (-?\d+)\S*, got (\d+|null)", line)
    return found is not None and int(found[1]) < int(found[2].replace("null", "0"))


def _is_peak(line: str) -> bool:
    return "/maxUsedResource" in line


def _resizes(name: str, body: Item) -> bool:
    """New asks are stamped (`draft.py`); these are not new."""
    return name == "asks" and any("tags" not in item for item in body["items"])


def _is_late_refusal(line: str) -> bool:
    """Asks that only this system refuses."""
    found = re.search(r"/rms/rm-1/rejectedAsks: expected (\[.*\]), got (\[.*\])$", line)
    return found is not None and set(json.loads(found[1])) < set(json.loads(found[2]))


def _is_health_despite_errors(line: str) -> bool:
    """The check of scheduling errors, with as many errors in both systems, and what follows from it."""
    _, found, what = line.partition("/ws/v1/scheduler/healthcheck/body/")
    failing = "expected false, got true"
    return bool(found) and (
        what in (f"Healthy: {failing}", f"HealthChecks[0]/Succeeded: {failing}")
        or re.fullmatch(rf'HealthChecks\[0\]/DiagnosisMessage: expected "({_ERRORS})", got "\1, by .*"', what)
        is not None
    )


_ERRORS: Final = r"There were \d+ scheduling errors logged in the metrics"


def _is_utilization_told(line: str) -> bool:
    return re.match(r"\[\d+\]//ws/v1/scheduler/node-utilizations: expected null, got {", line) is not None


def _submits_hard_gang(name: str, body: Item) -> bool:
    return name == "apps" and any(app.get("gangStyle") == "Hard" for app in body.get("add", []))


def _removes_application(name: str, body: Item) -> bool:
    return name == "apps" and bool(body.get("remove"))


KNOWN: Final = (
    Known("the most that an application used does not count what grows in place", _is_peak, _resizes),
    Known(
        "releasing everything of an application while asks wait leaves its use with its user for ever",
        _is_usage,
        _releases_everything,
    ),
    Known(
        "rejected applications are subtracted from the new ones of their queue",
        _is_new_application,
        lambda name, body: name == "apps",
    ),
    Known(
        "a hard gang that timed out, and waits for the RM to confirm releases, takes new asks",
        _is_late_refusal,
        _submits_hard_gang,
        has_consequences=True,
    ),
    Known(
        "errors of resource managers fail the health check until a restart",
        _is_health_despite_errors,
        lambda name, body: name == "asks",
    ),
    Known(
        "the utilization of nodes fails if a node has more allocated than its capacity",
        _is_utilization_told,
        lambda name, body: name == "nodes",
    ),
    Known(
        "an application that is removed while it only asks is told to have Completed as well",
        lambda line: _is_completed_left_out(line) or _is_completed_shown(line),
        _removes_application,
    ),
)


# Decisions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownDecision:
    """Decisions that `explains` recognises in the first record that differs. All that follows differs, too."""

    why: str
    explains: Callable[[Moment], bool]


def _takes_reserved_node(moment: Moment) -> bool:
    """An ask runs in free room of a node that is reserved for one of lower priority."""
    return any(
        moment.mine.running.get(key) == node
        and moment.required_node(key) is None
        and moment.outranks(key, other)
        and not _victims_of(moment, key, node)
        for key, node in moment.gained().items()
        for other in moment.reserved_for(node) - {key}
    )


def _reclaims_reserved_node(moment: Moment) -> bool:
    """An ask within its guarantee got a node that is reserved for one beyond its guarantee or of lower priority, with
    victims or without.
    """
    return any(
        _reclaims(moment, key) and (not _is_covered(moment, other) or moment.outranks(key, other))
        for key, node in moment.gained().items()
        for other in moment.reserved_for(node) - {key}
    )


def _is_covered(moment: Moment, key: str) -> bool:
    """Whether what remains of the guarantee of its queue covers an ask."""
    remaining = moment.remaining_for(key)
    return remaining is not None and all(remaining.get(kind, n) >= n for kind, n in moment.amounts(key).items())


def _reclaims(moment: Moment, key: str) -> bool:
    """Whether an ask may preempt others, and is within its guarantee."""
    may_preempt: bool = moment.asks[key].get("preemptOther", False)
    return may_preempt and _is_covered(moment, key)


def _victims_of(moment: Moment, key: str, node: str) -> list[str]:
    """The allocations that only this system preempted, and that ran on the node that an ask got."""
    more = moment.mine.preempted - moment.theirs.preempted
    return [victim for victim in more if victim in moment.asks and victim != key and moment.ran_on(victim, node)]


def _frees_required_node(moment: Moment) -> bool:
    """For an ask that the rest of the partition has no room for, or had none at the record before: the reference does
    not even reserve its node.
    """
    return any(
        moment.required_node(key) == node
        and any(key not in side.reserved | side.running and moment.lacks_room(key, side) for side in moment.sides)
        and bool(victims := _victims_of(moment, key, node))
        and all(moment.priority(victim) <= moment.priority(key) for victim in victims)
        for key, node in moment.gained_or_lost().items()
    )


def _reclaims_from_larger(moment: Moment) -> bool:
    """The search of the reference ended before there were enough victims on the node."""
    return any(
        _reclaims_by_victims(moment, key, node) and _ends_search(moment, key, node)
        for key, node in moment.gained().items()
    )


def _ends_search(moment: Moment, key: str, node: str) -> bool:
    """Whether some candidate on the node is larger than what remains of the guarantee of an ask after the candidates
    before it, which do not make enough room. The newest are first, after class.
    """
    left = Counter(moment.remaining_for(key) or {})
    free = Counter(moment.theirs.free[node])
    for candidate in moment.candidates(key, node):
        amounts = moment.amounts(candidate)
        if any(free[kind] < n for kind, n in moment.amounts(key).items()):
            if any(n > left[kind] for kind, n in amounts.items()):
                return True
            left.subtract(amounts)
            free.update(amounts)
    return False


def _reclaims_from_smaller(moment: Moment) -> bool:
    """The victims are smaller than the ask, because its node has free room."""
    return any(
        moment.total(_victims_of(moment, key, node)) < moment.total([key])
        for key, node in moment.gained().items()
        if _reclaims_by_victims(moment, key, node)
    )


def _reclaims_by_victims(moment: Moment, key: str, node: str) -> bool:
    """Whether an ask reclaims a guarantee on a node, from queues that have more than theirs."""
    victims = _victims_of(moment, key, node)
    return bool(victims) and _reclaims(moment, key) and all(map(moment.may_lose, victims))


def _reserves_in_full_queue(moment: Moment) -> bool:
    """An ask without room in the cluster or its queues reserved a node, and another waits that the reference placed.
    All asks of generated traces are old enough for that.
    """
    passing = moment.theirs.running.keys() - moment.mine.running.keys()
    return bool(passing) and any(
        moment.mine.reserved.get(key) == node
        and moment.required_node(key) is None
        and key not in moment.theirs.reserved | moment.theirs.running
        and moment.lacks_queue_room(key)
        and not _victims_of(moment, key, node)
        for key, node in moment.gained().items()
    )


def _leaves_small_node(moment: Moment) -> bool:
    """An ask has no longer the reservation of a node that is smaller than it."""
    return any(
        moment.mine.reserved.get(key) != node and key in moment.asks and not moment.is_large_enough(node, key)
        for key, node in moment.theirs.reserved.items()
    )


DECISIONS: Final = (
    KnownDecision("a reservation stays when its node becomes too small", _leaves_small_node),
    KnownDecision("a reserved node takes no ask of higher priority", _takes_reserved_node),
    KnownDecision("a guarantee is not reclaimed on nodes that are reserved", _reclaims_reserved_node),
    KnownDecision("an ask preempts on its node only if the rest of the partition has room", _frees_required_node),
    KnownDecision("a candidate that is larger than the rest of the guarantee ends the search", _reclaims_from_larger),
    KnownDecision("an ask for which the cluster or a queue has no room reserves no node", _reserves_in_full_queue),
    KnownDecision("victims that are smaller than the ask are not preempted", _reclaims_from_smaller),
)


# The differences of a trace -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sorted:
    """The differences of a trace: the reasons of those that are meant, and the others."""

    reasons: list[str]
    unexplained: list[str]


def sort_differences(steps: list[Item], theirs: Json, mine: Json) -> Sorted:
    """Tell the differences between two recordings that are meant from those that nothing here explains."""
    lines = list(differences(theirs, mine))
    reasons = [known.why for known in _applying(steps) if any(map(known.explains, lines))]
    left = unexplained(steps, lines)
    first = min(map(_record_of, left), default=-1)
    if first >= 0 and (moment := moment_of(steps, first, theirs, mine)) is not None:
        decision = next((known.why for known in DECISIONS if known.explains(moment)), None)
        if decision is not None:
            return Sorted([*reasons, decision], [])
    return Sorted(reasons, left)


def unexplained(steps: list[Item], found: Iterable[str]) -> list[str]:
    """The differences that nothing explains but decisions."""
    apply = _applying(steps)
    lines = list(found)
    causes = [line for line in lines if any(known.has_consequences and known.explains(line) for known in apply)]
    end = min((_record_of(line) for line in causes), default=math.inf)
    return [line for line in lines if _record_of(line) < end and not any(known.explains(line) for known in apply)]


def _applying(steps: list[Item]) -> list[Known]:
    """Those that the trace has a step for."""
    return [
        known for known in KNOWN if any(known.step(name, body) for step in steps for name, body in step.items() if body)
    ]


def _record_of(line: str) -> int:
    """The number of the record that a line is about; -1 for none."""
    found = re.match(r"\[(\d+)\]", line)
    return -1 if found is None else int(found[1])
