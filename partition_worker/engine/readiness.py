"""The engine's memory of what is worth trying: who is next, and what need not be looked at again yet.

A queue or application that asks for something is *ready*, in the order in which it deserves the next allocation, until
an attempt fails. Then it is set aside and costs nothing:

    parked   nothing it needs can be placed: its queues have no room for it, or no node has
    held     an application that may not start to run while so many others of its queue do

`relieve` says that something was freed. Then a leaf that set things aside is looked at once for each *need* (amounts,
and a required node if any) that waits in it, not for each application; and of the applications that share a need only
the most deserving comes back, the next one when that got something. So a release costs the number of needs and leaves
that wait, however many applications and asks do. `touch` says that a queue or application itself changed: its key may
be another.

Not here: deciding (`cycle.py`); this only says whom to try.
"""

from common.resources import is_positive
from partition_worker.engine.applications.application import Application
from partition_worker.engine.needs import Need
from partition_worker.engine.nodes.fleet import Fleet
from partition_worker.engine.order import Key, Order
from partition_worker.engine.queues.admission import may_start
from partition_worker.engine.queues.fairness import descending_shares, queue_key, refresh_fair_maximum
from partition_worker.engine.queues.headroom import has_room
from partition_worker.engine.queues.queue import Queue
from partition_worker.engine.queues.tree import Tree


class _Aside:
    """What one leaf has set aside."""

    def __init__(self, leaf: Queue) -> None:
        self.leaf = leaf
        self.parked: dict[Need, Order[Application]] = {}
        """Applications under each of their needs; no order in it is empty."""
        self.needs: dict[int, tuple[Need, ...]] = {}
        """Rank of a parked application to the needs under which it is parked."""
        self.held: Order[Application] = Order()
        self.searched_at = -1
        """The last relief after which nothing that is aside could be placed."""

    def park(self, application: Application, key: Key) -> None:
        needs = tuple(group.need for group in application.asks.groups)
        self.needs[application.rank] = needs
        for need in needs:
            self.parked.setdefault(need, Order()).put(application, key)

    def take(self, application: Application) -> None:
        """The application is no longer aside, if it was."""
        self.held.drop(application)
        for need in self.needs.pop(application.rank, ()):
            order = self.parked[need]
            order.drop(application)
            if not len(order):
                del self.parked[need]


class Readiness:
    """Orders of what is ready, and what is aside, for all queues of a partition."""

    def __init__(self, tree: Tree, fleet: Fleet) -> None:
        self._tree = tree
        self._fleet = fleet
        self._touched: dict[int, Queue] = {}
        self._touched_applications: dict[int, Application] = {}
        self._aside: dict[int, _Aside] = {}
        """By the rank of the leaf."""
        self._parked: dict[int, Queue] = {}
        """Leaves that are not ready because everything in them is aside."""
        self._reliefs = 0
        self._relieved = False

    # What changed ---------------------------------------------------------------------------------------------------

    def touch(self, leaf: Queue) -> None:
        """What the keys of this queue and of those above it depend on has changed."""
        queue: Queue | None = leaf
        while queue is not None:
            self._touched[queue.rank] = queue
            queue = queue.parent

    def touch_application(self, application: Application) -> None:
        """What the key of this application depends on has changed, or what it asks for."""
        self._touched_applications[application.rank] = application
        self.touch(application.queue)

    def resized(self) -> None:
        """The size of the cluster changed: it is the root's maximum, and what all shares are relative to."""
        root = self._tree.root
        root.maximum = dict(self._fleet.total) if is_positive(self._fleet.total) else None
        refresh_fair_maximum(root)
        for queue in self._tree:
            self._touched[queue.rank] = queue
        self.relieve()

    def relieve(self) -> None:
        """Something was freed: what is aside may be worth another attempt."""
        self._reliefs += 1
        self._relieved = True

    def forget_application(self, application: Application) -> None:
        """The application has left its queue."""
        application.queue.ready_applications.drop(application)
        self._touched_applications.pop(application.rank, None)
        aside = self._aside.get(application.queue.rank)
        if aside is not None:
            aside.take(application)

    def forget_queue(self, queue: Queue) -> None:
        """The queue is gone."""
        assert queue.parent is not None, queue.path
        queue.parent.ready_children.drop(queue)
        self._touched.pop(queue.rank, None)
        self._parked.pop(queue.rank, None)
        self._aside.pop(queue.rank, None)

    # Who is next ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the orders up to date with everything that changed; O(log n) for each thing that did."""
        if self._relieved:
            self._relieved = False
            for leaf in tuple(self._parked.values()):
                if self._worth_a_look(self._aside[leaf.rank]):
                    self.touch(leaf)
        for application in self._touched_applications.values():
            self._place(application)
        self._touched_applications.clear()
        for queue in self._touched.values():
            self._parked.pop(queue.rank, None)
            if queue.parent is None:
                continue
            if queue.state != "Stopped" and is_positive(queue.pending):
                queue.parent.ready_children.put(queue, queue_key(queue))
            else:
                queue.parent.ready_children.drop(queue)
        self._touched.clear()

    def next_application(self, leaf: Queue) -> Application | None:
        """Whose turn it is in a leaf, of those that may be given something; None if nobody may."""
        aside = self._aside.get(leaf.rank)
        if aside is not None and aside.searched_at != self._reliefs:
            self._bring_back(aside)
        return leaf.ready_applications.first()

    def park(self, queue: Queue) -> None:
        """Nothing below this queue can be placed as things are."""
        assert queue.parent is not None, queue.path
        queue.parent.ready_children.drop(queue)
        if queue.leaf and queue.rank in self._aside:
            self._parked[queue.rank] = queue

    def park_application(self, application: Application) -> None:
        """Nothing that this application needs can be placed as things are."""
        application.queue.ready_applications.drop(application)
        self._of(application.queue).park(application, application_key(application))

    def hold_application(self, application: Application) -> None:
        """The application may not start as things are."""
        application.queue.ready_applications.drop(application)
        self._of(application.queue).held.put(application, application_key(application))

    # Private --------------------------------------------------------------------------------------------------------

    def _place(self, application: Application) -> None:
        leaf = application.queue
        aside = self._aside.get(leaf.rank)
        if aside is not None:
            aside.take(application)
        if is_positive(application.pending):
            leaf.ready_applications.put(application, application_key(application))
        else:
            leaf.ready_applications.drop(application)

    def _bring_back(self, aside: _Aside) -> None:
        """Make ready the most deserving application of each need that can be placed, and of those that are held."""
        found = [order.first() for need, order in aside.parked.items() if self._may_be_placed(aside.leaf, need)]
        if may_start(aside.leaf):
            found.append(aside.held.first())
        if not any(found):
            aside.searched_at = self._reliefs
        for application in found:
            if application is not None:
                aside.take(application)
                aside.leaf.ready_applications.put(application, application_key(application))

    def _worth_a_look(self, aside: _Aside) -> bool:
        if len(aside.held) and may_start(aside.leaf):
            return True
        return any(self._may_be_placed(aside.leaf, need) for need in aside.parked)

    def _may_be_placed(self, leaf: Queue, need: Need) -> bool:
        return has_room(leaf, need.shape) and self._fleet.node_for(need) is not None

    def _of(self, leaf: Queue) -> _Aside:
        aside = self._aside.get(leaf.rank)
        if aside is None:
            aside = self._aside[leaf.rank] = _Aside(leaf)
        return aside


def application_key(application: Application) -> Key:
    """Where an application stands among those of its leaf, as the leaf's policies say."""
    queue = application.queue
    priority = -application.priority
    if queue.policies.application_sort == "fair":
        shares = descending_shares(application.allocated, queue.guaranteed)
        return (priority, shares) if queue.policies.priority_sort else (shares, priority)
    submitted = application.submitted_ns
    return (priority, submitted) if queue.policies.priority_sort else (submitted, priority)
