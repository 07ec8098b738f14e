"""Large asks that smaller ones pass over while the cluster or a queue is full.

Small asks can take whatever is freed before it is enough for a large one. Such a large ask never reserves a node in the
usual way, because its queues or the cluster never have room for it, so it would wait as long as small asks arrive. Here
it reserves a node all the same: once it has waited for PASSED_OVER_DELAY_S, when an ask is about to be placed that
deserves it less and takes room of the cluster or of a full queue that the large one lacks. Freed room on that node
stays free until it is enough, and so does room in the queues of the large ask.

    - One node is idled in this way at a time: nothing is reserved while any other reservation counts toward the share
      of its application, and the pauses between such reservations keep to PASSED_OVER_NODES_PERCENT of the nodes. So a
      backlog of large asks takes turns, and costs the others little.
    - An ask for which its user or group has no room reserves nothing, as no ask is to blame.
    - Of several such asks, the one that deserves it most comes first.
"""

from collections.abc import Iterator
from math import inf

from yunishard.partition_worker.engine import reservations
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup, AskShape, GroupKey, Standing, place_of
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.predicates.results import WorkSpent
from yunishard.partition_worker.engine.queues.queue import Queue, path_key
from yunishard.partition_worker.engine.ready_queues import place_key
from yunishard.partition_worker.engine.sorted_items import Key
from yunishard.partition_worker.engine.state import PASSED_OVER_DELAY_S, PartitionState, Reserve
from yunishard.partition_worker.engine.unschedulable_asks import WaitBucket


def find_reservation(state: PartitionState, application: Application, ask: Allocation) -> Reserve | None:
    """Return the reservation to make instead of placing this ask of an application; None if it passes over no ask that
    has waited too long.
    """
    found = list(_find_due(state, application, ask))
    for _, other, group in sorted(found, key=lambda one: one[0]):
        state.nodes.predicates.table.subject = group
        try:
            node = state.nodes.best_to_reserve(group.shape)
        except WorkSpent:  # the next check tries again
            continue
        if node is not None:
            return Reserve(other, group.head, node, keeps=True)
    return None


_Found = tuple[Key, Application, AskGroup]
"""Asks that have waited too long, after their place in the order of queue traversal."""


def _find_due(state: PartitionState, application: Application, ask: Allocation) -> Iterator[_Found]:
    """Yield the asks that are passed over: those of this application before the ask, and those that are parked. Of the
    parked ones that wait for the same room, only the first can be the one.
    """
    place = place_key(application)
    for group in application.asks.groups:
        if group is ask.group:
            break
        if _is_room_taken(application.queue, group.shape, application.queue) and _is_due(state, application, group):
            yield (*place, *place_of(group.head)), application, group
    for parked in state.readiness.unschedulable.values():  # leaves that come later deserve it less, with all they have
        if parked.leaf.find_stopped() is None and (*path_key(parked.leaf), inf) <= place:
            for bucket in parked.buckets.values():
                if _is_room_taken(parked.leaf, bucket.key.shape, application.queue):
                    yield from (one for one in _find_due_in(state, bucket) if one[0] < place)


def _find_due_in(state: PartitionState, bucket: WaitBucket) -> Iterator[_Found]:
    """Yield the first due asks of a bucket, and of each bucket in it."""
    shape, priority = bucket.key.shape, bucket.key.priority
    keys: list[GroupKey] = [(shape, priority, Standing.OPEN, may_preempt, "") for may_preempt in (False, True)]
    for other in bucket.applications:
        groups = [other.asks.groups_by_key[key] for key in keys if key in other.asks.groups_by_key]
        due = [group for group in groups if _is_due(state, other, group)]
        if due:
            first = min(due, key=lambda one: place_of(one.head))
            yield (*place_key(other), *place_of(first.head)), other, first
            break
    for inner in bucket.inner.values():
        if inner.closed_by is None:  # otherwise its user or group has no room, for which no other ask is to blame
            yield from _find_due_in(state, inner)


def _is_room_taken(leaf: Queue, shape: AskShape, taker: Queue) -> bool:
    """Whether an ask placed in the leaf `taker` uses room that an ask of this shape in another leaf lacks. An ask that
    requires its node preempts there instead.
    """
    if shape.required_node or leaf.has_room(shape.amounts) or not leaf.may_ever_have_room(shape.amounts):
        return False
    shared = next(level for level in taker.ancestry() if level in leaf.ancestry())
    return not shared.has_room(shape.amounts)


def _is_due(state: PartitionState, application: Application, group: AskGroup) -> bool:
    """Whether the first ask of a group has waited long enough, and neither user, group nor back-off stop it."""
    if group.standing is not Standing.OPEN or application.back_off_until > state.now:
        return False
    waits_since = max(group.head.created_ns / 1e9, application.reserves_anew_at)
    if waits_since + PASSED_OVER_DELAY_S > state.now:
        return False
    return reservations.allows_use(state.usage.account(application), group.shape.amounts)
