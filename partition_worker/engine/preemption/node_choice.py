"""The node that is freed for an ask, and the victims on it: the fewest, and preferably none that did not agree.

The victims of a node are its candidates, in their order, until what is missing there is freed, without those that are
too large: larger than what remains of the guarantee of the queue of the ask, in a type that is missing there. A node
with room needs none; it is an option only if the ask found no room in its queues, as otherwise it did not take the ask.

If no node can be freed so, or only by victims that did not agree, and the ask is within its guarantee, candidates that
are too large are chosen as well, and the node is the one with the smallest victims.

If nothing helps on nodes that are not reserved for others, those are tried of which the reservations may end: for an
ask of lower priority, or for one that is beyond the guarantee of its queue. There a node with room is an option, too.

An RM with the capability `preemption-predicates` also decides whether the ask would run on a node without the victims:
another allocation may be in its way, or a host port taken. As in YuniKorn, the nodes are tried in the order of their
number of victims, NODES_PER_BATCH at a time, and the best of the first batch that has one is taken. The RM answers with
the number of candidates that have to go, at least as many as free the room. The search does not wait for the RM: it
ends, and begins again with the answer (`verdicts.py`). The more nodes the RM has refused, the more are asked about at
once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason
from yunishard.common.resources import add_to, drop_zeros
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.attempt_log import WAITING
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.nodes.nodes import Nodes
from yunishard.partition_worker.engine.predicates.evaluation import Predicates
from yunishard.partition_worker.engine.predicates.verdicts import Removal
from yunishard.partition_worker.engine.preemption.victim_candidates import Candidate, Guarantees
from yunishard.partition_worker.engine.queues.queue import Queue

RELUCTANT_COST: Final = 2**34
ORIGINATOR_COST: Final = 2**33
"""More than any number of victims, so that costs compare by the kinds of victims first, and by their number then."""

NO_CANDIDATE_COST: Final = 2**35
COST_MAX: Final = 2**36
"""More than any node costs."""

NODES_PER_BATCH: Final = 10
"""Nodes that an RM compares for one ask, before more nodes are considered."""

NODES_MORE: Final = 3
"""Further nodes that the RM is asked about at once, for each that it has refused for this ask."""

VICTIMS_MAX: Final = 1024
"""Candidates on one node that the RM is asked about; further ones stay, unless more are needed to free the room."""

Choice = tuple[Node, list[Candidate]]
"""A node, and the victims on it."""


LargerOption = tuple[tuple[bool, bool, float, int], str, list[Candidate]]
"""A sort key, the id of a node, and the victims on it."""


class _Prospect(NamedTuple):
    """A node with room, or one on which the candidates could be enough."""

    at_least: int
    """The lowest possible number of victims."""
    node: Node
    missing: Resources
    """The wanted amounts that are not free there."""
    candidates: list[Candidate]
    """Those on the node."""


class _Option(NamedTuple):
    """A node, and the candidates on it in the order in which they would go; the first `needed` free the room."""

    node: Node
    candidates: list[Candidate]
    needed: int
    there: list[Candidate]
    """All candidates on the node."""
    rank: int = -1
    """Of several with larger victims the place of this one, from 0; otherwise -1."""


def find_usable_nodes(
    nodes: Iterable[Node], leaf: Queue, ask: Allocation, wanted: Resources
) -> tuple[dict[str, Node], dict[str, Node]]:
    """Return the nodes that could take an ask of the leaf without their allocations, by id: those that are not reserved
    for others, and those that are and of which the reservations may end for it.
    """
    free: dict[str, Node] = {}
    reserved: dict[str, Node] = {}
    amounts = amounts_of(wanted)
    for node in nodes:
        if node.is_open and node.is_large_enough(amounts):
            if not node.reservations or ask.key in node.reservations:
                free[node.node_id] = node
            elif all(_may_end(one, leaf, ask) for one in node.reservations.values()):
                reserved[node.node_id] = node
    return free, reserved


def _may_end(reservation: Reservation, leaf: Queue, ask: Allocation) -> bool:
    """Whether a reservation may end for an ask that reclaims a guarantee: it is for an ask of lower priority, or for
    one beyond the guarantee of its queue. Victims that were preempted for it would have ended without effect.
    """
    if reservation.after_preemption or reservation.for_required_node:
        return False
    if reservation.gives_way_to(leaf, ask.priority):
        return True
    return not Guarantees(reservation.leaf).taker.covers(drop_zeros(reservation.ask.resources))


def list_choices(
    nodes: Nodes,
    usable: dict[str, Node],
    ask: Allocation,
    wanted: Resources,
    candidates: Sequence[Candidate],
    *,
    nodes_tried: bool,
) -> Iterator[Choice]:
    """Yield the nodes that can be freed, with the victims on each, by ascending cost: the fewest victims and, if
    possible, no originators and only victims that agreed; of equals the first by id.

    A node with room needs no victims. With `nodes_tried` it is not an option: it did not take the ask. The victims of a
    node are chosen when its turn may have come: the candidates must be the same at each step, and nodes that are no
    longer usable are left out.
    """
    prospects = _find_prospects(usable, wanted, candidates, nodes_tried=nodes_tried)
    for prospect, victims in _list_by_cost(usable, prospects, _cost):
        if prospect.missing or nodes.is_accepted(ask.shape, prospect.node):
            yield prospect.node, victims


def _list_by_cost(
    usable: Mapping[str, Node], prospects: Iterable[_Prospect], cost_of: Callable[[list[Candidate], int], int]
) -> Iterator[tuple[_Prospect, list[Candidate]]]:
    """Yield the nodes that can be freed, with the victims on each, by ascending cost; of equals the first by id.
    `cost_of` returns the cost of a number of victims among the candidates on a node.

    Victims are chosen once no other node costs less than the lowest possible cost of theirs.
    """
    by_id = {prospect.node.node_id: prospect for prospect in prospects}
    heap = [(cost_of(one.candidates, one.at_least), node_id) for node_id, one in by_id.items()]
    heapify(heap)
    chosen: dict[str, list[Candidate]] = {}
    while heap:
        _, node_id = heappop(heap)
        if node_id not in usable:
            continue
        prospect = by_id[node_id]
        if node_id in chosen:
            yield prospect, chosen[node_id]
            continue
        victims = pick_victims(prospect.missing, prospect.candidates) if prospect.missing else []
        if victims or not prospect.missing:
            chosen[node_id] = victims
            heappush(heap, (cost_of(prospect.candidates, len(victims)), node_id))


def _find_prospects(
    nodes: Mapping[str, Node], wanted: Resources, candidates: Sequence[Candidate], *, nodes_tried: bool
) -> Iterator[_Prospect]:
    """Yield the nodes with room, unless they were tried, and those on which the candidates could be enough.

    The check of a node is expensive, so a bound selects nodes: as if all candidates were as large as the largest. A
    candidate that may not leave while all are there may not do so later, on any node.
    """
    on_node: defaultdict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        on_node[candidate[0].node_id].append(candidate)
    leaving = [one for one, giver in candidates if giver.has_surplus]
    largest = {kind: max([one.resources.get(kind, 0) for one in leaving], default=0) for kind in wanted}
    for node_id, node in nodes.items():
        there = on_node.get(node_id, [])
        if not there and nodes_tried:
            continue
        available = node.available
        missing = {kind: lack for kind, amount in wanted.items() if (lack := amount - available.get(kind, 0)) > 0}
        if not missing:
            if not nodes_tried:
                yield _Prospect(0, node, missing, there)
        elif there and all(largest[kind] for kind in missing):
            yield _Prospect(max(-(-lack // largest[kind]) for kind, lack in missing.items()), node, missing, there)


def pick_victims(missing: Resources, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the first candidates that free what is missing and are not too large; none if all are not enough."""
    picked = _Picked(missing, dict(missing))
    picked.pick(candidates)
    picked.undo()
    return [] if picked.left else picked.victims


def pick_larger_victims(missing: Resources, candidates: Sequence[Candidate], wanted: Resources) -> list[Candidate]:
    """Return as few and small candidates as free what is missing if those that are too large may be chosen as well;
    none if all are not enough, or if those of `pick_victims` are no more reluctant.
    """
    small, picked = pick_victims(missing, candidates), _Picked(missing, dict(missing))
    grades: dict[tuple[bool, bool], list[Candidate]] = {}
    for candidate in candidates:  # which come in the order of their grades
        one, _ = candidate
        grades.setdefault((not one.may_be_victim, one.originator), []).append(candidate)
    for grade in grades.values():
        too_large = picked.pick(grade)
        too_large.sort(key=lambda candidate: _size([candidate], missing, wanted))
        for candidate in too_large:
            if picked.is_helped_by(candidate):
                picked.add(candidate)
    picked.undo()
    choices: list[list[Candidate]] = []
    for grade in grades.values():  # one alone, as the first ones may keep a larger one from leaving
        alone = [candidate for candidate in grade if _frees([candidate], missing) and candidate[1].may_leave()]
        if alone:
            choices.append([min(alone, key=lambda candidate: _size([candidate], missing, wanted))])
            break
    if not picked.left:
        choices.append(_drop_needless(picked.victims, missing))
    best = min(choices, key=lambda choice: _larger_key(choice, missing, wanted), default=[])
    return best if best and (not small or reluctance_of(best) < reluctance_of(small)) else []


def _drop_needless(victims: list[Candidate], missing: Resources) -> list[Candidate]:
    """Return the victims without those, in their order, without which the others free what is missing."""
    needed = list(victims)
    for candidate in victims:
        others = [other for other in needed if other is not candidate]
        if _frees(others, missing):
            needed = others
    return needed


def _frees(victims: list[Candidate], missing: Resources) -> bool:
    return all(sum([one.resources.get(kind, 0) for one, _ in victims]) >= amount for kind, amount in missing.items())


@dataclass(slots=True)
class _Picked:
    """Victims that are chosen one after the other. They leave their queues, which have to exceed their guarantees then,
    and count for the queue of the ask, whose guarantee limits how large they are.
    """

    missing: Resources
    left: Resources
    """The rest of it, which the victims do not free."""
    charged: Resources = field(default_factory=dict)
    """The sum of the victims."""
    victims: list[Candidate] = field(default_factory=list)

    def pick(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Choose the first candidates that are not too large, until nothing is left to free. Return those that are too
        large at their turn.
        """
        too_large: list[Candidate] = []
        for candidate in candidates:
            if not self.left:
                break
            if not self.is_helped_by(candidate):
                continue
            if _is_too_large(candidate, self.missing, self.charged):
                too_large.append(candidate)
            else:
                self.add(candidate)
        return too_large

    def is_helped_by(self, candidate: Candidate) -> bool:
        """Whether a candidate may leave, and frees anything that is left to free."""
        one, giver = candidate
        return any(one.resources.get(kind) for kind in self.left) and giver.may_leave()

    def add(self, candidate: Candidate) -> None:
        """Choose a candidate, and subtract what it frees from what is left to free."""
        one, giver = candidate
        for kind in [kind for kind in self.left if one.resources.get(kind)]:
            self.left[kind] -= one.resources[kind]
            if self.left[kind] <= 0:
                del self.left[kind]
        giver.leave(one.shape.amounts)
        add_to(self.charged, one.resources)
        self.victims.append(candidate)

    def undo(self) -> None:
        """End the trial."""
        for one, giver in self.victims:
            giver.leave(one.shape.amounts, -1)


def _is_too_large(candidate: Candidate, missing: Resources, charged: Resources) -> bool:
    one, giver = candidate
    return not giver.may_enter([(kind, one.resources[kind]) for kind in missing if one.resources.get(kind)], charged)


def reluctance_of(victims: Iterable[Candidate]) -> tuple[bool, bool]:
    """Return whether any of them did not agree to be preempted, and whether any is an originator."""
    allocations = [one for one, _ in victims]
    return not all(one.may_be_victim for one in allocations), any(one.originator for one in allocations)


def _larger_key(victims: list[Candidate], missing: Resources, wanted: Resources) -> tuple[bool, bool, float, int]:
    """Sort key of a choice of larger victims: preferably all agreed, no originators, small relative to the ask in each
    missing type, and few.
    """
    return *reluctance_of(victims), _size(victims, missing, wanted), len(victims)


def _size(victims: list[Candidate], missing: Resources, wanted: Resources) -> float:
    """How large victims are relative to the ask, in the missing type in which they are largest."""
    return max([sum([one.resources.get(kind, 0) for one, _ in victims]) / wanted[kind] for kind in missing])


def choose_node_of_larger_victims(
    options: Sequence[LargerOption],
    usable: Mapping[str, Node],
    ask: Allocation,
    choice: Choice | None,
    predicates: Predicates | None,
) -> Choice | Reason | None:
    """Return the first of these options whose node is usable, and whose victims are less reluctant than those of the
    choice without candidates that are too large; None if there is none. With `predicates`, the RM decides about these
    victims.
    """
    better = (
        (usable[node_id], victims)
        for _, node_id, victims in options
        if node_id in usable and (choice is None or reluctance_of(victims) < reluctance_of(choice[1]))
    )
    if predicates is None:
        return next(better, None)
    ranked = (_Option(node, victims, len(victims), [], rank) for rank, (node, victims) in enumerate(better))
    return _search(predicates, ask, ranked)


def list_larger_options(
    usable: dict[str, Node], wanted: Resources, candidates: Sequence[Candidate]
) -> list[LargerOption]:
    """Return the nodes that can be freed if candidates that are too large may be chosen as well, those with the
    smallest victims first: preferably no originators and only victims that agreed; of equals the first by id.
    """
    found: list[LargerOption] = []
    for _, node, missing, there in _find_prospects(usable, wanted, candidates, nodes_tried=True):
        victims = pick_larger_victims(missing, there, wanted) if _frees(there, missing) else []
        if victims:
            found.append((_larger_key(victims, missing, wanted), node.node_id, victims))
    found.sort(key=lambda option: option[:2])
    return found


def _cost(candidates: list[Candidate], count: int) -> int:
    """Return the cost of `count` victims on a node: their number, and far more if there are originators or allocations
    that did not agree among them.

    As in YuniKorn, these are looked for among the first candidates, although others may be chosen; and a node without
    candidates costs most.
    """
    if not candidates:
        return NO_CANDIDATE_COST
    last, _ = candidates[min(count, len(candidates)) - 1]
    if not count or (last.may_be_victim and not last.originator):  # then so are those before it
        return count
    is_reluctant, has_originator = reluctance_of(candidates[:count])
    return count + is_reluctant * RELUCTANT_COST + has_originator * ORIGINATOR_COST


# The verdicts of the RM -----------------------------------------------------------------------------------------------


def choose_node_with_rm(
    predicates: Predicates,
    usable: dict[str, Node],
    ask: Allocation,
    wanted: Resources,
    candidates: Sequence[Candidate],
    *,
    nodes_tried: bool,
) -> Choice | Reason | None:
    """The first one of `list_choices`, of the nodes on which the ask would run by the verdicts of the RM;
    VERDICT_PENDING if they are not known, and have been requested.
    """
    prospects = _find_prospects(usable, wanted, candidates, nodes_tried=nodes_tried)
    return _search(predicates, ask, _list_options(usable, prospects))


def _search(predicates: Predicates, ask: Allocation, options: Iterator[_Option]) -> Choice | Reason | None:
    """Return the best of the first options that the RM accepts; VERDICT_PENDING as above."""
    found: Choice | None = None
    cheapest, refused = (COST_MAX, ""), 0
    while batch := list(islice(options, NODES_PER_BATCH)):
        unknown: list[_Option] = []
        for option in batch:
            count = _count_victims(predicates, ask, option)
            if count is None:
                unknown.append(option)
            elif count < 0:
                refused += 1
            else:
                node_id, rank = option.node.node_id, option.rank
                cost = (_cost(option.there, count) if rank < 0 else rank), node_id
                if cost < cheapest:
                    found, cheapest = (option.node, option.candidates[:count]), cost
        if cheapest[0] < ORIGINATOR_COST:
            return found
        if unknown:
            unknown += islice(options, NODES_MORE * refused)
            predicates.verdicts.searching[ask.key] = None
            for option in unknown:
                if not _request_verdict(predicates, ask, option):
                    break
            return Reason.VERDICT_PENDING
    return found


def _list_options(usable: Mapping[str, Node], prospects: Iterable[_Prospect]) -> Iterator[_Option]:
    """Yield the nodes that can be freed, those with the fewest needed victims first; of equals the first by id."""
    for (_, node, missing, there), victims in _list_by_cost(usable, prospects, lambda _, count: count):
        more = _further_on_node(victims, there, missing) if victims else []
        yield _Option(node, victims + more[: max(0, VICTIMS_MAX - len(victims))], len(victims), there)


def _further_on_node(victims: list[Candidate], there: list[Candidate], missing: Resources) -> list[Candidate]:
    """Return the other candidates on a node that may go after these victims, in their order. As in YuniKorn, they are
    those that may go at their turn, and still exceed their guarantees when it has come; without those too large.
    """
    chosen = {one.key for one, _ in victims}
    others: list[Candidate] = []
    further: list[Candidate] = []
    charged: Resources = {}
    for candidate in there:
        one, giver = candidate
        if one.key in chosen:
            giver.leave(one.shape.amounts)
            add_to(charged, one.resources)
        elif giver.may_leave() and not _is_too_large(candidate, missing, charged):
            others.append(candidate)
    for candidate in others:
        one, giver = candidate
        if giver.may_leave():
            giver.leave(one.shape.amounts)
            further.append(candidate)
    for one, giver in [*victims, *further]:
        giver.leave(one.shape.amounts, -1)
    return further


def _count_victims(predicates: Predicates, ask: Allocation, option: _Option) -> int | None:
    """Return how many of the candidates have to go by the verdict of the RM: -1 if the ask would not run there without
    all of them either, None if there is no verdict.
    """
    if not option.needed:
        reason = predicates.refusal(ask.shape, option.node)
        return None if reason == WAITING else -1 if reason else 0
    verdict = predicates.verdicts.find_removal(_removal_of(ask, option), option.node)
    return None if verdict is None else -1 if verdict.refusal else verdict.last + 1


def _request_verdict(predicates: Predicates, ask: Allocation, option: _Option) -> bool:
    """Request the verdict about an option, if there is none; return whether the next question has room for more."""
    if _count_victims(predicates, ask, option) is not None:
        return True
    if option.needed:
        return predicates.verdicts.request_removal(_removal_of(ask, option), option.node)
    is_wide = ask.shape.constraint is not None and ask.shape.constraint.is_wide
    return predicates.verdicts.request(ask.key, option.node, allocate=True, is_wide=is_wide)


def _removal_of(ask: Allocation, option: _Option) -> Removal:
    victims = tuple([one.key for one, _ in option.candidates])
    return Removal(ask.key, option.node.node_id, victims, option.needed - 1, are_larger=option.rank >= 0)
