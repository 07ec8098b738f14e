"""Unschedulable asks: the applications that a leaf has parked, in wait buckets by what they wait for.

Applications that wait for the same need share a bucket, in their order. If limits bind them, they are in a nested
bucket of their group and, inside that, of their user. A bucket whose group or user has no room is *closed*: it is
skipped until resources of that group or user are freed. So the number of users that wait for their limits does not
matter.

`readiness.py` decides when to look at the buckets.
"""

from collections.abc import Iterable
from typing import NamedTuple

from partition_worker.engine.application import Application, AppState
from partition_worker.engine.ask_shapes import AskShape
from partition_worker.engine.order import Key, Order, Ranks
from partition_worker.engine.queues.queue import Queue, is_limited
from partition_worker.engine.readiness.parked_queues import ParkedQueues
from partition_worker.engine.usage_trackers import QueueUsage, UsageAccount


class Wait(NamedTuple):
    """What some asks of an application wait for."""

    shape: AskShape
    reserves: bool = False
    """Whether they have waited for long enough to have a node kept for them, so that a node will do that may be."""


class BucketKey(NamedTuple):
    """What an application waits for."""

    shape: AskShape
    reserves: bool
    """As for `Wait`."""
    starts: bool
    """That its queues let one more application run."""
    counts: bool
    """That its user and group may run one more."""


class WaitBucket:
    """Applications of one leaf that want the same and are bound by the same limits, and shelves for further limits."""

    def __init__(
        self,
        want: BucketKey,
        rank: int,
        *,
        bounds: tuple[QueueUsage, ...] = (),
        outer: "WaitBucket | None" = None,
        of: int = -1,
    ) -> None:
        self.want = want
        self.rank = rank
        self.bounds = bounds
        self.outer = outer
        self.of = of
        """The rank of the level, of a user or group, for which it is among those of the outer shelf."""
        self.applications: Order[Application] = Order()
        self.inner: dict[int, WaitBucket] = {}
        """By what they are of."""
        self.open: Order[WaitBucket] = Order()
        """Those of them that have something on them and may have room, by what they have first."""
        self.closed_by: QueueUsage | None = None
        """The level that had no room when somebody looked."""
        self.vain_at = -1
        """The last relief after which nothing on it could be placed, whoever it is for."""

    @property
    def place(self) -> Key | None:
        """Where the first of what may have room stands; None if there is nothing."""
        own, inner = self.applications.first_place(), self.open.first_place()
        if own is None or inner is None:
            return own or inner
        return min(own, inner)

    @property
    def stocked(self) -> bool:
        """Whether there is anything that may have room."""
        return len(self.applications) > 0 or len(self.open) > 0

    @property
    def empty(self) -> bool:
        return not len(self.applications) and not self.inner

    def next_inner(self) -> "WaitBucket | None":
        """The open shelf that is more deserving than any application that lies here directly."""
        shelf = self.open.first()
        if shelf is None:
            return None
        own, place = self.applications.first_place(), self.open.first_place()
        return shelf if own is None or place is None or place < own else None

    def blocking(self) -> QueueUsage | None:
        """The level that has no room for what is wanted."""
        amounts, counts = self.want.shape.amounts, self.want.counts
        for level in self.bounds:
            if not level.has_room(amounts) or (counts and not level.may_start()):
                return level
        return None

    def settle(self) -> None:
        """What lies here changed: take the place among the open shelves that it deserves, and so further out."""
        shelf, outer = self, self.outer
        while outer is not None:
            place = shelf.place if shelf.closed_by is None else None
            if place is None:
                outer.open.drop(shelf)
            else:
                outer.open.put(shelf, place)
            shelf, outer = outer, outer.outer


class ClosedBuckets:
    """The shelves of a partition that are closed, by the level that has no room."""

    def __init__(self) -> None:
        self.shelves: dict[int, dict[int, WaitBucket]] = {}
        self.ranks = Ranks()

    def next_rank(self) -> int:
        """For a new shelf."""
        return self.ranks.following()

    def close(self, shelf: WaitBucket, level: QueueUsage) -> None:
        """Nothing on the shelf can be had as long as nothing of this level is freed."""
        shelf.closed_by = level
        self.shelves.setdefault(level.rank, {})[shelf.rank] = shelf
        shelf.settle()

    def drop(self, shelf: WaitBucket) -> None:
        """The shelf goes, with what is on it."""
        if shelf.closed_by is not None:
            here = self.shelves[shelf.closed_by.rank]
            del here[shelf.rank]
            if not here:
                del self.shelves[shelf.closed_by.rank]
        for inner in shelf.inner.values():
            self.drop(inner)

    def reopen(self, level: QueueUsage) -> bool:
        """Something of this level and of those above was freed; whether any shelf waited for it."""
        if not self.shelves:
            return False
        found = [self.shelves.pop(one.rank, {}) for one in level.upward()]
        for shelves in found:
            for shelf in shelves.values():
                shelf.closed_by = None
                shelf.settle()
        return any(found)


class UnschedulableAsks:
    """All that one leaf has set aside."""

    def __init__(self, leaf: Queue, closed: ClosedBuckets, resting: ParkedQueues) -> None:
        self.leaf = leaf
        self.parked: dict[BucketKey, WaitBucket] = {}
        """What is bound by no limit lies here directly; no shelf is empty."""
        self.searched_at = -1
        """The last relief after which nothing that is aside could be placed."""
        self.brought_back: tuple[int, BucketKey] | None = None
        """The rank of the application that was made ready last, and why."""
        self.untried = False
        """Whether nothing has come of that yet: nobody else is brought back meanwhile. It is over with the next
        `refresh`, so nobody has to remember it.
        """
        self._closed = closed
        self._resting = resting
        self.found_on: dict[int, list[WaitBucket]] = {}
        """Rank of an application to the shelves on which it lies."""

    def park(self, application: Application, account: UsageAccount, key: Key, waits: Iterable[Wait]) -> None:
        """Set an application aside, under everything it waits for."""
        assert application.rank not in self.found_on, application.application_id
        accepted = application.state is AppState.ACCEPTED
        starts = accepted and is_limited(self.leaf) and application.application_id not in self.leaf.allocating
        counts = accepted and not account.counted and any(level.limits_applications for level in account.bounds)
        on = self.found_on[application.rank] = []
        for shape, reserves in dict.fromkeys(waits):
            shelf = self._shelf(BucketKey(shape, reserves, starts, counts), account)
            shelf.applications.put(application, key)
            shelf.settle()
            on.append(shelf)

    def take(self, application: Application) -> None:
        """The application is no longer aside, if it was."""
        for shelf in self.found_on.pop(application.rank, ()):
            shelf.applications.drop(application)
            self._tidy(shelf)

    def first(self, shelf: WaitBucket) -> Application | None:
        """The most deserving on the shelf for whose user and group there is room; shelves without room are closed."""
        at = shelf
        while (inner := at.next_inner()) is not None:
            level = inner.blocking()
            if level is None:
                at = inner
            else:
                self._closed.close(inner, level)
                at = shelf
        return at.applications.first()

    def dissolve(self) -> None:
        """Nothing is aside any more."""
        for shelf in self.parked.values():
            self._closed.drop(shelf)
            self._resting.no_longer_expect(self.leaf, (shelf.want.shape, shelf.want.reserves))
        self.parked.clear()
        self.found_on.clear()

    def _shelf(self, want: BucketKey, account: UsageAccount) -> WaitBucket:
        shelf = self.parked.get(want)
        if shelf is None:
            shelf = self.parked[want] = WaitBucket(want, self._closed.next_rank())
            self._resting.expect(self.leaf, (want.shape, want.reserves))
        for level, bounds in ((account.group, account.group_bounds), (account.user, account.user_bounds)):
            if bounds and level is not None:
                inner = shelf.inner.get(level.rank)
                if inner is None:
                    rank = self._closed.next_rank()
                    inner = shelf.inner[level.rank] = WaitBucket(want, rank, bounds=bounds, outer=shelf, of=level.rank)
                    blocking = inner.blocking()
                    if blocking is not None:
                        self._closed.close(inner, blocking)
                shelf = inner
        return shelf

    def _tidy(self, shelf: WaitBucket) -> None:
        """Remove shelves on which nothing is left."""
        outer = shelf.outer
        if outer is None:
            if shelf.empty:
                del self.parked[shelf.want]
                self._resting.no_longer_expect(self.leaf, (shelf.want.shape, shelf.want.reserves))
            return
        if not shelf.empty:
            shelf.settle()
            return
        self._closed.drop(shelf)
        outer.open.drop(shelf)
        del outer.inner[shelf.of]
        self._tidy(outer)
