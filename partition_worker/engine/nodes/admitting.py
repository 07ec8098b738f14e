"""The nodes that admit asks with the same demands, in the order in which they are tried.

A search walks past nodes that have room and refuse the ask. Where that has cost as many looks as there are nodes, those
that admit such asks get an order of their own, and a search costs as little as one without demands. So an order is made
only for demands that keep coming and are refused by many, and making it costs no more than was lost without it (the
ski-rental rule: Karlin, Manasse, Rudolph and Sleator, "Competitive Snoopy Caching", 1988).

Not here: whether a node admits an ask (`engine/predicates/`).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from partition_worker.engine.needs import Need
from partition_worker.engine.nodes.lineup import Lineup
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.scoring import NodeSort
from partition_worker.engine.predicates.constraint import Demands
from partition_worker.engine.predicates.predicates import Predicates

ORDERS_MAX: Final = 16
"""Orders that are kept, each a few hundred bytes for each node in it; the oldest makes way."""

LOST_MAX: Final = 1024
"""Demands whose lost looks are counted. With more all begin anew."""


class Admitting:
    """Some of the nodes of a lineup, at the same places."""

    def __init__(self, of: Lineup, admits: Callable[[Node], bool]) -> None:
        self._of = of
        self._admits = admits
        self._lineup = Lineup()
        self._changed: dict[int, Node] = {node.rank: node for node in of}

    @property
    def unread(self) -> int:
        """How many nodes changed since the order was last needed."""
        return len(self._changed)

    def changed(self, node: Node) -> None:
        """What the node has, what is available on it, or its place is not as before."""
        self._changed[node.rank] = node

    def lineup(self) -> Lineup:
        """The order as it is now."""
        for node in self._changed.values():
            place = self._of.place(node)
            if place is None or not self._admits(node):
                self._lineup.drop(node)
            else:
                self._lineup.put(node, place)
        self._changed.clear()
        return self._lineup


class Selections:
    """The orders that were made, for the demands of those who ask."""

    def __init__(self, predicates: Predicates) -> None:
        self.orders: dict[tuple[NodeSort, Demands], Admitting] = {}
        """The one made last is at the end."""
        self._predicates = predicates
        self._lost: dict[tuple[NodeSort, Demands], int] = {}
        """Looks at nodes that refused."""

    def first(self, policy: NodeSort, lineup: Lineup, need: Need) -> Node | None:
        """The first node of this policy's lineup that has room and admits such an ask."""
        demands = self._predicates.demands(need)
        key = policy, demands
        order = self.orders.get(key)
        if order is not None:
            return self._predicates.first(need, order.lineup().having_room(need.shape), all_nodes=True)
        nodes = _Counted(lineup.having_room(need.shape))
        found = self._predicates.first(need, nodes, all_nodes=True)
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
