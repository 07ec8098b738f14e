"""On which node it costs least if so many go that the ask has room there.

Each node is looked at by itself. Of its candidates those go, in their order, who gain something that is missing there,
as long as their queues have too much and that of the ask stays within what is guaranteed to it. (That the last one may
leave its queue with less than what is guaranteed, because it is looked at before it goes, is so in YuniKorn, too.)

YuniKorn goes through them a second time without charging the queue of the ask, those who gain something first, until
there is enough. It ends with the same ones. They may go then as well: guarantees that bind only their own queue are
charged as before, and one that binds both is not exceeded, or nobody could have entered. And the others gain nothing.

Not here: who the candidates are (`candidates.py`), and who else goes in the end (`guaranteed.py`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from common.messages import Resources
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.reservation import Reservation
from partition_worker.engine.needs import shape_of
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.preemption.candidates import Candidate

STALE_AFTER_S: Final = 2 * 3600.0 + 2.0
"""Once an ask is this old, a more important one may take the node away that is kept for it."""

RELUCTANT: Final = 2**34
ORIGINATOR: Final = 2**33
NOTHING_TO_GAIN: Final = 2**35
BEYOND_ALL: Final = 2**36
"""What no node costs."""

Admits = Callable[[Allocation, Node], bool]
"""Whether a node would take an ask, as far as somebody else has a say in it."""


class Choice(NamedTuple):
    """A node, and who has to go there; nobody if the ask has room there already."""

    node: Node
    victims: list[Candidate]


_Prospect = tuple[int, str, Resources]
"""A node that is worth a look, best first: what it costs at least, its id, and what is missing there; nothing if it has
room.
"""


def usable(
    nodes: Iterable[Node], ask: Allocation, wanted: Resources, now: float
) -> tuple[dict[str, Node], list[Reservation]]:
    """The nodes that could take the ask if enough went, by id, and the reservations of others that would have to end
    for that: of normal asks that are less important, too old, and have not made anybody go themselves.
    """
    found: dict[str, Node] = {}
    cancels: list[Reservation] = []
    shape = shape_of(wanted)
    for node in nodes:
        if node.reservations and ask.key not in node.reservations:
            stale = [one for one in node.reservations.values() if _may_end(one, ask, now)]
            if not stale:
                continue
            cancels += stale
        if node.schedulable and node.is_large_enough(shape):
            found[node.node_id] = node
    return found, cancels


def best(
    nodes: dict[str, Node],
    ask: Allocation,
    wanted: Resources,
    candidates: Sequence[Candidate],
    *,
    nodes_tried: bool,
    admits: Admits,
) -> Choice | None:
    """The node where the fewest have to go, and if it can be helped no originators and nobody who did not agree to it;
    of equals the first by id. None if no node can be freed.

    With `nodes_tried` a node on which the ask has room is out of the question: it did not take the ask.
    """
    on_node: defaultdict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        on_node[candidate[0].node_id].append(candidate)
    prospects = _prospects(nodes, wanted, on_node, _largest(wanted, candidates), nodes_tried=nodes_tried)
    found: Choice | None = None
    cheapest = (BEYOND_ALL, "")
    for cost_at_least, node_id, missing in sorted(prospects):
        if (cost_at_least, node_id) > cheapest:
            break
        there = on_node.get(node_id, [])
        if missing:
            at_most = len(there)
            if cost_at_least // ORIGINATOR == cheapest[0] // ORIGINATOR:  # then only the number can make it cheaper
                at_most = cheapest[0] % ORIGINATOR - (node_id > cheapest[1])
            if not _may_be_enough(missing, there, at_most):
                continue
        elif not admits(ask, nodes[node_id]):
            continue
        victims = _victims(missing, there) if missing else []
        cost = _cost(there, len(victims)), node_id
        if (victims or not missing) and cost < cheapest:
            found, cheapest = Choice(nodes[node_id], victims), cost
    return found


def _largest(wanted: Resources, candidates: Iterable[Candidate]) -> Resources:
    """Of each type that is wanted, the most that any of them would free; nothing if none may go. What may not go while
    all are there may not do so later, on any node.
    """
    leaving = [candidate for candidate in candidates if candidate[1].has_surplus]
    if not any(giver.may_enter(one.need.shape) for one, giver in leaving):
        return dict.fromkeys(wanted, 0)
    return {kind: max([one.resources.get(kind, 0) for one, _ in leaving]) for kind in wanted}


def _prospects(
    nodes: dict[str, Node],
    wanted: Resources,
    on_node: Mapping[str, list[Candidate]],
    largest: Resources,
    *,
    nodes_tried: bool,
) -> Iterator[_Prospect]:
    """The nodes with room, unless they have been tried, and those on which the candidates could be enough.

    The look at a node is what costs, so a bound decides which are worth one: as if all were as large as the largest.
    """
    for node_id, node in nodes.items():
        there = on_node.get(node_id)
        if there is None and nodes_tried:
            continue
        available = node.available
        missing = {kind: lack for kind, amount in wanted.items() if (lack := amount - available.get(kind, 0)) > 0}
        if not missing:
            if not nodes_tried:
                yield _cost(there or [], 0), node_id, missing
        elif there is not None:
            at_least = 0
            for kind, lack in missing.items():
                most = largest[kind]
                if not most:
                    break
                at_least = max(at_least, -(-lack // most))
            else:
                yield _cost(there, at_least), node_id, missing


def _may_be_enough(missing: Resources, candidates: list[Candidate], count: int) -> bool:
    """Whether so many of them could gain what is missing: whether the largest do, type by type."""
    for kind, lack in missing.items():
        gains = [one.resources.get(kind, 0) for one, _ in candidates]
        if count < len(gains):
            gains = sorted(gains, reverse=True)[:count]
        if sum(gains) < lack:
            return False
    return True


def _victims(missing: Resources, candidates: list[Candidate]) -> list[Candidate]:
    """Who has to go to gain what is missing; nobody if all are not enough."""
    missing = dict(missing)
    victims: list[Candidate] = []
    for candidate in candidates:
        one, giver = candidate
        if not giver.may_leave():
            continue
        if not giver.may_enter(one.need.shape):
            break
        gained = [kind for kind in missing if one.resources.get(kind)]
        if not gained:
            continue
        victims.append(candidate)
        for kind in gained:
            missing[kind] -= one.resources[kind]
            if missing[kind] <= 0:
                del missing[kind]
        if not missing:
            break
        giver.move(one.need.shape)
    for one, giver in victims if missing else victims[:-1]:
        giver.move(one.need.shape, -1)
    return [] if missing else victims


def _cost(candidates: list[Candidate], count: int) -> int:
    """What it costs if so many go from a node: as many as they are, and far more if there are originators or unwilling
    ones among them.

    These are looked for among its first candidates, as many as go, although others may go instead; and a node without
    any candidate counts as the worst. Both is so in YuniKorn, too.
    """
    if not candidates:
        return NOTHING_TO_GAIN
    last, _ = candidates[min(count, len(candidates)) - 1]
    if not count or (last.may_be_victim and not last.originator):  # then so are those in front of it
        return count
    first = [allocation for allocation, _ in candidates[:count]]
    cost = count
    if any(one.originator for one in first):
        cost |= ORIGINATOR
    if not all(one.may_be_victim for one in first):
        cost |= RELUCTANT
    return cost


def _may_end(reservation: Reservation, ask: Allocation, now: float) -> bool:
    other = reservation.ask
    return (
        not reservation.for_required_node
        and not other.preemption_triggered
        and other.priority < ask.priority
        and other.created_ns / 1e9 + STALE_AFTER_S < now
    )
