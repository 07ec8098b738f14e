"""Parked queues: queues below which no ask can be placed now, and where asks wait for resources to be freed.

They are kept in order beside their siblings that are ready. After resources were freed, parked queues are checked one
by one, the most deserving first, and only those before all ready siblings; none, if no need that waits below their
parent has room in the parent and on a node. So a release costs one check for each need that waits, not for each
queue.

The wait buckets of a leaf are in `unschedulable_asks.py`.
"""

from collections.abc import Callable, Iterable

from partition_worker.engine.ask_shapes import AskShape
from partition_worker.engine.order import Order
from partition_worker.engine.queues.headroom import allows
from partition_worker.engine.queues.queue import Queue

Waited = tuple[AskShape, bool]
"""What is waited for, and whether a node that may be kept for it will do."""


class ParkedQueues:
    """All queues of a partition that are at rest, and what is waited for below any queue."""

    def __init__(self) -> None:
        self.children: dict[int, Order[Queue]] = {}
        """Those at rest by the rank of their parent; no order is empty."""
        self.expected: dict[int, dict[Waited, int]] = {}
        """By the rank of a queue, how many shelves below it are for the same."""
        self.searched: dict[int, int] = {}
        """By the rank of a queue, the last relief after which nothing at rest below it was worth a look."""

    def waits(self, queue: Queue) -> Iterable[Waited]:
        """The different things that are waited for below a queue."""
        return self.expected.get(queue.rank, ())

    def expect(self, leaf: Queue, waited: Waited) -> None:
        """Something more is waited for in this leaf."""
        for level in leaf.ancestry():
            here = self.expected.setdefault(level.rank, {})
            here[waited] = here.get(waited, 0) + 1

    def no_longer_expect(self, leaf: Queue, waited: Waited) -> None:
        """Take back what `expect` counted."""
        for level in leaf.ancestry():
            here = self.expected[level.rank]
            here[waited] -= 1
            if not here[waited]:
                del here[waited]
                if not here:
                    del self.expected[level.rank]

    def lay(self, child: Queue, retry_round: int) -> None:
        """After so many reliefs nothing below this queue can be placed: it rests, if anything waits there that its own
        maximum allows. What that does not allow has to wait until something of this very queue is freed: then the queue
        is ready, as it changed.
        """
        assert child.parent is not None, child.path
        ready = child.parent.ready_children
        self.searched[child.rank] = retry_round
        if any(allows(child, shape.amounts) for shape, _ in self.waits(child)):
            ready.hand_over(child, self.children.setdefault(child.parent.rank, Order()))
        else:
            ready.drop(child)

    def wake(self, child: Queue) -> None:
        """The queue is ready, or nothing waits there; nothing happens if it does not rest."""
        assert child.parent is not None, child.path
        children = self.children.get(child.parent.rank)
        if children is not None:
            children.drop(child)
            self._tidy(child.parent)

    def forget(self, queue: Queue) -> None:
        """The queue is gone, and nothing waits there."""
        self.wake(queue)
        self.searched.pop(queue.rank, None)

    def bring_back(self, queue: Queue, retry_round: int, worth_a_look: Callable[[Queue], bool]) -> None:
        """Of the children at rest that stand before all that are ready make the first ready that is worth a look, after
        so many reliefs.
        """
        children = self.children.get(queue.rank)
        if children is None or self.searched.get(queue.rank) == retry_round:
            return
        if worth_a_look(queue):
            before = queue.ready_children.first_place()
            for child in children:
                if before is not None and children.place(child) > before:
                    return
                if self.searched.get(child.rank) != retry_round:
                    if worth_a_look(child):
                        children.hand_over(child, queue.ready_children)
                        self._tidy(queue)
                        return
                    self.searched[child.rank] = retry_round
        self.searched[queue.rank] = retry_round

    def _tidy(self, queue: Queue) -> None:
        if not len(self.children[queue.rank]):
            del self.children[queue.rank]
