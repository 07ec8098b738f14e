"""The scheduling cycle: make the next decisions and apply them.

    0. Reservations that their asks could not use end (`reservations.py`).
    1. An ask with a reservation gets its reserved node, or another one (`reserved_asks.py`).
    2. A real ask replaces a placeholder of its gang (`gang_scheduling.py`).
    3. The most deserving other ask gets a node, a reservation or victims.

A decision is a value; the ledger applies it. Each decision equals the one that a cycle of its own would have made, so
one call makes many of them.

Queue traversal finds the most deserving ask that can be placed:

    1. The most deserving child of each queue, from the root down (`queues/queue.py`).
    2. In the leaf, the first application by the sort policy of the leaf, if it may run.
    3. Of its asks, in order, the first for which its user, group and queues have room and that a node takes, if need be
       one that is reserved for an ask of lower priority. An ask that no node takes and that has waited long enough
       reserves the node it would fill best, up to a share of the nodes for each application. An ask of a queue below
       its guarantee may preempt. Where smaller asks fill the cluster or a queue for too long, a large one may reserve a
       node, too (`passed_over.py`).

An ask that cannot be placed is parked (`ready_queues.py`) until resources are freed or until it has waited long enough.
So a decision costs the depth of the tree and the logarithm of the sorted items, whatever the length of the backlog.

Back-off: a queue may set after how many asks that fit no node an application is skipped for a while. Asks that have
their node count as asks that come after the failed ones.

Batches: an application or queue with `allocation.batch` gets up to that many nodes for equal asks before other
applications have their turn. Each ask goes to the next node with room, within the limits of its user, group and
queues. Asks with a reservation, a placeholder or a required node are placed one at a time.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from math import inf
from typing import Final

from yunishard.common.config.model import parse_allocation_batch
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine import (
    events,
    gang_scheduling,
    ledger,
    passed_over,
    reservations,
    reserved_asks,
    wait_causes,
)
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup, Standing, place_of
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.attempt_log import WaitCause
from yunishard.partition_worker.engine.predicates.results import WorkSpent
from yunishard.partition_worker.engine.preemption import victim_choice
from yunishard.partition_worker.engine.queues.queue import ALLOCATION_BATCH, Queue
from yunishard.partition_worker.engine.state import (
    CHECK_PASSED_OVER_EVERY_S,
    RESERVATION_DELAY_S,
    Allocate,
    PartitionState,
    Preempt,
    Release,
    Replace,
    Reserve,
)
from yunishard.partition_worker.engine.unschedulable_asks import AttemptProgress
from yunishard.partition_worker.engine.user_limits import UsageAccount

ATTEMPTS_PER_TURN: Final = 512
"""Attempts to place a group of equal asks that fail; then the turn ends, and the next one continues."""

ATTEMPTS_AT_ONCE: Final = 256
"""Those of one application; then others have their turn, and it continues in a later turn."""

WORK_PER_ATTEMPT: Final = 60
"""Work of counting the nodes that refuse an ask (`predicates/results.py`) for the time of one failed attempt."""

_ACCEPTED: Final = AppState.ACCEPTED
_OPEN: Final = Standing.OPEN
_HELD: Final = Standing.HELD
_RESERVED: Final = Standing.RESERVED

Decision = Allocate | Replace | Release | Reserve | Preempt


class TurnOver(Exception):
    """The attempts of this turn are used up."""


def run(state: PartitionState, budget: int) -> tuple[int, bool]:
    """Make up to `budget` decisions with the work and the attempts of one turn. Return how many were made, and whether
    the next turn has something to continue.
    """
    table, readiness = state.nodes.predicates.table, state.readiness
    _resume(state, table.begin_turn())
    readiness.begin_turn(ATTEMPTS_PER_TURN)
    made, cycle = 0, Cycle(state)
    while made < budget and cycle.decide() is not None:
        made += 1
    table.end_turn()
    return made, readiness.end_turn() or table.has_backlog


def _resume(state: PartitionState, application_ids: list[str]) -> None:
    """Try asks again whose search waited for an earlier turn to evaluate their demands."""
    for application_id in application_ids:
        application = state.applications.get(application_id)
        if application is not None:
            state.readiness.touch_application(application)
    if application_ids:
        state.readiness.retry_parked()


class Cycle:
    """Decisions, each based on those before. They end with the batch of the last one."""

    __slots__ = ("_application", "_group", "_left", "_state")

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        self._left: int = 0
        """How many asks of the batch may follow."""
        self._application: Application | None = None
        self._group: AskGroup | None = None

    def decide(self) -> Decision | None:
        """Make the next decision and apply it; None if none is possible before something changes."""
        state = self._state
        decision: Decision | None = self._continue_batch() if self._left else None
        if decision is None:
            decision = decide(state)
            if decision is None:
                return None
            self._begin_batch(decision)
        apply_decision(state, decision)
        return decision

    def _begin_batch(self, decision: Decision) -> None:
        """Note how many equal asks may follow, before the ask leaves its group."""
        if isinstance(decision, Allocate):
            size = batch_size(decision.application)
            group = decision.ask.group
            if size > 1 and group is not None and group.standing is _OPEN and not group.shape.required_node:
                self._application, self._group, self._left = decision.application, group, size - 1

    def _continue_batch(self) -> Allocate | None:
        state, application, group = self._state, self._application, self._group
        assert application is not None
        assert group is not None
        amounts, node = group.shape.amounts, None
        self._left -= 1
        if len(group) and state.usage.account(application).has_room(amounts) and application.queue.has_room(amounts):
            try:
                node = state.nodes.node_for(group.shape, application)
            except WorkSpent:
                node = None
        if node is None:
            self._left = 0
            return None
        return Allocate(application, group.head, node)


def decide(state: PartitionState) -> Decision | None:
    """Return the next decision, or None if none is possible before something changes. Ends useless reservations."""
    root, readiness = state.tree.root, state.readiness
    if root.limits is None or root.stop is not None:
        return None
    decision: Decision | None = None
    if state.reservation_index.by_rank:
        reservations.end_useless(state)
        if not readiness.refresh():
            return None
        decision = reserved_asks.decide(state)
    elif not readiness.refresh():
        return None
    if decision is None and state.swap_candidates.first(readiness.retry_round) is not None:
        decision = gang_scheduling.decide_swap(state)
    if decision is not None:
        return decision
    try:
        return traverse_queues(state)
    except TurnOver:
        return None


def apply_decision(state: PartitionState, decision: Decision) -> None:
    """Apply a decision to the state."""
    if isinstance(decision, (Allocate, Reserve)):
        application, ask = decision.application, decision.ask
        if not ask.reserved and state.is_passed_over_check_due:  # the decision was checked
            state.readiness.passed_over_check_at = state.now + CHECK_PASSED_OVER_EVERY_S
        if ask.shape.required_node:
            reservations.cancel_on_node(state, decision.node, keep_required=True)
        if isinstance(decision, Allocate):
            ledger.place_ask(state, application, ask, decision.node)
            state.announce(ask)
        else:
            reservation = reservations.reserve(state, application, ask, decision.node)
            if decision.keeps:
                reservations.keep_room(state, reservation)
    elif isinstance(decision, Preempt):
        application = decision.application
        victim_choice.apply_preemption(state, decision)
    else:
        gang_scheduling.commit_swap(state, decision)
        return
    if application.state is _ACCEPTED and application.application_id not in application.queue.allocating:
        application.queue.count_allocating(application.application_id)
        state.changes.applications[application.rank] = application


# Queue traversal ------------------------------------------------------------------------------------------------------

AskDecision = Allocate | Reserve | Preempt


def traverse_queues(state: PartitionState) -> AskDecision | None:
    """Return the next decision, or None if no ask can be placed. Changes nothing but what is parked."""
    decision = _decide_in_queue(state, state.tree.root)
    if isinstance(decision, Allocate) and state.is_passed_over_check_due:
        return passed_over.find_reservation(state, decision.application, decision.ask) or decision
    return decision


def _decide_in_queue(state: PartitionState, queue: Queue) -> AskDecision | None:
    while (child := state.readiness.next_child(queue)) is not None:
        decision = _decide_in_queue(state, child)
        if decision is not None:
            return decision
        state.readiness.parked_queues.park(child, state.readiness.retry_round)
    return _decide_in_leaf(state, queue) if queue.leaf else None  # a leaf that was a parent has draining children


def _decide_in_leaf(state: PartitionState, leaf: Queue) -> AskDecision | None:
    readiness = state.readiness
    while (application := readiness.next_application(leaf)) is not None:
        if readiness.attempts_left <= 0:
            raise TurnOver
        account = state.usage.account(application)
        attempt = Attempt(state, application, account, readiness.continue_attempt(application))
        if application.state is _ACCEPTED and not _may_run(state, application, account):
            readiness.attempts_left -= 1
            cause = wait_causes.find_start_cause(application, account)
            for group in application.asks.groups:  # any of its asks may be the first to fit once it may start
                if group.standing is not _HELD:
                    events.record_failure(state, group.head, cause)
                    attempt.wait_for_limits(group)
        elif state.now < application.back_off_until:
            attempt.progress.retry_at = application.back_off_until
        else:
            decision = attempt.decide()
            if decision is not None:
                return decision
            if attempt.progress.is_cut:
                stays = attempt.progress.tried < ATTEMPTS_AT_ONCE
                readiness.cut_attempt(application, attempt.progress, stays=stays)
                continue
        progress = attempt.progress
        readiness.park_application(application, account, progress.waits, progress.searches)
        if progress.retry_at < NEVER:
            state.timers.start(application, "look", progress.retry_at)
        else:
            state.timers.stop(application, "look")
    return None


def _may_run(state: PartitionState, application: Application, account: UsageAccount) -> bool:
    in_queue, by_quota = application.queue.may_start(application.application_id), account.may_start()
    events.record_may_run(state, application, in_queue=in_queue, by_quota=by_quota)
    return in_queue and by_quota


class Attempt:
    """An attempt to place the asks of one application."""

    __slots__ = ("_progress", "account", "application", "leaf", "state")

    def __init__(
        self, state: PartitionState, application: Application, account: UsageAccount, progress: AttemptProgress | None
    ) -> None:
        self.state = state
        self.leaf = application.queue
        self.application = application
        self.account = account
        self._progress = progress

    @property
    def progress(self) -> AttemptProgress:
        """How far it has got. Most attempts place the first ask, and need none."""
        if self._progress is None:
            self._progress = AttemptProgress(self.state.readiness.retry_round)
        return self._progress

    def decide(self) -> AskDecision | None:
        """Return the decision for the first ask that can be placed. Stop after ATTEMPTS_AT_ONCE groups, or at the end
        of the attempts of the turn: a search for victims may cost hundreds of them.
        """
        enough, readiness = self.leaf.policies.back_off_after, self.state.readiness
        for group in self.application.asks.groups:
            progress = self._progress
            if progress is not None:
                if progress.last is not None and place_of(group.head) <= progress.last:  # tried in an earlier turn
                    continue
                left = readiness.attempts_left
                if progress.tried and (left <= 0 or (progress.tried >= ATTEMPTS_AT_ONCE and left < inf)):
                    progress.is_cut = True
                    return None
                if enough and is_back_off_due(progress.failed, enough, (group.head,)):
                    self._back_off()
                    return None
            if group.standing is not _HELD:
                decision = self._try_group(group)
                if decision is not None:
                    return decision
        progress = self.progress
        progress.tried = 0
        if enough and is_back_off_due(progress.failed, enough, _ever_pending(self.application)):
            self._back_off()
        return None

    def _try_group(self, group: AskGroup) -> AskDecision | None:
        table, decision = self.state.nodes.predicates.table, None
        found: AskDecision | WaitCause | None = None
        table.subject = group
        watch = table.watch if table.is_cautious else None
        try:
            if watch is None or not watch(group, None):
                table.is_attempt_watched = watch is not None
                found = self._decide_for(group)
        except WorkSpent as spent:  # before anything was decided; the asks behind it continue
            table.postpone(spent.results, self.application.application_id, group)
        if watch is not None:
            table.is_attempt_watched = watch(None, None)
        if isinstance(found, WaitCause):
            events.record_failure(self.state, group.head, found)
        else:
            decision = found
        if decision is None:
            self.state.readiness.attempts_left -= 1
            self.progress.tried += 1
            self.progress.last = place_of(group.head)
        return decision

    def wait_for_limits(self, group: AskGroup) -> None:
        """Park the group until its application may start, or until its user and group have room; victims may be sought
        then.
        """
        self._wait(group, nodes_tried=False)
        self._wait_for_search(group)

    def _back_off(self) -> None:
        self.state.changes.applications[self.application.rank] = self.application
        progress = self.progress
        self.application.back_off_until = progress.retry_at = self.state.now + self.leaf.policies.back_off_s
        progress.waits, progress.searches, progress.tried = [], {}, 0

    def _decide_for(self, group: AskGroup) -> AskDecision | WaitCause | None:
        """Return the decision for the first ask of a group, or the check that failed; None if the ask waits for nothing
        that can be named: a verdict of the RM, or the turn of other applications.
        """
        state, amounts, ask = self.state, group.shape.amounts, group.head
        constraint = group.shape.constraint
        if constraint is not None and constraint.is_wide and state.nodes.is_deferred(group.shape):
            return None  # before all else, as there may be thousands, each in a group of its own
        level = self.account.find_full(amounts)
        if level is not None:
            self.wait_for_limits(group)
            return wait_causes.find_limit_cause(self.account, level, amounts)
        if ask.lacks_quota:
            events.record_quota_room(state, ask)
        full = self.leaf.find_full(amounts)
        if full is not None:
            victims = self._preempt_on_full_node(group) or self._preempt(group, nodes_tried=False)
            if isinstance(victims, Preempt):
                return victims
            group.attempted = True
            self._wait(group, nodes_tried=False)
            return wait_causes.find_queue_cause(full, amounts, victims)
        if ask.lacks_queue_room:
            events.record_queue_room(state, ask, self.leaf)
        return self._on_required_node(group) if group.shape.required_node else self._on_any_node(group)

    def _preempt_on_full_node(self, group: AskGroup) -> Preempt | None:
        """Preempt on the required node of an ask without room in its queues, if that makes room in both."""
        state, ask, amounts = self.state, group.head, group.shape.amounts
        if not group.shape.required_node or group.standing is _RESERVED or ask.preemption_triggered:
            return None
        node = state.nodes.required_node(group.shape)
        if node is None or node.has_room(amounts) or self._waits_for_others():
            return None
        victims = victim_choice.plan_required_node_victims(state.applications, self.leaf, node, ask)
        if not victims:
            return None
        others = [one for one in node.reservations.values() if not one.for_required_node]
        return Preempt(self.application, ask, node, tuple(victims), tuple(others))

    def _on_required_node(self, group: AskGroup) -> AskDecision | WaitCause | None:
        """Allocate the required node, or reserve it at once if it has no room, in place of other reservations. Other
        applications have it first if a reservation of this one ended by its age.
        """
        group.attempted = True
        if group.standing is _RESERVED:
            return None
        nodes = self.state.nodes
        node, obstacle = nodes.get(group.shape.required_node), nodes.find_obstacle(group.shape)
        if node is None or obstacle is not None:
            self._wait(group)
            return wait_causes.find_required_node_cause(node, group.shape, obstacle or Reason.REQUIRED_NODE_MISSING)
        fits = node.has_room(group.shape.amounts) and nodes.is_accepted(group.shape, node)
        if fits and not any(one.for_required_node for one in node.reservations.values()):
            return Allocate(self.application, group.head, node)
        if self._waits_for_others():
            self._wait(group)
            return None
        return Reserve(self.application, group.head, node)

    def _waits_for_others(self) -> bool:
        """Whether other applications have nodes first, as a reservation of this one has just ended by its age."""
        may_at = self.application.reserves_anew_at + RESERVATION_DELAY_S
        if may_at > self.state.now:
            self._retry_by(may_at)
        return may_at > self.state.now

    def _on_any_node(self, group: AskGroup) -> AskDecision | WaitCause | None:
        if group.standing is _OPEN:
            nodes, shape = self.state.nodes, group.shape
            if nodes.is_deferred(shape):
                return None
            node = nodes.first_fit(shape, self.application)
            if node is None:
                node = nodes.first_outranked_fit(shape, self.leaf, group.priority)
            if node is not None:
                return Allocate(self.application, group.head, node)
            self._report_refusals(group)
            if self._wait(group):
                node = nodes.best_to_reserve(shape)
                if node is not None:
                    return Reserve(self.application, group.head, node)
        victims = self._preempt(group, nodes_tried=True)
        if isinstance(victims, Preempt):
            return victims
        group.attempted = True
        self.progress.failed.append(group)
        code = Reason.NO_NODE_FITS if group.standing is _OPEN else Reason.RESERVED_NODE_FULL
        return WaitCause(code, maximum=len(self.state.nodes), search=victims)

    def _report_refusals(self, group: AskGroup) -> None:
        """Record from time to time which predicates are the reason that no node takes the ask."""
        state, table = self.state, self.state.nodes.predicates.table
        is_due = state.now >= group.head.unschedulable_told_at + events.UNSCHEDULABLE_TOLD_EVERY_S
        if is_due:
            spent = table.spent
            nodes = state.nodes.refusals(group.shape)
            # Many asks may fail in a turn without a search, and each count visits all nodes with room.
            state.readiness.attempts_left -= (table.spent - spent) / WORK_PER_ATTEMPT
            if nodes:  # recorded now, as the ask may reserve a node, or have to wait for a later turn
                events.record_failure(state, group.head, WaitCause(Reason.NO_NODE_FITS, nodes=nodes))

    def _preempt(self, group: AskGroup, *, nodes_tried: bool) -> Preempt | Reason | None:
        victims = victim_choice.attempt(self.state, self.application, group, nodes_tried=nodes_tried)
        if not isinstance(victims, Preempt):
            self._wait_for_search(group)
        return victims

    def _wait_for_search(self, group: AskGroup) -> None:
        """Park the group until a search for victims may be made for it, if it ever may."""
        state, leaf = self.state, self.leaf
        if victim_choice.waits_for_search(state, leaf, group):
            waited_at = victim_choice.delay_end(leaf, group)
            if waited_at > state.now:
                self._retry_by(waited_at)
            else:
                at = victim_choice.next_search(state, leaf, group)
                self.progress.searches[group.shape, group.priority] = at if at > state.now else 0.0

    def _retry_by(self, at: float) -> None:
        self.progress.retry_at = min(self.progress.retry_at, at)

    def _wait(self, group: AskGroup, *, nodes_tried: bool = True) -> bool:
        """Park the group until a node has room, or may be reserved for it; return whether a node may be reserved: it
        has waited long enough, and its application has less than its share.
        """
        counts = bool(self.leaf.policies.back_off_after) and not group.shape.required_node
        to_count = counts and not nodes_tried
        if group.standing is not _OPEN:
            if to_count:
                self.progress.waits.append((group.shape, False, group.priority, to_count))
            return False
        waits_since = max(group.head.created_ns / 1e9, self.application.reserves_anew_at)
        may_at = waits_since + self.state.tuning.reservation_delay_s
        is_due = may_at <= self.state.now
        if not is_due:
            self._retry_by(may_at)
        may_reserve = is_due and not reservations.has_share(self.state, self.application)
        self.progress.waits.append((group.shape, may_reserve, group.priority, to_count))
        return may_reserve


def is_back_off_due(failed: list[AskGroup], enough: int, asks: Iterable[Allocation]) -> bool:
    """Whether at least `enough` asks that fit no node come before any of these."""
    places = merge(*[map(place_of, group) for group in failed])
    last = next(islice(places, enough - 1, None), None)
    return last is not None and any(place_of(one) > last for one in asks)


def _ever_pending(application: Application) -> Iterator[Allocation]:
    """Yield all asks that were ever pending and are not released; an allocation that an RM placed never was."""
    yield from chain(application.requests.values(), application.swapping.values())
    for one in application.allocations.values():
        if not one.recovered:
            yield one


def batch_size(application: Application) -> int:
    """Return how many asks the application gets placed in one turn: by its tag, or else by its queue."""
    tag = application.tags.get(ALLOCATION_BATCH) if application.tags else None
    wanted = None if tag is None else parse_allocation_batch(tag)
    return wanted or application.queue.policies.allocation_batch
