"""All nodes of a partition, and the choice of a node for an ask.

The indexes hold only open nodes without reservations: the RM lets them take allocations, and no operator cordoned them.
Open nodes with reservations are in an index of their own, for asks of higher priority (`node_index.py`).
There is one node index for each sort policy in use. A node moves in all of them when our own allocations on it, its
capacity or whether it is open change, so a node order of a queue or an application costs no scan.

Derived indexes have some of these nodes, with sort keys of their own, and are brought up to date when they are read:

* By constraint: a search skips nodes that have room but refuse the ask. Once that has cost as many steps as there are
  nodes, an index of the nodes that accept such asks is built. So an index exists only for demands that recur and that
  many nodes refuse, and costs no more than was lost without it (the ski-rental rule: Karlin, Manasse, Rudolph and
  Sleator, "Competitive Snoopy Caching", 1988).
* By application, with the node order `pack`: the nodes on which it runs.
* By waste: the nodes that are large enough for some amounts, the one with the least waste first (spec 4.6).

The caller checks that the queues, user and group of the ask have room before it asks for a node.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason
from yunishard.common.node_sort_policies import NODE_SORT_POLICIES, PACK, parse_node_choice, score_fair
from yunishard.common.resources import drop_zeros, minus, plus
from yunishard.partition_worker.engine.allocation import Allocation, AskShape
from yunishard.partition_worker.engine.amounts import Amounts, number_of
from yunishard.partition_worker.engine.durable_records import OperatorMark
from yunishard.partition_worker.engine.nodes.node_index import (
    DerivedIndex,
    Node,
    NodeIndex,
    PackIndex,
    ReservedNodes,
    SortKey,
    sort_key_of,
)
from yunishard.partition_worker.engine.predicates.evaluation import Predicates
from yunishard.partition_worker.engine.queues.queue import NODE_SORT, Queue

if TYPE_CHECKING:
    from yunishard.partition_worker.engine.application import Application

LARGE_NODES_MAX: Final = 1024
"""Amounts for which a node that is large enough is cached, or that there is none; beyond it all are dropped."""


DERIVED_INDEXES_MAX: Final = 24
"""Derived indexes, each a few hundred bytes for each node in it; beyond it the oldest is dropped."""

CORDONS_MAX: Final = 5_000
"""Cordoned nodes of a partition, also those that are gone; cordoning another one is refused."""

COSTS_MAX: Final = 1024
"""Demands for which refusing nodes are counted; beyond it counting starts again."""

DerivedName = tuple[str, Hashable]
"""The sort policy and the demands; an empty text and the amounts, for an index by waste."""


class Nodes:
    """Nodes by id, in order of arrival, and by score."""

    def __init__(self, policy: str, weights: Mapping[str, float], predicates: Predicates | None = None) -> None:
        self.policy = policy
        """The sort policy of the partition."""
        self.weights = dict(weights)
        self._weights_by_type = weigh(weights)
        self.total: Resources = {}
        """The sum of all capacities, drop_zeros; draining nodes count."""
        self.predicates = predicates or Predicates()
        self._by_id: dict[str, Node] = {}
        self.index = NodeIndex()
        """The nodes that any ask may get, in the order of the partition."""
        self.indexes: dict[str, NodeIndex] = {policy: self.index}
        """By sort policy: the partition's, and those that applications or queues use. All have the same nodes."""
        self.reserved = ReservedNodes()
        self._derived: dict[DerivedName, DerivedIndex] = {}
        """The newest last."""
        self._costs: dict[DerivedName, int] = {}
        """Refusing nodes that searches without a derived index have examined."""
        self._large_nodes: dict[Amounts, Node | None] = {}
        """A node that is large enough for the amounts and may be reserved; None if there is none."""
        self.ever_guarded = False
        """Whether any node was ever guarded."""
        self.ranks = 0
        """Number of nodes ever added."""
        self.cordons: dict[str, OperatorMark] = {}
        """By id: the nodes that an operator cordoned. A cordon outlasts its node, so that the node is cordoned when the
        RM registers it again.
        """
        self.packs: dict[int, dict[int, PackIndex]] = {}
        """By the rank of a node, the pack indexes of the applications that run there, by their rank."""

    def get(self, node_id: str) -> Node | None:
        return self._by_id.get(node_id)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    # Changes --------------------------------------------------------------------------------------------------------

    def add(self, node_id: str, capacity: Resources, attributes: dict[str, str], *, schedulable: bool) -> Node:
        """Add a new node; the id must be free."""
        assert node_id not in self._by_id, node_id
        cordon = self.cordons.get(node_id)
        node = self._by_id[node_id] = Node(node_id, self.ranks, capacity, attributes, schedulable, cordon)
        self.ranks += 1
        self._update_capacity(node, {})
        return node

    def remove(self, node: Node) -> None:
        """Remove a node from all indexes and from the total."""
        self.set_schedulable(node, schedulable=False)
        node.version += 1
        del self._by_id[node.node_id]
        self.predicates.table.remove(node)
        self.total = drop_zeros(minus(self.total, node.capacity))

    def resize(self, node: Node, capacity: Resources) -> None:
        before = node.capacity
        node.resize(capacity)
        self._update_capacity(node, before)

    def set_attributes(self, node: Node, attributes: dict[str, str]) -> None:
        """Replace the attributes of a node; cached results of predicates about it no longer hold."""
        node.attributes = attributes
        self.resize(node, node.capacity)  # another object of the same amounts, which the results refer to

    def set_schedulable(self, node: Node, *, schedulable: bool) -> None:
        node.schedulable = schedulable
        self.reopen(node)

    def set_cordons(self, cordons: Mapping[str, OperatorMark]) -> None:
        """Set which nodes are cordoned, before there are nodes."""
        assert not self._by_id, "there are nodes"
        self.cordons = dict(cordons)

    def set_cordon(self, node: Node, mark: OperatorMark | None) -> None:
        node.cordon = mark
        self.reopen(node)

    def set_policy(self, policy: str, weights: Mapping[str, float]) -> None:
        """Set the sort policy of the partition and its weights."""
        if policy == self.policy and dict(weights) == self.weights:
            return
        self.policy, self.weights, self._weights_by_type = policy, dict(weights), weigh(weights)
        self.index = NodeIndex()
        self.indexes = {policy: self.index}
        self.reserved = ReservedNodes()
        self._derived.clear()
        self._costs.clear()
        for node in self:
            self.reindex(node)

    def bind(self, application: "Application", allocation: Allocation, node: Node) -> None:
        """Put an allocation of the application on the node, whether or not there is room."""
        node.add(allocation)
        if application.pack is not None:
            self._count_in_pack(application.pack, node)
        self.reindex(node)

    def unbind(self, application: "Application", allocation: Allocation, node: Node) -> None:
        """Remove an allocation of the application from the node."""
        node.remove(allocation)
        pack = application.pack
        if pack is not None:
            pack.counts[node.rank] -= 1
            if not pack.counts[node.rank]:
                del pack.counts[node.rank], self.packs[node.rank][pack.rank]
                pack.changed.pop(node.rank, None)
                pack.nodes.remove(node)
                if not self.packs[node.rank]:
                    del self.packs[node.rank]
        self.reindex(node)

    def reindex(self, node: Node) -> None:
        """Update the indexes after our own allocations or the reservations of the node changed."""
        if node.is_open and not node.reservations:
            self.reserved.remove(node)
            self.index.put(node, self._sort_key_of(self.policy, node))
            if len(self.indexes) > 1:
                for policy, index in self.indexes.items():
                    if policy != self.policy:
                        index.put(node, self._sort_key_of(policy, node))
        else:
            for index in self.indexes.values():
                index.remove(node)
            if node.is_open:
                self.reserved.put(node, self._sort_key_of(self.policy, node))
            else:
                self.reserved.remove(node)
        self._note_change(node)

    def reopen(self, node: Node) -> None:
        """Update the indexes after a change by which the node may be reserved for other asks than before."""
        self.reindex(node)
        if node.is_open and not node.reservations:
            self._large_nodes = {
                amounts: large
                for amounts, large in self._large_nodes.items()
                if large is not None or not node.is_large_enough(amounts)
            }

    def note_room(self, node: Node) -> None:
        """Update the indexes after the available resources of the node changed without a change of its place."""
        for index in self.indexes.values():
            index.note_room(node)
        self.reserved.note_room(node)
        self._note_change(node)

    # The choice of a node -------------------------------------------------------------------------------------------

    def node_for(self, shape: AskShape, application: "Application | None" = None) -> Node | None:
        """Return the node that such an ask of the application would get now.

        A required node is returned even while it drains, or is reserved for other asks that require it.
        """
        if not shape.required_node:
            return self.first_fit(shape, application)
        node = self._by_id.get(shape.required_node)
        if node is None or not node.has_room(shape.amounts) or not self.is_accepted(shape, node):
            return None
        return node if all(one.for_required_node for one in node.reservations.values()) else None

    def first_fit(self, shape: AskShape, application: "Application | None" = None) -> Node | None:
        """Return the first node with room for such an ask, in the node order of the application."""
        choice = None if application is None else node_choice_of(application)
        if application is not None and choice == PACK:
            node = self._first(self._pack_index(application), shape, None)
            return self._first(self.index, shape, self.policy) if node is None else node
        policy = self.policy if choice is None or choice == PACK else choice
        index = self.indexes.get(policy)
        return self._first(self._create_index(policy) if index is None else index, shape, policy)

    def first_outranked_fit(self, shape: AskShape, leaf: Queue, priority: int) -> Node | None:
        """Return the first node with room for such an ask, in the order of the partition, that is reserved for asks of
        lower priority only. Raises WorkSpent at the limit of the work.
        """
        if shape.required_node:
            return None
        limit = -1.0
        for node in self.reserved.find_outranked(leaf, priority, shape.amounts):
            if limit < 0.0:
                limit = self.predicates.begin_search(shape)
            if self.is_accepted(shape, node, limit=limit):
                return node
        return None

    def is_accepted(self, shape: AskShape, node: Node, *, allocate: bool = True, limit: float = inf) -> bool:
        """Whether the predicates accept a node with room; without `allocate`, for a reservation. Raises WorkSpent at
        the limit of the work.
        """
        if shape.constraint is None and not node.guarded:
            return True
        return self.predicates.is_accepted(shape, node, allocate=allocate, limit=limit)

    def is_deferred(self, shape: AskShape) -> bool:
        """Whether no node takes such an ask before the RM has answered questions about other asks."""
        if shape.constraint is None or not shape.constraint.asked:
            return False
        return self.predicates.verdicts.defer(shape.constraint.asked, is_wide=shape.constraint.is_wide)

    def refusals(self, shape: AskShape) -> dict[str, int]:
        """Return how many of the nodes with room refuse such an ask, by reason; checks each of them."""
        if shape.constraint is None and not self.ever_guarded:
            return {}
        return self.predicates.refusals(shape, self.index.having_room(shape.amounts))

    # Nodes to reserve -----------------------------------------------------------------------------------------------

    def required_node(self, shape: AskShape) -> Node | None:
        """Return the node that an ask requires, if it is or may be reserved for it: it exists, is large enough, meets
        the demands of the ask, is not reserved for an ask whose victims leave it, and the RM did not just fail to start
        the ask there.
        """
        return self._by_id[shape.required_node] if self.find_obstacle(shape) is None else None

    def find_obstacle(self, shape: AskShape, *, explains: bool = False) -> Reason | None:
        """Return why the node that an ask requires neither is nor may be reserved for it; None if it is or may be. An
        explanation caches no result of predicates.
        """
        node = self._by_id.get(shape.required_node)
        if node is None:
            return Reason.REQUIRED_NODE_MISSING
        if not node.is_large_enough(shape.amounts):
            return Reason.REQUIRED_NODE_TOO_SMALL
        if self.predicates.refuses_reservation(shape, node, explains=explains):
            return Reason.REQUIRED_NODE_REFUSES
        is_kept = any(one.after_preemption and not one.for_required_node for one in node.reservations.values())
        return Reason.REQUIRED_NODE_KEPT if is_kept else None

    def may_reserve(self, shape: AskShape) -> bool:
        """Whether any node might be reserved for such an ask."""
        if shape.required_node or not self._has_large_node(shape.amounts):
            return False
        if shape.constraint is None and not self.ever_guarded:
            return True
        demands = self.predicates.no_demands if shape.constraint is None else shape.constraint.demands
        # The RM is asked about the first nodes in the order of the partition.
        accepting = None if _asks_manager(shape) else self.predicates.table.find_accepting(demands)
        large = self._large_enough(shape.amounts, self.index if accepting is None else accepting)
        return self.predicates.first(shape, large, all_nodes=True, allocate=False) is not None

    def _large_enough(self, amounts: Amounts, nodes: Iterable[Node]) -> Iterator[Node]:
        """Yield those of some nodes, or of the index, that may be reserved for asks of these amounts."""
        for node in nodes:  # as mypyc makes a list of a generator expression
            if node.is_large_enough(amounts) and (nodes is self.index or self.index.key(node) is not None):
                yield node

    def best_to_reserve(self, shape: AskShape) -> Node | None:
        """Return the node, of those that might be reserved for such an ask, on which it leaves the least over (spec
        4.6); of equals the first in the order of the partition. None if the ask requires a node.
        """
        if shape.required_node or not self._has_large_node(shape.amounts):
            return None
        # An index for amounts that no node accepts would cost a pass over all. The RM is asked about the best nodes.
        if not _asks_manager(shape) and not self.may_reserve(shape):
            return None
        index = self._derived.get(("", shape.amounts))
        if index is None:
            amounts, wanted = shape.amounts, dict(shape.amounts)
            index = self._derive(
                ("", amounts),
                self.index,
                lambda node, key: sort_key_of(waste(node, wanted), key) if node.is_large_enough(amounts) else None,
            )
        nodes = index.refresh(self.index)
        best = nodes.first()
        if best is None or (shape.constraint is None and not best.guarded):
            return best
        return self.predicates.first(shape, nodes, all_nodes=True, allocate=False)

    # Private --------------------------------------------------------------------------------------------------------

    def _update_capacity(self, node: Node, before: Resources) -> None:
        node.guarded = not self.predicates.meets(self.predicates.no_demands, node)
        self.ever_guarded |= node.guarded
        self.total = drop_zeros(minus(plus(self.total, node.capacity), before))
        self.reopen(node)

    def _has_large_node(self, amounts: Amounts) -> bool:
        index = self.index
        if amounts in self._large_nodes:
            node = self._large_nodes[amounts]
            if node is None:
                return False
            if index.key(node) is not None and node.is_large_enough(amounts):
                return True
        elif len(self._large_nodes) >= LARGE_NODES_MAX:
            self._large_nodes.clear()
        node = self._large_nodes[amounts] = next(self._large_enough(amounts, index), None)
        return node is not None

    def _first(self, index: NodeIndex, shape: AskShape, policy: str | None) -> Node | None:
        """Return the first node of an index that takes such an ask; `policy` is None if not all nodes are in it. Raises
        WorkSpent if the turn may search no more.
        """
        first = index.first()
        if first is not None and shape.constraint is None and not first.guarded and first.has_room(shape.amounts):
            return first  # mostly, as long as the cluster is not full
        first = index.find(shape.amounts)
        if first is None or (shape.constraint is None and not first.guarded):
            return first
        if policy is None:
            return self.predicates.first(shape, index.having_room(shape.amounts), all_nodes=False)
        demands = self.predicates.no_demands if shape.constraint is None else shape.constraint.demands
        name = policy, demands
        derived = self._derived.get(name)
        if derived is not None:
            return self.predicates.first(shape, derived.refresh(index).having_room(shape.amounts), all_nodes=True)
        before = self.predicates.refused
        found = self.predicates.first(shape, index.having_room(shape.amounts), all_nodes=True)
        cost = self._costs.pop(name, 0) + self.predicates.refused - before
        if cost >= len(index) and self.predicates.prepare_all(demands):
            self._derive(name, index, lambda node, key: key if self.predicates.meets(demands, node) else None)
            return found
        if len(self._costs) >= COSTS_MAX:
            self._costs.clear()
        self._costs[name] = cost
        return found

    def _derive(
        self, name: DerivedName, source: NodeIndex, key_of: Callable[[Node, SortKey], SortKey | None]
    ) -> DerivedIndex:
        if len(self._derived) >= DERIVED_INDEXES_MAX:
            del self._derived[next(iter(self._derived))]
        derived = self._derived[name] = DerivedIndex(key_of)
        derived.changed = {node.rank: node for node in source}
        return derived

    def _create_index(self, policy: str) -> NodeIndex:
        index = NodeIndex()
        for node in self.index:
            index.put(node, self._sort_key_of(policy, node))
        self.indexes[policy] = index
        return index

    def _sort_key_of(self, policy: str, node: Node) -> SortKey:
        score_node = NODE_SORT_POLICIES[policy]
        if score_node is score_fair:  # called directly, as most partitions have it
            score = score_fair(node.available_sum, node.capacity_sum, self._weights_by_type)
        else:
            score = score_node(node.available_sum, node.capacity_sum, self._weights_by_type)
        return sort_key_of(score, node.node_id)

    def _pack_index(self, application: "Application") -> NodeIndex:
        """Return the nodes on which an application with the node order `pack` runs."""
        if application.pack is None:
            pack = application.pack = PackIndex(application.rank)
            for one in (*application.allocations.values(), *application.swapping.values()):
                node = self._by_id.get(one.node_id)
                if node is not None and node.allocations.get(one.key) is one:
                    self._count_in_pack(pack, node)
        return application.pack.refresh(self.index)

    def _count_in_pack(self, pack: PackIndex, node: Node) -> None:
        pack.counts[node.rank] += 1
        pack.changed[node.rank] = node
        self.packs.setdefault(node.rank, {})[pack.rank] = pack

    def _note_change(self, node: Node) -> None:
        """Update the caches that depend on the node."""
        self.predicates.verdicts.moment += 1
        for pack in self.packs.get(node.rank, {}).values() if self.packs else ():
            pack.changed[node.rank] = node
        for name, derived in tuple(self._derived.items()) if self._derived else ():
            derived.changed[node.rank] = node
            if len(derived.changed) > len(self._by_id) + 1:  # nodes came and went, and nothing reads the index
                del self._derived[name]
        if self.predicates.in_vain:
            self.predicates.recheck_node(node)


def _asks_manager(shape: AskShape) -> bool:
    """Whether the RM decides which nodes accept such an ask."""
    return shape.constraint is not None and bool(shape.constraint.asked)


def weigh(weights: Mapping[str, float]) -> list[tuple[int, float]]:
    """Return the weights by the number of the resource type, for a sort policy. Weights that are NaN count as 0."""
    return [(number_of(kind), weight) for kind, weight in weights.items() if weight > 0 or weight < 0]


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


def node_choice_of(application: "Application") -> str | None:
    """Return the node order that the application's tag names, or else its queue; None means the partition's order.

    An unknown order in the tag counts as no tag.
    """
    tag = application.tags.get(NODE_SORT) if application.tags else None
    choice = None if tag is None else parse_node_choice(tag)
    return choice or application.queue.policies.node_sort
