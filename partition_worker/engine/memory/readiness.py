"""Who is next, and who waits for what: orders with their places, and what is set aside.

All of it could be found again by trying everybody once more. But an attempt in vain leaves traces: when the next one is
made, how often it failed, what the history was told. So what need not be looked at is not looked at after a recovery
either.

Forgotten is only what nobody can ever look at again: what is left of things that are gone, and would go with the next
decision. Not here: reservations and swaps (`reserved.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from partition_worker.engine.books import Books
from partition_worker.engine.memory.amounts import key, key_of
from partition_worker.engine.memory.orders import AsideMemory, LineMemory, ReadinessMemory, ShelfMemory, WantMemory
from partition_worker.engine.memory.references import Lookup, Numbering
from partition_worker.engine.memory.values import NOBODY, NeedMemory, Placed
from partition_worker.engine.order import Order, Ranked
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.readiness.aside import Aside, Closed, Shelf, Want
from partition_worker.engine.readiness.readiness import Readiness
from partition_worker.engine.readiness.resting import Waited
from partition_worker.engine.readiness.turns import Line

_Item = TypeVar("_Item", bound=Ranked)


def written(books: Books, numbering: Numbering) -> ReadinessMemory:
    """All of it; allocations have their places already."""
    readiness, tree, applications = books.readiness, books.tree, books.applications
    resting = readiness.resting
    return ReadinessMemory(
        reliefs=readiness.reliefs,
        touched=[queue.rank for queue in readiness.touched.values() if tree.find(queue.path) is queue],
        touched_applications=[
            one.rank for one in readiness.touched_applications.values() if applications.get(one.application_id) is one
        ],
        ready_children=_orders((queue, queue.ready_children) for queue in tree),
        ready_applications=_orders((queue, queue.ready_applications) for queue in tree),
        lines=[_line(leaf, line) for leaf, line in readiness.turns.lines.items()],
        asides=[_aside(leaf, aside, numbering) for leaf, aside in readiness.asides.items()],
        shelf_ranks=readiness.closed.ranks.last,
        resting=[(rank, _placed(order)) for rank, order in resting.children.items()],
        waits=[
            (rank, known)
            for rank, waits in resting.expected.items()
            if (known := _waits(waits, numbering))  # all that was waited for there may be forgotten
        ],
        searched=list(resting.searched.items()),
    )


def _orders(orders: Iterable[tuple[Queue, Order[_Item]]]) -> list[tuple[int, Placed]]:
    return [(queue.rank, _placed(order)) for queue, order in orders if len(order)]


def _placed(order: Order[_Item]) -> Placed:
    return [(one.rank, key(place)) for one, place in order.entries()]


def _waits(waits: Mapping[Waited, int], numbering: Numbering) -> list[tuple[NeedMemory, bool, int]]:
    found = [(numbering.need(need), kept, count) for (need, kept), count in waits.items()]
    return [(need, kept, count) for need, kept, count in found if need is not None]


def _line(leaf: int, line: Line) -> LineMemory:
    return LineMemory(
        leaf, list(line.starting), _placed(line.accepted), NOBODY if line.turn is None else line.turn.rank
    )


def _aside(leaf: int, aside: Aside, numbering: Numbering) -> AsideMemory:
    brought_back = None
    if aside.brought_back is not None:
        rank, want = aside.brought_back
        memory = _want(want, numbering)
        brought_back = None if memory is None else (rank, memory)
    return AsideMemory(leaf, aside.searched_at, brought_back, list(_shelves(aside.parked.values(), numbering)))


def _want(want: Want, numbering: Numbering) -> WantMemory | None:
    need = numbering.need(want.need)
    return None if need is None else (need, want.reserves, want.starts, want.counts)


def _shelves(shelves: Iterable[Shelf], numbering: Numbering) -> Iterator[ShelfMemory]:
    for shelf in shelves:
        want = _want(shelf.want, numbering)
        if want is not None:
            yield ShelfMemory(
                want,
                shelf.rank,
                shelf.of,
                NOBODY if shelf.closed_by is None else shelf.closed_by.rank,
                shelf.vain_at,
                _placed(shelf.applications),
                list(_shelves(shelf.inner.values(), numbering)),
            )


# Reading ------------------------------------------------------------------------------------------------------------


def restore(books: Books, found: ReadinessMemory, lookup: Lookup) -> None:
    """Let everybody be where they were; levels of users and groups are known."""
    readiness, resting = books.readiness, books.readiness.resting
    readiness.reliefs = found.reliefs
    readiness.touched = {rank: lookup.queues[rank] for rank in found.touched}
    readiness.touched_applications = {rank: lookup.applications[rank] for rank in found.touched_applications}
    for rank, queues in found.ready_children:
        _fill(lookup.queues[rank].ready_children, queues, lookup.queues)
    for rank, applications in found.ready_applications:
        _fill(lookup.queues[rank].ready_applications, applications, lookup.applications)
    for memory in found.lines:
        line = readiness.turns.lines[memory.leaf] = Line()
        line.starting.update((rank, lookup.applications[rank]) for rank in memory.starting)
        _fill(line.accepted, memory.accepted, lookup.applications)
        line.turn = None if memory.turn == NOBODY else lookup.applications[memory.turn]
    readiness.closed.ranks.last = found.shelf_ranks
    for one in found.asides:
        readiness.asides[one.leaf] = _aside_of(one, readiness, lookup)
    for rank, queues in found.resting:
        order = resting.children[rank] = Order()
        _fill(order, queues, lookup.queues)
    for rank, waits in found.waits:
        resting.expected[rank] = {(lookup.need(need), kept): count for need, kept, count in waits}
    resting.searched = dict(found.searched)


def _aside_of(memory: AsideMemory, readiness: Readiness, lookup: Lookup) -> Aside:
    aside = Aside(lookup.queues[memory.leaf], readiness.closed, readiness.resting)
    aside.searched_at = memory.searched_at
    if memory.brought_back is not None:
        rank, want = memory.brought_back
        aside.brought_back = rank, _want_of(want, lookup)
    for one in memory.shelves:
        shelf = _shelf_of(one, aside, readiness.closed, lookup, outer=None)
        aside.parked[shelf.want] = shelf
    return aside


def _want_of(memory: WantMemory, lookup: Lookup) -> Want:
    need, reserves, starts, counts = memory
    return Want(lookup.need(need), reserves, starts, counts)


def _shelf_of(memory: ShelfMemory, aside: Aside, closed: Closed, lookup: Lookup, *, outer: Shelf | None) -> Shelf:
    bounds = () if memory.of == NOBODY else lookup.level(memory.of).bounds
    want = _want_of(memory.want, lookup) if outer is None else outer.want
    shelf = Shelf(want, memory.rank, bounds=bounds, outer=outer, of=memory.of)
    shelf.vain_at = memory.vain_at
    for rank, place in memory.applications:
        application = lookup.applications[rank]
        shelf.applications.put(application, key_of(place))
        aside.found_on.setdefault(rank, []).append(shelf)
    for one in memory.inner:
        shelf.inner[one.of] = _shelf_of(one, aside, closed, lookup, outer=shelf)
    if memory.closed_by == NOBODY:
        shelf.settle()
    else:
        closed.close(shelf, lookup.level(memory.closed_by))
    return shelf


def _fill(order: Order[_Item], placed: Placed, things: Mapping[int, _Item]) -> None:
    for rank, place in placed:
        order.put(things[rank], key_of(place))
