"""Reserved nodes that give way: open nodes on which an ask of higher priority than all reserving asks may be placed.

A search for such a node must cost nothing in the usual case that all asks have the same priority, however many nodes
are reserved. So the nodes have one index for each leaf and priority of a reserving ask, and a search reads only those
whose asks its own ask outranks; which these are is cached.
"""

from collections.abc import Iterator
from heapq import merge
from typing import Final

from yunishard.partition_worker.engine.amounts import Amounts
from yunishard.partition_worker.engine.nodes.node_index import Node, NodeIndex, SortKey
from yunishard.partition_worker.engine.queues.queue import Queue, outranks

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
