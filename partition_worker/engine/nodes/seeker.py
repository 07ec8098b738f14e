"""How far the search for room for one shape has come, so that it need not begin at the first node each time.

No node before its start has room, but those that came there since, or gained: they are kept, the first at hand. An
entry that is true no longer (the node has moved, has gone, or is full) is found out when it is the first.

Not here: the order itself, and the search from the start on (`lineup.py`).
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from partition_worker.engine.needs import Shape
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.place import BEFORE_ALL, Place


class Trail:
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


class Seeker:
    """The state of one search that is never over."""

    __slots__ = ("_opened", "_read", "_shape", "start")

    def __init__(self, shape: Shape, trail: Trail) -> None:
        self.start: Place = BEFORE_ALL
        self._shape = shape
        self._read = trail.last
        """Up to where the trail has been read."""
        self._opened: list[tuple[Place, int, Node]] = []
        """A heap, with the rank of the node: another one of the same id may have stood at the same place before."""

    @property
    def entries(self) -> int:
        """How many there are, true ones and others."""
        return len(self._opened)

    def first_opened(self, trail: Trail, places: Mapping[int, Place]) -> Node | None:
        """The first node before the start that has room; they stand at these places, by rank."""
        opened, shape = self._opened, self._shape
        if self._read < trail.last:
            for node in trail.since(self._read):
                at = places.get(node.rank)
                if at is not None and at < self.start and node.has_room(shape):
                    heappush(opened, (at, node.rank, node))
            self._read = trail.last
        while opened:
            place, rank, node = opened[0]
            if places.get(rank) == place and node.has_room(shape):
                return node
            heappop(opened)
        return None
