"""The engine's memory of what is worth trying: who is next, and what need not be looked at again yet.

A queue or application that asks for something is *ready*, in the order in which it deserves the next allocation, until
an attempt fails: nothing it needs can be placed, as its queues, its user or its group have no room for it, or no node
has; or it may not start to run while so many others do. Then it is set aside and costs nothing.

`relieve` says that something was freed. Then a leaf that set things aside is looked at once for each *need* (amounts,
and a required node if any) that waits in it, not for each application; and only the most deserving application comes
back that can be helped, the next one when that got something. Leaves are looked at in their order too, and only as long
as a need has room on a node and with the queues above. So a release costs the number of needs that wait, however many
queues, applications and asks do. What waits for room of its user or group is not even looked at before `freed` names
that user or group. `touch` says that a queue or application itself changed: its key may be another.

Not here: deciding (`cycle/cycle.py`); this only says whom to try. How what is aside is kept: `aside.py`, and queues
with nothing but that: `resting.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from common.resources import is_positive, is_zero
from partition_worker.engine.application import Application, AppState
from partition_worker.engine.ask_shapes import AskShape
from partition_worker.engine.nodes.nodes import Nodes
from partition_worker.engine.order import Key, Order
from partition_worker.engine.queues.fair_share import descending_shares, path_key, queue_key, refresh_fair_maximum
from partition_worker.engine.queues.headroom import has_room
from partition_worker.engine.queues.queue import Queue, has_opening
from partition_worker.engine.queues.tree import Tree
from partition_worker.engine.readiness.parked_queues import ParkedQueues
from partition_worker.engine.readiness.unschedulable_asks import ClosedBuckets, UnschedulableAsks, Wait, WaitBucket
from partition_worker.engine.usage_trackers import UsageAccount


class Readiness:
    """Orders of what is ready, and what is aside, for all queues of a partition."""

    def __init__(self, tree: Tree, fleet: Nodes, applications: Mapping[str, Application]) -> None:
        self._tree = tree
        self._nodes = fleet
        self._applications = applications
        self.ready: dict[int, Order[Application]] = {}
        """By the rank of a leaf, its applications that may be given something, the most deserving first."""
        self.turns = StateAwareTurns()
        self.touched: dict[int, Queue] = {}
        self.touched_applications: dict[int, Application] = {}
        self.unschedulable: dict[int, UnschedulableAsks] = {}
        """By the rank of the leaf."""
        self.closed = ClosedBuckets()
        self.parked_queues = ParkedQueues()
        self.retry_round = 0
        """How often something was freed."""

    # What changed ---------------------------------------------------------------------------------------------------

    def touch(self, leaf: Queue) -> None:
        """What the keys of this queue and of those above it depend on has changed."""
        touched = self.touched
        for queue in leaf.ancestry():
            if queue.rank in touched:  # and so are those above it
                return
            touched[queue.rank] = queue

    def touch_application(self, application: Application) -> None:
        """What the key of this application depends on has changed, or what it asks for."""
        if application.rank not in self.touched_applications:
            self.touched_applications[application.rank] = application
            self.touch(application.queue)

    def resized(self) -> None:
        """The size of the cluster changed: it is the root's maximum, and what all shares are relative to."""
        root = self._tree.root
        size = dict(self._nodes.total) if is_positive(self._nodes.total) else None
        root.entitle(maximum=size, guaranteed=root.guaranteed)
        self.reshaped()

    def reshaped(self) -> None:
        """Queues came, or have other settings: any share may be another, and anything aside may have room."""
        refresh_fair_maximum(self._tree.root)
        self.touched.update((queue.rank, queue) for queue in self._tree)
        self.retry_parked()

    def reordered(self, leaf: Queue) -> None:
        """The keys of the queue's applications are made in another way now: all of them are put in order anew, as if
        none had been tried.
        """
        self.ready.pop(leaf.rank, None)
        self._dissolve(leaf)
        self.turns.dissolve(leaf)
        for application_id in leaf.applications:
            self.touch_application(self._applications[application_id])

    def reconfigured(self) -> None:
        """Queues, users or groups have other settings: whatever waits is tried again, as it may wait for less now, or
        not for as long.
        """
        for queue in self._tree:
            if queue.rank in self.ready or queue.rank in self.unschedulable or queue.rank in self.turns.lines:
                self.reordered(queue)
            else:  # nobody in it is in any order, as in nearly all of thousands of queues
                for application_id in queue.applications:
                    self.touch_application(self._applications[application_id])
        self.reshaped()

    def retry_parked(self) -> None:
        """Something was freed: what is aside may be worth another attempt."""
        self.retry_round += 1

    def freed(self, account: UsageAccount) -> None:
        """Something of this user and group was freed, or counts no longer."""
        reopened = self.closed.reopen(account.user)
        if account.group is not None:
            reopened |= self.closed.reopen(account.group)
        if reopened:
            self.retry_parked()

    def forget_application(self, application: Application) -> None:
        """The application has left its queue."""
        self._drop_ready(application)
        self.touched_applications.pop(application.rank, None)
        for other in self.turns.left(application):
            self.touch_application(other)
        aside = self.unschedulable.get(application.queue.rank)
        if aside is not None:
            aside.untried = False
            aside.take(application)

    def forget_queue(self, queue: Queue) -> None:
        """The queue is gone."""
        assert queue.parent is not None, queue.path
        queue.parent.ready_children.drop(queue)
        self.touched.pop(queue.rank, None)
        self.ready.pop(queue.rank, None)
        self._dissolve(queue)
        self.parked_queues.forget(queue)
        self.turns.dissolve(queue)

    # Who is next ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the orders up to date with everything that changed; O(log n) for each thing that did."""
        for application in self.touched_applications.values():
            self._place(application)
        self.touched_applications.clear()
        for queue in self.touched.values():
            self._rank(queue)
        self.touched.clear()

    def served(self, application: Application) -> None:
        """The application got something for one of its asks, nothing else changed, and the most that it asks for is as
        important as before: bring the orders up to date with that.
        """
        leaf = application.queue
        if leaf.policies.application_sort != "fifo" or not application.asks.count:
            self._place(application)
        elif self.unschedulable and leaf.rank in self.unschedulable:
            self.unschedulable[leaf.rank].untried = False
        for queue in leaf.ancestry():
            self._rank(queue)

    def next_child(self, queue: Queue) -> Queue | None:
        """The most deserving child of a queue below which something may be placed; None if there is none."""
        if self.parked_queues.children:
            self.parked_queues.bring_back(queue, self.retry_round, self._worth_a_look)
        return queue.ready_children.first()

    def next_application(self, leaf: Queue) -> Application | None:
        """Whose turn it is in a leaf, of those that may be given something; None if nobody may."""
        aside = self.unschedulable.get(leaf.rank)
        if aside is not None and aside.searched_at != self.retry_round and not aside.untried:
            self._bring_back(aside)
        ready = self.ready.get(leaf.rank)
        return None if ready is None else ready.first()

    def park(self, queue: Queue) -> None:
        """Nothing below this queue can be placed as things are."""
        self.parked_queues.lay(queue, self.retry_round)

    def park_application(self, application: Application, account: UsageAccount, waits: Iterable[Wait]) -> None:
        """The application may not start as things are, or nothing that it needs can be placed: it waits for this."""
        leaf = application.queue
        self._drop_ready(application)
        aside = self.unschedulable.get(leaf.rank)
        if aside is None:
            aside = self.unschedulable[leaf.rank] = UnschedulableAsks(leaf, self.closed, self.parked_queues)
        aside.untried = False
        aside.park(application, account, application_key(application), waits)
        if aside.brought_back is not None and aside.brought_back[0] == application.rank:
            shelf = aside.parked.get(aside.brought_back[1])
            if shelf is not None:  # it was tried for this very want: whatever the reason, not again for nothing
                shelf.vain_at = self.retry_round
            aside.brought_back = None

    # Private --------------------------------------------------------------------------------------------------------

    def _rank(self, queue: Queue) -> None:
        """Let a queue stand among its siblings where it deserves now."""
        parent = queue.parent
        if parent is None:
            return
        if self.parked_queues.children:
            self.parked_queues.wake(queue)
        if queue.state != "Stopped" and any(queue.pending.values()):
            parent.ready_children.put(queue, queue_key(queue))
        else:
            parent.ready_children.drop(queue)

    def _place(self, application: Application) -> None:
        if application.queue.state_aware:
            for other in self.turns.changed(application, application_key(application)):
                self._put(other)
        self._put(application)

    def _put(self, application: Application) -> None:
        leaf = application.queue
        aside = self.unschedulable.get(leaf.rank)
        if aside is not None:
            aside.untried = False
            aside.take(application)
        if not is_zero(application.pending) and (not leaf.state_aware or self.turns.has(application)):
            self._put_ready(leaf, application, application_key(application))
        else:
            self._drop_ready(application)

    def _bring_back(self, aside: UnschedulableAsks) -> None:
        """Make ready the most deserving application of those that want something that can be placed."""
        leaf = aside.leaf
        wanted = [
            (aside.first(shelf), shelf.want) for shelf in aside.parked.values() if self._may_be_placed(leaf, shelf)
        ]
        found = [(application_key(one), one.rank, one, want) for one, want in wanted if one is not None]
        if not found:
            aside.searched_at = self.retry_round
            return
        key, _, application, want = min(found, key=lambda one: one[:2])
        aside.brought_back, aside.untried = (application.rank, want), True
        aside.take(application)
        self._put_ready(leaf, application, key)

    def _put_ready(self, leaf: Queue, application: Application, key: Key) -> None:
        ready = self.ready.get(leaf.rank)
        if ready is None:
            ready = self.ready[leaf.rank] = Order()
        ready.put(application, key)

    def _drop_ready(self, application: Application) -> None:
        ready = self.ready.get(application.queue.rank)
        if ready is not None:
            ready.drop(application)

    def _worth_a_look(self, queue: Queue) -> bool:
        """Whether something that waits in or below a queue may be placed."""
        if queue.children:
            waits = self.parked_queues.waits(queue)
            return any(has_room(queue, shape.amounts) and self._has_node(shape, reserves=kept) for shape, kept in waits)
        aside = self.unschedulable.get(queue.rank)
        return aside is not None and any(self._may_be_placed(queue, shelf) for shelf in aside.parked.values())

    def _may_be_placed(self, leaf: Queue, shelf: WaitBucket) -> bool:
        """Whether something on the shelf may have room with its user and group, and would have it everywhere else.
        Where it has none, there is none before something is freed.
        """
        if shelf.vain_at == self.retry_round or not shelf.stocked:
            return False
        want = shelf.want
        if (
            has_room(leaf, want.shape.amounts)
            and (not want.starts or has_opening(leaf))
            and self._has_node(want.shape, reserves=want.reserves)
        ):
            return True
        shelf.vain_at = self.retry_round
        return False

    def _has_node(self, shape: AskShape, *, reserves: bool) -> bool:
        """Whether a node has room for the need, or may be kept for it; an only possible one always may."""
        if shape.required_node:
            return self._nodes.only_node(shape) is not None
        if self._nodes.postpones(shape):
            return False
        return self._nodes.node_for(shape) is not None or (reserves and self._nodes.may_reserve(shape))

    def _dissolve(self, queue: Queue) -> None:
        """Nothing of this queue is aside any more."""
        aside = self.unschedulable.pop(queue.rank, None)
        if aside is not None:
            aside.dissolve()


def application_key(application: Application) -> Key:
    """Where an application stands among those of its leaf, as the leaf's policies say."""
    queue = application.queue
    priority = -application.priority
    if queue.policies.application_sort == "fair":
        shares = descending_shares(application.allocated, queue.guaranteed)
        return (priority, shares) if queue.policies.priority_sort else (shares, priority)
    submitted = application.submitted_ns
    return (priority, submitted) if queue.policies.priority_sort else (submitted, priority)


@dataclass(slots=True, eq=False)
class Line:
    """Of one leaf, who begins to run and who waits for that."""

    starting: dict[int, Application] = field(default_factory=dict)
    """By rank. Normally one; more only when an RM reports what runs already, or they were moved here."""
    accepted: Order[Application] = field(default_factory=Order)
    """Those that ask for something."""
    turn: Application | None = None


class StateAwareTurns:
    """Whose turn it is to begin, in every leaf of a partition that is aware of states."""

    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}  # by the rank of the leaf

    def has(self, application: Application) -> bool:
        """Whether an application of such a leaf may be given something: it has begun, or it is its turn."""
        if application.state is not AppState.ACCEPTED:
            return True
        line = self.lines.get(application.queue.rank)
        return line is not None and line.turn is application

    def changed(self, application: Application, key: Key) -> list[Application]:
        """Its state, its place in the leaf or what it asks for may be another; whose turn has come or gone thereby."""
        leaf, rank = application.queue, application.rank
        line = self.lines.get(leaf.rank)
        if line is None:
            line = self.lines[leaf.rank] = Line()
        if application.state is AppState.STARTING:
            line.starting[rank] = application
        else:
            line.starting.pop(rank, None)
        if application.state is AppState.ACCEPTED and is_positive(application.pending):
            line.accepted.put(application, (application.application_id not in leaf.allocating, *key))
        else:
            line.accepted.drop(application)
        return self._passed_on(leaf, line)

    def left(self, application: Application) -> list[Application]:
        """It is gone from its leaf; whose turn has come or gone thereby."""
        line = self.lines.get(application.queue.rank)
        if line is None:
            return []
        line.starting.pop(application.rank, None)
        line.accepted.drop(application)
        return [one for one in self._passed_on(application.queue, line) if one is not application]

    def dissolve(self, queue: Queue) -> None:
        """Nothing is known of this queue any more: it is gone, or all of its applications are looked at again."""
        self.lines.pop(queue.rank, None)

    def _passed_on(self, leaf: Queue, line: Line) -> list[Application]:
        before, line.turn = line.turn, None if line.starting else line.accepted.first()
        if not line.starting and not len(line.accepted):
            del self.lines[leaf.rank]
        return [one for one in (before, line.turn) if one is not None] if before is not line.turn else []


class SwapCandidates:
    """Applications that may have something to swap. Finding the first costs nothing where there is none."""

    def __init__(self) -> None:
        self.offered: Order[Application] = Order()
        self.stuck: dict[int, Application] = {}
        """By rank: those for which no node would do when somebody looked."""
        self.seen = -1
        """The relief after which they were looked at."""

    def __contains__(self, application: Application) -> bool:
        return application in self.offered or application.rank in self.stuck

    def offer(self, application: Application) -> None:
        """One of its asks, or one of its placeholders, is new or another one than before."""
        self.stuck.pop(application.rank, None)
        # What is below a queue comes before what is in it; so two keys never differ first where one has left its path.
        self.offered.put(application, (*path_key(application.queue), inf, *application_key(application)))

    def drop(self, application: Application) -> None:
        """It has nothing to swap; nothing happens if that was known."""
        self.offered.drop(application)
        self.stuck.pop(application.rank, None)

    def set_aside(self, application: Application) -> None:
        """No node would do for what it has to swap, before something is freed."""
        self.offered.drop(application)
        self.stuck[application.rank] = application

    def first(self, retry_round: int) -> Application | None:
        """The most deserving that is worth a look, after so many reliefs; None if nobody is."""
        if self.stuck and self.seen != retry_round:
            for application in tuple(self.stuck.values()):
                self.offer(application)
        self.seen = retry_round
        return self.offered.first()

    def reorder(self) -> None:
        """Queues or policies are others than before: everybody is worth a look, in the new order."""
        waiting = (*self.offered, *self.stuck.values())
        self.offered = Order()
        for application in waiting:
            self.offer(application)
