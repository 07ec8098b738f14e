"""Encode and restore scheduling state: ready queues, unschedulable asks, reservations and pending placeholder swaps.

All of it could be computed again by trying every ask. But a failed attempt has side effects: the time of the next
attempt, failure counts, recorded events. So what the scheduler skips before a restart, it skips afterwards.

Entries of removed objects are dropped: the next decision would remove them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from partition_worker.engine.nodes.node_index import Reservation
from partition_worker.engine.order import Order, Ranked
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.ready_queues import LeafTurns, Readiness, SwapCandidates
from partition_worker.engine.snapshot import schema
from partition_worker.engine.state import PartitionState
from partition_worker.engine.unschedulable_asks import BucketKey, ClosedBuckets, UnschedulableAsks, Wait, WaitBucket

_Item = TypeVar("_Item", bound=Ranked)


def encode_readiness(state: PartitionState, numbering: schema.ReferenceEncoder) -> schema.ReadinessSnapshot:
    """Encode which queues and applications are ready and which asks wait. Allocations have their positions already."""
    readiness, tree, applications = state.readiness, state.tree, state.applications
    parked = readiness.parked_queues
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
        lines=[_encode_turns(leaf, turns) for leaf, turns in readiness.turns.leaves.items()],
        asides=[_encode_unschedulable(leaf, asks, numbering) for leaf, asks in readiness.unschedulable.items()],
        shelf_ranks=readiness.closed.ranks.last,
        resting=[(rank, _encode_order(order)) for rank, order in parked.children.items()],
        waits=[
            (rank, known)
            for rank, waits in parked.waits.items()
            if (known := _encode_waits(waits, numbering))  # all of its ask shapes may be gone
        ],
        searched=list(parked.checked_rounds.items()),
    )


def _encode_orders(orders: Iterable[tuple[Queue, Order[_Item]]]) -> list[tuple[int, schema.EncodedOrder]]:
    return [(queue.rank, _encode_order(order)) for queue, order in orders if len(order)]


def _encode_order(order: Order[_Item]) -> schema.EncodedOrder:
    return [(one.rank, schema.encode_sort_key(place)) for one, place in order.entries()]


def _encode_waits(
    waits: Mapping[Wait, int], numbering: schema.ReferenceEncoder
) -> list[tuple[schema.NeedSnapshot, bool, int]]:
    found = [(numbering.shape(shape), may_reserve, count) for (shape, may_reserve), count in waits.items()]
    return [(shape, may_reserve, count) for shape, may_reserve, count in found if shape is not None]


def _encode_turns(leaf: int, turns: LeafTurns) -> schema.LineSnapshot:
    turn = schema.NO_RANK if turns.turn is None else turns.turn.rank
    return schema.LineSnapshot(leaf, list(turns.starting), _encode_order(turns.accepted), turn)


def _encode_unschedulable(
    leaf: int, asks: UnschedulableAsks, numbering: schema.ReferenceEncoder
) -> schema.AsideSnapshot:
    brought_back = None
    if asks.brought_back is not None:
        rank, key = asks.brought_back
        memory = _encode_key(key, numbering)
        brought_back = None if memory is None else (rank, memory)
    return schema.AsideSnapshot(
        leaf, asks.checked_round, brought_back, list(_encode_buckets(asks.buckets.values(), numbering))
    )


def _encode_key(key: BucketKey, numbering: schema.ReferenceEncoder) -> schema.WantSnapshot | None:
    shape = numbering.shape(key.shape)
    return None if shape is None else (shape, key.may_reserve, key.starts, key.counts)


def _encode_buckets(
    buckets: Iterable[WaitBucket], numbering: schema.ReferenceEncoder
) -> Iterator[schema.ShelfSnapshot]:
    for bucket in buckets:
        key = _encode_key(bucket.key, numbering)
        if key is not None:
            yield schema.ShelfSnapshot(
                key,
                bucket.rank,
                bucket.of,
                schema.NO_RANK if bucket.closed_by is None else bucket.closed_by.rank,
                bucket.failed_round,
                _encode_order(bucket.applications),
                list(_encode_buckets(bucket.inner.values(), numbering)),
            )


def restore_readiness(state: PartitionState, found: schema.ReadinessSnapshot, lookup: schema.ReferenceDecoder) -> None:
    """Restore ready queues and applications, and waiting asks. The usage of users and groups is restored already."""
    readiness, parked = state.readiness, state.readiness.parked_queues
    readiness.retry_round = found.reliefs
    readiness.touched = {rank: lookup.queues[rank] for rank in found.touched}
    readiness.touched_applications = {rank: lookup.applications[rank] for rank in found.touched_applications}
    for rank, queues in found.ready_children:
        _fill_order(lookup.queues[rank].ready_children, queues, lookup.queues)
    for rank, applications in found.ready_applications:
        _fill_order(readiness.ready[rank], applications, lookup.applications)
    for memory in found.lines:
        turns = readiness.turns.leaves[memory.leaf] = LeafTurns()
        turns.starting.update((rank, lookup.applications[rank]) for rank in memory.starting)
        _fill_order(turns.accepted, memory.accepted, lookup.applications)
        turns.turn = None if memory.turn == schema.NO_RANK else lookup.applications[memory.turn]
    readiness.closed.ranks.last = found.shelf_ranks
    for one in found.asides:
        readiness.unschedulable[one.leaf] = _decode_unschedulable(one, readiness, lookup)
    for rank, queues in found.resting:
        _fill_order(parked.children[rank], queues, lookup.queues)
    for rank, waits in found.waits:
        parked.waits[rank] = Counter({(lookup.shape(shape), may): count for shape, may, count in waits})
    parked.checked_rounds = dict(found.searched)


def _decode_unschedulable(
    memory: schema.AsideSnapshot, readiness: Readiness, lookup: schema.ReferenceDecoder
) -> UnschedulableAsks:
    asks = UnschedulableAsks(lookup.queues[memory.leaf], readiness.closed, readiness.parked_queues)
    asks.checked_round = memory.searched_at
    if memory.brought_back is not None:
        rank, key = memory.brought_back
        asks.brought_back = rank, _decode_key(key, lookup)
    for one in memory.shelves:
        bucket = _decode_bucket(one, asks, readiness.closed, lookup, outer=None)
        asks.buckets[bucket.key] = bucket
    return asks


def _decode_key(memory: schema.WantSnapshot, lookup: schema.ReferenceDecoder) -> BucketKey:
    shape, may_reserve, starts, counts = memory
    return BucketKey(lookup.shape(shape), may_reserve, starts, counts)


def _decode_bucket(
    memory: schema.ShelfSnapshot,
    asks: UnschedulableAsks,
    closed: ClosedBuckets,
    lookup: schema.ReferenceDecoder,
    *,
    outer: WaitBucket | None,
) -> WaitBucket:
    of = None if memory.of == schema.NO_RANK else lookup.level(memory.of)
    key = _decode_key(memory.want, lookup) if outer is None else outer.key
    bucket = WaitBucket(key, memory.rank, of=of, outer=outer)
    bucket.failed_round = memory.vain_at
    for rank, place in memory.applications:
        application = lookup.applications[rank]
        bucket.applications.put(application, schema.decode_sort_key(place))
        asks.buckets_of.setdefault(rank, []).append(bucket)
    for one in memory.inner:
        bucket.inner[one.of] = _decode_bucket(one, asks, closed, lookup, outer=bucket)
    if memory.closed_by == schema.NO_RANK:
        bucket.update_place()
    else:
        closed.close(bucket, lookup.level(memory.closed_by))
    return bucket


def _fill_order(order: Order[_Item], placed: schema.EncodedOrder, things: Mapping[int, _Item]) -> None:
    for rank, place in placed:
        order.put(things[rank], schema.decode_sort_key(place))


# Reservations and swaps ---------------------------------------------------------------------------------------------


def encode_reservations(state: PartitionState) -> schema.ReservedSnapshot:
    """Encode all reservations."""
    index, applications = state.reservation_index, state.applications
    return schema.ReservedSnapshot(
        reservations=[
            schema.ReservationSnapshot(
                applications[one.ask.application_id].rank, one.ask.key, one.node.rank, one.created, one.rank, one.keeps
            )
            for one in index
        ],
        by_need=[one.rank for groups in index.by_shape.values() for group in groups.values() for one in group],
        nudged=[one.rank for group in index.candidates.values() for one in group],
        ranks=index.ranks,
        stale=index.has_candidates,
        seen=index.checked_round,
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
    index = state.reservation_index
    index.restore(known.values(), [known[rank] for rank in found.by_need])
    index.add_candidates(known[rank] for rank in found.nudged)
    index.ranks, index.has_candidates, index.checked_round = found.ranks, found.stale, found.seen


def encode_swappable(swappable: SwapCandidates) -> schema.SwappableSnapshot:
    """Encode which applications may have a placeholder to swap."""
    return schema.SwappableSnapshot(
        offered=[(one.rank, schema.encode_sort_key(place)) for one, place in swappable.offered.entries()],
        stuck=list(swappable.parked),
        seen=swappable.checked_round,
    )


def restore_swappable(
    swappable: SwapCandidates, found: schema.SwappableSnapshot, lookup: schema.ReferenceDecoder
) -> None:
    """Restore which applications may have a placeholder to swap."""
    for rank, place in found.offered:
        swappable.offered.put(lookup.applications[rank], schema.decode_sort_key(place))
    swappable.parked.update((rank, lookup.applications[rank]) for rank in found.stuck)
    swappable.checked_round = found.seen
