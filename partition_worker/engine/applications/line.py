"""Asks of one kind, in the order in which they are tried.

Nearly all come at the end and go from the front, and that costs no search. What comes or goes in between costs
O(log n) looks and the shift of one block. An ask says itself where it stands, so nothing but the ask is kept of it.

Not here: which asks are of one kind (`asks.py`). Things whose places change are kept otherwise (`engine/order.py`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Final

from partition_worker.engine.applications.allocation import Allocation

BLOCK_MAX: Final = 512
"""Asks of a block; with more it is halved."""

Place = tuple[int, int, int]


def place_of(ask: Allocation) -> Place:
    """Where an ask stands among those of its application; smaller is tried first."""
    return (-ask.priority, ask.created_ns, ask.rank)


def _begins(block: list[Allocation]) -> Place:
    return place_of(block[0])


class Line:
    """Asks by ascending place, of which no two are the same. The place of an ask must not change while it is in."""

    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._blocks: list[list[Allocation]] = [[]]
        """No block is empty, unless nothing is in."""
        self._count = 0

    @property
    def head(self) -> Allocation:
        """The first ask of a line that is not empty."""
        return self._blocks[0][0]

    @property
    def last(self) -> Allocation:
        """The last ask of a line that is not empty."""
        return self._blocks[-1][-1]

    def add(self, ask: Allocation) -> None:
        """Add an ask that is not in."""
        self._count += 1
        blocks, place = self._blocks, place_of(ask)
        block = blocks[-1]
        if not block or place_of(block[-1]) < place:
            if len(block) < BLOCK_MAX:
                block.append(ask)
            else:
                blocks.append([ask])
            return
        at = self._at(place)
        block = blocks[at]
        block.insert(bisect_left(block, place, key=place_of), ask)
        if len(block) > BLOCK_MAX:
            blocks.insert(at + 1, block[BLOCK_MAX // 2 :])
            del block[BLOCK_MAX // 2 :]

    def remove(self, ask: Allocation) -> None:
        """Take out an ask that is in."""
        self._count -= 1
        at, index, blocks = 0, 0, self._blocks
        if blocks[0][0] is not ask:
            place = place_of(ask)
            at = self._at(place)
            index = bisect_left(blocks[at], place, key=place_of)
            assert blocks[at][index] is ask, ask.key
        block = blocks[at]
        del block[index]
        if not block and len(blocks) > 1:
            del blocks[at]

    def __iter__(self) -> Iterator[Allocation]:
        """In order; the line must not change meanwhile."""
        return chain.from_iterable(self._blocks)

    def __len__(self) -> int:
        return self._count

    def _at(self, place: Place) -> int:
        """The block in which this place is, or would be."""
        return max(0, bisect_right(self._blocks, place, key=_begins) - 1)
