"""Secondary indexes of nodes: by constraint, by fit for a reservation, and by application for `pack`.

By constraint: a search skips nodes that have room but refuse the ask. Once that has cost as many steps as there are
nodes, an index of the nodes that accept such asks is built. So an index exists only for demands that recur and that
many nodes refuse, and costs no more than was lost without it (the ski-rental rule: Karlin, Manasse, Rudolph and
Sleator, "Competitive Snoopy Caching", 1988).

By fit: the nodes that are large enough for a shape, the one with the least waste first (spec 4.6). Each node is
scored once, and again only after it changed.

By application: the nodes on which an application with the node order `pack` runs, which are tried first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from partition_worker.engine.ask_shapes import Amounts, AskShape, Demands
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.node_index import NodeIndex
from partition_worker.engine.nodes.sort_policies import SortKey, waste
from partition_worker.engine.predicates.evaluation import Predicates

ORDERS_MAX: Final = 16
"""Orders that are kept, each a few hundred bytes for each node in it; the oldest makes way."""

LOST_MAX: Final = 1024
"""Demands whose lost looks are counted. With more all begin anew."""


class Admitting:
    """Some of the nodes of a lineup, at the same places."""

    def __init__(self, of: NodeIndex, admits: Callable[[Node], bool]) -> None:
        self._of = of
        self._admits = admits
        self._lineup = NodeIndex()
        self._changed: dict[int, Node] = {node.rank: node for node in of}

    @property
    def unread(self) -> int:
        """How many nodes changed since the order was last needed."""
        return len(self._changed)

    def changed(self, node: Node) -> None:
        """What the node has, what is available on it, or its place is not as before."""
        self._changed[node.rank] = node

    def index(self) -> NodeIndex:
        """The order as it is now."""
        for node in self._changed.values():
            place = self._of.place(node)
            if place is None or not self._admits(node):
                self._lineup.drop(node)
            else:
                self._lineup.put(node, place)
        self._changed.clear()
        return self._lineup


class ConstraintIndexes:
    """The orders that were made, for the demands of those who ask."""

    def __init__(self, predicates: Predicates) -> None:
        self.orders: dict[tuple[str, Demands], Admitting] = {}
        """The one made last is at the end."""
        self._predicates = predicates
        self._lost: dict[tuple[str, Demands], int] = {}
        """Looks at nodes that refused."""

    def first(self, policy: str, lineup: NodeIndex, shape: AskShape) -> Node | None:
        """The first node of this policy's lineup that has room and admits such an ask."""
        demands = self._predicates.demands(shape)
        key = policy, demands
        order = self.orders.get(key)
        if order is not None:
            return self._predicates.first(shape, order.index().having_room(shape.amounts), all_nodes=True)
        nodes = _Counted(lineup.having_room(shape.amounts))
        found = self._predicates.first(shape, nodes, all_nodes=True)
        lost = self._lost.get(key, 0) + max(0, nodes.count - 1)
        if lost < len(lineup):
            if len(self._lost) >= LOST_MAX:
                self._lost.clear()
            self._lost[key] = lost
        else:
            self._lost.pop(key, None)
            if len(self.orders) >= ORDERS_MAX:
                del self.orders[next(iter(self.orders))]
            self.orders[key] = Admitting(lineup, lambda node: self._predicates.meets(demands, node))
        return found

    def changed(self, node: Node, nodes_max: int) -> None:
        """What the node has, what is available on it, or its place is not as before; there are so many nodes."""
        for key, order in tuple(self.orders.items()):
            order.changed(node)
            if order.unread > nodes_max + 1:  # nobody needs it any more, and nodes came and went
                del self.orders[key]

    def clear(self) -> None:
        """The lineups are others now."""
        self.orders.clear()
        self._lost.clear()


class _Counted:
    """Nodes, and how many of them were looked at."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = nodes
        self.count = 0

    def __iter__(self) -> Iterator[Node]:
        for node in self._nodes:
            self.count += 1
            yield node


_Judged = tuple[float, SortKey, str]
"""The waste, the place in the lineup, and the id."""


class ReservationCandidates:
    """Nodes that are large enough for a shape and are in a lineup."""

    def __init__(self, amounts: Amounts, lineup: NodeIndex) -> None:
        self._shape = amounts
        self._wanted = dict(amounts)
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


class PackIndex:
    """Always: its nodes that get new allocations are in the lineup, at their places in the order of the partition."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        """That of the application."""
        self.index = NodeIndex()
        self._counts: Counter[int] = Counter()  # of what runs on the node of this rank

    def began(self, node: Node) -> None:
        """Count an allocation of the application on the node; the fleet then puts the node in its place."""
        self._counts[node.rank] += 1

    def ended(self, node: Node) -> bool:
        """Count one allocation less on the node; whether it was the last."""
        self._counts[node.rank] -= 1
        if self._counts[node.rank]:
            return False
        del self._counts[node.rank]
        self.index.drop(node)
        return True
