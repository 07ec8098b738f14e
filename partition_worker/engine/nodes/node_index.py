"""The node index: nodes in the order in which they are tried, with a fast search for the first one with room.

It is a B+ tree (Bayer and McCreight, "Organization and Maintenance of Large Ordered Indexes", 1972). Each block
holds, per resource type, an upper bound of what is available on its nodes, and the shapes that a search did not find
in it, so a search skips blocks that cannot have room. These bounds are not exact: a node that is added or gains room
raises them; a node that is removed or loses room changes nothing, and the next search that finds no room in the block
corrects them.

First-fit cursor: if searches for a shape have cost too much, a `Seeker` keeps the position that the search has
reached and the nodes before it that got room since, so the next search continues from there (the ski-rental rule, see
`secondary_indexes.py`).

`sort_policies.py` defines the sort key of a node; `nodes.py` decides which nodes are in the index.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import islice
from typing import ClassVar, Final, Self

from common.messages import Resources
from partition_worker.engine.ask_shapes import Amounts
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.sort_policies import BEFORE_ALL, BEHIND_ALL, SortKey, score_of

SEEKERS_MAX: Final = 16
"""Shapes of which it is remembered how far the search for them has come. The one that has been remembered for longest
makes way."""

CHEAP: Final = 24
"""Looks at nodes and blocks that a search may cost."""

ENOUGH: Final = 1024
"""Looks that searches for a shape may cost beyond that, all together, until it is remembered how far they came."""

LOST_MAX: Final = 1024
"""Shapes of which it is remembered what was lost. With more all begin anew."""


class NodeIndex:
    """Nodes by ascending place."""

    def __init__(self) -> None:
        self._places: dict[int, SortKey] = {}  # by the rank of the node
        self._root: Block = Leaf()
        self._seekers: dict[Amounts, FirstFitCursor] = {}
        """Of shapes for which the search was dear."""
        self._trail = MoveLog()
        """Of the nodes that moved or gained while there was a seeker."""
        self._lost: dict[Amounts, int] = {}
        """By shape, how many looks searches cost that should have been cheaper."""

    def put(self, node: Node, place: SortKey) -> None:
        """Add a node, or move it to its new place; what is available on it may be other than before."""
        old = self._places.get(node.rank)
        if self._seekers:
            self._trail.moved(node)
        if old == place:
            self._root.gained(place, node)
            return
        if old is not None:
            self._drop(old)
        self._places[node.rank] = place
        self._root.put(place, node)
        if len(self._root.places) > self._root.load:
            root = Branch()
            root.most, root.lacking = dict(self._root.most), dict(self._root.lacking)
            root.adopt(0, self._root)
            root.halve(0)
            self._root = root

    def drop(self, node: Node) -> None:
        """Take a node out; nothing happens if it is not in."""
        old = self._places.pop(node.rank, None)
        if old is not None:
            self._trail.gone(node)
            self._drop(old)

    def gained(self, node: Node) -> None:
        """There may be more room on a node than before; nothing happens if it is not in."""
        place = self._places.get(node.rank)
        if place is not None:
            if self._seekers:
                self._trail.moved(node)
            self._root.gained(place, node)

    def place(self, node: Node) -> SortKey | None:
        """Where the node stands, or None if it is not in."""
        return self._places.get(node.rank)

    def score(self, node: Node) -> float:
        """By which a node stands that is in."""
        return score_of(self._places[node.rank])

    def first(self) -> Node | None:
        """The node with the smallest place, or None without any."""
        return self._root.first()

    def find(self, amounts: Amounts) -> Node | None:
        """The first with room for these amounts, or None."""
        root, seeker = self._root, self._seekers.get(amounts)
        if not root.may_have(amounts):
            return None
        if seeker is None:
            node, looks = root.find(amounts, BEFORE_ALL)
            if looks > CHEAP:
                self._lose(amounts, looks - CHEAP)
            return node
        node = seeker.first_opened(self._trail, self._places)
        if node is None:
            node, _ = root.find(amounts, seeker.start)
            seeker.start = BEHIND_ALL if node is None else self._places[node.rank]
        elif seeker.entries > 2 * len(self._places):
            del self._seekers[amounts]  # most of it is true no longer
        return node

    def having_room(self, amounts: Amounts) -> Iterator[Node]:
        """Those with room for these amounts, in order; the order must not change meanwhile."""
        return self._root.having_room(amounts) if self._root.may_have(amounts) else iter(())

    def __iter__(self) -> Iterator[Node]:
        """In order; the order must not change meanwhile."""
        return iter(self._root)

    def __len__(self) -> int:
        return len(self._places)

    def _lose(self, amounts: Amounts, looks: int) -> None:
        """A search cost so many looks more than it should. Once that is enough, whoever seeks this shape need not begin
        at the first node any more.
        """
        lost = self._lost.pop(amounts, 0) + looks
        if lost < ENOUGH:
            if len(self._lost) >= LOST_MAX:
                self._lost.clear()
            self._lost[amounts] = lost
            return
        if len(self._seekers) >= SEEKERS_MAX:
            del self._seekers[next(iter(self._seekers))]
        self._seekers[amounts] = FirstFitCursor(amounts, self._trail)

    def _drop(self, place: SortKey) -> None:
        self._root.drop(place)
        if len(self._root.places) == 1:
            self._root = self._root.heir()


class MoveLog:
    """Nodes by when they last moved or gained: who was here before reads what is new, the latest first, each once."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the latest move."""
        self._moves: dict[int, tuple[int, Node]] = {}
        """By the rank of the node, in the order of these numbers."""

    def moved(self, node: Node) -> None:
        self._moves.pop(node.rank, None)
        self.last += 1
        self._moves[node.rank] = self.last, node

    def gone(self, node: Node) -> None:
        self._moves.pop(node.rank, None)

    def since(self, number: int) -> Iterator[Node]:
        """Those that moved after this one; nothing may move meanwhile."""
        for moved, node in reversed(self._moves.values()):
            if moved <= number:
                return
            yield node


class FirstFitCursor:
    """The state of one search that is never over."""

    __slots__ = ("_opened", "_read", "_shape", "start")

    def __init__(self, amounts: Amounts, trail: MoveLog) -> None:
        self.start: SortKey = BEFORE_ALL
        self._shape = amounts
        self._read = trail.last
        """Up to where the trail has been read."""
        self._opened: list[tuple[SortKey, int, Node]] = []
        """A heap, with the rank of the node: another one of the same id may have stood at the same place before."""

    @property
    def entries(self) -> int:
        """How many there are, true ones and others."""
        return len(self._opened)

    def first_opened(self, trail: MoveLog, places: Mapping[int, SortKey]) -> Node | None:
        """The first node before the start that has room; they stand at these places, by rank."""
        opened, amounts = self._opened, self._shape
        if self._read < trail.last:
            for node in trail.since(self._read):
                at = places.get(node.rank)
                if at is not None and at < self.start and node.has_room(amounts):
                    heappush(opened, (at, node.rank, node))
            self._read = trail.last
        while opened:
            place, rank, node = opened[0]
            if places.get(rank) == place and node.has_room(amounts):
                return node
            heappop(opened)
        return None


LOAD: Final = 32
"""Nodes of a block; with more it is halved, with less than a quarter it joins a neighbour. A search looks at each."""

BRANCHES: Final = 64
"""Blocks of a block, likewise."""

LACKING_MAX: Final = 32
"""Shapes that a block remembers to have been sought in vain; each costs a look when a node in it gains. With more all
are forgotten, and sought once more."""


class Block(ABC):
    """What leaves and branches have in common."""

    __slots__ = ("lacking", "most", "places")

    load: ClassVar[int] = LOAD
    """How many members it has at most."""

    def __init__(self) -> None:
        self.places: list[SortKey] = []
        """Of a leaf, those of its nodes. Of a branch, for each of its blocks one that is behind all that is in the
        blocks before, and not behind anything in this one.
        """
        self.most: Resources = {}
        """Per type at least as much as is available on any node."""
        self.lacking: dict[Amounts, None] = {}
        """Shapes for which no node has room, although `most` does not tell."""

    @abstractmethod
    def put(self, place: SortKey, node: Node) -> None: ...

    @abstractmethod
    def drop(self, place: SortKey) -> None: ...

    @abstractmethod
    def gained(self, place: SortKey, node: Node) -> None: ...

    @abstractmethod
    def find(self, amounts: Amounts, start: SortKey) -> tuple[Node | None, int]:
        """The first node with room, where there is none before this place; and how many looks that took."""

    @abstractmethod
    def having_room(self, amounts: Amounts) -> Iterator[Node]: ...

    @abstractmethod
    def split(self) -> Self:
        """Give the second half of the members to a new block."""

    @abstractmethod
    def join(self, right: Self) -> None:
        """Take over the members of the next block."""

    @abstractmethod
    def first(self) -> Node | None:
        """The first node, or None without any."""

    @abstractmethod
    def heir(self) -> "Block":
        """Who can stand for it as the root: what is in it, if that is one block."""

    @abstractmethod
    def __iter__(self) -> Iterator[Node]: ...

    def may_have(self, amounts: Amounts) -> bool:
        """Whether a node in it may have room."""
        most = self.most
        for kind, value in amounts:
            if value > 0 and most.get(kind, 0) < value:
                return False
        return not self.lacking or amounts not in self.lacking

    def notice(self, node: Node) -> None:
        """A node came or gained."""
        most = self.most
        for kind, value in node.available.items():
            if value > most.get(kind, 0):
                most[kind] = value
        if self.lacking:
            self.lacking = {amounts: None for amounts in self.lacking if not node.has_room(amounts)}

    def learn(self, amounts: Amounts, members: Iterable[Resources]) -> None:
        """A shape was sought in vain among these members, of which each has no more than that available."""
        self.most = _highest(members)
        if self.may_have(amounts):
            if len(self.lacking) >= LACKING_MAX:
                self.lacking = {}
            self.lacking[amounts] = None


class Leaf(Block):
    """A block of nodes."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        """By place."""

    def put(self, place: SortKey, node: Node) -> None:
        at = bisect_left(self.places, place)
        self.places.insert(at, place)
        self.nodes.insert(at, node)
        self.notice(node)

    def drop(self, place: SortKey) -> None:
        at = bisect_left(self.places, place)
        assert self.places[at] == place, place
        del self.places[at], self.nodes[at]

    def gained(self, place: SortKey, node: Node) -> None:
        self.notice(node)

    def find(self, amounts: Amounts, start: SortKey) -> tuple[Node | None, int]:
        nodes, first = self.nodes, bisect_left(self.places, start)
        for at, node in enumerate(islice(nodes, first, None), 1):
            available = node.available
            for kind, value in amounts:  # as Node.has_room does: a call for each would be half of the search
                if value > 0 and available.get(kind, 0) < value:
                    break
            else:
                return node, at
        if not first:  # who comes from the middle of a block seldom comes again
            self.learn(amounts, [node.available for node in nodes])
        return None, len(nodes) - first

    def having_room(self, amounts: Amounts) -> Iterator[Node]:
        found = False
        for node in self.nodes:
            if node.has_room(amounts):
                found = True
                yield node
        if not found:
            self.learn(amounts, [node.available for node in self.nodes])

    def split(self) -> Self:
        half, right = len(self.nodes) // 2, type(self)()
        right.places, right.nodes = self.places[half:], self.nodes[half:]
        right.most, right.lacking = dict(self.most), dict(self.lacking)
        del self.places[half:], self.nodes[half:]
        return right

    def join(self, right: Self) -> None:
        self.places += right.places
        self.nodes += right.nodes
        _know_both(self, right)

    def first(self) -> Node | None:
        return self.nodes[0] if self.nodes else None

    def heir(self) -> Block:
        return self

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


class Branch(Block):
    """A block of blocks."""

    __slots__ = ("blocks",)

    load: ClassVar[int] = BRANCHES

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []
        """All of them leaves, or all branches of the same depth; none is empty."""

    def put(self, place: SortKey, node: Node) -> None:
        at = bisect_right(self.places, place) - 1
        if at < 0:
            at = 0
            self.places[0] = place
        block = self.blocks[at]
        block.put(place, node)
        self.notice(node)
        if len(block.places) > block.load:
            self.halve(at)

    def drop(self, place: SortKey) -> None:
        at = bisect_right(self.places, place) - 1
        block = self.blocks[at]
        block.drop(place)
        if len(block.places) < block.load // 4 and len(self.blocks) > 1:
            at = max(at - 1, 0)
            self.blocks[at].join(self.blocks[at + 1])
            del self.blocks[at + 1], self.places[at + 1]
            if len(self.blocks[at].places) > block.load:
                self.halve(at)

    def gained(self, place: SortKey, node: Node) -> None:
        self.notice(node)
        self.blocks[bisect_right(self.places, place) - 1].gained(place, node)

    def find(self, amounts: Amounts, start: SortKey) -> tuple[Node | None, int]:
        blocks, first, looks = self.blocks, max(0, bisect_right(self.places, start) - 1), 0
        for block in islice(blocks, first, None):
            looks += 1
            if block.may_have(amounts):
                node, more = block.find(amounts, start)
                looks += more
                if node is not None:
                    return node, looks
        if not first:
            self.learn(amounts, [block.most for block in blocks])
        return None, looks

    def having_room(self, amounts: Amounts) -> Iterator[Node]:
        found = False
        for block in self.blocks:
            if block.may_have(amounts):
                for node in block.having_room(amounts):
                    found = True
                    yield node
        if not found:
            self.learn(amounts, [block.most for block in self.blocks])

    def adopt(self, at: int, block: Block) -> None:
        """Take in a block, which is not empty, at this index."""
        self.places.insert(at, block.places[0])
        self.blocks.insert(at, block)

    def halve(self, at: int) -> None:
        """Give half of the members of the block at this index to a new one behind it."""
        self.adopt(at + 1, self.blocks[at].split())

    def split(self) -> Self:
        half, right = len(self.blocks) // 2, type(self)()
        right.places, right.blocks = self.places[half:], self.blocks[half:]
        right.most, right.lacking = dict(self.most), dict(self.lacking)
        del self.places[half:], self.blocks[half:]
        return right

    def join(self, right: Self) -> None:
        self.places += right.places
        self.blocks += right.blocks
        _know_both(self, right)

    def first(self) -> Node | None:
        return self.blocks[0].first()

    def heir(self) -> Block:
        return self.blocks[0] if len(self.blocks) == 1 else self

    def __iter__(self) -> Iterator[Node]:
        for block in self.blocks:
            yield from block


def _highest(amounts: Iterable[Resources]) -> Resources:
    """Per type the largest of many amounts, without those below zero."""
    highest: Resources = {}
    for amount in amounts:
        for kind, value in amount.items():
            if value > 0 and highest.get(kind, 0) < value:
                highest[kind] = value
    return highest


def _know_both(left: Block, right: Block) -> None:
    """The left block has the members of the right one as well, and knows only what is true of both."""
    left.most = _highest((left.most, right.most))
    left.lacking = {amounts: None for amounts in left.lacking if amounts in right.lacking}
