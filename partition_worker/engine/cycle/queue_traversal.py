"""Queue traversal: walk from the root queue to the most deserving ask that can be placed.

    1. The most deserving child of each queue, from the root down (`queues/fairness.py`).
    2. In the leaf, the first application by the sort policy of the leaf, if it may run.
    3. Of its asks, in order, the first for which its user, group and queues have room and that a node takes. An ask
       that no node takes and that has waited for long enough reserves the node it would fill best. An ask of a queue
       below its guarantee may preempt.

An ask that cannot be placed is parked (`readiness/`) until resources are freed or until it has waited for long
enough. So a decision costs the depth of the tree and the logarithm of the sorted items, whatever the length of the
backlog.

Back-off: a queue may set after how many asks that fit no node an application is skipped for a while. Asks that have
their node count as asks that come after the failed ones.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import chain, islice
from typing import Final

from common.wire import NEVER
from partition_worker.engine import events
from partition_worker.engine.allocation import Allocation, AskGroup, Place, Standing, place_of
from partition_worker.engine.application import Application, AppState
from partition_worker.engine.preemption import attempts
from partition_worker.engine.queues.headroom import has_room
from partition_worker.engine.queues.queue import Queue, may_start
from partition_worker.engine.readiness.unschedulable_asks import Wait
from partition_worker.engine.state import Allocate, PartitionState, Preempt, Reserve
from partition_worker.engine.usage_trackers import UsageAccount

Decision = Allocate | Reserve | Preempt

NO_USER_QUOTA: Final = "Not enough user quota"
NO_QUEUE_QUOTA: Final = "Not enough queue quota"


def decide(state: PartitionState) -> Decision | None:
    """The next decision, or None when nothing can be done as things are. Changes nothing but what is set aside."""
    return _from_queue(state, state.tree.root)


def _from_queue(state: PartitionState, queue: Queue) -> Decision | None:
    while (child := state.readiness.next_child(queue)) is not None:
        decision = _from_queue(state, child)
        if decision is not None:
            return decision
        state.readiness.park(child)
    return _from_leaf(state, queue) if queue.leaf else None  # a leaf that was a parent has children that drain


def _from_leaf(state: PartitionState, leaf: Queue) -> Decision | None:
    while (application := state.readiness.next_application(leaf)) is not None:
        account = state.usage.account(application)
        attempt = Attempt(state, leaf, application, account)
        if application.state is AppState.ACCEPTED and not _may_run(state, leaf, application, account):
            attempt.give_up()
        elif state.now < application.back_off_until:
            attempt.look_at = application.back_off_until
        else:
            decision = attempt.decide()
            if decision is not None:
                return decision
        state.readiness.park_application(application, account, attempt.waits)
        if attempt.look_at < NEVER:
            state.timers.start(application, "look", attempt.look_at)
        else:
            state.timers.stop(application, "look")
    return None


def _may_run(state: PartitionState, leaf: Queue, application: Application, account: UsageAccount) -> bool:
    in_queue, by_quota = may_start(leaf, application.application_id), account.may_start()
    events.record_may_run(state, application, in_queue=in_queue, by_quota=by_quota)
    return in_queue and by_quota


class Attempt:
    """One look at all asks of an application."""

    __slots__ = ("account", "application", "failed", "leaf", "look_at", "state", "waits")

    def __init__(self, state: PartitionState, leaf: Queue, application: Application, account: UsageAccount) -> None:
        self.state = state
        self.leaf = leaf
        self.application = application
        self.account = account
        self.waits: list[Wait] = []
        """What it waits for if nothing comes of the attempt."""
        self.look_at = NEVER
        """When another attempt may come to something even if nothing changes, in Unix seconds."""
        self.failed: list[AskGroup] = []
        """Groups that no node can take."""

    def give_up(self) -> None:
        """It may not start: any of its needs may be the one that can be helped once it may."""
        for group in self.application.asks.groups:
            if group.kind.standing is not Standing.HELD:
                self._wait_for_room(group)

    def decide(self) -> Decision | None:
        """What its first ask gets that can be helped."""
        enough = self.leaf.policies.back_off_after
        for group in self.application.asks.groups:
            if enough and is_back_off_due(self.failed, enough, group.head):
                self._back_off()
                return None
            if group.kind.standing is not Standing.HELD:
                decision = self._for_group(group)
                if decision is not None:
                    return decision
        if enough and is_back_off_due_after_all(self.application, self.failed, enough):
            self._back_off()
        return None

    def _back_off(self) -> None:
        self.application.back_off_until = self.look_at = self.state.now + self.leaf.policies.back_off_s
        self.waits = []

    def _for_group(self, group: AskGroup) -> Decision | None:
        amounts, ask = group.shape.amounts, group.head
        if not self.account.has_room(amounts):
            group.note(NO_USER_QUOTA, self.state.now)
            events.record_quota_room(self.state, ask, self.account, found=False)
            self._wait_for_room(group)
            return None
        if ask.lacks_quota:
            events.record_quota_room(self.state, ask, self.account, found=True)
        if not has_room(self.leaf, amounts):
            decision = self._preempt(group, nodes_tried=False)
            if decision is None:
                group.note(NO_QUEUE_QUOTA, self.state.now)
                events.record_queue_room(self.state, ask, self.leaf, found=False)
                group.attempted = True
                self._wait(group)
            return decision
        if ask.lacks_queue_room:
            events.record_queue_room(self.state, ask, self.leaf, found=True)
        if group.shape.required_node:
            return self._on_required_node(group)
        return self._on_any_node(group)

    def _on_required_node(self, group: AskGroup) -> Decision | None:
        """Its node is kept for it at once if it has no room, whoever it was kept for before."""
        group.attempted = True
        if group.kind.standing is Standing.RESERVED:
            return None
        node = self.state.nodes.only_node(group.shape)
        if node is None:
            self._wait(group)
            return None
        fits = node.has_room(group.shape.amounts) and self.state.nodes.admits(group.shape, node)
        if fits and not any(one.for_required_node for one in node.reservations.values()):
            return Allocate(self.application, group.head, node)
        return Reserve(self.application, group.head, node)

    def _on_any_node(self, group: AskGroup) -> Decision | None:
        if group.kind.standing is Standing.OPEN:
            if self.state.nodes.postpones(group.shape):
                return None
            node = self.state.nodes.first_fit(group.shape, self.application)
            if node is not None:
                return Allocate(self.application, group.head, node)
            self._tell_refusals(group)
            decision = self._reserve(group)
            if decision is not None:
                return decision
        preempt = self._preempt(group, nodes_tried=True)
        if preempt is None:
            group.attempted = True
            self.failed.append(group)
        return preempt

    def _tell_refusals(self, group: AskGroup) -> None:
        """If predicates are why no node takes the ask, say so from time to time."""
        ask, state = group.head, self.state
        if state.now < ask.unschedulable_told_at + events.UNSCHEDULABLE_TOLD_EVERY_S:
            return
        reasons = state.nodes.refusals(group.shape)
        events.record_unschedulable(state, ask, reasons)
        for reason in reasons:
            group.note(reason, state.now)

    def _reserve(self, group: AskGroup) -> Reserve | None:
        may_reserve = self._wait(group)
        node = self.state.nodes.best_to_reserve(group.shape) if may_reserve else None
        return None if node is None else Reserve(self.application, group.head, node)

    def _preempt(self, group: AskGroup, *, nodes_tried: bool) -> Preempt | None:
        decision = attempts.attempt(self.state, self.application, group, nodes_tried=nodes_tried)
        if decision is None:
            self.look_at = min(self.look_at, attempts.next_attempt(self.state, self.leaf, group))
        return decision

    def _wait(self, group: AskGroup) -> bool:
        """Whatever comes next, the group waits for a node with room, or to be kept for it once it has waited for long
        enough; whether it has.
        """
        if group.kind.standing is not Standing.OPEN:
            return False
        may_at = group.head.created_ns / 1e9 + self.state.tuning.reservation_delay_s
        may_reserve = may_at <= self.state.now
        if not may_reserve:
            self.look_at = min(self.look_at, may_at)
        self.waits.append(Wait(group.shape, may_reserve))
        return may_reserve

    def _wait_for_room(self, group: AskGroup) -> None:
        """The group cannot be helped before its application may start, or before its user or group has room; then it
        may be others who have to go.
        """
        self._wait(group)
        again = self.state.now + attempts.pause_s(self.state)
        self.look_at = min(self.look_at, max(attempts.next_attempt(self.state, self.leaf, group), again))


def is_back_off_due(failed: list[AskGroup], enough: int, ask: Allocation) -> bool:
    """Whether so many asks that fit no node come before this one."""
    return sum(1 for _ in islice(_before(place_of(ask), failed), enough)) == enough


def is_back_off_due_after_all(application: Application, failed: list[AskGroup], enough: int) -> bool:
    """Whether any ask comes after so many that fit no node, now that all have been tried."""
    places = merge(*([place_of(ask) for ask in group.asks] for group in failed))
    last = next(islice(places, enough - 1, None), None)
    return last is not None and any(place_of(one) > last for one in _in_order(application))


def _before(place: Place, failed: list[AskGroup]) -> Iterator[Allocation]:
    for group in failed:
        for one in group.asks:
            if place_of(one) < place:
                yield one


def _in_order(application: Application) -> Iterator[Allocation]:
    """All asks that ever were in the order and are not released; what an RM placed never was."""
    yield from chain(application.requests.values(), application.swapping.values())
    for one in application.allocations.values():
        if not one.recovered:
            yield one
