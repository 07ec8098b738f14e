"""The node index: nodes in the order in which they are tried, with a fast search for the first one with room.

It is a B+ tree (Bayer and McCreight, "Organization and Maintenance of Large Ordered Indexes", 1972). Each block holds,
per resource type, an upper bound of what is available on its nodes, and the amounts that a search did not find in it,
so a search skips blocks that cannot have room. These bounds are not exact: a node that is added or gains room raises
them; a node that is removed or loses room changes nothing, and the next search that finds no room in the block corrects
them.

First-fit cursor: if searches for the same amounts have cost too much, a cursor keeps the position that the search has
reached and the nodes before it that got room since, so the next search continues from there (the ski-rental rule, see
`secondary_indexes.py`).

A sort key holds the score of a node and, for equal scores, its id, as bytes that compare in that order. Each step of a
search compares keys, mostly with one that is in no CPU cache. A tuple would be three objects and two comparisons; bytes
are one object, which the garbage collector does not track. The score is an IEEE 754 number, most significant byte
first, with the bits turned so that negative numbers sort before positive ones, as in the keys of ordered stores
(FoundationDB's tuple layer). UTF-8 sorts as text does.

The sort policies are in `common/node_sort_policies.py`; `nodes.py` decides which nodes are in an index.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import islice
from struct import Struct
from typing import ClassVar, Final, Generic, Self, TypeVar

from common.messages import Resources
from partition_worker.engine.allocation import Amounts
from partition_worker.engine.nodes.node import Node

SortKey = bytes
"""The score in eight bytes, then the id of the node."""

BEFORE_ALL: Final[SortKey] = b""
BEHIND_ALL: Final[SortKey] = b"\xff" * 8
"""The key of a finite score is smaller."""

_FLOAT: Final = Struct(">d")
_MIRRORED: Final = bytes(range(255, -1, -1))


def sort_key_of(score: float, node_id: str) -> SortKey:
    """Return the sort key of a node with this score, which must be finite."""
    if score >= 0:
        return _FLOAT.pack(-(score + 0.0)) + node_id.encode()  # with the sign bit; -0.0 is 0.0
    return _FLOAT.pack(score).translate(_MIRRORED) + node_id.encode()


def score_of(key: SortKey) -> float:
    """Return the score in a sort key."""
    score: float
    if key[0] & 0x80:
        (score,) = _FLOAT.unpack_from(key)
        return -score
    (score,) = _FLOAT.unpack(key[: _FLOAT.size].translate(_MIRRORED))
    return score


CURSORS_MAX: Final = 16
"""Cursors kept for different amounts; beyond it the oldest is dropped."""

CHEAP_STEPS: Final = 24
"""Nodes and blocks that a search may examine at no cost."""

COSTLY_STEPS: Final = 1024
"""Further nodes and blocks that searches for the same amounts may examine, in total, before they get a cursor."""

COSTS_MAX: Final = 1024
"""Amounts for which steps are counted; beyond it counting starts again."""


class NodeIndex:
    """Nodes by ascending sort key."""

    def __init__(self) -> None:
        self._keys: dict[int, SortKey] = {}
        """By the rank of the node."""
        self._root: Block = Leaf()
        self._cursors: dict[Amounts, FirstFitCursor] = {}
        self._moves = MoveLog()
        """Of nodes that moved or gained room while there was a cursor."""
        self._costs: dict[Amounts, int] = {}
        """Steps of searches beyond the cheap ones."""

    def put(self, node: Node, key: SortKey) -> None:
        """Add a node, or move it to its new place; what is available on it may have changed."""
        old = self._keys.get(node.rank)
        if self._cursors:
            self._moves.record(node)
        if old == key:
            self._root.raise_bounds(key, node)
            return
        if old is not None:
            self._remove(old)
        self._keys[node.rank] = key
        self._root.put(key, node)
        if len(self._root.keys) > self._root.size_max:
            root = Branch()
            root.most, root.lacking = dict(self._root.most), dict(self._root.lacking)
            root.insert(0, self._root)
            root.halve(0)
            self._root = root

    def remove(self, node: Node) -> None:
        """Remove a node, if it is in the index."""
        old = self._keys.pop(node.rank, None)
        if old is not None:
            self._moves.latest.pop(node.rank, None)
            self._remove(old)

    def note_room(self, node: Node) -> None:
        """Update the index after a node, if it is in, may have gained room without a change of its key."""
        key = self._keys.get(node.rank)
        if key is not None:
            if self._cursors:
                self._moves.record(node)
            self._root.raise_bounds(key, node)

    def key(self, node: Node) -> SortKey | None:
        """Return the sort key of a node, or None if it is not in the index."""
        return self._keys.get(node.rank)

    def score(self, node: Node) -> float:
        """Return the score of a node that is in the index."""
        return score_of(self._keys[node.rank])

    def first(self) -> Node | None:
        """Return the node with the smallest key."""
        block = self._root
        while isinstance(block, Branch):
            block = block.members[0]
        assert isinstance(block, Leaf)
        return block.members[0] if block.members else None

    def find(self, amounts: Amounts) -> Node | None:
        """Return the first node with room for these amounts."""
        root, cursor = self._root, self._cursors.get(amounts)
        if not root.may_have_room(amounts):
            return None
        if cursor is None:
            node, steps = root.find(amounts, BEFORE_ALL)
            if steps > CHEAP_STEPS:
                self._count_steps(amounts, steps - CHEAP_STEPS)
            return node
        node = cursor.first_before(self._moves, self._keys)
        if node is None:
            node, _ = root.find(amounts, cursor.start)
            cursor.start = BEHIND_ALL if node is None else self._keys[node.rank]
        elif len(cursor.before) > 2 * len(self._keys):
            del self._cursors[amounts]  # most of its entries are outdated
        return node

    def having_room(self, amounts: Amounts) -> Iterator[Node]:
        """Yield the nodes with room for these amounts, in order; the index must not change during iteration."""
        return self._root.having_room(amounts) if self._root.may_have_room(amounts) else iter(())

    def __iter__(self) -> Iterator[Node]:
        """Nodes in order; the index must not change during iteration."""
        return iter(self._root)

    def __len__(self) -> int:
        return len(self._keys)

    def _count_steps(self, amounts: Amounts, steps: int) -> None:
        """Count the cost of a search; create a cursor if searches for these amounts have cost too much."""
        total = self._costs.pop(amounts, 0) + steps
        if total < COSTLY_STEPS:
            if len(self._costs) >= COSTS_MAX:
                self._costs.clear()
            self._costs[amounts] = total
            return
        if len(self._cursors) >= CURSORS_MAX:
            del self._cursors[next(iter(self._cursors))]
        self._cursors[amounts] = FirstFitCursor(amounts, self._moves)

    def _remove(self, key: SortKey) -> None:
        self._root.remove(key)
        if isinstance(self._root, Branch) and len(self._root.members) == 1:
            self._root = self._root.members[0]


class MoveLog:
    """Nodes by when they last moved or gained room; each is in it once."""

    def __init__(self) -> None:
        self.count = 0
        """Number of moves ever recorded."""
        self.latest: dict[int, tuple[int, Node]] = {}
        """The number of the latest move of each node, by rank, in ascending order."""

    def record(self, node: Node) -> None:
        self.latest.pop(node.rank, None)
        self.count += 1
        self.latest[node.rank] = self.count, node


class FirstFitCursor:
    """The position that searches for the same amounts have reached."""

    __slots__ = ("_amounts", "_read", "before", "start")

    def __init__(self, amounts: Amounts, moves: MoveLog) -> None:
        self.start: SortKey = BEFORE_ALL
        """No node before it had room when the search passed it."""
        self._amounts = amounts
        self._read = moves.count
        """The number of the last move that was read."""
        self.before: list[tuple[SortKey, int, Node]] = []
        """Nodes before the start that got room later, with their rank: a heap, with outdated entries."""

    def first_before(self, moves: MoveLog, keys: Mapping[int, SortKey]) -> Node | None:
        """Return the first node before the start that has room; `keys` are the sort keys by rank."""
        before, amounts = self.before, self._amounts
        if self._read < moves.count:
            for number, node in reversed(moves.latest.values()):
                if number <= self._read:
                    break
                key = keys.get(node.rank)
                if key is not None and key < self.start and node.has_room(amounts):
                    heappush(before, (key, node.rank, node))
            self._read = moves.count
        while before:
            key, rank, node = before[0]
            if keys.get(rank) == key and node.has_room(amounts):
                return node
            heappop(before)
        return None


# Blocks ---------------------------------------------------------------------------------------------------------------

LEAF_MAX: Final = 32
"""Nodes of a leaf; a larger one is halved, one with less than a quarter joins a neighbour. A search examines each."""

BRANCH_MAX: Final = 64
"""Blocks of a branch, likewise."""

LACKING_MAX: Final = 32
"""Amounts that a block stores as not found; each costs a step when a node in it gains room. Beyond it all are
dropped, and searched once more.
"""

_Member = TypeVar("_Member")


class _Block(Generic[_Member]):
    """The common part of leaves and branches."""

    __slots__ = ("keys", "lacking", "members", "most")

    size_max: ClassVar[int]

    def __init__(self) -> None:
        self.keys: list[SortKey] = []
        """In a leaf, those of its nodes. In a branch, for each block one that is greater than all keys of the blocks
        before, and not greater than any key in it.
        """
        self.members: list[_Member] = []
        """In the order of their keys."""
        self.most: Resources = {}
        """Per type at least as much as is available on any node in it."""
        self.lacking: dict[Amounts, None] = {}
        """Amounts for which no node in it has room, although `most` has."""

    def may_have_room(self, amounts: Amounts) -> bool:
        """Whether a node in it may have room."""
        most = self.most
        for kind, value in amounts:
            if value > 0 and most.get(kind, 0) < value:
                return False
        return not self.lacking or amounts not in self.lacking

    def raise_own_bounds(self, node: Node) -> None:
        """Update the bounds for a node that is new in it or gained room."""
        most = self.most
        for kind, value in node.available.items():
            if value > most.get(kind, 0):
                most[kind] = value
        if self.lacking:
            self.lacking = {amounts: None for amounts in self.lacking if not node.has_room(amounts)}

    def lower_bounds(self, amounts: Amounts, available: Iterable[Resources]) -> None:
        """Correct the bounds after a search for these amounts found no room among members with this much available."""
        self.most = _maximum(available)
        if self.may_have_room(amounts):
            if len(self.lacking) >= LACKING_MAX:
                self.lacking = {}
            self.lacking[amounts] = None

    def split(self) -> Self:
        """Move the second half of the members to a new block."""
        half, right = len(self.keys) // 2, type(self)()
        right.keys, right.members = self.keys[half:], self.members[half:]
        right.most, right.lacking = dict(self.most), dict(self.lacking)
        del self.keys[half:], self.members[half:]
        return right

    def join(self, right: "_Block[_Member]") -> None:
        """Take over the members of the next block."""
        self.keys += right.keys
        self.members += right.members
        self.most = _maximum((self.most, right.most))
        self.lacking = {amounts: None for amounts in self.lacking if amounts in right.lacking}


class Leaf(_Block[Node]):
    """A block of nodes."""

    __slots__ = ()

    size_max: ClassVar[int] = LEAF_MAX

    def put(self, key: SortKey, node: Node) -> None:
        at = bisect_left(self.keys, key)
        self.keys.insert(at, key)
        self.members.insert(at, node)
        self.raise_own_bounds(node)

    def remove(self, key: SortKey) -> None:
        at = bisect_left(self.keys, key)
        assert self.keys[at] == key, key
        del self.keys[at], self.members[at]

    def raise_bounds(self, key: SortKey, node: Node) -> None:
        self.raise_own_bounds(node)

    def find(self, amounts: Amounts, start: SortKey) -> tuple[Node | None, int]:
        """Return the first node from this key on that has room, and the number of examined nodes and blocks."""
        nodes, first = self.members, bisect_left(self.keys, start)
        for at, node in enumerate(islice(nodes, first, None), 1):
            available = node.available
            for kind, value in amounts:  # as Node.has_room does: a call for each would be half of the search
                if value > 0 and available.get(kind, 0) < value:
                    break
            else:
                return node, at
        if not first:  # a search from the middle of a block is seldom repeated
            self.lower_bounds(amounts, [node.available for node in nodes])
        return None, len(nodes) - first

    def having_room(self, amounts: Amounts) -> Iterator[Node]:
        found = False
        for node in self.members:
            if node.has_room(amounts):
                found = True
                yield node
        if not found:
            self.lower_bounds(amounts, [node.available for node in self.members])

    def __iter__(self) -> Iterator[Node]:
        return iter(self.members)


class Branch(_Block["Block"]):
    """A block of blocks: all of them leaves, or all branches of the same depth; none is empty."""

    __slots__ = ()

    size_max: ClassVar[int] = BRANCH_MAX

    def put(self, key: SortKey, node: Node) -> None:
        at = max(bisect_right(self.keys, key) - 1, 0)
        if key < self.keys[0]:
            self.keys[0] = key
        block = self.members[at]
        block.put(key, node)
        self.raise_own_bounds(node)
        if len(block.keys) > block.size_max:
            self.halve(at)

    def remove(self, key: SortKey) -> None:
        at = bisect_right(self.keys, key) - 1
        block = self.members[at]
        block.remove(key)
        if len(block.keys) < block.size_max // 4 and len(self.members) > 1:
            at = max(at - 1, 0)
            left, right = self.members[at], self.members[at + 1]
            if isinstance(left, Leaf) and isinstance(right, Leaf):  # noqa: SIM114 - for mypy, one type at a time
                left.join(right)
            elif isinstance(left, Branch) and isinstance(right, Branch):
                left.join(right)
            del self.members[at + 1], self.keys[at + 1]
            if len(left.keys) > left.size_max:
                self.halve(at)

    def raise_bounds(self, key: SortKey, node: Node) -> None:
        self.raise_own_bounds(node)
        self.members[bisect_right(self.keys, key) - 1].raise_bounds(key, node)

    def find(self, amounts: Amounts, start: SortKey) -> tuple[Node | None, int]:
        """As in a leaf."""
        blocks, first, steps = self.members, max(0, bisect_right(self.keys, start) - 1), 0
        for block in islice(blocks, first, None):
            steps += 1
            if block.may_have_room(amounts):
                node, more = block.find(amounts, start)
                steps += more
                if node is not None:
                    return node, steps
        if not first:
            self.lower_bounds(amounts, [block.most for block in blocks])
        return None, steps

    def having_room(self, amounts: Amounts) -> Iterator[Node]:
        found = False
        for block in self.members:
            if block.may_have_room(amounts):
                for node in block.having_room(amounts):
                    found = True
                    yield node
        if not found:
            self.lower_bounds(amounts, [block.most for block in self.members])

    def insert(self, at: int, block: "Block") -> None:
        """Add a block, which is not empty, at this index."""
        self.keys.insert(at, block.keys[0])
        self.members.insert(at, block)

    def halve(self, at: int) -> None:
        """Split the block at this index."""
        self.insert(at + 1, self.members[at].split())

    def __iter__(self) -> Iterator[Node]:
        for block in self.members:
            yield from block


Block = Leaf | Branch


def _maximum(amounts: Iterable[Resources]) -> Resources:
    """Return the largest positive amount per type."""
    highest: Resources = {}
    for amount in amounts:
        for kind, value in amount.items():
            if value > 0 and highest.get(kind, 0) < value:
                highest[kind] = value
    return highest
