"""The nodes on which one application already runs, in the order in which they are tried for it before all others.

Kept only for applications that want to be packed, from the first time that a node is sought for them. An application
runs where something of it takes room: also where a real one waits for its placeholder elsewhere to end.

Not here: who wants it (`choice.py`), and the places (`fleet.py`).
"""

from collections import Counter

from partition_worker.engine.nodes.lineup import Lineup
from partition_worker.engine.nodes.node import Node


class Pack:
    """Always: its nodes that get new allocations are in the lineup, at their places in the order of the partition."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        """That of the application."""
        self.lineup = Lineup()
        self._counts: Counter[int] = Counter()  # of what runs on the node of this rank

    def began(self, node: Node) -> None:
        """Something of the application takes room on the node; it gets its place when the fleet is told."""
        self._counts[node.rank] += 1
        node.packs[self.rank] = self

    def ended(self, node: Node) -> None:
        """Something of the application that was on the node is not there any more."""
        self._counts[node.rank] -= 1
        if not self._counts[node.rank]:
            del self._counts[node.rank], node.packs[self.rank]
            self.lineup.drop(node)
