"""The nodes that might be kept for an ask that finds no room, for asks of one shape: the best first.

The best is the one on which the least is left over once the ask runs there, so that what is kept for it is not missed
elsewhere (spec 4.6). Each node is judged once, and again only after it changed: so asks of one shape that get their
nodes one after another do not cost a look at all nodes each.

Not here: which shapes are remembered (`fleet.py`), and whether a node is kept at all (`engine/reservations.py`).
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from partition_worker.engine.needs import Shape
from partition_worker.engine.nodes.lineup import Lineup
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.place import Place
from partition_worker.engine.nodes.scoring import waste

_Judged = tuple[float, Place, str]
"""The waste, the place in the lineup, and the id."""


class Candidates:
    """Nodes that are large enough for a shape and are in a lineup."""

    def __init__(self, shape: Shape, lineup: Lineup) -> None:
        self._shape = shape
        self._wanted = dict(shape)
        self._lineup = lineup
        self._nodes: dict[str, tuple[_Judged, Node]] = {}
        self._heap: list[_Judged] = []
        """What was judged of a node last, and some of what no longer holds: that is not what `_nodes` says."""
        self._changed: dict[int, Node] = {node.rank: node for node in lineup}

    def changed(self, node: Node) -> None:
        """What the node has, what is available on it, or its place is not as before."""
        self._changed[node.rank] = node

    @property
    def unread(self) -> int:
        """How many nodes changed since the best was asked for."""
        return len(self._changed)

    def best(self) -> Node | None:
        """The node with the least waste; of equals the first in the lineup."""
        for node in self._changed.values():
            self._judge(node)
        self._changed.clear()
        if len(self._heap) > 2 * len(self._nodes) + 1:
            self._heap = [judged for judged, _ in self._nodes.values()]
            heapify(self._heap)
        while self._heap:
            judged = self._heap[0]
            known = self._nodes.get(judged[2])
            if known is not None and known[0] == judged:
                return known[1]
            heappop(self._heap)
        return None

    def in_order(self) -> Iterator[Node]:
        """All of them, the best first, for an ask that not every node will do for; nothing must change meanwhile."""
        self.best()
        heap, before = list(self._heap), None
        while heap:
            judged = heappop(heap)
            known = self._nodes.get(judged[2])
            if known is not None and known[0] == judged and judged != before:
                yield known[1]
            before = judged

    def _judge(self, node: Node) -> None:
        place = self._lineup.place(node)
        if place is None or not node.is_large_enough(self._shape):
            self._nodes.pop(node.node_id, None)
            return
        judged = (waste(node, self._wanted), place, node.node_id)
        self._nodes[node.node_id] = (judged, node)
        heappush(self._heap, judged)
