"""Blocks of nodes in order, and blocks of blocks: the tree of a lineup.

Each has so many members at most. A block knows per resource type what no node in it has more of, and which shapes were
sought in it in vain: so the search for a shape passes over blocks that cannot have room. Neither is kept exact. A node
that comes or gains raises what its blocks know; one that goes or loses changes nothing, and a search that a block led
astray teaches it better.

It is a B+ tree (Bayer and McCreight, "Organization and Maintenance of Large Ordered Indexes", 1972).

Not here: who stands where (`lineup.py`).
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar, Final, Self

from common.messages import Resources
from partition_worker.engine.needs import Shape
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.place import Place

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
        self.places: list[Place] = []
        """Of a leaf, those of its nodes. Of a branch, for each of its blocks one that is behind all that is in the
        blocks before, and not behind anything in this one.
        """
        self.most: Resources = {}
        """Per type at least as much as is available on any node."""
        self.lacking: dict[Shape, None] = {}
        """Shapes for which no node has room, although `most` does not tell."""

    @abstractmethod
    def put(self, place: Place, node: Node) -> None: ...

    @abstractmethod
    def drop(self, place: Place) -> None: ...

    @abstractmethod
    def gained(self, place: Place, node: Node) -> None: ...

    @abstractmethod
    def find(self, shape: Shape, start: Place) -> tuple[Node | None, int]:
        """The first node with room, where there is none before this place; and how many looks that took."""

    @abstractmethod
    def having_room(self, shape: Shape) -> Iterator[Node]: ...

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

    def may_have(self, shape: Shape) -> bool:
        """Whether a node in it may have room."""
        most = self.most
        for kind, value in shape:
            if value > 0 and most.get(kind, 0) < value:
                return False
        return not self.lacking or shape not in self.lacking

    def notice(self, node: Node) -> None:
        """A node came or gained."""
        most = self.most
        for kind, value in node.available.items():
            if value > most.get(kind, 0):
                most[kind] = value
        if self.lacking:
            self.lacking = {shape: None for shape in self.lacking if not node.has_room(shape)}

    def learn(self, shape: Shape, members: Iterable[Resources]) -> None:
        """A shape was sought in vain among these members, of which each has no more than that available."""
        self.most = _highest(members)
        if self.may_have(shape):
            if len(self.lacking) >= LACKING_MAX:
                self.lacking = {}
            self.lacking[shape] = None


class Leaf(Block):
    """A block of nodes."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        """By place."""

    def put(self, place: Place, node: Node) -> None:
        at = bisect_left(self.places, place)
        self.places.insert(at, place)
        self.nodes.insert(at, node)
        self.notice(node)

    def drop(self, place: Place) -> None:
        at = bisect_left(self.places, place)
        assert self.places[at] == place, place
        del self.places[at], self.nodes[at]

    def gained(self, place: Place, node: Node) -> None:
        self.notice(node)

    def find(self, shape: Shape, start: Place) -> tuple[Node | None, int]:
        nodes, first = self.nodes, bisect_left(self.places, start)
        for at, node in enumerate(islice(nodes, first, None), 1):
            available = node.available
            for kind, value in shape:  # as Node.has_room does: a call for each would be half of the search
                if value > 0 and available.get(kind, 0) < value:
                    break
            else:
                return node, at
        if not first:  # who comes from the middle of a block seldom comes again
            self.learn(shape, [node.available for node in nodes])
        return None, len(nodes) - first

    def having_room(self, shape: Shape) -> Iterator[Node]:
        found = False
        for node in self.nodes:
            if node.has_room(shape):
                found = True
                yield node
        if not found:
            self.learn(shape, [node.available for node in self.nodes])

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

    def put(self, place: Place, node: Node) -> None:
        at = bisect_right(self.places, place) - 1
        if at < 0:
            at = 0
            self.places[0] = place
        block = self.blocks[at]
        block.put(place, node)
        self.notice(node)
        if len(block.places) > block.load:
            self.halve(at)

    def drop(self, place: Place) -> None:
        at = bisect_right(self.places, place) - 1
        block = self.blocks[at]
        block.drop(place)
        if len(block.places) < block.load // 4 and len(self.blocks) > 1:
            at = max(at - 1, 0)
            self.blocks[at].join(self.blocks[at + 1])
            del self.blocks[at + 1], self.places[at + 1]
            if len(self.blocks[at].places) > block.load:
                self.halve(at)

    def gained(self, place: Place, node: Node) -> None:
        self.notice(node)
        self.blocks[bisect_right(self.places, place) - 1].gained(place, node)

    def find(self, shape: Shape, start: Place) -> tuple[Node | None, int]:
        blocks, first, looks = self.blocks, max(0, bisect_right(self.places, start) - 1), 0
        for block in islice(blocks, first, None):
            looks += 1
            if block.may_have(shape):
                node, more = block.find(shape, start)
                looks += more
                if node is not None:
                    return node, looks
        if not first:
            self.learn(shape, [block.most for block in blocks])
        return None, looks

    def having_room(self, shape: Shape) -> Iterator[Node]:
        found = False
        for block in self.blocks:
            if block.may_have(shape):
                for node in block.having_room(shape):
                    found = True
                    yield node
        if not found:
            self.learn(shape, [block.most for block in self.blocks])

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
    left.lacking = {shape: None for shape in left.lacking if shape in right.lacking}
