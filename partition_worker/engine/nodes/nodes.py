"""All nodes of a partition, and the choice of a node for an ask.

The indexes hold only schedulable nodes without reservations. There is one node index for each sort policy in use, and
one for each application with the node order `pack`. A node moves in all of them when our own allocations on it, its
capacity or its schedulable flag change, so an application's own node order costs no scan.

The caller checks that the queues, user and group of the ask have room before it asks for a node.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from common.messages import Resources
from common.node_sort_policies import NODE_SORT_POLICIES, PACK, parse_node_choice
from common.resources import drop_zeros, minus, plus
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.ask_shapes import Amounts, AskShape
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.node_index import NodeIndex
from partition_worker.engine.nodes.secondary_indexes import ConstraintIndexes, PackIndex, ReservationCandidates
from partition_worker.engine.nodes.sort_policies import SortKey, sort_key_of
from partition_worker.engine.predicates.evaluation import Predicates
from partition_worker.engine.queues.queue import NODE_SORT

if TYPE_CHECKING:
    from partition_worker.engine.application import Application

CANDIDATES_MAX: Final = 8
"""Shapes whose candidates for a reservation are kept in order, each a few hundred bytes for each node; the oldest makes
way."""

KEEPERS_MAX: Final = 1024
"""Shapes for which a node is remembered that might be kept for them, or that there is none. With more all are
forgotten."""


class Nodes:
    """Nodes by id and by score."""

    def __init__(self, policy: str, weights: Mapping[str, float], predicates: Predicates | None = None) -> None:
        self.policy = policy
        """The partition's."""
        self.weights = dict(weights)
        self.total: Resources = {}
        """The sum of all capacities, pruned; draining nodes count."""
        self.predicates = predicates or Predicates()
        self._nodes: dict[str, Node] = {}
        self.indexes: dict[str, NodeIndex] = {policy: NodeIndex()}
        """The partition's, and those that applications or queues asked for; the same nodes are in all of them."""
        self._candidates: dict[Amounts, ReservationCandidates] = {}
        self._keepers: dict[Amounts, Node | None] = {}
        self._selections = ConstraintIndexes(self.predicates)
        self.ever_guarded = False
        """Whether a node ever was."""
        self.ranks = 0
        """How many nodes ever came."""
        self.packs: dict[int, dict[int, PackIndex]] = {}
        """By the rank of a node, the packs of the applications that run there, by the rank of the application."""

    def get(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def __iter__(self) -> Iterator[Node]:
        """In order of arrival."""
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def index(self) -> NodeIndex:
        """Those that anybody may get, in the order of the partition."""
        return self.indexes[self.policy]

    def recall(
        self,
        nodes: Iterable[Node],
        *,
        total: Resources,
        ranks: int,
        ever_guarded: bool,
        lineups: Mapping[str, Iterable[tuple[Node, float]]],
    ) -> None:
        """Go on where one was that is remembered (`engine/memory`), each node at its place."""
        self._nodes = {node.node_id: node for node in nodes}
        self.total, self.ranks, self.ever_guarded = total, ranks, ever_guarded
        self.indexes = {}
        if self.policy not in lineups:
            raise ValueError(f"the snapshot has no node index for the node sort policy {self.policy}")
        for policy, places in lineups.items():
            if policy not in NODE_SORT_POLICIES:  # of a queue, in a release that had it; none uses it now
                continue
            lineup = self.indexes[policy] = NodeIndex()
            for node, score_then in places:
                lineup.put(node, sort_key_of(score_then, node.node_id))

    # What changed ---------------------------------------------------------------------------------------------------

    def add(self, node_id: str, capacity: Resources, attributes: dict[str, str], *, schedulable: bool) -> Node:
        """A new node; the id must be free."""
        assert node_id not in self._nodes, node_id
        node = Node(node_id, self.ranks, capacity, attributes, schedulable)
        self._guard(node)
        self.ranks += 1
        self._nodes[node_id] = node
        self._resize_total(node.capacity, {})
        self._opened(node)
        return node

    def withdraw(self, node: Node) -> None:
        """A node that is about to be removed gets nothing more."""
        node.schedulable = False
        self.changed(node)

    def remove(self, node: Node) -> None:
        """Take a node out of the orders and out of the total; what was said of it holds no longer."""
        self.withdraw(node)
        node.version += 1
        del self._nodes[node.node_id]
        self._resize_total({}, node.capacity)

    def resize(self, node: Node, capacity: Resources) -> None:
        before = node.capacity
        node.resize(capacity)
        self._guard(node)
        self._resize_total(node.capacity, before)
        self._opened(node)

    def reorder(self, policy: str, weights: Mapping[str, float]) -> None:
        """Try nodes in the order of another policy, or of other weights, from now on."""
        if policy == self.policy and dict(weights) == self.weights:
            return
        self.policy = policy
        self.weights = dict(weights)
        self.indexes = {policy: NodeIndex()}
        self._candidates.clear()
        self._selections.clear()
        for node in self:
            self.changed(node)

    def set_schedulable(self, node: Node, *, schedulable: bool) -> None:
        node.schedulable = schedulable
        self._opened(node)

    def kept(self, node: Node) -> None:
        """The node is kept for somebody from now on, or for one more."""
        self.changed(node)

    def unkept(self, node: Node) -> None:
        """The node is kept for nobody any more."""
        self._opened(node)

    def bind(self, application: "Application", allocation: Allocation, node: Node) -> None:
        """Put an allocation of the application on the node, whether or not there is room."""
        node.add(allocation)
        if application.pack is not None:
            self._enter_pack(application.pack, node)
        self.changed(node)

    def unbind(self, application: "Application", allocation: Allocation, node: Node) -> None:
        """Take an allocation of the application off the node."""
        node.remove(allocation)
        pack = application.pack
        if pack is not None and pack.ended(node):
            packs = self.packs[node.rank]
            del packs[pack.rank]
            if not packs:
                del self.packs[node.rank]
        self.changed(node)

    def _enter_pack(self, pack: PackIndex, node: Node) -> None:
        pack.began(node)
        self.packs.setdefault(node.rank, {})[pack.rank] = pack

    def changed(self, node: Node) -> None:
        """Our own allocations on the node changed: it moves in the orders."""
        if node.schedulable and not node.reservations:
            weights, node_id = self.weights, node.node_id
            available, capacity = node.available, node.capacity
            for policy, lineup in self.indexes.items():
                lineup.put(node, sort_key_of(NODE_SORT_POLICIES[policy](available, capacity, weights), node_id))
            if self.packs and node.rank in self.packs:
                place = self._place(node)
                for pack in self.packs[node.rank].values():
                    pack.index.put(node, place)
        else:
            for lineup in self.indexes.values():
                lineup.drop(node)
            for pack in self.packs.get(node.rank, {}).values():
                pack.index.drop(node)
        self._look_again(node)

    def freed(self, node: Node) -> None:
        """What is available on the node changed, and it stays where it is in the orders."""
        for lineup in self.indexes.values():
            lineup.gained(node)
        for pack in self.packs.get(node.rank, {}).values():
            pack.index.gained(node)
        self._look_again(node)

    # Where something can run ----------------------------------------------------------------------------------------

    def node_for(self, shape: AskShape, application: "Application | None" = None) -> Node | None:
        """The node that an ask of the application with this need would get now.

        A required node will do even while it drains, or is kept for other asks that no other node would do for.
        """
        if not shape.required_node:
            return self.first_fit(shape, application)
        node = self._nodes.get(shape.required_node)
        if node is None or not node.has_room(shape.amounts) or not self.admits(shape, node):
            return None
        return node if all(one.for_required_node for one in node.reservations.values()) else None

    def first_fit(self, shape: AskShape, application: "Application | None" = None) -> Node | None:
        """The first node with room for this need, in the order that the application wants."""
        choice = None if application is None else node_choice_of(application)
        if application is not None and choice == PACK:
            node = self._first(self.pack(application).index, shape, None)
            return self._first(self.index, shape, self.policy) if node is None else node
        policy = self.policy if choice is None or choice == PACK else choice
        return self._first(self._lineup(policy), shape, policy)

    def admits(self, shape: AskShape, node: Node, *, allocate: bool = True) -> bool:
        """Whether a node with room will do for what else the ask wants of it; without `allocate`, whether it will do
        to be kept for the ask.
        """
        if shape.constraint is None and not node.guarded:
            return True
        return self.predicates.admits(shape, node, allocate=allocate)

    def postpones(self, shape: AskShape) -> bool:
        """Whether no node takes an ask with this need before others have been asked about."""
        if shape.constraint is None or not shape.constraint.asked:
            return False
        return self.predicates.verdicts.turns_away(shape.constraint.asked)

    def refusals(self, shape: AskShape) -> dict[str, int]:
        """On how many of the nodes with room an ask with this need is refused, by reason; a look at each of them."""
        if shape.constraint is None and not self.ever_guarded:
            return {}
        return self.predicates.refusals(shape, self.index.having_room(shape.amounts))

    # Nodes to keep for an ask ---------------------------------------------------------------------------------------

    def only_node(self, shape: AskShape) -> Node | None:
        """The node that an ask requires, if it is or can be kept for it: one that exists, is large enough, and that
        nobody was asked to leave for somebody else.
        """
        node = self._nodes.get(shape.required_node)
        return (
            node if node is not None and node.is_large_enough(shape.amounts) and not node.kept_for_preemption else None
        )

    def may_reserve(self, shape: AskShape) -> bool:
        """Whether there is a node that might be kept for an ask with this need."""
        if shape.required_node or not self._has_keeper(shape.amounts):
            return False
        if shape.constraint is None and not self.ever_guarded:
            return True
        large = self._large_enough(shape.amounts)
        return self.predicates.first(shape, large, all_nodes=True, allocate=False) is not None

    def _large_enough(self, amounts: Amounts) -> Iterator[Node]:
        for node in self.index:
            if node.is_large_enough(amounts):
                yield node

    def _has_keeper(self, amounts: Amounts) -> bool:
        lineup = self.index
        if amounts in self._keepers:
            keeper = self._keepers[amounts]
            if keeper is None:
                return False
            if lineup.place(keeper) is not None and keeper.is_large_enough(amounts):
                return True
        elif len(self._keepers) >= KEEPERS_MAX:
            self._keepers.clear()
        keeper = self._keepers[amounts] = next((node for node in lineup if node.is_large_enough(amounts)), None)
        return keeper is not None

    def best_to_reserve(self, shape: AskShape) -> Node | None:
        """Of the nodes that might be kept for an ask with this need the one on which it leaves the least over (spec
        4.6); of equals the first in the order of the partition. None where only one node would do.
        """
        if shape.required_node or not self._has_keeper(shape.amounts):
            return None
        candidates = self._candidates.get(shape.amounts)
        if candidates is None:
            if len(self._candidates) >= CANDIDATES_MAX:
                del self._candidates[next(iter(self._candidates))]
            candidates = self._candidates[shape.amounts] = ReservationCandidates(shape.amounts, self.index)
        best = candidates.best()
        if best is None or (shape.constraint is None and not best.guarded):
            return best
        return self.predicates.first(shape, candidates.in_order(), all_nodes=True, allocate=False)

    # Private --------------------------------------------------------------------------------------------------------

    def _guard(self, node: Node) -> None:
        node.guarded = self.predicates.guards(node)
        self.ever_guarded |= node.guarded

    def _opened(self, node: Node) -> None:
        """The node may be kept for somebody now for whom it could not be before."""
        self.changed(node)
        if node.schedulable and not node.reservations:
            self._keepers = {
                amounts: keeper
                for amounts, keeper in self._keepers.items()
                if keeper is not None or not node.is_large_enough(amounts)
            }

    def _first(self, lineup: NodeIndex, shape: AskShape, policy: str | None) -> Node | None:
        """The first node of the lineup of this policy, or of a part of the nodes."""
        first = lineup.first()
        if first is not None and shape.constraint is None and not first.guarded and first.has_room(shape.amounts):
            return first  # mostly, as long as the cluster is not full
        first = lineup.find(shape.amounts)
        if first is None or (shape.constraint is None and not first.guarded):
            return first
        if policy is None:
            return self.predicates.first(shape, lineup.having_room(shape.amounts), all_nodes=False)
        return self._selections.first(policy, lineup, shape)

    def _lineup(self, policy: str) -> NodeIndex:
        lineup = self.indexes.get(policy)
        if lineup is None:
            lineup = self.indexes[policy] = NodeIndex()
            score = NODE_SORT_POLICIES[policy]
            for node in self.index:
                lineup.put(node, sort_key_of(score(node.available, node.capacity, self.weights), node.node_id))
        return lineup

    def pack(self, application: "Application") -> PackIndex:
        """Where an application runs that wants to be packed."""
        if application.pack is None:
            pack = application.pack = PackIndex(application.rank)
            for one in (*application.allocations.values(), *application.swapping.values()):
                node = self._nodes.get(one.node_id)
                if node is not None and node.allocations.get(one.key) is one:
                    self._enter_pack(pack, node)
                    place = self.index.place(node)
                    if place is not None:
                        pack.index.put(node, place)
        return application.pack

    def _place(self, node: Node) -> SortKey:
        place = self.index.place(node)
        assert place is not None, node.node_id
        return place

    def _look_again(self, node: Node) -> None:
        """What is remembered of the node besides its place may be true no longer."""
        if self._candidates:
            self._judge_again(node)
        if self.predicates.in_vain:
            self.predicates.changed(node)
        if self._selections.orders:
            self._selections.changed(node, len(self._nodes))

    def _judge_again(self, node: Node) -> None:
        for amounts, candidates in tuple(self._candidates.items()):
            candidates.changed(node)
            if candidates.unread > len(self._nodes) + 1:  # nobody asks for them any more, and nodes came and went
                del self._candidates[amounts]

    def _resize_total(self, gained: Resources, lost: Resources) -> None:
        self.total = drop_zeros(minus(plus(self.total, gained), lost))


def node_choice_of(application: "Application") -> str | None:
    """Return the node order that the application's tag names, or else its queue; None means the partition's order.

    An unknown order in the tag counts as no tag.
    """
    tag = application.tags.get(NODE_SORT)
    choice = None if tag is None else parse_node_choice(tag)
    return choice or application.queue.policies.node_sort
