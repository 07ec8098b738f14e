"""Nodes that are kept for asks, and who may have something to swap: both are served in an order that is written.

Not here: who is served after them (`readiness.py`).
"""

from partition_worker.engine.applications.reservation import Reservation
from partition_worker.engine.books import Books
from partition_worker.engine.memory.amounts import key, key_of
from partition_worker.engine.memory.orders import ReservationMemory, ReservedMemory, SwappableMemory
from partition_worker.engine.memory.references import Lookup
from partition_worker.engine.readiness.reserved import Reserved
from partition_worker.engine.readiness.swappable import Swappable


def written(reserved: Reserved) -> ReservedMemory:
    """All reservations."""
    return ReservedMemory(
        reservations=[
            ReservationMemory(one.application.rank, one.ask.key, one.node.rank, one.created, one.rank, one.keeps)
            for one in reserved
        ],
        by_need=[one.rank for _, lines in reserved.needs() for line in lines for one in line],
        nudged=[one.rank for line in reserved.nudged() for one in line],
        ranks=reserved.ranks,
        stale=reserved.stale,
        seen=reserved.seen,
    )


def restore(books: Books, found: ReservedMemory, lookup: Lookup) -> None:
    """Let the nodes be kept as they were."""
    known: dict[int, Reservation] = {}
    for memory in found.reservations:
        application, node = lookup.applications[memory.application], lookup.nodes[memory.node]
        ask = application.requests[memory.ask]
        one = Reservation(application, ask, node, memory.created, memory.rank, keeps=memory.keeps)
        ask.reservation = application.reservations[ask.key] = node.reservations[ask.key] = known[one.rank] = one
    books.reserved.recall(
        known.values(),
        by_need=[known[rank] for rank in found.by_need],
        nudged=[known[rank] for rank in found.nudged],
        ranks=found.ranks,
        stale=found.stale,
        seen=found.seen,
    )


def written_swappable(swappable: Swappable) -> SwappableMemory:
    """Who may have something to swap."""
    return SwappableMemory(
        offered=[(one.rank, key(place)) for one, place in swappable.offered.entries()],
        stuck=list(swappable.stuck),
        seen=swappable.seen,
    )


def restore_swappable(swappable: Swappable, found: SwappableMemory, lookup: Lookup) -> None:
    """Let them be known again."""
    for rank, place in found.offered:
        swappable.offered.put(lookup.applications[rank], key_of(place))
    swappable.stuck.update((rank, lookup.applications[rank]) for rank in found.stuck)
    swappable.seen = found.seen
