"""The asks of one application that have no node yet, in the order in which they are tried.

Asks with the same need are one group, because what happens to one of them now would happen to each: an attempt looks
at the first of each group, so it costs the number of needs, not of asks.

Not here: whether an ask can be placed (`cycle.py`).
"""

from collections.abc import Iterator

from common.messages import Resources
from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.needs import Need
from partition_worker.engine.order import Key, Order


class Group:
    """Asks with the same need, in order."""

    def __init__(self, need: Need, rank: int) -> None:
        self.need = need
        self.rank = rank
        self.asks: Order[Allocation] = Order()

    @property
    def head(self) -> Allocation:
        """The first ask; a group is never empty."""
        first = self.asks.first()
        assert first is not None, self.need
        return first


class PendingAsks:
    """Unplaced asks: highest priority first, of equals the oldest.

    Asks that are equal in both (their times come from the RM, in whole seconds) follow the reference's insertion
    rule: a new one goes behind its equals if they are at the very end of all asks, and otherwise in front of them.
    """

    def __init__(self) -> None:
        self._groups: dict[Need, Group] = {}
        self._heads: Order[Group] = Order()
        self._equals: dict[tuple[int, int], tuple[int, int, int]] = {}  # (priority, time): lowest rank, highest, count
        self._ranks = 0
        self._count = 0
        self._last: Key | None = None
        """The largest key of all asks; None when it has to be looked for."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Allocation]:
        """All asks, group by group."""
        for group in self._groups.values():
            yield from group.asks

    @property
    def groups(self) -> Iterator[Group]:
        """In the order of their first asks; must not change meanwhile."""
        return iter(self._heads)

    @property
    def priority(self) -> int | None:
        """The highest priority of an ask, or None without any."""
        first = self._heads.first()
        return None if first is None else first.head.priority

    def add(self, ask: Allocation) -> None:
        """Add an ask at its place."""
        ask.rank = self._rank_among_equals(ask)
        self._put(ask)
        self._count += 1
        if self._count == 1 or (self._last is not None and _key(ask) > self._last):
            self._last = _key(ask)

    def resize(self, ask: Allocation, resources: Resources) -> None:
        """Let an ask that is in ask for other amounts, at its old place."""
        self._take(ask)
        ask.resize(resources)
        self._put(ask)

    def remove(self, ask: Allocation) -> None:
        """Take an ask out that is in."""
        self._take(ask)
        low, high, count = self._equals[ask.priority, ask.created_ns]
        if count > 1:
            self._equals[ask.priority, ask.created_ns] = (low, high, count - 1)
        else:
            del self._equals[ask.priority, ask.created_ns]
        self._count -= 1

    def _put(self, ask: Allocation) -> None:
        group = self._groups.get(ask.need)
        if group is None:
            group = self._groups[ask.need] = Group(ask.need, self._ranks)
            self._ranks += 1
        group.asks.put(ask, _key(ask))
        self._heads.put(group, _key(group.head))

    def _take(self, ask: Allocation) -> None:
        if self._last == _key(ask):
            self._last = None
        group = self._groups[ask.need]
        group.asks.drop(ask)
        if len(group.asks):
            self._heads.put(group, _key(group.head))
        else:
            self._heads.drop(group)
            del self._groups[ask.need]

    def _rank_among_equals(self, ask: Allocation) -> int:
        equals = self._equals.get((ask.priority, ask.created_ns))
        if equals is None:
            rank, equals = 0, (0, 0, 0)
        elif self._ends_with_equals_of(ask):
            rank = equals[1] + 1
        else:
            rank = equals[0] - 1
        self._equals[ask.priority, ask.created_ns] = (min(rank, equals[0]), max(rank, equals[1]), equals[2] + 1)
        return rank

    def _ends_with_equals_of(self, ask: Allocation) -> bool:
        if self._last is None:
            self._last = max(key for group in self._groups.values() if (key := group.asks.last_key()) is not None)
        return self._last[:2] == _key(ask)[:2]


def _key(ask: Allocation) -> Key:
    return (-ask.priority, ask.created_ns, ask.rank)
