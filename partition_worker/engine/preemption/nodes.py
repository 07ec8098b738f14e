"""On which node it costs least if so many go that the ask has room there.

Each node is looked at by itself. Of its candidates those go, in their order, who gain something that is missing there,
as long as their queues have too much and that of the ask stays within what is guaranteed to it. (That the last one may
leave its queue with less than what is guaranteed, because it is looked at before it goes, is so in YuniKorn, too.)

YuniKorn goes through them a second time without charging the queue of the ask, those who gain something first, until
there is enough. It ends with the same ones. They may go then as well: guarantees that bind only their own queue are
charged as before, and one that binds both is not exceeded, or nobody could have entered. And the others gain nothing.

Not here: who the candidates are (`candidates.py`), and who else goes in the end (`guaranteed.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

from common.messages import Resources
from common.resources import fits
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.reservation import Reservation
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.preemption.candidates import Candidate

STALE_AFTER_S: Final = 2 * 3600.0 + 2.0
"""Once an ask is this old, a more important one may take the node away that is kept for it."""

RELUCTANT: Final = 2**34
ORIGINATOR: Final = 2**33
NOTHING_TO_GAIN: Final = 2**35

Admits = Callable[[Allocation, Node], bool]
"""Whether a node would take an ask, as far as somebody else has a say in it."""


class Choice(NamedTuple):
    """A node, and who has to go there; nobody if the ask has room there already."""

    node: Node
    victims: list[Candidate]


def usable(
    nodes: Iterable[Node], ask: Allocation, wanted: Resources, now: float
) -> tuple[dict[str, Node], list[Reservation]]:
    """The nodes that could take the ask if enough went, by id, and the reservations of others that would have to end
    for that: of normal asks that are less important, too old, and have not made anybody go themselves.
    """
    found: dict[str, Node] = {}
    cancels: list[Reservation] = []
    for node in nodes:
        if node.reservations and ask.key not in node.reservations:
            stale = [one for one in node.reservations.values() if _may_end(one, ask, now)]
            if not stale:
                continue
            cancels += stale
        if node.schedulable and fits(node.capacity, wanted):
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
    on_node: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        node_id = candidate.allocation.node_id
        if node_id in nodes:
            on_node.setdefault(node_id, []).append(candidate)
    found: Choice | None = None
    cheapest: tuple[float, str] = (inf, "")
    for cost_at_least, node_id, missing in sorted(_prospects(nodes, wanted, on_node, nodes_tried=nodes_tried)):
        if (cost_at_least, node_id) > cheapest:
            break
        has_room = max(missing) <= 0
        if has_room and not admits(ask, nodes[node_id]):
            continue
        there = on_node.get(node_id, [])
        victims = [] if has_room else _victims(missing, there)
        cost = _cost(there, len(victims)), node_id
        if (victims or has_room) and cost < cheapest:
            found, cheapest = Choice(nodes[node_id], victims), cost
    return found


class _Prospect(NamedTuple):
    """A node that is worth a look, best first."""

    cost_at_least: int
    """Its cost if all who go there are as large as the largest candidate."""
    node_id: str
    missing: list[int]
    """Per wanted type; not positive where nothing is."""


def _prospects(
    nodes: dict[str, Node], wanted: Resources, on_node: dict[str, list[Candidate]], *, nodes_tried: bool
) -> Iterator[_Prospect]:
    """The nodes with room, unless they have been tried, and those on which the candidates could be enough.

    The look at a node is what costs, so a bound decides whether it is worth one: the amounts of the largest candidates.
    """
    gains = dict.fromkeys(candidate.transfer.gains for some in on_node.values() for candidate in some)
    largest = [max(amounts) for amounts in zip(*gains, strict=True)]
    for node_id in on_node if nodes_tried else nodes:
        available = nodes[node_id].available
        missing = [amount - available.get(kind, 0) for kind, amount in wanted.items()]
        if max(missing) <= 0:
            if not nodes_tried:
                yield _Prospect(_cost(on_node.get(node_id, []), 0), node_id, missing)
        elif node_id in on_node and all(most or lack <= 0 for most, lack in zip(largest, missing, strict=True)):
            at_least = max(-(-lack // most) for most, lack in zip(largest, missing, strict=True) if lack > 0)
            yield _Prospect(_cost(on_node[node_id], at_least), node_id, missing)


def _victims(missing: list[int], candidates: list[Candidate]) -> list[Candidate]:
    """Who has to go to gain what is missing; nobody if all are not enough."""
    victims: list[Candidate] = []
    for candidate in candidates:
        transfer = candidate.transfer
        if not transfer.may_leave():
            continue
        transfer.leave()
        if not transfer.may_enter():
            transfer.stay()
            break
        if not any(gain and lack > 0 for gain, lack in zip(transfer.gains, missing, strict=True)):
            transfer.stay()
            continue
        transfer.enter()
        victims.append(candidate)
        missing = [lack - gain for gain, lack in zip(transfer.gains, missing, strict=True)]
        if max(missing) <= 0:
            break
    for candidate in victims:
        candidate.transfer.withdraw()
        candidate.transfer.stay()
    return victims if max(missing) <= 0 else []


def _cost(candidates: list[Candidate], count: int) -> int:
    """What it costs if so many go from a node: as many as they are, and far more if there are originators or unwilling
    ones among them.

    These are looked for among its first candidates, as many as go, although others may go instead; and a node without
    any candidate counts as the worst. Both is so in YuniKorn, too.
    """
    if not candidates:
        return NOTHING_TO_GAIN
    first = [candidate.allocation for candidate in candidates[:count]]
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
