"""Things kept in order while their keys change one at a time.

Queues by share, applications by policy and asks by rank are all kept like this instead of being sorted for every
decision. Putting, moving and dropping cost O(log n) comparisons and the shift of one block; the first is at hand. Most
orders have so few items that they are one block, and then nothing is faster than a plain sorted list.

Not here: the keys; each kind of thing has its own. Nodes are kept in an order that knows more (`nodes/lineup.py`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, Protocol, TypeVar

Key = tuple[float | str | tuple[float, ...], ...]

BLOCK_MAX: Final = 512
"""Items of a block; with more it is halved."""


class Ranked(Protocol):
    """What can be kept in order: of two things with the same key the one with the smaller rank is first. Ranks then
    differ.
    """

    rank: int


_T = TypeVar("_T", bound=Ranked)


class Ranks:
    """Numbers for things that come one after another, each larger than those before."""

    def __init__(self, last: int = -1) -> None:
        self.last = last
        """The one that was given last."""

    def following(self) -> int:
        """The next one."""
        self.last += 1
        return self.last


class Order(Generic[_T]):
    """Items by ascending (key, rank). Keys in one order must be comparable with each other, and none may be the
    beginning of another one.
    """

    __slots__ = ("_blocks", "_floors", "_items", "_places")

    def __init__(self) -> None:
        self._places: dict[int, Key] = {}
        """The key of each item and its rank, in one; by id(), and only ever looked up."""
        self._blocks: list[list[Key]] = [[]]
        """The places in order. No block is empty, unless nothing is in."""
        self._items: list[list[_T]] = [[]]
        """Those that have these places."""
        self._floors: list[Key] = []
        """For each block but the first a place that is behind all in the blocks before, and not behind any in this one
        or after it.
        """

    def put(self, item: _T, key: Key) -> None:
        """Add an item, or move it to where its new key belongs."""
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
        """Where there is one block only. Who has got a little more often stays between the same neighbours."""
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
        """Take an item out; nothing happens if it is not in."""
        old = self._places.pop(id(item), None)
        if old is not None:
            self._take(old)

    def hand_over(self, item: _T, to: "Order[_T]") -> None:
        """Let an item that is in go to another order, to the same place."""
        place = self._places.pop(id(item))
        self._take(place)
        to._add(item, place)

    def place(self, item: _T) -> Key:
        """The key of an item that is in, made unique by its rank."""
        return self._places[id(item)]

    def first(self) -> _T | None:
        """The item with the smallest key, or None when empty."""
        items = self._items[0]
        return items[0] if items else None

    def first_place(self) -> Key | None:
        """The smallest key, made unique by the rank of its item, or None when empty."""
        block = self._blocks[0]
        return block[0] if block else None

    def entries(self) -> Iterator[tuple[_T, Key]]:
        """Items with their keys, in order; the order must not change meanwhile."""
        for items, block in zip(self._items, self._blocks, strict=True):
            for item, place in zip(items, block, strict=True):
                yield item, place[:-1]

    def __iter__(self) -> Iterator[_T]:
        """In order; the order must not change meanwhile."""
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
        """Give half of the block at this index to a new one behind it."""
        block, items, half = self._blocks[at], self._items[at], BLOCK_MAX // 2
        self._blocks.insert(at + 1, block[half:])
        self._items.insert(at + 1, items[half:])
        self._floors.insert(at, block[half])
        del block[half:], items[half:]
