"""A sorted collection whose items change their keys one at a time.

Queues by share and applications by policy are kept in it instead of being sorted for every decision. Insert, move and
remove cost O(log n) comparisons and a shift within one block; the first item costs nothing. Most orders fit into one
block, where nothing is faster than a sorted list. Nodes have an index of their own (`nodes/node_index.py`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, Protocol, TypeVar

Key = tuple[float | str | tuple[float, ...], ...]

BLOCK_MAX: Final = 512
"""Items in a block; a larger one is split in half."""


class Ranked(Protocol):
    """An item of an order: ties between equal keys go to the smaller rank; ranks of such items differ."""

    rank: int


_T = TypeVar("_T", bound=Ranked)


class Ranks:
    """Increasing numbers."""

    def __init__(self, last: int = -1) -> None:
        self.last = last
        """The latest number."""

    def following(self) -> int:
        """The next number."""
        self.last += 1
        return self.last


class Order(Generic[_T]):
    """Items by ascending (key, rank). All keys must be comparable, and none may be a prefix of another."""

    __slots__ = ("_blocks", "_floors", "_items", "_places")

    def __init__(self) -> None:
        self._places: dict[int, Key] = {}
        """Each item's key with its rank, by id(); only for lookup."""
        self._blocks: list[list[Key]] = [[]]
        """The keys in order. Only an empty order has an empty block."""
        self._items: list[list[_T]] = [[]]
        """The items of these keys."""
        self._floors: list[Key] = []
        """For each block but the first, a lower bound of its keys that is above all keys of earlier blocks."""

    def put(self, item: _T, key: Key) -> None:
        """Insert an item, or move it to its new key."""
        place = (*key, item.rank)
        old = self._places.get(id(item))
        if old is None:
            self._add(item, place)
        elif old != place:
            if self._floors:
                self._take(old)
                self._add(item, place)
            else:
                self._move(item, old, place)

    def _move(self, item: _T, old: Key, place: Key) -> None:
        """Move an item within the only block; often its neighbours stay the same."""
        self._places[id(item)] = place
        block = self._blocks[0]
        index = bisect_left(block, old)
        if (not index or block[index - 1] < place) and (index + 1 == len(block) or place < block[index + 1]):
            block[index] = place
            return
        items = self._items[0]
        del block[index], items[index]
        index = bisect_left(block, place)
        block.insert(index, place)
        items.insert(index, item)

    def _add(self, item: _T, place: Key) -> None:
        self._places[id(item)] = place
        at = bisect_right(self._floors, place) if self._floors else 0
        block, items = self._blocks[at], self._items[at]
        index = bisect_left(block, place)
        block.insert(index, place)
        items.insert(index, item)
        if len(block) > BLOCK_MAX:
            self._halve(at)

    def drop(self, item: _T) -> None:
        """Remove an item, if it is there."""
        old = self._places.pop(id(item), None)
        if old is not None:
            self._take(old)

    def hand_over(self, item: _T, to: "Order[_T]") -> None:
        """Move an item to another order, with its key."""
        place = self._places.pop(id(item))
        self._take(place)
        to._add(item, place)

    def place(self, item: _T) -> Key:
        """The key of an item, with its rank."""
        return self._places[id(item)]

    def first(self) -> _T | None:
        """The first item, or None."""
        items = self._items[0]
        return items[0] if items else None

    def first_place(self) -> Key | None:
        """The key and rank of the first item, or None."""
        block = self._blocks[0]
        return block[0] if block else None

    def __iter__(self) -> Iterator[_T]:
        """Items in order; the order must not change during iteration."""
        return iter(self._items[0]) if not self._floors else chain.from_iterable(self._items)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, item: _T) -> bool:
        return id(item) in self._places

    def _take(self, place: Key) -> None:
        at = bisect_right(self._floors, place) if self._floors else 0
        block, items = self._blocks[at], self._items[at]
        index = bisect_left(block, place)
        del block[index], items[index]
        if not block and self._floors:
            del self._blocks[at], self._items[at], self._floors[max(at - 1, 0)]

    def _halve(self, at: int) -> None:
        """Move the upper half of this block to a new one."""
        block, items, half = self._blocks[at], self._items[at], BLOCK_MAX // 2
        self._blocks.insert(at + 1, block[half:])
        self._items.insert(at + 1, items[half:])
        self._floors.insert(at, block[half])
        del block[half:], items[half:]
