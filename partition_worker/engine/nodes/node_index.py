"""Nodes, and the node index: the order in which they are tried, with a fast search for the first one with room.

The index is a B+ tree (Bayer and McCreight, "Organization and Maintenance of Large Ordered Indexes", 1972). Each block
holds, per resource type, an upper bound of what is available on its nodes, and the amounts that a search did not find
in it, so a search skips blocks that cannot have room. These bounds are not exact: a node that is added or gains room
raises them; a node that is removed or loses room changes nothing, and the next search that finds no room in the block
corrects them.

First fit: where a search examined many nodes, the index stores the key of the node that it found, and the next
search for the same amounts begins there. A node before it that has room when it is put there moves the beginning back.

The sort policies are in `common/node_sort_policies.py`; `nodes.py` decides which nodes are in an index.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from struct import Struct
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import drop_zeros
from yunishard.partition_worker.engine.allocation import Allocation, AskShape
from yunishard.partition_worker.engine.amounts import (
    Amounts,
    Sum,
    add,
    fits,
    name_types,
    raise_all,
    subtract,
    subtract_sum,
    sum_of,
)
from yunishard.partition_worker.engine.durable_records import OperatorMark
from yunishard.partition_worker.engine.queues.queue import Queue, outranks

UNKNOWN_INSTANCE: Final = "UNKNOWN"
"""The instance type of a node that names none."""


class Node:
    """One node. Always: available = capacity - allocated - occupied; negative only after a shrink or a forced
    addition.
    """

    def __init__(
        self,
        node_id: str,
        rank: int,
        capacity: Resources,
        attributes: dict[str, str],
        schedulable: bool = True,  # noqa: FBT001, FBT002 - as in the message
        cordon: OperatorMark | None = None,
    ) -> None:
        self.node_id = node_id
        self.rank = rank
        self.attributes = attributes
        self.schedulable = schedulable
        """Whether the RM lets it take new allocations."""
        self.cordon = cordon
        """Set if an operator keeps new allocations from it (`Nodes.cordons`)."""
        self.allocations: dict[str, Allocation] = {}
        """Allocations of the partition, by key."""
        self.foreign: dict[str, Allocation] = {}
        """Foreign allocations, by key."""
        self.reservations: dict[str, Reservation] = {}
        """Its reservations by the key of the ask; more than one only if each ask requires this node."""
        self.guarded = False
        """Whether it refuses some asks without constraint."""
        self.version: int = 0
        """Number of changes of its allocations, its capacity and its attributes."""
        self.allocated_sum: Sum = []
        self.occupied_sum: Sum = []
        self._capacity: Resources = {}
        self.capacity_sum: Sum = []
        self.available_sum: Sum = []
        self.resize(capacity)

    @property
    def capacity(self) -> Resources:
        """Its size; a type of 0 is a type that the node lacks."""
        return self._capacity

    @property
    def allocated(self) -> Resources:
        """The usage by allocations of the partition."""
        return name_types(self.allocated_sum)

    @property
    def occupied(self) -> Resources:
        """The usage by foreign allocations, which another scheduler placed."""
        return name_types(self.occupied_sum)

    @property
    def available(self) -> Resources:
        """The rest, at least of the types that the node has."""
        return {**dict.fromkeys(self._capacity, 0), **name_types(self.available_sum)}

    @property
    def is_open(self) -> bool:
        """Whether it takes new allocations: the RM does not drain it, and no operator cordoned it. If not, it still
        takes asks that require it, and an ask that replaces a placeholder on it.
        """
        return self.schedulable and self.cordon is None

    def gives_way_to(self, leaf: Queue, priority: int) -> bool:
        """Whether an ask of this leaf and priority may be placed here in spite of all reservations."""
        return all(one.gives_way_to(leaf, priority) for one in self.reservations.values())

    @property
    def instance_type(self) -> str:
        return self.attributes.get("si/instance-type") or UNKNOWN_INSTANCE

    def attribute(self, name: str) -> str:
        """Return `hostname` or `rackname`, in either spelling that RMs use."""
        return self.attributes.get(f"si/{name}") or self.attributes.get(f"si.io/{name}", "")

    def has_room(self, amounts: Amounts) -> bool:
        """Whether these amounts are available."""
        return fits(self.available_sum, amounts)

    def is_large_enough(self, amounts: Amounts) -> bool:
        """Whether these amounts would fit on the empty node."""
        return fits(self.capacity_sum, amounts)

    def add(self, allocation: Allocation) -> None:
        """Add an allocation, whether or not there is room."""
        self.version += 1
        self.allocations[allocation.key] = allocation
        add(self.allocated_sum, allocation.shape.amounts)
        subtract(self.available_sum, allocation.shape.amounts)

    def remove(self, allocation: Allocation) -> None:
        """Remove an allocation of the partition."""
        self.version += 1
        del self.allocations[allocation.key]
        subtract(self.allocated_sum, allocation.shape.amounts)
        add(self.available_sum, allocation.shape.amounts)

    def resize_allocation(self, delta: Amounts) -> None:
        """Apply the amount by which an allocation here grew (negative: shrank)."""
        self.version += 1
        add(self.allocated_sum, delta)
        subtract(self.available_sum, delta)

    def put_foreign(self, allocation: Allocation) -> None:
        """Add a foreign allocation, or replace the one with its key."""
        self.remove_foreign(allocation.key)
        self.version += 1
        self.foreign[allocation.key] = allocation
        add(self.occupied_sum, allocation.shape.amounts)
        subtract(self.available_sum, allocation.shape.amounts)

    def remove_foreign(self, key: str) -> bool:
        """Remove a foreign allocation; return whether it was here."""
        known = self.foreign.pop(key, None)
        if known is None:
            return False
        self.version += 1
        subtract(self.occupied_sum, known.shape.amounts)
        add(self.available_sum, known.shape.amounts)
        return True

    def resize(self, capacity: Resources) -> None:
        self.version += 1
        self._capacity = drop_zeros(capacity)
        self.capacity_sum = sum_of(self._capacity)
        self.available_sum = list(self.capacity_sum)
        subtract_sum(self.available_sum, self.allocated_sum)
        subtract_sum(self.available_sum, self.occupied_sum)


@dataclass(slots=True, eq=False)
class Reservation:
    """A node that is reserved for one ask until it has room; only asks of higher priority are placed there meanwhile.

    A reservation holds no resources and is charged to nothing. `reservations.py` decides which ask may reserve which
    node, and when a reservation ends.
    """

    ask: Allocation
    node: Node
    leaf: Queue
    """The queue of the ask's application, which cannot move while it holds a reservation."""
    created: float
    """Unix seconds."""
    rank: int
    """In order of creation."""
    shape: AskShape = field(init=False)
    """The shape of the ask by which the reservation is indexed."""
    keeps: Resources = field(default_factory=dict)
    """Room that the queues keep for the ask because victims were preempted for it, or because other asks passed it
    over for too long; empty otherwise.
    """
    keeps_since: float = 0.0
    """When victims were preempted, in Unix seconds; 0.0 without."""

    def __post_init__(self) -> None:
        self.shape = self.ask.shape

    @property
    def for_required_node(self) -> bool:
        """Whether the ask requires this node. Only such reservations may share a node."""
        return bool(self.ask.shape.required_node)

    @property
    def after_preemption(self) -> bool:
        """Whether victims were preempted for the ask. They would have ended without effect if others got the room."""
        return self.keeps_since > 0.0

    def gives_way_to(self, leaf: Queue, priority: int) -> bool:
        """Whether an ask of this leaf and priority may be placed on the node: it has a higher priority, and no victims
        were preempted for the reserving ask.
        """
        return not self.after_preemption and outranks(leaf, priority, self.leaf, self.ask.priority)

    @property
    def counts_toward_share(self) -> bool:
        """Whether it counts toward the share of the nodes that its application may have reserved: its ask may run on
        other nodes, and no victims were preempted for it.
        """
        return not (self.after_preemption or self.for_required_node)


# The node index -------------------------------------------------------------------------------------------------------


SortKey = bytes
"""The scores of a node, the first one first, in eight bytes each, then its id. A comparison of bytes is a fraction of
a comparison of tuples, and the collector visits no bytes.
"""

BEFORE_ALL: Final[SortKey] = b""
BEHIND_ALL: Final[SortKey] = b"\xff" * 8
"""The key of a finite score is smaller."""

_FLOAT: Final = Struct(">d")
_MIRRORED: Final = bytes(range(255, -1, -1))


def sort_key_of(score: float, node: str | SortKey) -> SortKey:
    """Return the sort key of a node with this score, which must be finite. Nodes with equal scores are in the order of
    their ids, or of these keys.
    """
    rest = node.encode() if isinstance(node, str) else node
    if score >= 0:
        return _FLOAT.pack(-(score + 0.0)) + rest  # with the sign bit, so behind negative scores; -0.0 is 0.0
    return _FLOAT.pack(score).translate(_MIRRORED) + rest


CHEAP_STEPS: Final = 24
"""Nodes and blocks that a search may examine before its result is stored."""

STARTS_MAX: Final = 16
"""Amounts with a stored start. Beyond it the oldest is dropped: its next search starts at the first node."""


class NodeIndex:
    """Nodes by ascending sort key."""

    def __init__(self) -> None:
        self._keys: dict[int, SortKey] = {}
        """By the rank of the node."""
        self._root = Block()
        self._starts: dict[Amounts, SortKey] = {}
        """Amounts for which a search examined many nodes, and a key before which no node has room for them."""

    def put(self, node: Node, key: SortKey) -> None:
        """Add a node, or move it to its new place; what is available on it may have changed."""
        old = self._keys.get(node.rank)
        if old == key:
            self._root.raise_bounds(key, node)
        else:
            if old is not None:
                self._remove(old)
            self._keys[node.rank] = key
            root = self._root
            root.put(key, node)
            if len(root.keys) > root.size_max:
                self._root = Block()
                self._root.keys, self._root.blocks = [root.keys[0]], [root]
                self._root.most, self._root.lacking = list(root.most), dict(root.lacking)
                self._root.halve(0)
        if self._starts:
            for amounts, start in self._starts.items():
                if key < start and fits(node.available_sum, amounts):
                    self._starts[amounts] = key

    def remove(self, node: Node) -> None:
        """Remove a node, if it is in the index."""
        old = self._keys.pop(node.rank, None)
        if old is not None:
            self._remove(old)

    def note_room(self, node: Node) -> None:
        """Update the index after a node, if it is in, may have gained room without a change of its key."""
        key = self._keys.get(node.rank)
        if key is not None:
            self.put(node, key)

    def key(self, node: Node) -> SortKey | None:
        """Return the sort key of a node, or None if it is not in the index."""
        return self._keys.get(node.rank)

    def first(self) -> Node | None:
        """Return the node with the smallest key."""
        block = self._root
        while block.blocks:
            block = block.blocks[0]
        return block.nodes[0] if block.nodes else None

    def find(self, amounts: Amounts) -> Node | None:
        """Return the first node with room for these amounts."""
        root = self._root
        if not root.may_have_room(amounts):
            return None
        start = self._starts.get(amounts) if self._starts else None
        found, steps = root.find(amounts, BEFORE_ALL if start is None else start)
        if start is not None or steps > CHEAP_STEPS:
            if start is None and len(self._starts) >= STARTS_MAX:
                del self._starts[next(iter(self._starts))]
            self._starts[amounts] = BEHIND_ALL if found is None else self._keys[found.rank]
        return found

    def having_room(self, amounts: Amounts) -> Iterator[Node]:
        """Return the nodes with room for these amounts, in order; the index must not change during iteration."""
        return self._root.having_room(amounts) if self._root.may_have_room(amounts) else iter(())

    def __iter__(self) -> Iterator[Node]:
        """Nodes in order; the index must not change during iteration."""
        return iter(self._root)

    def __len__(self) -> int:
        return len(self._keys)

    def _remove(self, key: SortKey) -> None:
        self._root.remove(key)
        if len(self._root.blocks) == 1:
            self._root = self._root.blocks[0]


class DerivedIndex:
    """Some nodes of another index, with sort keys of their own, brought up to date when they are read."""

    def __init__(self, key_of: Callable[[Node, SortKey], SortKey | None]) -> None:
        """`key_of` returns the sort key of a node, given that in the source; None leaves the node out."""
        self._key_of = key_of
        self.nodes = NodeIndex()
        self.changed: dict[int, Node] = {}
        """Nodes that changed since it was last read, by rank."""

    def refresh(self, source: NodeIndex) -> NodeIndex:
        """Return the nodes in their present order; `source` is the other index."""
        for node in self.changed.values():
            place = source.key(node)
            key = None if place is None else self._key_of(node, place)
            if key is None:
                self.nodes.remove(node)
            else:
                self.nodes.put(node, key)
        self.changed.clear()
        return self.nodes


class PackIndex(DerivedIndex):
    """The nodes on which one application runs and that get new allocations, in the order of the partition."""

    def __init__(self, rank: int) -> None:
        super().__init__(lambda _, key: key)
        self.rank = rank
        """The rank of the application."""
        self.counts: Counter[int] = Counter()
        """Number of its allocations on each node, by the rank of the node."""


# Blocks ---------------------------------------------------------------------------------------------------------------

LEAF_MAX: Final = 32
"""Nodes of a leaf; a larger one is halved, one with less than a quarter joins a neighbour. A search examines each."""

BRANCH_MAX: Final = 64
"""Blocks of a branch, likewise."""

LACKING_MAX: Final = 32
"""Amounts that a block stores as not found; each costs a step when a node in it gains room. Beyond it all are
dropped, and searched once more.
"""


class Block:
    """A leaf with nodes, or a branch with two or more blocks: all of them leaves, or all branches of the same depth."""

    __slots__ = ("blocks", "keys", "lacking", "most", "nodes")

    def __init__(self) -> None:
        self.keys: list[SortKey] = []
        """In a leaf, those of its nodes. In a branch, for each block one that is greater than all keys of the blocks
        before, and not greater than any key in it.
        """
        self.nodes: list[Node] = []
        """In the order of their keys; a branch has none."""
        self.blocks: list[Block] = []
        """In the order of their keys, none of them empty; a leaf has none."""
        self.most: Sum = []
        """Per type at least as much as is available on any node in it."""
        self.lacking: dict[Amounts, None] = {}
        """Amounts for which no node in it has room, although `most` has."""

    @property
    def size_max(self) -> int:
        return BRANCH_MAX if self.blocks else LEAF_MAX

    def put(self, key: SortKey, node: Node) -> None:
        if self.blocks:
            at = self._find_block(key)
            if not at and key < self.keys[0]:
                self.keys[0] = key
            block = self.blocks[at]
            block.put(key, node)
            if len(block.keys) > LEAF_MAX:
                self.halve(at)
        else:
            at = self._find_place(key)
            self.keys.insert(at, key)
            self.nodes.insert(at, node)
        self._raise_own_bounds(node)

    def remove(self, key: SortKey) -> None:
        if not self.blocks:
            at = self._find_place(key)
            assert self.keys[at] == key, key
            del self.keys[at], self.nodes[at]
            if not self.nodes:
                self.most = []
            return
        at = self._find_block(key)
        block = self.blocks[at]
        block.remove(key)
        if len(block.keys) < block.size_max // 4 and len(self.blocks) > 1:
            at = max(at - 1, 0)
            self.blocks[at].join(self.blocks[at + 1])
            del self.blocks[at + 1], self.keys[at + 1]
            self.halve(at)

    def raise_bounds(self, key: SortKey, node: Node) -> None:
        """Update the bounds for a node in it that may have gained room."""
        self._raise_own_bounds(node)
        if self.blocks:
            self.blocks[self._find_block(key)].raise_bounds(key, node)

    def may_have_room(self, amounts: Amounts) -> bool:
        """Whether a node in it may have room."""
        return fits(self.most, amounts) and (not self.lacking or amounts not in self.lacking)

    def find(self, amounts: Amounts, start: SortKey) -> tuple[Node | None, int]:
        """Return the first node from this key on that has room, and the number of examined nodes and blocks."""
        steps = 0
        is_whole = not start or (bool(self.keys) and start <= self.keys[0])
        if self.blocks:
            at = 0 if is_whole else self._find_block(start)
            while at < len(self.blocks):
                block = self.blocks[at]
                at += 1
                steps += 1
                if block.may_have_room(amounts):
                    found, more = block.find(amounts, start)
                    steps += more
                    if found is not None:
                        return found, steps
        else:
            at = 0 if is_whole else bisect_left(self.keys, start)
            while at < len(self.nodes):
                node = self.nodes[at]
                at += 1
                steps += 1
                if fits(node.available_sum, amounts):
                    return node, steps
        if self.keys and is_whole:
            self._note_lack(amounts)
        return None, steps

    def having_room(self, amounts: Amounts) -> Iterator[Node]:
        """Yield the nodes with room, in order; some may have room."""
        has_room = False
        for block in self.blocks:
            if block.may_have_room(amounts):
                for node in block.having_room(amounts):
                    has_room = True
                    yield node
        for node in self.nodes:
            if node.has_room(amounts):
                has_room = True
                yield node
        if self.keys and not has_room:
            self._note_lack(amounts)

    def _note_lack(self, amounts: Amounts) -> None:
        """Store that no node in it has room, so that the next search skips it."""
        self.most = _maximum([block.most for block in self.blocks] or [node.available_sum for node in self.nodes])
        if self.may_have_room(amounts):
            if len(self.lacking) >= LACKING_MAX:
                self.lacking = {}
            self.lacking[amounts] = None

    def halve(self, at: int) -> None:
        """Split the block at this index into two if it is too large."""
        left = self.blocks[at]
        if len(left.keys) <= left.size_max:
            return
        half, right = len(left.keys) // 2, Block()
        right.keys, right.nodes, right.blocks = left.keys[half:], left.nodes[half:], left.blocks[half:]
        right.most, right.lacking = list(left.most), dict(left.lacking)
        del left.keys[half:], left.nodes[half:], left.blocks[half:]
        self.keys.insert(at + 1, right.keys[0])
        self.blocks.insert(at + 1, right)

    def join(self, right: "Block") -> None:
        """Take over the content of the next block."""
        self.keys += right.keys
        self.nodes += right.nodes
        self.blocks += right.blocks
        self.most = _maximum((self.most, right.most))
        self.lacking = {amounts: None for amounts in self.lacking if amounts in right.lacking}

    def __iter__(self) -> Iterator[Node]:
        yield from self.nodes
        for block in self.blocks:
            yield from block

    def _find_block(self, key: SortKey) -> int:
        """Return the block of a branch in which a key is or belongs."""
        # The first and the last are mostly it: a search takes the first node, which has the most room, and puts it
        # behind those that were used less.
        keys = self.keys
        if key < keys[1]:
            return 0
        return len(keys) - 1 if key >= keys[-1] else bisect_right(keys, key) - 1

    def _find_place(self, key: SortKey) -> int:
        """Return how many nodes of a leaf come before a key."""
        keys = self.keys
        if not keys or key <= keys[0]:
            return 0
        return len(keys) if key > keys[-1] else bisect_left(keys, key)

    def _raise_own_bounds(self, node: Node) -> None:
        raise_all(self.most, node.available_sum)
        if self.lacking:
            self.lacking = {amounts: None for amounts in self.lacking if not node.has_room(amounts)}


def _maximum(sums: Iterable[Sum]) -> Sum:
    """Return the largest positive amount per type."""
    highest: Sum = []
    for one in sums:
        raise_all(highest, one)
    return highest


# Reserved nodes that give way -----------------------------------------------------------------------------------------
#
# Open nodes on which an ask of higher priority than all reserving asks may be placed. A search for such a node must
# cost nothing in the usual case that all asks have the same priority, however many nodes are reserved. So the nodes
# have one index for each leaf and priority of a reserving ask, and a search reads only those that its own ask outranks;
# which these are is cached.

OUTRANKED_MAX: Final = 1024
"""Leaves and priorities of asks for which the indexes to search are cached; beyond it all are dropped."""

Holder = tuple[Queue, int]
"""The leaf and the priority of a reserving ask."""


class ReservedNodes:
    """The open, reserved nodes of a partition, without those on which victims were preempted for the ask."""

    def __init__(self) -> None:
        self._indexes: dict[Holder, NodeIndex] = {}
        """In the order of the partition; none is empty."""
        self._holders: dict[int, Holder] = {}
        """By the rank of a node, the index that it is in."""
        self._keys: dict[int, SortKey] = {}
        """By the rank of a node."""
        self._outranked: dict[Holder, list[NodeIndex]] = {}

    def __contains__(self, node: Node) -> bool:
        return node.rank in self._holders

    def put(self, node: Node, key: SortKey) -> None:
        """Add a reserved node, or update it after its reservations or what is available on it changed."""
        holder = _find_holder(node)
        before = self._holders.get(node.rank)
        if before is not None and before != holder:
            self.remove(node)
        if holder is None:
            return
        index = self._indexes.get(holder)
        if index is None:
            index = self._indexes[holder] = NodeIndex()
            self._outranked.clear()
        self._holders[node.rank], self._keys[node.rank] = holder, key
        index.put(node, key)

    def remove(self, node: Node) -> None:
        """Remove a node that is closed or no longer reserved, if it is in."""
        holder = self._holders.pop(node.rank, None) if self._holders else None
        if holder is not None:
            index = self._indexes[holder]
            index.remove(node)
            del self._keys[node.rank]
            if not len(index):
                del self._indexes[holder]
                self._outranked.clear()

    def note_room(self, node: Node) -> None:
        """Update a node, if it is in, that may have gained room."""
        holder = self._holders.get(node.rank)
        if holder is not None:
            self._indexes[holder].note_room(node)

    def forget_order(self) -> None:
        """Drop what is cached about priorities: the offsets and fences of queues changed."""
        self._outranked.clear()

    def may_have_room(self, amounts: Amounts) -> bool:
        """Whether a node has room for these amounts, for an ask of any priority."""
        return any(index.find(amounts) is not None for index in self._indexes.values())

    def find_outranked(self, leaf: Queue, priority: int, amounts: Amounts) -> Iterator[Node]:
        """Yield the nodes with room that give way to an ask, in the order of the partition."""
        if not self._indexes:
            return
        indexes = self._outranked.get((leaf, priority))
        if indexes is None:
            if len(self._outranked) >= OUTRANKED_MAX:
                self._outranked.clear()
            indexes = [one for holder, one in self._indexes.items() if outranks(leaf, priority, *holder)]
            self._outranked[leaf, priority] = indexes
        for node in merge(*[one.having_room(amounts) for one in indexes], key=lambda node: self._keys[node.rank]):
            if node.gives_way_to(leaf, priority):
                yield node


def _find_holder(node: Node) -> Holder | None:
    """Return the holder of the first reservation of a node; None if it keeps the room of victims."""
    if any(one.after_preemption for one in node.reservations.values()):
        return None
    # An ask has to outrank all reserving asks. One of them finds the nodes to try; `find_outranked` checks the others.
    first = next(iter(node.reservations.values()))
    return first.leaf, first.ask.priority
