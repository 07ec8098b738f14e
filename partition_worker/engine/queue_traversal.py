"""Queue traversal: walk from the root queue to the most deserving ask that can be placed.

    1. The most deserving child of each queue, from the root down (`queues/fair_share.py`).
    2. In the leaf, the first application by the sort policy of the leaf, if it may run.
    3. Of its asks, in order, the first for which its user, group and queues have room and that a node takes. An ask
       that no node takes and that has waited long enough reserves the node it would fill best. An ask of a queue below
       its guarantee may preempt.

An ask that cannot be placed is parked (`readiness.py`) until resources are freed or until it has waited long enough.
So a decision costs the depth of the tree and the logarithm of the sorted items, whatever the length of the backlog.

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
from partition_worker.engine.queues.queue import Queue, has_room, may_start
from partition_worker.engine.state import Allocate, PartitionState, Preempt, Reserve
from partition_worker.engine.unschedulable_asks import Wait
from partition_worker.engine.user_limits import UsageAccount

Decision = Allocate | Reserve | Preempt

NO_USER_QUOTA: Final = "Not enough user quota"
NO_QUEUE_QUOTA: Final = "Not enough queue quota"


def decide(state: PartitionState) -> Decision | None:
    """Return the next decision, or None if no ask can be placed. Changes nothing but what is parked."""
    return _decide_in_queue(state, state.tree.root)


def _decide_in_queue(state: PartitionState, queue: Queue) -> Decision | None:
    while (child := state.readiness.next_child(queue)) is not None:
        decision = _decide_in_queue(state, child)
        if decision is not None:
            return decision
        state.readiness.park_queue(child)
    return _decide_in_leaf(state, queue) if queue.leaf else None  # a leaf that was a parent has draining children


def _decide_in_leaf(state: PartitionState, leaf: Queue) -> Decision | None:
    while (application := state.readiness.next_application(leaf)) is not None:
        account = state.usage.account(application)
        attempt = Attempt(state, leaf, application, account)
        if application.state is AppState.ACCEPTED and not _may_run(state, leaf, application, account):
            for group in application.asks.groups:  # any of its asks may be the first to fit once it may start
                if group.kind.standing is not Standing.HELD:
                    attempt.wait_for_limits(group)
        elif state.now < application.back_off_until:
            attempt.retry_at = application.back_off_until
        else:
            decision = attempt.decide()
            if decision is not None:
                return decision
        state.readiness.park_application(application, account, attempt.waits)
        if attempt.retry_at < NEVER:
            state.timers.start(application, "look", attempt.retry_at)
        else:
            state.timers.stop(application, "look")
    return None


def _may_run(state: PartitionState, leaf: Queue, application: Application, account: UsageAccount) -> bool:
    in_queue, by_quota = may_start(leaf, application.application_id), account.may_start()
    events.record_may_run(state, application, in_queue=in_queue, by_quota=by_quota)
    return in_queue and by_quota


class Attempt:
    """An attempt to place the asks of one application."""

    __slots__ = ("account", "application", "failed", "leaf", "retry_at", "state", "waits")

    def __init__(self, state: PartitionState, leaf: Queue, application: Application, account: UsageAccount) -> None:
        self.state = state
        self.leaf = leaf
        self.application = application
        self.account = account
        self.waits: list[Wait] = []
        """The waits of the application if the attempt fails."""
        self.retry_at = NEVER
        """When another attempt may succeed even if nothing changes, in Unix seconds."""
        self.failed: list[AskGroup] = []
        """Groups that no node can take."""

    def decide(self) -> Decision | None:
        """Return the decision for the first ask that can be placed."""
        enough = self.leaf.policies.back_off_after
        for group in self.application.asks.groups:
            if enough and is_back_off_due(self.failed, enough, group.head):
                self._back_off()
                return None
            if group.kind.standing is not Standing.HELD:
                decision = self._decide_for(group)
                if decision is not None:
                    return decision
        if enough and is_back_off_due_after_all(self.application, self.failed, enough):
            self._back_off()
        return None

    def wait_for_limits(self, group: AskGroup) -> None:
        """Park the group until its application may start, or until its user and group have room; victims may be sought
        then.
        """
        self._wait(group)
        pause_end = self.state.now + attempts.retry_pause_s(self.state)
        self._retry_by(max(attempts.next_attempt(self.state, self.leaf, group), pause_end))

    def _back_off(self) -> None:
        self.application.back_off_until = self.retry_at = self.state.now + self.leaf.policies.back_off_s
        self.waits = []

    def _decide_for(self, group: AskGroup) -> Decision | None:
        state, amounts, ask = self.state, group.shape.amounts, group.head
        if not self.account.has_room(amounts):
            group.note(NO_USER_QUOTA, state.now)
            events.record_quota_room(state, ask, self.account, found=False)
            self.wait_for_limits(group)
            return None
        events.record_quota_room(state, ask, self.account, found=True)
        if not has_room(self.leaf, amounts):
            decision = self._preempt(group, nodes_tried=False)
            if decision is None:
                group.note(NO_QUEUE_QUOTA, state.now)
                events.record_queue_room(state, ask, self.leaf, found=False)
                group.attempted = True
                self._wait(group)
            return decision
        events.record_queue_room(state, ask, self.leaf, found=True)
        return self._on_required_node(group) if group.shape.required_node else self._on_any_node(group)

    def _on_required_node(self, group: AskGroup) -> Decision | None:
        """Allocate the required node, or reserve it at once if it has no room, in place of other reservations."""
        group.attempted = True
        if group.kind.standing is Standing.RESERVED:
            return None
        nodes = self.state.nodes
        node = nodes.required_node(group.shape)
        if node is None:
            self._wait(group)
            return None
        fits = node.has_room(group.shape.amounts) and nodes.is_accepted(group.shape, node)
        if fits and not any(one.for_required_node for one in node.reservations.values()):
            return Allocate(self.application, group.head, node)
        return Reserve(self.application, group.head, node)

    def _on_any_node(self, group: AskGroup) -> Decision | None:
        if group.kind.standing is Standing.OPEN:
            nodes, shape = self.state.nodes, group.shape
            if nodes.is_deferred(shape):
                return None
            node = nodes.first_fit(shape, self.application)
            if node is not None:
                return Allocate(self.application, group.head, node)
            self._report_refusals(group)
            if self._wait(group):
                node = nodes.best_to_reserve(shape)
                if node is not None:
                    return Reserve(self.application, group.head, node)
        decision = self._preempt(group, nodes_tried=True)
        if decision is None:
            group.attempted = True
            self.failed.append(group)
        return decision

    def _report_refusals(self, group: AskGroup) -> None:
        """Record from time to time which predicates are the reason that no node takes the ask."""
        ask, state = group.head, self.state
        if state.now >= ask.unschedulable_told_at + events.UNSCHEDULABLE_TOLD_EVERY_S:
            reasons = state.nodes.refusals(group.shape)
            events.record_unschedulable(state, ask, reasons)
            for reason in reasons:
                group.note(reason, state.now)

    def _preempt(self, group: AskGroup, *, nodes_tried: bool) -> Preempt | None:
        decision = attempts.attempt(self.state, self.application, group, nodes_tried=nodes_tried)
        if decision is None:
            self._retry_by(attempts.next_attempt(self.state, self.leaf, group))
        return decision

    def _retry_by(self, at: float) -> None:
        self.retry_at = min(self.retry_at, at)

    def _wait(self, group: AskGroup) -> bool:
        """Park the group until a node has room, or may be reserved for it; return whether it has waited long enough for
        a reservation.
        """
        if group.kind.standing is not Standing.OPEN:
            return False
        may_at = group.head.created_ns / 1e9 + self.state.tuning.reservation_delay_s
        may_reserve = may_at <= self.state.now
        if not may_reserve:
            self._retry_by(may_at)
        self.waits.append((group.shape, may_reserve))
        return may_reserve


def is_back_off_due(failed: list[AskGroup], enough: int, ask: Allocation) -> bool:
    """Whether at least `enough` asks that fit no node come before this one."""
    return sum(1 for _ in islice(_before(place_of(ask), failed), enough)) == enough


def _before(place: Place, failed: list[AskGroup]) -> Iterator[Allocation]:
    for group in failed:
        for one in group.asks:
            if place_of(one) < place:
                yield one


def is_back_off_due_after_all(application: Application, failed: list[AskGroup], enough: int) -> bool:
    """Whether any ask comes after `enough` asks that fit no node, now that all have been tried."""
    places = merge(*([place_of(ask) for ask in group.asks] for group in failed))
    last = next(islice(places, enough - 1, None), None)
    return last is not None and any(place_of(one) > last for one in _ever_pending(application))


def _ever_pending(application: Application) -> Iterator[Allocation]:
    """Yield all asks that were ever pending and are not released; an allocation that an RM placed never was."""
    yield from chain(application.requests.values(), application.swapping.values())
    for one in application.allocations.values():
        if not one.recovered:
            yield one
