"""All nodes of a partition, in the order in which they are tried.

Only schedulable nodes are in the order. A node is re-scored when our own allocations on it, its capacity or its
schedulable flag change. What failed on all nodes is remembered by its amounts and not tried again until a node has
room for it.

Not here: queues; whether an ask may be charged is asked before a node is looked for.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from common.messages import Resources
from common.resources import minus, plus, pruned
from partition_worker.engine.needs import Need, Shape
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.scoring import NodeSort, score
from partition_worker.engine.order import Order

HOPELESS_MAX: Final = 1024
"""Shapes that are remembered to fit no node; each costs a look whenever a node is freed. With more all are forgotten,
and tried once more."""


class Fleet:
    """Nodes by id and by score."""

    def __init__(self, policy: NodeSort, weights: Mapping[str, float]) -> None:
        self.policy = policy
        self.weights = dict(weights)
        self.total: Resources = {}
        """The sum of all capacities, pruned; draining nodes count."""
        self._nodes: dict[str, Node] = {}
        self._order: Order[Node] = Order()
        self._hopeless: set[Shape] = set()  # only asked for membership, never iterated
        self._ranks = 0

    def get(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def __iter__(self) -> Iterator[Node]:
        """In order of arrival."""
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node_id: str, capacity: Resources, attributes: dict[str, str], *, schedulable: bool) -> Node:
        """A new node; the id must be free."""
        assert node_id not in self._nodes, node_id
        node = Node(node_id, self._ranks, capacity, attributes, schedulable)
        self._ranks += 1
        self._nodes[node_id] = node
        self._resize_total(node.capacity, {})
        self.gained(node)
        return node

    def withdraw(self, node: Node) -> None:
        """A node that is about to be removed gets nothing more."""
        node.schedulable = False
        self._order.drop(node)

    def remove(self, node: Node) -> None:
        """Take a node out of the order and out of the total."""
        del self._nodes[node.node_id]
        self._order.drop(node)
        self._resize_total({}, node.capacity)

    def resize(self, node: Node, capacity: Resources) -> None:
        before = node.capacity
        node.resize(capacity)
        self._resize_total(node.capacity, before)
        self.gained(node)

    def reorder(self, policy: NodeSort, weights: Mapping[str, float]) -> None:
        """Try nodes in the order of another policy, or of other weights, from now on."""
        if policy == self.policy and dict(weights) == self.weights:
            return
        self.policy = policy
        self.weights = dict(weights)
        for node in self:
            self.changed(node)

    def set_schedulable(self, node: Node, *, schedulable: bool) -> None:
        node.schedulable = schedulable
        self.gained(node)

    def changed(self, node: Node) -> None:
        """Our own allocations on the node changed: it moves in the order."""
        if node.schedulable:
            self._order.put(node, (score(node, self.policy, self.weights), node.node_id))
        else:
            self._order.drop(node)

    def gained(self, node: Node) -> None:
        """The node may take something now that it could not take before."""
        self.freed(node)
        self.changed(node)

    def freed(self, node: Node) -> None:
        """The node has more room than before, and stays where it is in the order."""
        if node.schedulable and self._hopeless:
            self._hopeless = {shape for shape in self._hopeless if not node.has_room(shape)}

    def node_for(self, need: Need) -> Node | None:
        """The node that an ask with this need would get now. A required node will do even while it drains."""
        if not need.required_node:
            return self.first_fit(need.shape)
        node = self._nodes.get(need.required_node)
        return node if node is not None and node.has_room(need.shape) else None

    def first_fit(self, shape: Shape) -> Node | None:
        """The first schedulable node in order with room for these amounts."""
        if shape in self._hopeless:
            return None
        for node in self._order:
            if node.has_room(shape):
                return node
        if len(self._hopeless) >= HOPELESS_MAX:
            self._hopeless.clear()
        self._hopeless.add(shape)
        return None

    def _resize_total(self, gained: Resources, lost: Resources) -> None:
        self.total = pruned(minus(plus(self.total, gained), lost))
