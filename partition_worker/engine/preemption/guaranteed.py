"""Victims for an ask whose queue has less than what is guaranteed to it, taken from queues that have more.

    1. Whoever is within reach and not protected is a candidate (`fence.py`, `candidates.py`).
    2. The ask must fit what its queue is guaranteed, now or without all candidates.
    3. The node is chosen where the fewest have to go, and best nobody who is unwilling (`nodes.py`).
    4. More are supposed to go for what else the queue of the ask is guaranteed.
    5. Of all these, as many go as cover what the ask wants.

The algorithm is YuniKorn's, odd results included: it takes victims for the whole ask even where the node has some room.
But there one type that is covered twice over ends the collection, here all that are missing on the node have to be.
Beyond it, nobody may strike back: for a while nothing is taken from a queue that took from that of the ask
(`truces.py`).

Pure: a plan is returned, nothing is changed. Not here: when an ask may look for victims, and carrying a plan out
(`cycle/preempting.py`).
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from common.messages import Resources
from common.resources import add_to, fits, pruned
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.reservation import Reservation
from partition_worker.engine.books import Books
from partition_worker.engine.needs import shape_of
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.preemption import nodes
from partition_worker.engine.preemption.candidates import Candidate, candidates
from partition_worker.engine.preemption.fence import reach
from partition_worker.engine.preemption.guarantees import Giver, Guarantees, Share
from partition_worker.engine.preemption.nodes import Admits, Choice
from partition_worker.engine.queues.queue import Queue

ATTEMPTS_PER_LEAF: Final = 10
"""How often in one cycle the asks of one leaf may look for victims."""

NO_GUARANTEE: Final = "Preemption queue guarantees check failed"
NO_HELP: Final = "Preemption does not help"
TOO_LITTLE: Final = "Preemption helped but short of resources"


class Plan(NamedTuple):
    """Who goes, and where the ask is to run."""

    node: Node
    victims: tuple[Allocation, ...]
    cancels: tuple[Reservation, ...] = ()
    """Reservations of others that have lasted too long, which end with this."""


def may_ever_help(leaf: Queue) -> bool:
    """Whether anything is guaranteed to the queue or above it; if not, no ask of it ever gets victims."""
    return any(level.guaranteed for level in leaf.ancestry())


def plan(
    books: Books, application: Application, ask: Allocation, *, nodes_tried: bool, admits: Admits | None = None
) -> Plan | str:
    """The victims for an ask, or why there are none, as the ask's log says it.

    With `nodes_tried` no node with room took the ask; otherwise its queues had no room. Costs a look at each queue and
    node, and one at each allocation that may be a victim; nothing if the queue has all that is guaranteed to itself.
    """
    wanted, leaf = pruned(ask.resources), application.queue
    guarantees = Guarantees(leaf)
    if not (may_ever_help(leaf) and guarantees.may_cover(wanted)):
        return NO_GUARANTEE
    protected = books.preemptions.protected(books.now, leaf, wanted)
    among = candidates(reach(leaf, wanted, ask.priority), guarantees, wanted, protected)
    if not _is_guaranteed(guarantees, wanted, among):
        return NO_GUARANTEE
    usable, cancels = nodes.usable(books.fleet, ask, wanted, books.now)
    if ask.need.constraint is not None or books.fleet.ever_guarded:
        usable = {key: node for key, node in usable.items() if books.fleet.admits(ask.need, node, allocate=False)}
    admits = admits or (lambda one, node: books.fleet.admits(one.need, node))
    choice = nodes.best(usable, ask, wanted, among, nodes_tried=nodes_tried, admits=admits)
    if choice is None:
        return NO_HELP
    victims = _victims(guarantees, wanted, choice, among)
    return victims if isinstance(victims, str) else Plan(choice.node, tuple(victims), tuple(cancels))


def _is_guaranteed(guarantees: Guarantees, wanted: Resources, among: list[Candidate]) -> bool:
    """Whether the ask fits what remains to its queue, now or once all candidates are gone."""
    taker = guarantees.taker
    if taker.covers(wanted):
        return True
    leaving: dict[Giver, Resources] = {}
    for allocation, giver in among:
        add_to(leaving.setdefault(giver, {}), allocation.resources)
    for giver, amounts in leaving.items():
        giver.leave(shape_of(amounts))
    covered = taker.covers(wanted)
    for giver, amounts in leaving.items():
        giver.leave(shape_of(amounts), -1)
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
        giver.leave(allocation.need.shape)
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


def _more_victims(taker: Share, choice: Choice, among: Iterable[Candidate]) -> Iterator[Allocation]:
    """Who else would go, on any node, until the queue of the ask has what is guaranteed to it."""
    chosen = {allocation.key for allocation, _ in choice.victims}
    for allocation, giver in among:
        if not giver.may_leave() or allocation.key in chosen:
            continue
        shape = allocation.need.shape
        if not giver.may_enter(shape):
            return
        if taker.binds(shape):
            giver.move(shape)
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
