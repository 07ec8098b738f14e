"""The queues of a partition: edges, lookup, queues that placement creates and that go again, and the order of
readiness.

Readiness is the engine's memory of what need not be tried: a queue or application is *ready* when it asks for
something and may get it, *parked* when an attempt failed and nothing has changed since that could help. `touch`
(something about this queue changed) and `relieve` (something that others may profit from was freed) bring parked ones
back.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.names import ILLEGAL_QUEUE, QUEUE, RECOVERY_QUEUE
from common.resources import is_positive
from partition_worker.engine.queues.blueprint import build, from_template
from partition_worker.engine.queues.fairness import descending_shares, queue_key, refresh_fair_maximum
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.users import User

if TYPE_CHECKING:
    from common.config.model import PartitionConfig
    from common.messages import Resources
    from partition_worker.engine.applications.application import Application
    from partition_worker.engine.order import Key


class QueueError(ValueError):
    """A queue that cannot be created or used, with the reason that users see."""


class Tree:
    """All queues of one partition."""

    def __init__(self, config: "PartitionConfig") -> None:
        self.root = build(config.root)
        self._by_path: dict[str, Queue] = {}
        for queue in self._below(self.root):
            self._by_path[queue.path] = queue
        self._ranks = len(self._by_path)
        self._touched: dict[int, Queue] = {}
        self._touched_applications: dict[int, Application] = {}
        self._parked: dict[int, Queue] = {}
        self._parked_applications: dict[int, Application] = {}

    # Lookup ---------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Queue | None:
        """The queue of this path, ignoring case."""
        return self._by_path.get(path.lower())

    def __iter__(self) -> Iterator[Queue]:
        """Every queue, parents before their children."""
        return iter(tuple(self._by_path.values()))

    # Queues that come and go ----------------------------------------------------------------------------------------

    def create(self, path: str, user: User) -> Queue:
        """The leaf that a placement named, with every level that is missing; found again if it exists.

        Raises:
            QueueError: no access, a leaf or a draining queue in the way, or an illegal name.
        """
        path = path.lower()
        if path == RECOVERY_QUEUE:
            return self.find(path) or self._add(self.root, path.rpartition(".")[2], leaf=True)
        lowest, missing = self._nearest(path)
        if not missing:
            return lowest
        if not lowest.admits_submission(user):
            raise QueueError(f"submit access to queue {lowest.path} denied during create of: {path}")
        if lowest.leaf:
            raise QueueError(f"creation of queue {path} failed parent is already a leaf: {lowest.path}")
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

    def remove_empty(self) -> int:
        """Remove queues that are dynamic or draining and have nothing in them, children first; how many."""
        removed = 0
        for queue in reversed(tuple(self._by_path.values())):
            unwanted = not queue.managed or queue.draining
            if unwanted and not queue.children and not queue.applications and queue.parent is not None:
                del queue.parent.children[queue.name]
                del self._by_path[queue.path]
                self._touched.pop(queue.rank, None)
                self._parked.pop(queue.rank, None)
                queue.parent.ready_children.drop(queue)
                removed += 1
        return removed

    def has_temporary(self) -> bool:
        """Whether there are queues that go once they are empty."""
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
        queue = from_template(parent, name, rank=self._ranks, leaf=leaf)
        self._ranks += 1
        parent.children[name] = queue
        self._by_path[queue.path] = queue
        refresh_fair_maximum(queue)
        return queue

    def _below(self, queue: Queue) -> Iterator[Queue]:
        yield queue
        for child in queue.children.values():
            yield from self._below(child)

    # The size of the cluster ----------------------------------------------------------------------------------------

    def resize(self, total: "Resources") -> None:
        """The cluster's size is the root's maximum, and what shares are relative to."""
        self.root.maximum = dict(total) if is_positive(total) else None
        refresh_fair_maximum(self.root)
        for queue in self._by_path.values():
            self._touched[queue.rank] = queue

    # Readiness ------------------------------------------------------------------------------------------------------

    def touch(self, leaf: Queue) -> None:
        """What the keys of this queue and of those above it depend on has changed."""
        queue: Queue | None = leaf
        while queue is not None:
            self._touched[queue.rank] = queue
            queue = queue.parent

    def touch_application(self, application: "Application") -> None:
        """What the key of this application depends on has changed."""
        self._touched_applications[application.rank] = application
        self.touch(application.queue)

    def park(self, queue: Queue) -> None:
        """Nothing below this queue can be placed as things are."""
        assert queue.parent is not None, queue.path
        queue.parent.ready_children.drop(queue)
        self._parked[queue.rank] = queue

    def park_application(self, application: "Application") -> None:
        """Nothing of this application can be placed as things are."""
        application.queue.ready_applications.drop(application)
        self._parked_applications[application.rank] = application

    def forget_application(self, application: "Application") -> None:
        """The application has left its queue."""
        application.queue.ready_applications.drop(application)
        self._touched_applications.pop(application.rank, None)
        self._parked_applications.pop(application.rank, None)

    def relieve(self) -> None:
        """Something was freed: everything that was parked may be worth another attempt."""
        self._touched.update(self._parked)
        self._touched_applications.update(self._parked_applications)
        self._parked.clear()
        self._parked_applications.clear()

    def refresh(self) -> None:
        """Bring the order of everything that was touched up to date; O(log n) for each."""
        for application in self._touched_applications.values():
            queue = application.queue
            if is_positive(application.pending):
                queue.ready_applications.put(application, _application_key(application, queue))
            else:
                queue.ready_applications.drop(application)
        self._touched_applications.clear()
        for queue in self._touched.values():
            if queue.parent is None:
                continue
            if queue.state != "Stopped" and is_positive(queue.pending):
                queue.parent.ready_children.put(queue, queue_key(queue))
            else:
                queue.parent.ready_children.drop(queue)
        self._touched.clear()


def _application_key(application: "Application", queue: Queue) -> "Key":
    """Where an application stands among those of its leaf, as the leaf's policies say."""
    priority = -application.priority
    if queue.policies.application_sort == "fair":
        shares = descending_shares(application.allocated, queue.guaranteed)
        return (priority, shares) if queue.policies.priority_sort else (shares, priority)
    submitted = application.submitted_ns
    return (priority, submitted) if queue.policies.priority_sort else (submitted, priority)
