"""Unschedulable asks: applications that a leaf has parked, in wait buckets by what they wait for, and parked queues.

Applications that wait for the same ask shape share a bucket, in their order. If limits bind them, they are in a nested
bucket of their group and, inside that, of their user. A bucket whose group or user has no room is *closed*: it is
skipped until resources of that group or user are freed. So the number of users that wait for their limits does not
matter.

Asks for which victims may be sought also wait for a search. It is the same one for all asks of a leaf with equal shape
and priority, so one attempt is enough: their applications share a bucket, and when the time of the search comes, only
the first of them is tried. If its attempt ends without a search, the next one follows.

A queue is parked if no ask below it can be placed. Parked queues are kept in order beside their siblings that are
ready. After resources were freed, they are checked one by one, the most deserving first, and only those before all
ready siblings; none, if no ask shape that waits below their parent has room in the parent and on a node. So a release
costs one check for each waiting ask shape, not for each queue.

`ready_queues.py` decides when to check buckets and queues.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine.allocation import AskGroup, AskShape, Place
from yunishard.partition_worker.engine.amounts import find_excess
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.sorted_items import Key, Order, Ranks, SortedItems, SortKey
from yunishard.partition_worker.engine.user_limits import QueueUsage, UsageAccount

Wait = tuple[AskShape, bool, int, bool]
"""The shape of asks that wait, whether a node to reserve will do, because they have waited long enough, their priority
(a node that is reserved for a lower one will do, too), and whether they wait to be counted for the back-off of their
application: they lacked room in a queue, or for their user, so that no node was tried.
"""

Searches = dict[tuple[AskShape, int], float]
"""The searches for victims that an application waits for, by ask shape and priority, and when each may be made, in Unix
seconds; 0.0 is now.
"""


class AttemptProgress:
    """How far an attempt to place the asks of an application has got."""

    __slots__ = ("failed", "is_cut", "last", "retry_at", "retry_round", "searches", "tried", "waits")

    def __init__(self, retry_round: int) -> None:
        self.retry_round = retry_round
        """In which it began."""
        self.waits: list[Wait] = []
        """The waits of the application if the attempt fails."""
        self.searches: Searches = {}
        """The searches for victims that it waits for then."""
        self.retry_at: float = NEVER
        """When another attempt may succeed even if nothing changes, in Unix seconds."""
        self.failed: list[AskGroup] = []
        """Groups that no node can take."""
        self.last: Place | None = None
        """The first ask of the last group that was tried; None before the first."""
        self.tried: int = 0
        """Groups that failed in this turn."""
        self.is_cut = False
        """Whether it stopped before the next group."""


class ParkedQueues:
    """The parked queues of a partition, and what asks below each queue wait for."""

    def __init__(self) -> None:
        self.children: dict[int, SortedItems[Queue]] = {}
        """The parked queues by the rank of their parent; none is empty."""
        self.waits: defaultdict[int, Counter[Wait]] = defaultdict(Counter)
        """By the rank of a queue, the number of buckets for each wait in the leaves below it. So a queue is asked once
        for each wait whether anything below it may be placed, and a wait stays until its last bucket is gone.
        """
        self.required_nodes: dict[str, Counter[AskShape]] = {}
        """By id, the nodes that waiting asks require, and the number of buckets for each shape of such asks."""
        self.checked_rounds: dict[int, int] = {}
        """By the rank of a queue, the last retry round in which no parked queue below it had anything to place."""

    def add_wait(self, leaf: Queue, wait: Wait) -> None:
        """Count a new bucket of the leaf."""
        for level in leaf.ancestry():
            self.waits[level.rank][wait] += 1
        shape = wait[0]
        if shape.required_node:
            self.required_nodes.setdefault(shape.required_node, Counter())[shape] += 1

    def remove_wait(self, leaf: Queue, wait: Wait) -> None:
        """Undo `add_wait`."""
        for level in leaf.ancestry():
            here = self.waits[level.rank]
            here[wait] -= 1
            if not here[wait]:
                del here[wait]
                if not here:
                    del self.waits[level.rank]
        shape = wait[0]
        if shape.required_node:
            shapes = self.required_nodes[shape.required_node]
            shapes[shape] -= 1
            if not shapes[shape]:
                del shapes[shape]
                if not shapes:
                    del self.required_nodes[shape.required_node]

    def park(self, child: Queue, retry_round: int) -> None:
        """Park a queue below which nothing can be placed in this retry round, if its own maximum allows anything that
        waits there, or victims on a required node may. Otherwise the queue has to wait until its own usage shrinks;
        that makes it ready anyway.
        """
        assert child.parent is not None, child.path
        ready = child.parent.ready_children
        # All below it was just tried. Checks say nothing about users and groups, so a check could find it worth an
        # attempt all the same, and the traversal would come back to it without an end.
        self.checked_rounds[child.rank] = retry_round
        waits = self.waits.get(child.rank, ())
        limits, used = child.limits, child.allocated_sum
        # The queues above it do not count: a release beside it makes room there, and leaves it untouched.
        if any(
            shape.required_node or limits is None or find_excess(used, shape.amounts, limits) < 0 for shape, *_ in waits
        ):
            parked = self.children.get(child.parent.rank)
            if parked is None:
                parked = self.children[child.parent.rank] = SortedItems()
            ready.hand_over(child, parked)
            child.is_parked = True
        else:
            ready.drop(child)

    def unpark(self, child: Queue) -> None:
        """Remove a queue that is ready, or below which no ask waits, if it is parked."""
        assert child.parent is not None, child.path
        if child.is_parked:
            self.children[child.parent.rank].drop(child)
            child.is_parked = False
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
            first_ready = queue.ready_children.first()
            for child in children:
                if first_ready is not None and first_ready.is_before(child.sort_key, child.rank):
                    return  # the round is not over for this queue: the children behind are next if the ready ones fail
                if self.checked_rounds.get(child.rank) != retry_round:
                    if may_place(child):
                        children.hand_over(child, queue.ready_children)
                        child.is_parked = False
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
    priority: int
    """Of the asks."""
    to_count: bool
    """As in `Wait`: as soon as only a node is missing, an attempt counts it, even if it places nothing."""
    starts: bool
    """Whether their queues have to let one more application run. Applications that run need no such opening, and
    would wait for one in the same bucket.
    """
    counts: bool
    """Whether their user and group have to let one more application run."""
    is_search: bool = False
    """Whether the asks wait for a search for victims; otherwise they wait for room."""

    @property
    def wait(self) -> Wait:
        """The common wait of the asks."""
        return self.shape, self.may_reserve, self.priority, self.to_count


class WaitBucket:
    """Applications of one leaf that wait for the same and have the same limits, and nested buckets for more limits."""

    def __init__(
        self,
        leaf: Queue,
        key: BucketKey,
        rank: int,
        *,
        of: QueueUsage | None = None,
        outer: "WaitBucket | None" = None,
    ) -> None:
        self.leaf = leaf
        self.key = key
        self.rank = rank
        self.limits = () if of is None else of.limits
        """The usages whose limits have to allow what it waits for, from the leaf up. They are those of its creation:
        other limits sort the leaf again (`Readiness.reset_leaf`), which drops its buckets.
        """
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
        self.search_at = 0.0
        """When its search for victims may be made, in Unix seconds."""

    @property
    def place(self) -> Key | None:
        """The sort key of the first application that is not in a closed bucket; None if there is none."""
        own, inner = self.applications.first_place(), self.open.first_place()
        # A nested bucket has the key of its first application and its own rank. The two compare although one is longer:
        # an application is in one bucket of a key only, so the ranks of the applications differ.
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
        # Nothing else opens it: whatever lets a usage shrink has to call `Readiness.reopen_limits`.
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
        bucket.outer = None  # a worker never frees cycles

    def reopen(self, level: QueueUsage) -> list[WaitBucket]:
        """Open the buckets that wait for this usage or one above it, and return them."""
        if not self.by_usage:
            return []
        # An amount that is freed in a leaf is freed in each usage above it, and any of these may be the full one.
        opened = [bucket for one in level.upward for bucket in self.by_usage.pop(one.rank, {}).values()]
        for bucket in opened:
            bucket.closed_by = None
            bucket.update_place()
        return opened


class UnschedulableAsks:
    """The parked applications of one leaf, in wait buckets."""

    def __init__(
        self, leaf: Queue, closed: ClosedBuckets, parked_queues: ParkedQueues, searches: Order[WaitBucket]
    ) -> None:
        self.leaf = leaf
        self.buckets: dict[BucketKey, WaitBucket] = {}
        """The outermost buckets of applications that wait for room; none is empty."""
        self.searching: dict[BucketKey, WaitBucket] = {}
        """The outermost buckets of applications that wait for a search for victims; none is empty."""
        self.due: dict[BucketKey, WaitBucket] = {}
        """Those of them whose search may be made now; the others are among the searches of the partition."""
        self.checked_round = -1
        """The last retry round in which nothing in them could be placed."""
        self.brought_back: tuple[int, BucketKey] | None = None
        """The rank of the application that was made ready last, and the bucket that was the reason."""
        self.is_trying = False
        """Whether the application brought back has not been tried yet; until then no other one is brought back, as the
        first may take the room that both need.
        """
        self._closed = closed
        self._parked_queues = parked_queues
        self._searches = searches
        self.buckets_of: dict[int, list[WaitBucket]] = {}
        """By the rank of an application, the buckets it is in."""

    def park(
        self,
        application: Application,
        account: UsageAccount,
        key: SortKey,
        waits: Iterable[Wait],
        searches: Searches,
        retry_round: int,
    ) -> None:
        """Park an application with this sort key in a bucket for each wait and each search."""
        assert application.rank not in self.buckets_of, application.application_id
        self.is_trying = False
        accepted = application.state is AppState.ACCEPTED
        starts = accepted and self.leaf.is_limited() and application.application_id not in self.leaf.allocating
        limited = any(level.allowance and level.allowance.applications for level in account.limits)
        counts = accepted and not account.counted and limited
        keys: dict[BucketKey, float | None] = {BucketKey(*wait, starts, counts): None for wait in waits}
        for (shape, priority), at in searches.items():
            wait: Wait = shape, False, priority, False
            keys[BucketKey(*wait, starts, counts, is_search=True)] = at
        buckets = self.buckets_of[application.rank] = []
        for one, search_at in keys.items():
            is_new = search_at is None and one not in self.buckets
            bucket = self._bucket(one, account)
            if is_new:  # all that is in it was tried just now
                self.buckets[one].failed_round = retry_round
            bucket.applications.put(application, key)
            bucket.update_place()
            buckets.append(bucket)
            if search_at is not None:
                self._schedule(one, search_at)
        if self.brought_back is not None and self.brought_back[0] == application.rank:
            reason = self.brought_back[1]
            tried = self.buckets.get(reason)
            # The attempt failed, so the next one in this round would, unless only its own user or group has no room any
            # more. An attempt that was made to count an ask for the back-off has counted it if it waits for something
            # else now, and the next application has to count its own.
            is_limited = not account.has_room(reason.shape.amounts) or (reason.counts and not account.may_start())
            if tried is not None and not is_limited and (reason in keys or not reason.to_count):
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
                at = bucket  # another application may come first now, in each of the buckets around it
        return at.applications.first()

    def clear(self) -> None:
        """Remove all applications."""
        for bucket in self.buckets.values():
            self._closed.forget(bucket)
            self._parked_queues.remove_wait(self.leaf, bucket.key.wait)
        for bucket in self.searching.values():
            self._closed.forget(bucket)
            self._searches.drop(bucket)
        self.buckets.clear()
        self.searching.clear()
        self.due.clear()
        self.buckets_of.clear()

    def _bucket(self, key: BucketKey, account: UsageAccount) -> WaitBucket:
        """Return the innermost bucket of an account; create those that are missing."""
        table = self.buckets if not key.is_search else self.searching
        bucket = table.get(key)
        if bucket is None:
            bucket = table[key] = WaitBucket(self.leaf, key, self._closed.ranks.following())
            if not key.is_search:
                self._parked_queues.add_wait(self.leaf, key.wait)
        for level in (account.group, account.user):  # so that one check of a full group closes those of all its users
            if level is not None and level.limits:
                outer, inner = bucket, bucket.inner.get(level.rank)
                if inner is None:
                    inner = WaitBucket(self.leaf, key, self._closed.ranks.following(), of=level, outer=outer)
                    outer.inner[level.rank] = inner
                    full = inner.find_full()
                    if full is not None:
                        self._closed.close(inner, full)
                bucket = inner
        return bucket

    def _schedule(self, key: BucketKey, at: float) -> None:
        """Let the search of a bucket wait for this time; 0.0 is now."""
        bucket = self.searching[key]
        bucket.search_at = at
        if at:
            self.due.pop(key, None)
            self._searches.put(bucket, (at,))
        else:
            self._searches.drop(bucket)
            self.make_due(bucket)

    def make_due(self, bucket: WaitBucket) -> None:
        """Let the search of a bucket be made as soon as its turn comes."""
        self.due[bucket.key] = bucket
        self.checked_round = -1  # the time of a search begins no retry round, so the leaf is checked again in this one

    def _prune(self, bucket: WaitBucket) -> None:
        """Remove a bucket and those around it, as far as they are empty."""
        outer = bucket.outer
        if len(bucket.applications) or bucket.inner:
            bucket.update_place()
        elif outer is None and not bucket.key.is_search:
            del self.buckets[bucket.key]
            self._parked_queues.remove_wait(self.leaf, bucket.key.wait)
        elif outer is None:
            del self.searching[bucket.key]
            self.due.pop(bucket.key, None)
            self._searches.drop(bucket)
        else:
            self._closed.forget(bucket)
            outer.open.drop(bucket)
            del outer.inner[bucket.of]
            self._prune(outer)
