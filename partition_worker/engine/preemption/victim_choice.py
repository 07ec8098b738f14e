"""Preemption victim choice: the node to free, and the victims, for an ask whose queue is below its guarantee.

    1. Candidates are the unprotected allocations within reach (`victim_candidates.py`).
    2. The ask must fit the guarantee of its queue, now or without all candidates (`guarantees.py`).
    3. The node is the one with the fewest victims, preferably none that did not agree to be preempted.
    4. Further victims are added for what else the queue of the ask is guaranteed.
    5. Of all these, as many are chosen as cover the ask.

The algorithm is YuniKorn's, odd results included: it takes victims for the whole ask even if the node has some room,
and the last victim of a queue may leave it below its guarantee, because the queue is checked before the victim
leaves. Two differences: here collection ends when all types that are missing on the node are covered, not one of them
twice; and the preemption cooldown protects queues that took from the queue of the ask (`preemption_cooldown.py`).

YuniKorn goes through the candidates of a node a second time without charging the queue of the ask. The result is the
same, so this module does it once: guarantees that bind only their own queue are charged as before, and one that binds
both queues is not exceeded, or no candidate could have been chosen.

This module returns a plan and changes no state. `attempts.py` decides when to call it and applies the plan.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from common.messages import Resources
from common.resources import add_to, drop_zeros, fits
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.ask_shapes import amounts_of
from partition_worker.engine.nodes.node import Node, Reservation
from partition_worker.engine.preemption.victim_candidates import (
    Candidate,
    Giver,
    Guarantees,
    GuaranteeShare,
    find_victim_candidates,
    reach_of,
)
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.state import PartitionState

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


def find_usable_nodes(
    nodes: Iterable[Node], ask: Allocation, wanted: Resources, now: float
) -> tuple[dict[str, Node], list[Reservation]]:
    """The nodes that could take the ask if enough went, by id, and the reservations of others that would have to end
    for that: of normal asks that are less important, too old, and have not made anybody go themselves.
    """
    found: dict[str, Node] = {}
    cancels: list[Reservation] = []
    amounts = amounts_of(wanted)
    for node in nodes:
        if node.reservations and ask.key not in node.reservations:
            stale = [one for one in node.reservations.values() if _may_end(one, ask, now)]
            if not stale:
                continue
            cancels += stale
        if node.schedulable and node.is_large_enough(amounts):
            found[node.node_id] = node
    return found, cancels


def choose_node(
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
        victims = _victims_on_node(missing, there) if missing else []
        cost = _cost(there, len(victims)), node_id
        if (victims or not missing) and cost < cheapest:
            found, cheapest = Choice(nodes[node_id], victims), cost
    return found


def _largest(wanted: Resources, candidates: Iterable[Candidate]) -> Resources:
    """Of each type that is wanted, the most that any of them would free; nothing if none may go. What may not go while
    all are there may not do so later, on any node.
    """
    leaving = [candidate for candidate in candidates if candidate[1].has_surplus]
    if not any(giver.may_enter(one.shape.amounts) for one, giver in leaving):
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


def _victims_on_node(missing: Resources, candidates: list[Candidate]) -> list[Candidate]:
    """Who has to go to gain what is missing; nobody if all are not enough."""
    missing = dict(missing)
    victims: list[Candidate] = []
    for candidate in candidates:
        one, giver = candidate
        if not giver.may_leave():
            continue
        if not giver.may_enter(one.shape.amounts):
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
        giver.move(one.shape.amounts)
    for one, giver in victims if missing else victims[:-1]:
        giver.move(one.shape.amounts, -1)
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


ATTEMPTS_PER_LEAF: Final = 10
"""How often in one cycle the asks of one leaf may look for victims."""

NO_GUARANTEE: Final = "Preemption queue guarantees check failed"
NO_HELP: Final = "Preemption does not help"
TOO_LITTLE: Final = "Preemption helped but short of resources"


class PreemptionPlan(NamedTuple):
    """Who goes, and where the ask is to run."""

    node: Node
    victims: tuple[Allocation, ...]
    cancels: tuple[Reservation, ...] = ()
    """Reservations of others that have lasted too long, which end with this."""


def may_ever_help(leaf: Queue) -> bool:
    """Whether anything is guaranteed to the queue or above it; if not, no ask of it ever gets victims."""
    return any(level.guaranteed for level in leaf.ancestry())


def plan_victims(
    state: PartitionState, application: Application, ask: Allocation, *, nodes_tried: bool, admits: Admits | None = None
) -> PreemptionPlan | str:
    """The victims for an ask, or why there are none, as the ask's log says it.

    With `nodes_tried` no node with room took the ask; otherwise its queues had no room. Costs a look at each queue and
    node, and one at each allocation that may be a victim; nothing if the queue has all that is guaranteed to itself.
    """
    wanted, leaf = drop_zeros(ask.resources), application.queue
    guarantees = Guarantees(leaf)
    if not (may_ever_help(leaf) and guarantees.may_cover(wanted)):
        return NO_GUARANTEE
    protected = state.preemptions.protected(state.now, leaf, wanted)
    among = find_victim_candidates(
        state.applications, reach_of(leaf, wanted, ask.priority), guarantees, wanted, protected
    )
    if not _is_guaranteed(guarantees, wanted, among):
        return NO_GUARANTEE
    usable, cancels = find_usable_nodes(state.nodes, ask, wanted, state.now)
    if ask.shape.constraint is not None or state.nodes.ever_guarded:
        usable = {key: node for key, node in usable.items() if state.nodes.admits(ask.shape, node, allocate=False)}
    admits = admits or (lambda one, node: state.nodes.admits(one.shape, node))
    choice = choose_node(usable, ask, wanted, among, nodes_tried=nodes_tried, admits=admits)
    if choice is None:
        return NO_HELP
    victims = _victims(guarantees, wanted, choice, among)
    return victims if isinstance(victims, str) else PreemptionPlan(choice.node, tuple(victims), tuple(cancels))


def _is_guaranteed(guarantees: Guarantees, wanted: Resources, among: list[Candidate]) -> bool:
    """Whether the ask fits what remains to its queue, now or once all candidates are gone."""
    taker = guarantees.taker
    if taker.covers(wanted):
        return True
    leaving: dict[Giver, Resources] = {}
    for allocation, giver in among:
        add_to(leaving.setdefault(giver, {}), allocation.resources)
    for giver, amounts in leaving.items():
        giver.leave(amounts_of(amounts))
    covered = taker.covers(wanted)
    for giver, amounts in leaving.items():
        giver.leave(amounts_of(amounts), -1)
    return covered


def _victims(
    guarantees: Guarantees, wanted: Resources, choice: Choice, among: list[Candidate]
) -> list[Allocation] | str:
    """Who goes in the end, or why nobody does. It is the last question about the guarantees, and takes nothing back.

    Nobody does if others than those chosen on the node may go, and the queue of the ask would then have more than what
    is guaranteed to it of anything the ask wants. It has so before these go, or never: what enters is covered.
    """
    taker, node = guarantees.taker, choice.node
    chosen = [allocation for allocation, _ in choice.victims]
    for allocation, giver in choice.victims:
        giver.leave(allocation.shape.amounts)
    more = _more_victims(taker, choice, among)
    overdrawn = not taker.covers(dict.fromkeys(wanted, 0))
    if overdrawn or not chosen:
        first = next(more, None)
        if overdrawn if first else not chosen:
            return NO_HELP
        chosen += [first] if first else []
    else:  # as the ask has no room there yet, nobody elsewhere counts
        more = _more_victims(taker, choice, _as_far_as_there(choice, among))
    return _enough(wanted, node, chain(chosen, more)) or TOO_LITTLE


def _more_victims(taker: GuaranteeShare, choice: Choice, among: Iterable[Candidate]) -> Iterator[Allocation]:
    """Who else would go, on any node, until the queue of the ask has what is guaranteed to it."""
    chosen = {allocation.key for allocation, _ in choice.victims}
    for allocation, giver in among:
        if not giver.may_leave() or allocation.key in chosen:
            continue
        amounts = allocation.shape.amounts
        if not giver.may_enter(amounts):
            return
        if any(amount and kind in taker.bounds for kind, amount in amounts):
            giver.move(amounts)
            yield allocation


def _as_far_as_there(choice: Choice, among: list[Candidate]) -> Iterator[Candidate]:
    """Up to the last one on the node that is not chosen. That one is looked for only if the chosen ones are too few."""
    chosen = {allocation.key for allocation, _ in choice.victims}
    on_node = choice.node.node_id
    numbers = [number for number, (one, _) in enumerate(among) if one.node_id == on_node and one.key not in chosen]
    yield from islice(among, numbers[-1] + 1 if numbers else 0)


def _enough(wanted: Resources, node: Node, offered: Iterable[Allocation]) -> list[Allocation]:
    """The first of them that cover what is wanted; nobody if all do not. Those on other nodes count only if the ask
    has room on its own. On its node they are taken until it has room there, or they would go for nothing.
    """
    room = dict(node.available)
    anywhere = has_room = fits(room, wanted)
    short = True
    victims: list[Allocation] = []
    total: Resources = {}
    for victim in offered:
        here = victim.node_id == node.node_id
        if (here and not has_room) or ((here or anywhere) and short):
            victims.append(victim)
            add_to(total, victim.resources)
            if here:
                add_to(room, victim.resources)
                has_room = fits(room, wanted)
            short = _falls_short(total, wanted)
            if has_room and not short:
                break
    return [] if short else victims


def _falls_short(total: Resources, wanted: Resources) -> bool:
    """Whether something is missing, and nothing is there in excess."""
    counted = [(total[kind], amount) for kind, amount in wanted.items() if kind in total]
    return not counted or (all(n <= amount for n, amount in counted) and any(n < amount for n, amount in counted))
