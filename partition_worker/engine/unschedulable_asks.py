"""Unschedulable asks: applications that a leaf has parked, in wait buckets by what they wait for, and parked queues.

Applications that wait for the same ask shape share a bucket, in their order. If limits bind them, they are in a nested
bucket of their group and, inside that, of their user. A bucket whose group or user has no room is *closed*: it is
skipped until resources of that group or user are freed. So the number of users that wait for their limits does not
matter.

A queue is parked if no ask below it can be placed. Parked queues are kept in order beside their siblings that are
ready. After resources were freed, they are checked one by one, the most deserving first, and only those before all
ready siblings; none, if no ask shape that waits below their parent has room in the parent and on a node. So a release
costs one check for each waiting ask shape, not for each queue.

`ready_queues.py` decides when to check buckets and queues.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from common.resources import less, permits
from partition_worker.engine.allocation import AskShape
from partition_worker.engine.application import Application, AppState
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.sorted_items import Key, Order, Ranks
from partition_worker.engine.user_limits import QueueUsage, UsageAccount

Wait = tuple[AskShape, bool]
"""The shape of asks that wait, and whether they have waited long enough that a node to reserve will do."""


class ParkedQueues:
    """The parked queues of a partition, and what asks below each queue wait for."""

    def __init__(self) -> None:
        self.children: defaultdict[int, Order[Queue]] = defaultdict(Order)
        """The parked queues by the rank of their parent."""
        self.waits: defaultdict[int, Counter[Wait]] = defaultdict(Counter)
        """By the rank of a queue, the number of leaves below it with a bucket for each wait."""
        self.checked_rounds: dict[int, int] = {}
        """By the rank of a queue, the last retry round in which no parked queue below it had anything to place."""

    def add_wait(self, leaf: Queue, wait: Wait) -> None:
        """Count a new bucket of the leaf."""
        for level in leaf.ancestry():
            self.waits[level.rank][wait] += 1

    def remove_wait(self, leaf: Queue, wait: Wait) -> None:
        """Undo `add_wait`."""
        for level in leaf.ancestry():
            here = self.waits[level.rank]
            here[wait] -= 1
            if not here[wait]:
                del here[wait]
                if not here:
                    del self.waits[level.rank]

    def park(self, child: Queue, retry_round: int) -> None:
        """Park a queue below which nothing can be placed in this retry round, if its own maximum allows anything that
        waits there. Otherwise the queue has to wait until its own usage shrinks; that makes it ready anyway.
        """
        assert child.parent is not None, child.path
        ready = child.parent.ready_children
        self.checked_rounds[child.rank] = retry_round
        room = less(child.maximum or {}, child.allocated)
        if any(permits(room, dict(shape.amounts)) for shape, _ in self.waits.get(child.rank, ())):
            ready.hand_over(child, self.children[child.parent.rank])
        else:
            ready.drop(child)

    def unpark(self, child: Queue) -> None:
        """Remove a queue that is ready, or below which no ask waits, if it is parked."""
        assert child.parent is not None, child.path
        if child.parent.rank in self.children:
            self.children[child.parent.rank].drop(child)
            self._prune(child.parent)

    def forget(self, queue: Queue) -> None:
        """Remove a queue that was removed from the partition."""
        self.unpark(queue)
        self.checked_rounds.pop(queue.rank, None)

    def bring_back(self, queue: Queue, retry_round: int, may_place: Callable[[Queue], bool]) -> None:
        """Of the parked children that precede all ready ones, make the first ready below which an ask may be placed."""
        children = self.children.get(queue.rank)
        if children is None or self.checked_rounds.get(queue.rank) == retry_round:
            return
        if may_place(queue):
            first_ready = queue.ready_children.first_place()
            for child in children:
                if first_ready is not None and children.place(child) > first_ready:
                    return
                if self.checked_rounds.get(child.rank) != retry_round:
                    if may_place(child):
                        children.hand_over(child, queue.ready_children)
                        self._prune(queue)
                        return
                    self.checked_rounds[child.rank] = retry_round
        self.checked_rounds[queue.rank] = retry_round

    def _prune(self, queue: Queue) -> None:
        if not len(self.children[queue.rank]):
            del self.children[queue.rank]


class BucketKey(NamedTuple):
    """The common requirement of the applications of a bucket."""

    shape: AskShape
    may_reserve: bool
    """As in `Wait`."""
    starts: bool
    """Whether their queues have to let one more application run."""
    counts: bool
    """Whether their user and group have to let one more application run."""


class WaitBucket:
    """Applications of one leaf that wait for the same and have the same limits, and nested buckets for more limits."""

    def __init__(
        self, key: BucketKey, rank: int, *, of: QueueUsage | None = None, outer: "WaitBucket | None" = None
    ) -> None:
        self.key = key
        self.rank = rank
        self.limits = () if of is None else of.limits
        self.outer = outer
        self.of = -1 if of is None else of.rank
        """The rank of the usage, of a user or group, for which it is in the outer bucket."""
        self.applications: Order[Application] = Order()
        self.inner: dict[int, WaitBucket] = {}
        """Nested buckets by the rank of their usage."""
        self.open: Order[WaitBucket] = Order()
        """Nested buckets that are neither empty nor closed, by their first application."""
        self.closed_by: QueueUsage | None = None
        """The usage that had no room at the last check."""
        self.failed_round = -1
        """The last retry round in which nothing in it could be placed for any user."""

    @property
    def place(self) -> Key | None:
        """The sort key of the first application that is not in a closed bucket; None if there is none."""
        own, inner = self.applications.first_place(), self.open.first_place()
        return min(own, inner) if own is not None and inner is not None else own or inner

    def next_inner(self) -> "WaitBucket | None":
        """Return the open nested bucket that precedes all applications directly in this one."""
        own, inner = self.applications.first_place(), self.open.first_place()
        return self.open.first() if inner is not None and (own is None or inner < own) else None

    def find_full(self) -> QueueUsage | None:
        """Return the first usage whose limit does not allow what the applications wait for."""
        for level in self.limits:
            if not level.has_room(self.key.shape.amounts) or (self.key.counts and not level.may_start()):
                return level
        return None

    def update_place(self) -> None:
        """Update its place, and those of the buckets around it, after a change of its content."""
        bucket, outer = self, self.outer
        while outer is not None:
            place = bucket.place if bucket.closed_by is None else None
            if place is None:
                outer.open.drop(bucket)
            else:
                outer.open.put(bucket, place)
            bucket, outer = outer, outer.outer


class ClosedBuckets:
    """The closed buckets of a partition, by the rank of the usage without room and by their own rank."""

    def __init__(self) -> None:
        self.by_usage: dict[int, dict[int, WaitBucket]] = {}
        self.ranks = Ranks()
        """Of all buckets."""

    def close(self, bucket: WaitBucket, level: QueueUsage) -> None:
        """Close a bucket until resources of this usage are freed."""
        bucket.closed_by = level
        self.by_usage.setdefault(level.rank, {})[bucket.rank] = bucket
        bucket.update_place()

    def forget(self, bucket: WaitBucket) -> None:
        """Remove a bucket, and those in it, that are removed from their leaf."""
        if bucket.closed_by is not None:
            here = self.by_usage[bucket.closed_by.rank]
            del here[bucket.rank]
            if not here:
                del self.by_usage[bucket.closed_by.rank]
        for inner in bucket.inner.values():
            self.forget(inner)

    def reopen(self, level: QueueUsage) -> bool:
        """Open the buckets that wait for this usage or one above it; return whether there were any."""
        if not self.by_usage:
            return False
        found = [self.by_usage.pop(one.rank, {}) for one in level.upward]
        for buckets in found:
            for bucket in buckets.values():
                bucket.closed_by = None
                bucket.update_place()
        return any(found)


class UnschedulableAsks:
    """The parked applications of one leaf, in wait buckets."""

    def __init__(self, leaf: Queue, closed: ClosedBuckets, parked_queues: ParkedQueues) -> None:
        self.leaf = leaf
        self.buckets: dict[BucketKey, WaitBucket] = {}
        """The outermost buckets; none is empty."""
        self.checked_round = -1
        """The last retry round in which nothing in them could be placed."""
        self.brought_back: tuple[int, BucketKey] | None = None
        """The rank of the application that was made ready last, and the bucket that was the reason."""
        self.is_trying = False
        """Whether the application brought back has not been tried yet; until then no other one is brought back. A
        refresh ends it, so snapshots leave it out.
        """
        self._closed = closed
        self._parked_queues = parked_queues
        self.buckets_of: dict[int, list[WaitBucket]] = {}
        """By the rank of an application, the buckets it is in."""

    def park(
        self, application: Application, account: UsageAccount, key: Key, waits: Iterable[Wait], retry_round: int
    ) -> None:
        """Park an application with this sort key in a bucket for each wait."""
        assert application.rank not in self.buckets_of, application.application_id
        self.is_trying = False
        accepted = application.state is AppState.ACCEPTED
        starts = accepted and self.leaf.is_limited() and application.application_id not in self.leaf.allocating
        limited = any(level.allowance and level.allowance.applications for level in account.limits)
        counts = accepted and not account.counted and limited
        buckets = self.buckets_of[application.rank] = []
        for shape, may_reserve in dict.fromkeys(waits):
            bucket = self._bucket(BucketKey(shape, may_reserve, starts, counts), account)
            bucket.applications.put(application, key)
            bucket.update_place()
            buckets.append(bucket)
        if self.brought_back is not None and self.brought_back[0] == application.rank:
            tried = self.buckets.get(self.brought_back[1])
            if tried is not None:  # the attempt failed, whatever the reason: no other one in this round
                tried.failed_round = retry_round
            self.brought_back = None

    def unpark(self, application: Application) -> None:
        """Remove an application, if it is parked."""
        self.is_trying = False
        for bucket in self.buckets_of.pop(application.rank, ()):
            bucket.applications.drop(application)
            self._prune(bucket)

    def first(self, bucket: WaitBucket) -> Application | None:
        """Return the most deserving application of a bucket whose user and group have room; close full buckets."""
        at = bucket
        while (inner := at.next_inner()) is not None:
            full = inner.find_full()
            if full is None:
                at = inner
            else:
                self._closed.close(inner, full)
                at = bucket
        return at.applications.first()

    def clear(self) -> None:
        """Remove all applications."""
        for bucket in self.buckets.values():
            self._closed.forget(bucket)
            self._parked_queues.remove_wait(self.leaf, bucket.key[:2])
        self.buckets.clear()
        self.buckets_of.clear()

    def _bucket(self, key: BucketKey, account: UsageAccount) -> WaitBucket:
        """Return the innermost bucket of an account; create those that are missing."""
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = WaitBucket(key, self._closed.ranks.following())
            self._parked_queues.add_wait(self.leaf, key[:2])
        for level in (account.group, account.user):
            if level is not None and level.limits:
                outer, inner = bucket, bucket.inner.get(level.rank)
                if inner is None:
                    inner = WaitBucket(key, self._closed.ranks.following(), of=level, outer=outer)
                    outer.inner[level.rank] = inner
                    full = inner.find_full()
                    if full is not None:
                        self._closed.close(inner, full)
                bucket = inner
        return bucket

    def _prune(self, bucket: WaitBucket) -> None:
        """Remove a bucket and those around it, as far as they are empty."""
        outer = bucket.outer
        if len(bucket.applications) or bucket.inner:
            bucket.update_place()
        elif outer is None:
            del self.buckets[bucket.key]
            self._parked_queues.remove_wait(self.leaf, bucket.key[:2])
        else:
            self._closed.forget(bucket)
            outer.open.drop(bucket)
            del outer.inner[bucket.of]
            self._prune(outer)
