"""Readiness: which queues and applications are worth an attempt, in order, and which are parked.

A queue or application with pending asks is *ready*, in the order in which it deserves the next allocation, until an
attempt fails: its queues, its user, its group or all nodes have no room for any of its asks, or it may not start to
run. Then it is parked and costs nothing (`unschedulable_asks.py`).

`retry_parked` begins a retry round after something was freed. In it, a leaf with parked applications is checked once
for each ask shape that waits there, not for each application, and only the most deserving application that can be
helped comes back; the next one follows when that one got something. Leaves are checked in their order, and only while
an ask shape has room on a node and in the queues above. So a release costs the number of waiting ask shapes, however
many queues, applications and asks wait. Applications that wait for their user or group are not even checked before
`reopen_limits` names that user or group. `touch` marks queues and applications whose sort key may have changed.

A parked application whose asks may preempt also waits for a search for victims, together with all others of its leaf
that wait for the same one. When it is time, `wake_searches` marks the leaf, and the most deserving of them comes back.
So a search costs one attempt, however many asks wait for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from yunishard.common.messages.wire import NEVER
from yunishard.common.resources import is_positive
from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.amounts import Amounts, add, any_of, fits
from yunishard.partition_worker.engine.application import Application, AppState, find_queue_lack
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.nodes.nodes import Nodes
from yunishard.partition_worker.engine.predicates.results import WorkSpent
from yunishard.partition_worker.engine.queues.queue import (
    Queue,
    descending_shares,
    path_key,
    queue_key,
    refresh_fair_maximum,
)
from yunishard.partition_worker.engine.queues.tree import Tree
from yunishard.partition_worker.engine.sorted_items import NO_SHARES, Key, Order, SortKey
from yunishard.partition_worker.engine.unschedulable_asks import (
    AttemptProgress,
    ClosedBuckets,
    ParkedQueues,
    Searches,
    UnschedulableAsks,
    Wait,
    WaitBucket,
)
from yunishard.partition_worker.engine.user_limits import UsageAccount

UPDATES_PER_ATTEMPT: Final = 4
"""Marked applications or queues that are moved to their places for the time of one failed attempt, 20 to 30 µs. Where
the attempts of a turn are used up, the next turn continues.
"""

UPDATES_MIN: Final = 256
"""Of so many, all are moved, whatever is left: those that follow from a decision."""


class Readiness:
    """The ready and parked applications and queues of a partition."""

    def __init__(self, tree: Tree, nodes: Nodes, applications: Mapping[str, Application]) -> None:
        self._tree = tree
        self._nodes = nodes
        self._applications = applications
        self.turns = StateAwareTurns()
        self.touched: list[Queue] = []
        self.touched_applications: list[Application] = []
        """In order; those that were removed since are no longer marked themselves."""
        self.changed_asks: dict[int, Application] = {}
        """By rank, applications of which asks may have changed since the last report of outstanding asks."""
        self.reported_asks: dict[int, Application] = {}
        """By rank, those that reports consider (`outstanding_asks.py`); if they are gone, they are among those with
        changed asks.
        """
        self.reset_leaves: dict[int, tuple[Queue, list[str]]] = {}
        """By rank: leaves that are sorted again, and their applications without a place, the next one at the end."""
        self.unschedulable: dict[int, UnschedulableAsks] = {}
        """By the rank of the leaf."""
        self.closed = ClosedBuckets()
        self.parked_queues = ParkedQueues()
        self.searches: Order[WaitBucket] = Order()
        """The buckets whose search for victims has to wait, by the time of the search."""
        self.passed_over_check_at = 0.0
        """When asks that are passed over are compared with the next ask that is placed, in Unix seconds."""
        self._waiting_to_start: dict[int, dict[int, Queue]] = {}
        """By the rank of a queue at its limit of running applications, leaves with a search that waits for it."""
        self.retry_round = 0
        """Number of times that parked applications were worth another attempt."""
        self.cut: dict[int, tuple[Application, AttemptProgress]] = {}
        """Attempts that continue in a later turn, by the rank of the application, the one that waits longest first."""
        self.attempts_left = inf
        """Attempts that may fail in this turn, less other work in units of an attempt."""
        self.attempts_made = self._attempts = 0.0
        """Those of the latest turn that were used up; those that it was allowed."""
        self._has_continued = False
        """Whether this turn continues with a cut attempt."""
        self._has_moved_some = False
        """Whether a refresh has moved some marked queues and left others, so that one above a marked queue may not be
        marked.
        """

    @property
    def next_search(self) -> float:
        """When a search for victims may be made next, in Unix seconds, or NEVER."""
        bucket = self.searches.first()
        return NEVER if bucket is None else bucket.search_at

    # Changes --------------------------------------------------------------------------------------------------------

    def touch(self, leaf: Queue) -> None:
        """Mark that the sort keys of this queue and of those above it may have changed."""
        queue: Queue | None = leaf
        while queue is not None:
            if not queue.is_touched:
                queue.is_touched = True
                self.touched.append(queue)
            elif not self._has_moved_some:
                return  # those above it are marked, too
            queue = queue.parent

    def touch_application(self, application: Application) -> None:
        """Mark that the sort key or the asks of this application may have changed."""
        if self.cut:  # its asks may be others now, so its attempt starts again
            self.cut.pop(application.rank, None)
        if not application.has_changed_asks:
            self.note_changed_asks(application)
        if not application.is_touched:
            application.is_touched = True
            self.touched_applications.append(application)
            self.touch(application.queue)

    def note_changed_asks(self, application: Application) -> None:
        """Let the next report of outstanding asks count those of an application again."""
        application.has_changed_asks = True
        self.changed_asks[application.rank] = application

    def retry_parked(self) -> None:
        """Begin a retry round: something was freed, so parked applications may be worth another attempt. It only
        counts, as one update may have thousands of releases; what is parked is checked when a decision is made next.
        """
        self.retry_round += 1

    def note_less_room(self, node: Node, taken: Amounts) -> None:
        """Retry asks that require a node if these amounts, which were taken from it, have left them no room there: if
        their queues are full as well, they may preempt now.
        """
        if not self.parked_queues.required_nodes:
            return
        shapes = self.parked_queues.required_nodes.get(node.node_id)
        if shapes:
            before = list(node.available_sum)
            add(before, taken)
            if any(fits(before, shape.amounts) and not node.has_room(shape.amounts) for shape in shapes):
                self.retry_parked()

    def note_victim(self) -> None:
        """Retry asks that require a node after the choice of a victim: their queues may have room once it has left."""
        if self.parked_queues.required_nodes:
            self.retry_parked()

    def reopen_limits(self, account: UsageAccount) -> None:
        """Retry applications that wait for the user or group of this account: it uses less, or counts no longer."""
        opened = [bucket for level in account.charged for bucket in self.closed.reopen(level)]
        # Parked queues do not count what waits for a search, so a retry round does not find it: the leaf is marked.
        for bucket in opened:
            if bucket.key in self.unschedulable[bucket.leaf.rank].due:
                self.touch(bucket.leaf)
        if opened:
            self.retry_parked()

    def reopen_starts(self, leaf: Queue) -> None:
        """Begin a retry round: one more application may start in this leaf, or in queues above it."""
        for level in leaf.ancestry():
            for waiting in self._waiting_to_start.pop(level.rank, {}).values():
                self.touch(waiting)
        self.retry_parked()

    def wake_searches(self, until: float) -> None:
        """Retry applications that wait for a search for victims until this time, in Unix seconds, or for less."""
        while (bucket := self.searches.first()) is not None and bucket.search_at <= until:
            self.searches.drop(bucket)
            self.unschedulable[bucket.leaf.rank].make_due(bucket)
            self.touch(bucket.leaf)

    def update_cluster_size(self) -> None:
        """Set the maximum of the root queue to the size of the cluster, which all shares depend on."""
        root = self._tree.root
        size = dict(self._nodes.total) if is_positive(self._nodes.total) else None
        root.entitle(maximum=size, guaranteed=root.guaranteed)
        self._update_shares()

    def reset_leaf(self, leaf: Queue) -> None:
        """Sort the applications of a leaf again, after a change of its policies or limits, as if none had been tried.
        `refresh` does that, as there may be very many.
        """
        leaf.ready_applications.clear()
        parked = self.unschedulable.pop(leaf.rank, None)
        if parked is not None:
            parked.clear()
        self.turns.leaves.pop(leaf.rank, None)
        if leaf.applications:
            self.reset_leaves[leaf.rank] = leaf, list(reversed(leaf.applications))
            self.touch(leaf)

    def reopen_queues(self) -> None:
        """Begin a retry round after a change of the maxima of queues, and sort all queues by their new shares. Parked
        applications stay parked, like after a release: what they wait for is the same.
        """
        for application, _ in tuple(self.cut.values()):
            self.touch_application(application)
        self._update_shares()

    def forget_application(self, application: Application) -> None:
        """Remove an application that has left its queue."""
        application.queue.ready_applications.drop(application)
        application.is_touched = False
        self.cut.pop(application.rank, None)
        self.changed_asks.pop(application.rank, None)
        application.has_changed_asks = False
        if application.rank in self.reported_asks:
            self.note_changed_asks(application)
        for other in self.turns.remove(application):
            self.touch_application(other)
        self._unpark(application)

    def forget_queue(self, queue: Queue) -> None:
        """Remove a queue without applications."""
        assert queue.parent is not None, queue.path
        self.parked_queues.forget(queue)
        queue.parent.ready_children.drop(queue)
        queue.is_touched = False
        self.reset_leaves.pop(queue.rank, None)
        self._waiting_to_start.pop(queue.rank, None)
        for waiting in self._waiting_to_start.values():
            waiting.pop(queue.rank, None)
        self.reset_leaf(queue)

    # Turns ----------------------------------------------------------------------------------------------------------

    def begin_turn(self, attempts: int) -> None:
        """Allow so many failed attempts. Every second turn continues with a cut attempt, so that others have theirs."""
        self.attempts_left = self._attempts = float(attempts)
        self._has_continued = bool(self.cut) and not self._has_continued
        if self._has_continued:
            application, _ = next(iter(self.cut.values()))
            if not application.is_sorted:
                self._update_ready(application)
                self.touch(application.queue)

    def end_turn(self) -> bool:
        """Allow any number of attempts until the next turn; return whether that has something to continue."""
        is_over, self.attempts_made = self.attempts_left <= 0, self._attempts - self.attempts_left
        self.attempts_left = inf
        return is_over or bool(self.cut)

    def cut_attempt(self, application: Application, progress: AttemptProgress, *, stays: bool) -> None:
        """Let an attempt wait for a later turn. The application `stays` the next one if it has had little of the turn;
        otherwise others have theirs first.
        """
        if not stays:
            application.queue.ready_applications.drop(application)
        self.cut[application.rank] = application, progress

    def continue_attempt(self, application: Application) -> AttemptProgress | None:
        """Return how far a cut attempt has got; None if there is none, or if it starts again: something was freed."""
        if self.cut and application.rank in self.cut:
            _, progress = self.cut.pop(application.rank)
            if progress.retry_round == self.retry_round:
                progress.tried, progress.is_cut = 0, False
                return progress
        return None

    # The next queue and application ---------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Move all marked applications and queues to their places; O(log n) for each. Return whether all are there: if
        not, the attempts of the turn are used up, and nothing may be decided before the next one continues.
        """
        if self.reset_leaves and not self._refresh_reset_leaves():
            return False
        if self.touched_applications and not self._refresh_applications():
            return False
        return not self.touched or self._refresh_queues()

    def _refresh_applications(self) -> bool:
        marked = self.touched_applications
        count = self._count_marked(len(marked))
        self.touched_applications = marked[count:]
        del marked[count:]
        for application in marked:
            if application.is_touched:
                application.is_touched = False
                self._update_application(application)
        return not self.touched_applications

    def _refresh_queues(self) -> bool:
        marked = self.touched
        count = self._count_marked(len(marked))
        self.touched = marked[count:]
        self._has_moved_some = bool(self.touched)
        del marked[count:]
        for queue in marked:
            if queue.is_touched:
                queue.is_touched = False
                self._update_queue(queue)
        return not self.touched

    def _count_marked(self, marked: int) -> int:
        """Return how many of these are moved now: of more than UPDATES_MIN, those that the turn has attempts for."""
        if marked <= UPDATES_MIN:
            return marked
        count = self._count_updates(marked)
        return marked if marked - count <= UPDATES_MIN else count

    def _refresh_reset_leaves(self) -> bool:
        for leaf, names in tuple(self.reset_leaves.values()):
            while names:
                count = self._count_updates(len(names))
                if not count:
                    return False
                for name in names[-count:]:
                    if name in leaf.applications:
                        application = self._applications[name]
                        self.note_changed_asks(application)
                        self._update_application(application)
                del names[-count:]
            del self.reset_leaves[leaf.rank]
        return True

    def _count_updates(self, wanted: int) -> int:
        """Return how many of these updates the turn has left, and count them."""
        if self.attempts_left == inf:
            return wanted
        count = max(0, min(wanted, int(self.attempts_left * UPDATES_PER_ATTEMPT)))
        self.attempts_left -= count / UPDATES_PER_ATTEMPT
        return count

    def next_child(self, queue: Queue) -> Queue | None:
        """Return the most deserving child of a queue below which an ask may be placed."""
        if self.parked_queues.children:
            self.parked_queues.bring_back(queue, self.retry_round, self._may_place_below)
        return queue.ready_children.first()

    def next_application(self, leaf: Queue) -> Application | None:
        """Return the most deserving application of a leaf of which an ask may be placed."""
        parked = self.unschedulable.get(leaf.rank) if self.unschedulable else None
        # Also if others are ready: a parked one may deserve it more, and takes its place among them.
        if parked is not None and parked.checked_round != self.retry_round and not parked.is_trying:
            self._bring_back(parked)
        first = leaf.ready_applications.first()
        assert first is None or isinstance(first, Application), leaf.path
        return first

    def park_application(
        self, application: Application, account: UsageAccount, waits: Iterable[Wait], searches: Searches
    ) -> None:
        """Park an application that may not start, or of which no ask can be placed in this retry round."""
        leaf = application.queue
        application.queue.ready_applications.drop(application)
        parked = self.unschedulable.get(leaf.rank)
        if parked is None:
            parked = UnschedulableAsks(leaf, self.closed, self.parked_queues, self.searches)
            self.unschedulable[leaf.rank] = parked
        parked.park(application, account, application_key(application), waits, searches, self.retry_round)

    # Private --------------------------------------------------------------------------------------------------------

    def _update_shares(self) -> None:
        refresh_fair_maximum(self._tree.root)
        for queue in self._tree:
            self.touch(queue)
        self.retry_parked()

    def _update_queue(self, queue: Queue) -> None:
        """Move a queue to its place among its ready siblings, or remove it from them."""
        parent = queue.parent
        if parent is None:
            return
        if self.parked_queues.children:
            self.parked_queues.unpark(queue)
        if queue.stop is None and any_of(queue.pending_sum):
            parent.ready_children.put(queue, queue_key(queue))
        else:
            parent.ready_children.drop(queue)

    def _update_application(self, application: Application) -> None:
        """Move an application to its place, as if it had not been tried."""
        if application.queue.state_aware:
            for other in self.turns.update(application, application_key(application)):
                self._update_ready(other)
        self._update_ready(application)

    def _update_ready(self, application: Application) -> None:
        leaf = application.queue
        self._unpark(application)
        if application.requests and (not leaf.state_aware or self.turns.is_turn_of(application)):
            leaf.ready_applications.put(application, application_key(application))
        else:
            leaf.ready_applications.drop(application)

    def _unpark(self, application: Application) -> None:
        if self.unschedulable:
            parked = self.unschedulable.get(application.queue.rank)
            if parked is not None:
                parked.unpark(application)

    def _bring_back(self, parked: UnschedulableAsks) -> None:
        """Make the most deserving parked application ready of which an ask may be placed."""
        leaf = parked.leaf
        usable = [bucket for bucket in parked.buckets.values() if self._may_place_from(leaf, bucket)]
        usable += [bucket for bucket in parked.due.values() if self._may_search_from(leaf, bucket)]
        first = [(parked.first(bucket), bucket.key) for bucket in usable]
        found = [(application_key(one), one.rank, one, key) for one, key in first if one is not None]
        if not found:
            parked.checked_round = self.retry_round
            return
        sort_key, _, application, key = min(found, key=lambda one: one[:2])
        parked.unpark(application)
        parked.brought_back, parked.is_trying = (application.rank, key), True
        leaf.ready_applications.put(application, sort_key)

    def _may_place_below(self, queue: Queue) -> bool:
        """Whether something that waits in or below a queue may be placed."""
        if queue.children:
            waits = self.parked_queues.waits.get(queue.rank, ())
            # Victims on its required node also make room in the queues of an ask, so its queues may be full.
            return any(
                (shape.required_node or queue.has_room(shape.amounts))
                and (to_count or self._has_node(shape, may) or self._nodes.reserved.may_have_room(shape.amounts))
                for shape, may, _, to_count in waits
            )
        parked = self.unschedulable.get(queue.rank)
        buckets = () if parked is None else parked.buckets.values()
        return any(self._may_place_from(queue, bucket) for bucket in buckets)

    def _may_search_from(self, leaf: Queue, bucket: WaitBucket) -> bool:
        """Whether a search for victims that is due may be made for a bucket, except that its user or group may have no
        room.
        """
        if bucket.place is None:
            return False
        full = leaf.find_queue_without_opening() if bucket.key.starts else None
        if full is None:
            return True
        # The leaf may not be among the parked queues, which retry rounds check: `reopen_starts` has to mark it.
        self._waiting_to_start.setdefault(full.rank, {})[leaf.rank] = leaf
        return False

    def _may_place_from(self, leaf: Queue, bucket: WaitBucket) -> bool:
        """Whether queues and nodes have room for what a bucket waits for, or only queues if its asks wait to be counted
        for a back-off; the room of users and groups is not checked. Without room there is none for the rest of the
        retry round.
        """
        if bucket.failed_round == self.retry_round or bucket.place is None:
            return False
        shape, may_reserve, priority, to_count, starts, *_ = bucket.key
        may_start = not starts or leaf.has_opening()
        has_room = leaf.has_room(shape.amounts) or self._may_preempt_on_required_node(leaf, shape)
        if has_room and may_start:
            has_node = to_count or self._has_node(shape, may_reserve)
            if has_node or self._has_outranked_node(leaf, shape, priority):
                return True
        bucket.failed_round = self.retry_round
        return False

    def _may_preempt_on_required_node(self, leaf: Queue, shape: AskShape) -> bool:
        """Whether the queues of an ask would have room if all that could be preempted on the node that it requires had
        left; an attempt finds out which of them have a higher priority.
        """
        node = self._nodes.get(shape.required_node)
        if node is None or node.has_room(shape.amounts):
            return False
        victims = [one for one in node.allocations.values() if not (one.shape.required_node or one.preempted)]
        return find_queue_lack(self._applications, leaf, shape.amounts, victims) is None

    def _has_node(self, shape: AskShape, may_reserve: bool) -> bool:  # noqa: FBT001 - the two values of a Wait
        """Whether a node has room, or may be reserved; a required node may always be reserved. It may if the turn has
        no more work for this search, or is cautious: then an attempt finds out.
        """
        if not shape.required_node and self._nodes.is_deferred(shape):
            return False
        table = self._nodes.predicates.table
        if table.is_cautious and shape.constraint is not None:
            return True
        table.subject = None
        if shape.required_node:
            return self._nodes.required_node(shape) is not None
        try:
            return self._nodes.node_for(shape) is not None or (may_reserve and self._nodes.may_reserve(shape))
        except WorkSpent:
            return True

    def _has_outranked_node(self, leaf: Queue, shape: AskShape, priority: int) -> bool:
        """Whether a node has room that is reserved for asks of lower priority only; work as in `_has_node`."""
        if self._nodes.is_deferred(shape):
            return False
        self._nodes.predicates.table.subject = None
        try:
            return self._nodes.first_outranked_fit(shape, leaf, priority) is not None
        except WorkSpent:
            return True


def application_key(application: Application) -> SortKey:
    """Return the sort key of an application in its leaf, by the policies of the leaf."""
    queue = application.queue
    policies, priority = queue.policies, -application.priority
    if policies.application_sort == "fair":
        shares = descending_shares(application.allocated_sum, queue.guarantees)
        return (priority, 0.0, shares, 0, 0) if policies.priority_sort else (0, 0.0, shares, priority, 0)
    submitted = application.submitted_ns
    return (
        (priority, 0.0, NO_SHARES, submitted, 0) if policies.priority_sort else (submitted, 0.0, NO_SHARES, priority, 0)
    )


def place_key(application: Application) -> Key:
    """Return the place of an application among all, in the order of queue traversal."""
    # Applications below a queue precede those in it, so two keys never differ first where one has left its path.
    return (*path_key(application.queue), inf, *application_key(application), application.rank)


# State-aware leaves ---------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class LeafTurns:
    """The applications of a state-aware leaf that are starting or wait for that."""

    starting: dict[int, Application] = field(default_factory=dict)
    """By rank. Normally one; more if the RM reports running applications or applications were moved here."""
    accepted: Order[Application] = field(default_factory=Order)
    """Accepted applications with pending asks."""
    turn: Application | None = None
    """The application that may start."""


class StateAwareTurns:
    """Which application may start next, in every state-aware leaf of a partition."""

    def __init__(self) -> None:
        self.leaves: dict[int, LeafTurns] = {}
        """By the rank of the leaf."""

    def is_turn_of(self, application: Application) -> bool:
        """Whether asks of an application may be placed: it has started, or it is its turn."""
        if application.state is not AppState.ACCEPTED:
            return True
        turns = self.leaves.get(application.queue.rank)
        return turns is not None and turns.turn is application

    def update(self, application: Application, key: SortKey) -> list[Application]:
        """Update an application whose state, sort key or asks changed; return those that got or lost the turn."""
        leaf, rank = application.queue, application.rank
        turns = self.leaves.setdefault(leaf.rank, LeafTurns())
        if application.state is AppState.STARTING:
            turns.starting[rank] = application
        else:
            turns.starting.pop(rank, None)
        if application.state is AppState.ACCEPTED and application.requests:
            # One that has something already stays first, or another one could start beside a gang that is half placed.
            turns.accepted.put(application, (application.application_id not in leaf.allocating, *key))
        else:
            turns.accepted.drop(application)
        return self._update_turn(leaf, turns)

    def remove(self, application: Application) -> list[Application]:
        """Remove an application that has left its leaf; return those that got the turn."""
        turns = self.leaves.get(application.queue.rank)
        if turns is None:
            return []
        turns.starting.pop(application.rank, None)
        turns.accepted.drop(application)
        return [one for one in self._update_turn(application.queue, turns) if one is not application]

    def _update_turn(self, leaf: Queue, turns: LeafTurns) -> list[Application]:
        before, turns.turn = turns.turn, None if turns.starting else turns.accepted.first()
        if not turns.starting and not len(turns.accepted):
            del self.leaves[leaf.rank]
        return [one for one in (before, turns.turn) if one is not None] if before is not turns.turn else []


# Placeholder swaps ----------------------------------------------------------------------------------------------------


class SwapCandidates:
    """Applications that may have a placeholder to swap; finding the first costs nothing if there is none."""

    def __init__(self) -> None:
        self.offered: Order[Application] = Order()
        self.parked: dict[int, Application] = {}
        """By rank: those for which no node had room, or whose queue is stopped."""
        self.checked_round = -1
        """The last retry round in which they were checked."""

    def __contains__(self, application: Application) -> bool:
        return application in self.offered or application.rank in self.parked

    def offer(self, application: Application) -> None:
        """Add an application of which an ask or a placeholder is new or changed."""
        if application.queue.find_stopped() is not None:
            self.park(application)
            return
        self.parked.pop(application.rank, None)
        self.offered.put(application, place_key(application))

    def drop(self, application: Application) -> None:
        """Remove an application without a swap, if it is known."""
        self.offered.drop(application)
        self.parked.pop(application.rank, None)

    def park(self, application: Application) -> None:
        """Park an application until the next retry round: no node has room for its swap, or its queue is stopped."""
        self.offered.drop(application)
        self.parked[application.rank] = application

    def first(self, retry_round: int) -> Application | None:
        """Return the most deserving application that is worth a check in this retry round."""
        if self.parked and self.checked_round != retry_round:
            for application in tuple(self.parked.values()):
                self.offer(application)
        self.checked_round = retry_round
        return self.offered.first()

    def reorder(self) -> None:
        """Sort all applications again, after a change of queues or policies."""
        waiting = (*self.offered, *self.parked.values())
        self.offered = Order()
        for application in waiting:
            self.offer(application)
