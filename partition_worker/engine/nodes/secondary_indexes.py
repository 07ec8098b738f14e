"""Secondary indexes of nodes: by constraint, by fit for a reservation, and by application for `pack`.

By constraint: a search skips nodes that have room but refuse the ask. Once that has cost as many steps as there are
nodes, an index of the nodes that accept such asks is built. So an index exists only for demands that recur and that
many nodes refuse, and costs no more than was lost without it (the ski-rental rule: Karlin, Manasse, Rudolph and
Sleator, "Competitive Snoopy Caching", 1988).

By fit: the nodes that are large enough for some amounts, the one with the least waste first (spec 4.6). Each node is
scored once, and again only after it changed.

By application: the nodes on which an application with the node order `pack` runs, which are tried first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from common.messages import Resources
from partition_worker.engine.allocation import Amounts, AskShape, Demands
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.node_index import NodeIndex, SortKey, sort_key_of
from partition_worker.engine.predicates.evaluation import Predicates

CONSTRAINT_INDEXES_MAX: Final = 16
"""Indexes by constraint, each a few hundred bytes for each node in it; beyond it the oldest is dropped."""

RESERVATION_INDEXES_MAX: Final = 8
"""Indexes by fit, likewise."""

COSTS_MAX: Final = 1024
"""Demands for which refusing nodes are counted; beyond it counting starts again."""


class DerivedIndex:
    """Nodes of another index, with sort keys of their own; brought up to date when it is read."""

    def __init__(self, source: NodeIndex, key_of: Callable[[Node, SortKey], SortKey | None]) -> None:
        """`key_of` returns the sort key of a node, given that in the source; None leaves the node out."""
        self._source = source
        self._key_of = key_of
        self._index = NodeIndex()
        self.changed: dict[int, Node] = {node.rank: node for node in source}
        """Nodes that changed since it was last read, by rank."""

    def refresh(self) -> NodeIndex:
        """Return the nodes in their present order."""
        for node in self.changed.values():
            place = self._source.key(node)
            key = None if place is None else self._key_of(node, place)
            if key is None:
                self._index.remove(node)
            else:
                self._index.put(node, key)
        self.changed.clear()
        return self._index


_K = TypeVar("_K")


class DerivedIndexes(Generic[_K]):
    """A bounded number of derived indexes, the newest last."""

    def __init__(self, size_max: int) -> None:
        self.indexes: dict[_K, DerivedIndex] = {}
        self._size_max = size_max

    def create(self, name: _K, index: DerivedIndex) -> DerivedIndex:
        if len(self.indexes) >= self._size_max:
            del self.indexes[next(iter(self.indexes))]
        self.indexes[name] = index
        return index

    def note_change(self, node: Node, node_count: int) -> None:
        """Mark that resources, attributes or the place of a node changed; drop indexes that are no longer read."""
        for name, index in tuple(self.indexes.items()):
            index.changed[node.rank] = node
            if len(index.changed) > node_count + 1:  # nodes came and went
                del self.indexes[name]


def index_by_waste(source: NodeIndex, amounts: Amounts) -> DerivedIndex:
    """Return the nodes that are large enough for these amounts, the one with the least waste first."""
    wanted = dict(amounts)
    return DerivedIndex(
        source, lambda node, key: sort_key_of(waste(node, wanted), "") + key if node.is_large_enough(amounts) else None
    )


def waste(node: Node, wanted: Resources) -> float:
    """Return how much of a node an ask would leave over: the sum, over the types that are available, of the fractions
    that the ask does not take. Reservations choose the node with the least.
    """
    total = 0.0
    for kind, value in node.available.items():
        if value > 0:
            amount = wanted.get(kind, 0)
            if amount < value:
                total += (value - amount) / value if amount > 0 else 1.0
    return total


class ConstraintIndexes(DerivedIndexes[tuple[str, Demands]]):
    """Indexes of the nodes that meet the demands of asks, by sort policy and demands."""

    def __init__(self, predicates: Predicates) -> None:
        super().__init__(CONSTRAINT_INDEXES_MAX)
        self._predicates = predicates
        self._costs: dict[tuple[str, Demands], int] = {}
        """Refusing nodes that searches have examined."""

    def first(self, policy: str, index: NodeIndex, shape: AskShape) -> Node | None:
        """Return the first node in the index of this policy that has room for such an ask and accepts it."""
        demands = self._predicates.no_demands if shape.constraint is None else shape.constraint.demands
        name = policy, demands
        known = self.indexes.get(name)
        if known is not None:
            return self._predicates.first(shape, known.refresh().having_room(shape.amounts), all_nodes=True)
        examined = _CountedNodes(index.having_room(shape.amounts))
        found = self._predicates.first(shape, examined, all_nodes=True)
        cost = self._costs.pop(name, 0) + max(0, examined.count - 1)
        if cost < len(index):
            if len(self._costs) >= COSTS_MAX:
                self._costs.clear()
            self._costs[name] = cost
        else:
            self.create(
                name, DerivedIndex(index, lambda node, key: key if self._predicates.meets(demands, node) else None)
            )
        return found

    def clear(self) -> None:
        """Drop all indexes, after a change of the indexes that they derive from."""
        self.indexes.clear()
        self._costs.clear()


class _CountedNodes:
    """Nodes, and how many of them were read. No generator expression, as mypyc makes a list of it."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = nodes
        self.count = 0

    def __iter__(self) -> Iterator[Node]:
        for node in self._nodes:
            self.count += 1
            yield node


class PackIndex:
    """The nodes on which one application runs and that get new allocations, in the order of the partition."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        """The rank of the application."""
        self.index = NodeIndex()
        self.counts: Counter[int] = Counter()
        """Number of its allocations on each node, by the rank of the node."""

    def discount(self, node: Node) -> bool:
        """Subtract an allocation on the node; return whether it was the last one there."""
        self.counts[node.rank] -= 1
        if self.counts[node.rank]:
            return False
        del self.counts[node.rank]
        self.index.remove(node)
        return True
