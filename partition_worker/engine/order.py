"""Things kept in order while their keys change one at a time.

Queues by share, applications by policy, nodes by score and asks by rank are all kept like this instead of being
sorted for every decision. Putting, moving and dropping cost O(log n); the first is at hand.

Not here: the keys; each kind of thing has its own.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from sortedcontainers import SortedList

Key = tuple[float | str | tuple[float, ...], ...]


class Ranked(Protocol):
    """What can be kept in order: of two things with the same key the one with the smaller rank is first. Ranks then
    differ.
    """

    rank: int


_T = TypeVar("_T", bound=Ranked)


class Order(Generic[_T]):
    """Items by ascending (key, rank). Keys in one order must be comparable with each other."""

    def __init__(self) -> None:
        self._entries = SortedList()
        self._keys: dict[int, tuple[Key, int, _T]] = {}  # by id(), and only ever looked up

    def put(self, item: _T, key: Key) -> None:
        """Add an item, or move it to where its new key belongs."""
        old = self._keys.get(id(item))
        if old is not None:
            if old[0] == key:
                return
            self._entries.remove(old)
        entry = self._keys[id(item)] = (key, item.rank, item)
        self._entries.add(entry)

    def drop(self, item: _T) -> None:
        """Take an item out; nothing happens if it is not in."""
        old = self._keys.pop(id(item), None)
        if old is not None:
            self._entries.remove(old)

    def first(self) -> _T | None:
        """The item with the smallest key, or None when empty."""
        if not self._keys:
            return None
        item: _T = self._entries[0][2]
        return item

    def first_place(self) -> Key | None:
        """The smallest key, made unique by the rank of its item, or None when empty."""
        if not self._keys:
            return None
        key, rank, _ = self._entries[0]
        return (*key, rank)

    def last_key(self) -> Key | None:
        """The largest key, or None when empty."""
        if not self._keys:
            return None
        key: Key = self._entries[-1][0]
        return key

    def __iter__(self) -> Iterator[_T]:
        """In order; the order must not change meanwhile."""
        return (entry[2] for entry in self._entries)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, item: _T) -> bool:
        return id(item) in self._keys
