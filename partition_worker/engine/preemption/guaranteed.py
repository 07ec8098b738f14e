"""Victims for an ask whose queue has less than what is guaranteed to it, taken from queues that have more.

    1. Whoever is within reach and not protected is a candidate (`fence.py`, `candidates.py`).
    2. The ask must fit what its queue is guaranteed, now or without all candidates.
    3. The node is chosen where the fewest have to go, and best nobody who is unwilling (`nodes.py`).
    4. More are supposed to go for what else the queue of the ask is guaranteed.
    5. Of all these, as many go as cover what the ask wants.

The algorithm is YuniKorn's, odd results included: it takes victims for the whole ask even where the node has some room.
But there one type that is covered twice over ends the collection, here all that are missing on the node have to be.
Beyond it, nobody may strike back: for a while nothing is
taken from a queue that took from that of the ask (`truces.py`).

Pure: a plan is returned, nothing is changed. Not here: when an ask may look for victims, and carrying a plan out
(`cycle/preempting.py`).
"""

from typing import Final, NamedTuple

from common.messages import Resources
from common.resources import add_to, fits, pruned
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.reservation import Reservation
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.preemption import nodes
from partition_worker.engine.preemption.candidates import Candidate, candidates
from partition_worker.engine.preemption.fence import reach
from partition_worker.engine.preemption.guarantees import Guarantees
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
    node, and some more for each allocation that may be a victim.
    """
    wanted, leaf = pruned(ask.resources), application.queue
    if not may_ever_help(leaf):
        return NO_GUARANTEE
    guarantees = Guarantees(leaf)
    protected = books.preemptions.protected(books.now, leaf, wanted)
    among = candidates(reach(leaf, wanted, ask.priority), guarantees, wanted, protected)
    if not _is_guaranteed(guarantees, wanted, among):
        return NO_GUARANTEE
    usable, cancels = nodes.usable(books.fleet, ask, wanted, books.now)
    usable = {key: node for key, node in usable.items() if books.fleet.admits(ask.need, node, allocate=False)}
    admits = admits or (lambda one, node: books.fleet.admits(one.need, node))
    choice = nodes.best(usable, ask, wanted, among, nodes_tried=nodes_tried, admits=admits)
    if choice is None:
        return NO_HELP
    more = _more_victims(guarantees, wanted, choice, among)
    if more is None or not (choice.victims or more):
        return NO_HELP
    victims = _enough(wanted, choice.node, choice.victims + more)
    return Plan(choice.node, tuple(victims), tuple(cancels)) if victims else TOO_LITTLE


def _is_guaranteed(guarantees: Guarantees, wanted: Resources, among: list[Candidate]) -> bool:
    """Whether the ask fits what remains to its queue, now or once all candidates are gone."""
    taker = guarantees.taker
    if taker.covers(wanted):
        return True
    for candidate in among:
        candidate.transfer.leave()
    covered = taker.covers(wanted)
    for candidate in among:
        candidate.transfer.stay()
    return covered


def _more_victims(
    guarantees: Guarantees, wanted: Resources, choice: Choice, among: list[Candidate]
) -> list[Candidate] | None:
    """Who else would go, on any node, until the queue of the ask has what is guaranteed to it. None if it would have
    more than that of anything the ask wants.
    """
    chosen = {candidate.allocation.key for candidate in choice.victims}
    more: list[Candidate] = []
    for candidate in choice.victims:
        candidate.transfer.leave()
    for candidate in among:
        transfer = candidate.transfer
        if candidate.allocation.key in chosen or not transfer.may_leave():
            continue
        transfer.leave()
        if not transfer.may_enter():
            transfer.stay()
            break
        if transfer.matters:
            transfer.enter()
            more.append(candidate)
        else:
            transfer.stay()
    overdrawn = bool(more) and not guarantees.taker.covers(dict.fromkeys(wanted, 0))
    for candidate in more:
        candidate.transfer.withdraw()
        candidate.transfer.stay()
    for candidate in choice.victims:
        candidate.transfer.stay()
    return None if overdrawn else more


def _enough(wanted: Resources, node: Node, chosen: list[Candidate]) -> list[Allocation]:
    """The first of them that cover what is wanted; nobody if all do not. Those on other nodes count only if the ask
    has room on its own. On its node they are taken until it has room there, or they would go for nothing.
    """
    room = dict(node.available)
    anywhere = fits(room, wanted)
    victims: list[Allocation] = []
    total: Resources = {}
    for candidate in chosen:
        victim = candidate.allocation
        here = victim.node_id == node.node_id
        if (here and not fits(room, wanted)) or ((here or anywhere) and _falls_short(total, wanted)):
            victims.append(victim)
            add_to(total, victim.resources)
            if here:
                add_to(room, victim.resources)
    return [] if _falls_short(total, wanted) else victims


def _falls_short(total: Resources, wanted: Resources) -> bool:
    """Whether something is missing, and nothing is there in excess."""
    counted = [(total[kind], amount) for kind, amount in wanted.items() if kind in total]
    return not counted or (all(n <= amount for n, amount in counted) and any(n < amount for n, amount in counted))
