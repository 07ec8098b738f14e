"""Nodes in the order in which they are tried, so kept that the first with room is found without walking past the full.

They lie in a tree of blocks (`blocks.py`) that passes over those in which nobody has room. So whoever always finds room
with the first node pays next to nothing, and in a full cluster a search costs the depth of the tree. Nor does a search
for one of the latest shapes begin at the first node, if that has cost too much: a `Seeker` knows how far it has come,
and which nodes before that have room since (the ski-rental rule, as in `admitting.py`).

Not here: scores (`scoring.py`), and which nodes are in (`fleet.py`).
"""

from collections.abc import Iterator
from typing import Final

from partition_worker.engine.needs import Shape
from partition_worker.engine.nodes.blocks import Block, Branch, Leaf
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.place import BEFORE_ALL, BEHIND_ALL, Place, score_of
from partition_worker.engine.nodes.seeker import Seeker, Trail

SEEKERS_MAX: Final = 16
"""Shapes of which it is remembered how far the search for them has come. The one that has been remembered for longest
makes way."""

CHEAP: Final = 24
"""Looks at nodes and blocks that a search may cost."""

ENOUGH: Final = 1024
"""Looks that searches for a shape may cost beyond that, all together, until it is remembered how far they came."""

LOST_MAX: Final = 1024
"""Shapes of which it is remembered what was lost. With more all begin anew."""


class Lineup:
    """Nodes by ascending place."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}  # by the rank of the node
        self._root: Block = Leaf()
        self._seekers: dict[Shape, Seeker] = {}
        """Of shapes for which the search was dear."""
        self._trail = Trail()
        """Of the nodes that moved or gained while there was a seeker."""
        self._lost: dict[Shape, int] = {}
        """By shape, how many looks searches cost that should have been cheaper."""

    def put(self, node: Node, place: Place) -> None:
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

    def place(self, node: Node) -> Place | None:
        """Where the node stands, or None if it is not in."""
        return self._places.get(node.rank)

    def score(self, node: Node) -> float:
        """By which a node stands that is in."""
        return score_of(self._places[node.rank])

    def first(self) -> Node | None:
        """The node with the smallest place, or None without any."""
        return self._root.first()

    def find(self, shape: Shape) -> Node | None:
        """The first with room for these amounts, or None."""
        root, seeker = self._root, self._seekers.get(shape)
        if not root.may_have(shape):
            return None
        if seeker is None:
            node, looks = root.find(shape, BEFORE_ALL)
            if looks > CHEAP:
                self._lose(shape, looks - CHEAP)
            return node
        node = seeker.first_opened(self._trail, self._places)
        if node is None:
            node, _ = root.find(shape, seeker.start)
            seeker.start = BEHIND_ALL if node is None else self._places[node.rank]
        elif seeker.entries > 2 * len(self._places):
            del self._seekers[shape]  # most of it is true no longer
        return node

    def having_room(self, shape: Shape) -> Iterator[Node]:
        """Those with room for these amounts, in order; the order must not change meanwhile."""
        return self._root.having_room(shape) if self._root.may_have(shape) else iter(())

    def __iter__(self) -> Iterator[Node]:
        """In order; the order must not change meanwhile."""
        return iter(self._root)

    def __len__(self) -> int:
        return len(self._places)

    def _lose(self, shape: Shape, looks: int) -> None:
        """A search cost so many looks more than it should. Once that is enough, whoever seeks this shape need not begin
        at the first node any more.
        """
        lost = self._lost.pop(shape, 0) + looks
        if lost < ENOUGH:
            if len(self._lost) >= LOST_MAX:
                self._lost.clear()
            self._lost[shape] = lost
            return
        if len(self._seekers) >= SEEKERS_MAX:
            del self._seekers[next(iter(self._seekers))]
        self._seekers[shape] = Seeker(shape, self._trail)

    def _drop(self, place: Place) -> None:
        self._root.drop(place)
        if len(self._root.places) == 1:
            self._root = self._root.heir()
