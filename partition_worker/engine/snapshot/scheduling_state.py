"""Encode and restore scheduling state: ready queues, unschedulable asks, reservations and pending placeholder swaps.

All of it could be computed again by trying every ask. But a failed attempt has side effects: the time of the next
attempt, failure counts, recorded events. So what the scheduler skips before a restart, it skips afterwards.

Entries of removed objects are dropped: the next decision would remove them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from partition_worker.engine.nodes.node import Reservation
from partition_worker.engine.order import Order, Ranked
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.readiness.parked_queues import Waited
from partition_worker.engine.readiness.readiness import Line, Readiness, SwapCandidates
from partition_worker.engine.readiness.unschedulable_asks import BucketKey, ClosedBuckets, UnschedulableAsks, WaitBucket
from partition_worker.engine.snapshot import schema
from partition_worker.engine.state import PartitionState

_Item = TypeVar("_Item", bound=Ranked)


def encode_readiness(state: PartitionState, numbering: schema.ReferenceEncoder) -> schema.ReadinessSnapshot:
    """Encode which queues and applications are ready and which asks wait. Allocations have their positions already."""
    readiness, tree, applications = state.readiness, state.tree, state.applications
    resting = readiness.parked_queues
    return schema.ReadinessSnapshot(
        reliefs=readiness.retry_round,
        touched=[queue.rank for queue in readiness.touched.values() if tree.find(queue.path) is queue],
        touched_applications=[
            one.rank for one in readiness.touched_applications.values() if applications.get(one.application_id) is one
        ],
        ready_children=_encode_orders((queue, queue.ready_children) for queue in tree),
        ready_applications=_encode_orders(
            (queue, readiness.ready[queue.rank]) for queue in tree if queue.rank in readiness.ready
        ),
        lines=[_encode_line(leaf, line) for leaf, line in readiness.turns.lines.items()],
        asides=[_encode_aside(leaf, aside, numbering) for leaf, aside in readiness.unschedulable.items()],
        shelf_ranks=readiness.closed.ranks.last,
        resting=[(rank, _encode_order(order)) for rank, order in resting.children.items()],
        waits=[
            (rank, known)
            for rank, waits in resting.expected.items()
            if (known := _encode_waits(waits, numbering))  # all of its ask shapes may be gone
        ],
        searched=list(resting.searched.items()),
    )


def _encode_orders(orders: Iterable[tuple[Queue, Order[_Item]]]) -> list[tuple[int, schema.EncodedOrder]]:
    return [(queue.rank, _encode_order(order)) for queue, order in orders if len(order)]


def _encode_order(order: Order[_Item]) -> schema.EncodedOrder:
    return [(one.rank, schema.encode_sort_key(place)) for one, place in order.entries()]


def _encode_waits(
    waits: Mapping[Waited, int], numbering: schema.ReferenceEncoder
) -> list[tuple[schema.NeedSnapshot, bool, int]]:
    found = [(numbering.shape(shape), kept, count) for (shape, kept), count in waits.items()]
    return [(shape, kept, count) for shape, kept, count in found if shape is not None]


def _encode_line(leaf: int, line: Line) -> schema.LineSnapshot:
    return schema.LineSnapshot(
        leaf, list(line.starting), _encode_order(line.accepted), schema.NO_RANK if line.turn is None else line.turn.rank
    )


def _encode_aside(leaf: int, aside: UnschedulableAsks, numbering: schema.ReferenceEncoder) -> schema.AsideSnapshot:
    brought_back = None
    if aside.brought_back is not None:
        rank, want = aside.brought_back
        memory = _encode_want(want, numbering)
        brought_back = None if memory is None else (rank, memory)
    return schema.AsideSnapshot(
        leaf, aside.searched_at, brought_back, list(_encode_shelves(aside.parked.values(), numbering))
    )


def _encode_want(want: BucketKey, numbering: schema.ReferenceEncoder) -> schema.WantSnapshot | None:
    shape = numbering.shape(want.shape)
    return None if shape is None else (shape, want.reserves, want.starts, want.counts)


def _encode_shelves(
    shelves: Iterable[WaitBucket], numbering: schema.ReferenceEncoder
) -> Iterator[schema.ShelfSnapshot]:
    for shelf in shelves:
        want = _encode_want(shelf.want, numbering)
        if want is not None:
            yield schema.ShelfSnapshot(
                want,
                shelf.rank,
                shelf.of,
                schema.NO_RANK if shelf.closed_by is None else shelf.closed_by.rank,
                shelf.vain_at,
                _encode_order(shelf.applications),
                list(_encode_shelves(shelf.inner.values(), numbering)),
            )


def restore_readiness(state: PartitionState, found: schema.ReadinessSnapshot, lookup: schema.ReferenceDecoder) -> None:
    """Restore ready queues and applications, and waiting asks. The usage of users and groups is restored already."""
    readiness, resting = state.readiness, state.readiness.parked_queues
    readiness.retry_round = found.reliefs
    readiness.touched = {rank: lookup.queues[rank] for rank in found.touched}
    readiness.touched_applications = {rank: lookup.applications[rank] for rank in found.touched_applications}
    for rank, queues in found.ready_children:
        _fill_order(lookup.queues[rank].ready_children, queues, lookup.queues)
    for rank, applications in found.ready_applications:
        ready = readiness.ready[rank] = Order()
        _fill_order(ready, applications, lookup.applications)
    for memory in found.lines:
        line = readiness.turns.lines[memory.leaf] = Line()
        line.starting.update((rank, lookup.applications[rank]) for rank in memory.starting)
        _fill_order(line.accepted, memory.accepted, lookup.applications)
        line.turn = None if memory.turn == schema.NO_RANK else lookup.applications[memory.turn]
    readiness.closed.ranks.last = found.shelf_ranks
    for one in found.asides:
        readiness.unschedulable[one.leaf] = _decode_aside(one, readiness, lookup)
    for rank, queues in found.resting:
        order = resting.children[rank] = Order()
        _fill_order(order, queues, lookup.queues)
    for rank, waits in found.waits:
        resting.expected[rank] = {(lookup.shape(shape), kept): count for shape, kept, count in waits}
    resting.searched = dict(found.searched)


def _decode_aside(
    memory: schema.AsideSnapshot, readiness: Readiness, lookup: schema.ReferenceDecoder
) -> UnschedulableAsks:
    aside = UnschedulableAsks(lookup.queues[memory.leaf], readiness.closed, readiness.parked_queues)
    aside.searched_at = memory.searched_at
    if memory.brought_back is not None:
        rank, want = memory.brought_back
        aside.brought_back = rank, _decode_want(want, lookup)
    for one in memory.shelves:
        shelf = _decode_shelf(one, aside, readiness.closed, lookup, outer=None)
        aside.parked[shelf.want] = shelf
    return aside


def _decode_want(memory: schema.WantSnapshot, lookup: schema.ReferenceDecoder) -> BucketKey:
    shape, reserves, starts, counts = memory
    return BucketKey(lookup.shape(shape), reserves, starts, counts)


def _decode_shelf(
    memory: schema.ShelfSnapshot,
    aside: UnschedulableAsks,
    closed: ClosedBuckets,
    lookup: schema.ReferenceDecoder,
    *,
    outer: WaitBucket | None,
) -> WaitBucket:
    bounds = () if memory.of == schema.NO_RANK else lookup.level(memory.of).bounds
    want = _decode_want(memory.want, lookup) if outer is None else outer.want
    shelf = WaitBucket(want, memory.rank, bounds=bounds, outer=outer, of=memory.of)
    shelf.vain_at = memory.vain_at
    for rank, place in memory.applications:
        application = lookup.applications[rank]
        shelf.applications.put(application, schema.decode_sort_key(place))
        aside.found_on.setdefault(rank, []).append(shelf)
    for one in memory.inner:
        shelf.inner[one.of] = _decode_shelf(one, aside, closed, lookup, outer=shelf)
    if memory.closed_by == schema.NO_RANK:
        shelf.settle()
    else:
        closed.close(shelf, lookup.level(memory.closed_by))
    return shelf


def _fill_order(order: Order[_Item], placed: schema.EncodedOrder, things: Mapping[int, _Item]) -> None:
    for rank, place in placed:
        order.put(things[rank], schema.decode_sort_key(place))


# Reservations and swaps ---------------------------------------------------------------------------------------------


def encode_reservations(state: PartitionState) -> schema.ReservedSnapshot:
    """Encode all reservations."""
    reserved, applications = state.reservation_index, state.applications
    return schema.ReservedSnapshot(
        reservations=[
            schema.ReservationSnapshot(
                applications[one.ask.application_id].rank, one.ask.key, one.node.rank, one.created, one.rank, one.keeps
            )
            for one in reserved
        ],
        by_need=[one.rank for _, lines in reserved.needs() for line in lines for one in line],
        nudged=[one.rank for line in reserved.nudged() for one in line],
        ranks=reserved.ranks,
        stale=reserved.stale,
        seen=reserved.seen,
    )


def restore_reservations(
    state: PartitionState, found: schema.ReservedSnapshot, lookup: schema.ReferenceDecoder
) -> None:
    """Restore all reservations."""
    known: dict[int, Reservation] = {}
    for memory in found.reservations:
        application, node = lookup.applications[memory.application], lookup.nodes[memory.node]
        ask = application.requests[memory.ask]
        one = Reservation(ask, node, application.queue, memory.created, memory.rank, keeps=memory.keeps)
        ask.reserved = True
        application.reservations[ask.key] = node.reservations[ask.key] = known[one.rank] = one
    state.reservation_index.recall(
        known.values(),
        by_need=[known[rank] for rank in found.by_need],
        nudged=[known[rank] for rank in found.nudged],
        ranks=found.ranks,
        stale=found.stale,
        seen=found.seen,
    )


def encode_swappable(swappable: SwapCandidates) -> schema.SwappableSnapshot:
    """Encode which applications may have a placeholder to swap."""
    return schema.SwappableSnapshot(
        offered=[(one.rank, schema.encode_sort_key(place)) for one, place in swappable.offered.entries()],
        stuck=list(swappable.stuck),
        seen=swappable.seen,
    )


def restore_swappable(
    swappable: SwapCandidates, found: schema.SwappableSnapshot, lookup: schema.ReferenceDecoder
) -> None:
    """Restore which applications may have a placeholder to swap."""
    for rank, place in found.offered:
        swappable.offered.put(lookup.applications[rank], schema.decode_sort_key(place))
    swappable.stuck.update((rank, lookup.applications[rank]) for rank in found.stuck)
    swappable.seen = found.seen
