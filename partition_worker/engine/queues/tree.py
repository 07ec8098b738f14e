"""The queue tree: lookup by path, dynamic queues that placement creates, and removal of empty queues."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from common.names import ILLEGAL_QUEUE, QUEUE, RECOVERY_QUEUE
from partition_worker.engine.queues.configuration import Settings, build, configure, from_template, made
from partition_worker.engine.queues.fair_share import refresh_fair_maximum
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.user_resolution import User

if TYPE_CHECKING:
    from common.config.model import PartitionConfig


LEVELS_MAX: Final = 64
"""Levels of a path that placement may create, including the root; a deeper one rejects its application."""

QUEUES_MAX: Final = 50_000
"""Queues of a partition beyond which placement creates none; a configuration may have more."""


class QueueError(ValueError):
    """A queue that cannot be created or used; the text is the reason for the user."""


class Tree:
    """All queues of one partition."""

    def __init__(self, config: "PartitionConfig") -> None:
        self.root = build(config.root)
        self._by_path: dict[str, Queue] = {}
        for queue in self._below(self.root):
            self._by_path[queue.path] = queue
        self.next_rank = len(self._by_path)
        """The rank of the next queue."""

    def recall(self, queues: Sequence[Queue], next_rank: int) -> None:
        """Restore the queues from a snapshot, parents first."""
        for queue in queues:
            if queue.parent is not None:
                queue.parent.children[queue.name] = queue
        self.root = queues[0]
        self._by_path = {queue.path: queue for queue in queues}
        self.next_rank = next_rank

    # Lookup ---------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Queue | None:
        """The queue of this path, in any case."""
        return self._by_path.get(path.lower())

    def __iter__(self) -> Iterator[Queue]:
        """Every queue, parents before their children."""
        return iter(tuple(self._by_path.values()))

    # Queues that come and go ----------------------------------------------------------------------------------------

    def create(self, path: str, user: User) -> Queue:
        """Create the leaf that placement chose, with all missing levels, or return it if it exists.

        Raises: QueueError: no access, a leaf or a draining queue in the way, or an illegal name.
        """
        written, path = path, path.lower()
        levels = path.count(".") + 1
        if levels > LEVELS_MAX:
            raise QueueError(f"queue path has {levels} levels, at most {LEVELS_MAX} are allowed: {path[:256]}")
        if path == RECOVERY_QUEUE:
            return self.find(path) or self._add(self.root, path.rpartition(".")[2], leaf=True)
        lowest, missing = self._nearest(path)
        if not missing:
            return lowest
        if len(self._by_path) + len(missing) > QUEUES_MAX:
            raise QueueError(f"there are {len(self._by_path)} queues, placement creates none beyond {QUEUES_MAX}")
        if not lowest.admits_submission(user):
            raise QueueError(f"submit access to queue {lowest.path} denied during create of: {written}")
        if lowest.leaf:
            raise QueueError(f"creation of queue {written} failed parent is already a leaf: {lowest.path}")
        if lowest.draining:
            raise QueueError(f"cannot add a child queue when queue is marked for deletion: {lowest.path}")
        for name in missing:
            if not QUEUE.fullmatch(name):
                raise QueueError(ILLEGAL_QUEUE)
            if name == RECOVERY_QUEUE.rpartition(".")[2]:
                raise QueueError("dynamic queue cannot be root.@recovery@")
        for level, name in enumerate(missing, start=1):
            lowest = self._add(lowest, name, leaf=level == len(missing))
        return lowest

    def add(self, path: str, settings: Settings) -> Queue:
        """Add a queue of a new configuration below an existing one; its fair maximum is not set yet."""
        assert path not in self._by_path, path
        queue = made(path, self._by_path[path.rpartition(".")[0]], rank=self.next_rank)
        configure(queue, settings)
        self.next_rank += 1
        self._by_path[path] = queue
        return queue

    def remove_empty(self) -> list[Queue]:
        """Remove and return empty dynamic and draining queues, children first."""
        removed = []
        for queue in reversed(tuple(self._by_path.values())):
            unwanted = not queue.managed or queue.draining
            if unwanted and not queue.children and not queue.applications and queue.parent is not None:
                del queue.parent.children[queue.name]
                del self._by_path[queue.path]
                removed.append(queue)
        return removed

    def has_temporary(self) -> bool:
        """Whether there are dynamic or draining queues."""
        return any(not queue.managed or queue.draining for queue in self._by_path.values())

    def _nearest(self, path: str) -> tuple[Queue, list[str]]:
        missing: list[str] = []
        while (queue := self._by_path.get(path)) is None:
            path, dot, name = path.rpartition(".")
            if not dot:
                raise QueueError(f"queue {name} is not below root")
            missing.insert(0, name)
        return queue, missing

    def _add(self, parent: Queue, name: str, *, leaf: bool) -> Queue:
        queue = from_template(parent, name, rank=self.next_rank, leaf=leaf)
        self.next_rank += 1
        parent.children[name] = queue
        self._by_path[queue.path] = queue
        refresh_fair_maximum(queue)
        return queue

    def _below(self, queue: Queue) -> Iterator[Queue]:
        yield queue
        for child in queue.children.values():
            yield from self._below(child)
