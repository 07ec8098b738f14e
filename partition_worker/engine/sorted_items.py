"""Sorted collections whose items change their keys one at a time.

Queues by share and applications by policy are kept in them instead of being sorted for every decision. Insert, move and
remove cost O(log n) comparisons and a shift within one block; the first item costs nothing. Most collections fit into
one block, where nothing is faster than a sorted list. Nodes have an index of their own (`nodes/node_index.py`).

`SortedItems` is for what moves with each decision: queues, applications and groups of asks. The item has the parts of
its key as attributes, so a move creates no objects. An `Order` takes any key, and an item may be in several.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, Protocol, TypeVar

Shares = tuple[float, ...]

SortKey = tuple[int, float, Shares, int, int]
"""The key of an item of `SortedItems`, whose parts depend on the kind of items; a policy that needs fewer has 0."""

NO_SHARES: Final[Shares] = ()

Key = tuple[float | str | Shares, ...]

BLOCK_MAX: Final = 512
"""Items in a block; a larger one is split in half."""


class Item:
    """An item of `SortedItems`, of one at a time: it has the key by which it is sorted there. Ties between equal keys
    go to the smaller rank; ranks of such items differ.
    """

    __slots__ = ("is_sorted", "is_touched", "key_1", "key_2", "key_3", "key_4", "key_5", "rank")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.is_sorted = False
        """Whether it is in a collection; only then the parts of the key count."""
        self.is_touched = False
        """Whether its key may have changed (`Readiness.touch`)."""
        self.key_1: int = 0
        self.key_2: float = 0.0
        self.key_3: Shares = NO_SHARES
        self.key_4: int = 0
        self.key_5: int = 0

    def is_at(self, key: SortKey) -> bool:
        """Whether this is its key."""
        return (
            self.key_1 == key[0]
            and self.key_2 == key[1]
            and self.key_4 == key[3]
            and self.key_5 == key[4]
            and self.key_3 == key[2]
        )

    def is_before(self, key: SortKey, rank: int) -> bool:
        """Whether it comes before an item with this key and rank."""
        if self.key_1 != key[0]:
            return self.key_1 < key[0]
        if self.key_2 != key[1]:
            return self.key_2 < key[1]
        if self.key_3 is not key[2] and self.key_3 != key[2]:
            return self.key_3 < key[2]
        if self.key_4 != key[3]:
            return self.key_4 < key[3]
        if self.key_5 != key[4]:
            return self.key_5 < key[4]
        return self.rank < rank

    @property
    def sort_key(self) -> SortKey:
        """The key by which it is sorted."""
        return self.key_1, self.key_2, self.key_3, self.key_4, self.key_5


_I = TypeVar("_I", bound=Item)


class SortedItems(Generic[_I]):
    """Items by ascending key and rank."""

    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._blocks: list[list[_I]] = [[]]
        """Only an empty collection has an empty block."""
        self._count: int = 0

    def put(self, item: _I, key: SortKey) -> None:
        """Insert an item, or move it to the place of this key."""
        if item.is_sorted:
            if self._count == 1:
                _set_key(item, key)
                return
            if item.is_at(key):
                return
            at, index = self._find(item)
            if self._keeps_place(at, index, key, item.rank):
                _set_key(item, key)
                return
            self._take(at, index)
        _set_key(item, key)
        item.is_sorted = True
        self._count += 1
        at = self._find_block(key, item.rank)
        block = self._blocks[at]
        block.insert(_find_place(block, key, item.rank), item)
        if len(block) > BLOCK_MAX:
            self._blocks.insert(at + 1, block[BLOCK_MAX // 2 :])
            del block[BLOCK_MAX // 2 :]

    def drop(self, item: _I) -> None:
        """Remove an item, if it is there."""
        if item.is_sorted:
            at, index = self._find(item)
            self._take(at, index)
            item.is_sorted = False

    def clear(self) -> None:
        """Remove all items, without a search for each of thousands."""
        for item in self:
            item.is_sorted = False
        self._blocks = [[]]
        self._count = 0

    def hand_over(self, item: _I, to: "SortedItems[_I]") -> None:
        """Move an item to another collection, with its key."""
        self.drop(item)
        to.put(item, item.sort_key)

    def first(self) -> _I | None:
        """The first item, or None."""
        items = self._blocks[0]
        return items[0] if items else None

    def __iter__(self) -> Iterator[_I]:
        """Items in order; the collection must not change during iteration."""
        return iter(self._blocks[0]) if len(self._blocks) == 1 else chain.from_iterable(self._blocks)

    def __len__(self) -> int:
        return self._count

    def _keeps_place(self, at: int, index: int, key: SortKey, rank: int) -> bool:
        """Whether the neighbours of an item at this place stay the same with this key: often they do."""
        block = self._blocks[at]
        if (index == 0 and at > 0) or (index + 1 == len(block) and at + 1 < len(self._blocks)):
            return False  # the neighbour is in another block
        return (index == 0 or block[index - 1].is_before(key, rank)) and (
            index + 1 == len(block) or not block[index + 1].is_before(key, rank)
        )

    def _take(self, at: int, index: int) -> None:
        block = self._blocks[at]
        del block[index]
        if not block and len(self._blocks) > 1:
            del self._blocks[at]
        self._count -= 1

    def _find(self, item: _I) -> tuple[int, int]:
        """The block of an item, and its place in it."""
        if self._blocks[0][0] is item:  # most moves are of the item that was chosen
            return 0, 0
        key = item.sort_key
        at = self._find_block(key, item.rank)
        block = self._blocks[at]
        index = _find_place(block, key, item.rank)
        assert block[index] is item, item.rank
        return at, index

    def _find_block(self, key: SortKey, rank: int) -> int:
        """The block in which an item with this key is or belongs."""
        blocks = self._blocks
        low, high = 1, len(blocks)
        while low < high:
            middle = (low + high) // 2
            first = blocks[middle][0]
            if first.is_before(key, rank) or (first.rank == rank and first.is_at(key)):
                low = middle + 1
            else:
                high = middle
        return low - 1


def _set_key(item: Item, key: SortKey) -> None:
    item.key_1, item.key_2, item.key_3, item.key_4, item.key_5 = key


def _find_place(block: "list[_I]", key: SortKey, rank: int) -> int:
    """How many items of a block come before this key and rank."""
    low, high = 0, len(block)
    while low < high:
        middle = (low + high) // 2
        if block[middle].is_before(key, rank):
            low = middle + 1
        else:
            high = middle
    return low


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
