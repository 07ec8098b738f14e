"""The entry point of the engine: one partition, its inputs and its effects.

    effects = partition.apply(command, now)      an update of the RM
    effects = partition.step(now, budget)        due timers, then up to `budget` decisions
    effects = partition.audit(now)               verify the next objects
    when    = partition.deadline                 when to call again without further input
    effects = partition.reconfigure(config, now) a configuration without `objections`

Pure: it reads no clock, sends nothing and logs nothing; `now` is Unix seconds and never decreases. The state is in
`state.py`, the inputs in the `*_updates.py` modules and `reconfiguration.py`, decisions in `queue_traversal.py`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages import rm_messages
from yunishard.common.messages.control_messages import GroupsFound
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine import (
    administration,
    allocation_updates,
    application_updates,
    ledger,
    lifecycle,
    node_updates,
    operator_marks,
    queue_traversal,
    reconfiguration,
    reservations,
    resync,
)
from yunishard.partition_worker.engine.allocation import AskGroup
from yunishard.partition_worker.engine.application import AppEvent
from yunishard.partition_worker.engine.auditor import Auditor
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.gang_scheduling import handle_placeholder_timeout, handle_state_timeout
from yunishard.partition_worker.engine.outstanding_asks import REPORT_EVERY_S, OutstandingAsks
from yunishard.partition_worker.engine.predicates.predicate import Predicate
from yunishard.partition_worker.engine.preemption import quota_enforcement
from yunishard.partition_worker.engine.queues.tree import QueueChangePlan, compare_configs
from yunishard.partition_worker.engine.reconfiguration import remove_empty_queues
from yunishard.partition_worker.engine.state import DEFAULT, PartitionState, Tuning

TIMERS_PER_STEP: Final = 512
"""Timers of applications that fire in one step, in about 10 ms. The next step fires further ones that are due, and
nothing is decided before.
"""


class Partition(PartitionState):
    """One partition, and the only way to change its state."""

    def __init__(
        self,
        config: PartitionConfig,
        *,
        name: str,
        now: float,
        plugins: Sequence[Predicate] = (),
        tuning: Tuning = DEFAULT,
    ) -> None:
        super().__init__(config, name=name, now=now, plugins=plugins, tuning=tuning)
        self.outstanding = OutstandingAsks()
        self.auditor = Auditor(self)
        self.decided = 0
        """Decisions since this process started."""
        self.work_of_step = 0.0
        """Decisions and failed attempts of the latest step."""
        self.plan: QueueChangePlan | None = None
        """The plan for the configuration last checked, if it has no objections; it can be computed again."""
        self.idle = True
        """Whether the last step left nothing to decide, and no input came since."""

    @property
    def deadline(self) -> float:
        """When to call `step` next; 0.0 while there may be something to decide."""
        return self.next_timer if self.idle else 0.0

    @property
    def next_timer(self) -> float:
        """When `step` or `audit` is due without something to decide."""
        return min(self.next_change, self.auditor.deadline)

    @property
    def next_change(self) -> float:
        """When the next timer is due, except the auditor's."""
        reservation = reservations.first_to_end(self) if self.reservation_index.by_rank else None
        verdicts = self.nodes.predicates.verdicts
        has_questions = verdicts.numbers or verdicts.has_requests
        return min(
            self.timers.deadline,
            self.readiness.next_search,
            NEVER if reservation is None else reservations.end_of(self, reservation),
            self.cleanup_at,
            self.leaving_deadline,
            self.quota_check_at,
            self.outstanding.deadline,
            self.next_expiry,
            verdicts.deadline if has_questions else NEVER,
            NEVER if self.report is None else self.report.deadline,
        )

    @property
    def _may_schedule(self) -> bool:
        """Whether all allocations are accounted for: not during a resynchronization, nor while reported allocations
        wait for a group lookup.
        """
        return self.report is None and not self.pending_submissions.running_count

    def apply(self, command: Command, now: float) -> list[Effect]:
        """Apply an update of the RM; each item succeeds or is refused on its own.

        Raises: TypeError: for a command that a partition does not accept.
        """
        self.begin_step(now)
        if self.report is not None:
            command = resync.collect(self, command)
        match command:
            case rm_messages.NodeRequest():
                node_updates.handle(self, command)
            case rm_messages.ApplicationRequest():
                application_updates.handle(self, command)
            case rm_messages.AllocationRequest():
                allocation_updates.handle(self, command)
            case rm_messages.SyncBegin():
                resync.begin(self, command)
            case rm_messages.SyncEnd():
                resync.end(self, command)
            case _:
                raise TypeError(command)
        reservations.end_lost(self)
        self._request_audit()
        self.idle = False
        return self.drain_effects()

    def step(self, now: float, budget: int) -> list[Effect]:
        """Fire all due timers, except the auditor's, then make up to `budget` decisions.

        With a budget the decisions are a step of their own, so their effects have another cause than those of the
        timers. Fewer decisions mean that nothing more can be scheduled now.
        """
        self.begin_step(now)
        self.work_of_step = 0.0
        if self.next_change <= now and not self._fire_timers(now, may_decide=budget > 0):
            return self.drain_effects()
        if budget:
            self.step_number += 1
            made, has_more = queue_traversal.run(self, budget) if self._may_schedule else (0, False)
            self.work_of_step = made + self.readiness.attempts_made
            self._end_cycle(made, is_idle=made < budget and not has_more)
            if self.idle and self.nodes.predicates.verdicts.wide_pairs:
                self._ask_for_verdicts(now, has_decided=True)
        return self.drain_effects()

    def schedule_each(self, now: float, budget: int) -> list[tuple[queue_traversal.Decision, list[Effect]]]:
        """Make up to `budget` decisions, each a step of its own, returned with its effects."""
        self.begin_step(now)
        made: list[tuple[queue_traversal.Decision, list[Effect]]] = []
        cycle = queue_traversal.Cycle(self)
        while self._may_schedule and len(made) < budget and (decision := cycle.decide()) is not None:
            made.append((decision, self.drain_effects()))
            self.begin_step(now)
        self._end_cycle(len(made), is_idle=len(made) < budget)
        return made

    def _fire_timers(self, now: float, *, may_decide: bool) -> bool:
        """Fire the timers that are due; return whether there are no more of them."""
        fired = 0
        while (timer := self.timers.pop_due(now)) is not None:
            fired += 1
            if timer.alarm != "look":
                self.changes.applications[timer.application.rank] = timer.application
            match timer.alarm:
                case "state":
                    handle_state_timeout(self, timer.application)
                case "placeholders":
                    handle_placeholder_timeout(self, timer.application)
                case "look":
                    self.readiness.touch_application(timer.application)
            self.idle = False
            if fired == TIMERS_PER_STEP and self.timers.deadline <= now:
                return False
        if self.readiness.next_search <= now:
            self.readiness.wake_searches(now)
            self.idle = False
        if self.reservation_index.by_rank and reservations.expire(self):
            self.idle = False
        if ledger.end_wait_for_victims(self):
            reservations.end_lost(self)
            self.readiness.retry_parked()
            self.idle = False
        for application in self.drop_expired():
            lifecycle.fire(self, application, AppEvent.EXPIRE)
        if self.quota_check_at <= now:
            quota_enforcement.enforce_quotas(self)
        if self.outstanding.deadline <= now:
            self.outstanding.report(self)
        if self.cleanup_at <= now:
            remove_empty_queues(self)
        if self.report is not None and self.report.deadline <= now:
            resync.handle_report_timeout(self)
            self.idle = False
        self._ask_for_verdicts(now, has_decided=self.idle or not may_decide)
        return True

    def _ask_for_verdicts(self, now: float, *, has_decided: bool) -> None:
        if self.nodes.predicates.verdicts.deadline <= now:
            allocation_updates.ask_for_verdicts(self, has_decided=has_decided)
            self.idle = False

    def _end_cycle(self, made: int, *, is_idle: bool) -> None:
        self.decided += made
        self.idle = is_idle
        if self.outstanding.deadline == NEVER and any(self.tree.root.pending_sum):
            self.outstanding.deadline = self.now + REPORT_EVERY_S
        self._request_audit()

    def _request_audit(self) -> None:
        self.auditor.has_changes = True
        if self.auditor.deadline == NEVER:
            self.auditor.schedule_round(self)

    def audit(self, now: float) -> list[Effect]:
        """Verify the next objects. It changes nothing and is not a step."""
        self.now = max(now, self.now)
        self.auditor.check_slice(self)
        return self.drain_effects()

    def apply_groups(self, found: GroupsFound, now: float) -> list[Effect]:
        """Apply the result of a group lookup."""
        return self._act(now, lambda: application_updates.apply_groups(self, found))

    def apply_verdicts(self, answered: rm_messages.PredicatesAnswered, now: float) -> list[Effect]:
        """Apply the RM's answers about predicates."""
        return self._act(now, lambda: allocation_updates.apply_verdicts(self, answered))

    def set_aside_asks(self, groups: Sequence[AskGroup], reason: str, now: float) -> list[Effect]:
        """Reject asks of which an attempt has ended workers."""
        return self._act(now, lambda: allocation_updates.set_aside_asks(self, groups, reason))

    def kill(self, application_id: str, actor: Actor, now: float) -> list[Effect]:
        """Fail an application and release its allocations. Raises administration.NotDone before any change."""
        return self._act(now, lambda: administration.kill(self, application_id, actor))

    def move(self, application_id: str, queue: str, actor: Actor, now: float) -> list[Effect]:
        """Move an application to another leaf. Raises administration.NotDone before any change."""
        return self._act(now, lambda: administration.move(self, application_id, queue, actor))

    def stop_queue(self, path: str, reason: str, actor: Actor, now: float) -> list[Effect]:
        """Stop a queue. Raises administration.NotDone before any change, as do the next four."""
        return self._act(now, lambda: operator_marks.stop_queue(self, path, reason, actor))

    def start_queue(self, path: str, actor: Actor, now: float) -> list[Effect]:
        """Start a queue again."""
        return self._act(now, lambda: operator_marks.start_queue(self, path, actor))

    def cordon_node(self, node_id: str, reason: str, actor: Actor, now: float) -> list[Effect]:
        """Keep new allocations from a node."""
        return self._act(now, lambda: operator_marks.cordon_node(self, node_id, reason, actor))

    def uncordon_node(self, node_id: str, actor: Actor, now: float) -> list[Effect]:
        """Remove the cordon of a node."""
        return self._act(now, lambda: operator_marks.uncordon_node(self, node_id, actor))

    def drain_node(self, node_id: str, reason: str, actor: Actor, now: float) -> list[Effect]:
        """Cordon a node, and ask the RM to release what runs there."""
        return self._act(now, lambda: operator_marks.drain_node(self, node_id, reason, actor))

    def inherit_marks(self, before: PartitionState) -> None:
        """Take over the marks of operators from the partition of an earlier session."""
        self.tree.set_stops(before.tree.stops)
        self.nodes.set_cordons(before.nodes.cordons)

    def _act(self, now: float, action: Callable[[], None]) -> list[Effect]:
        """Carry out an action as a step."""
        self.begin_step(now)
        action()
        reservations.end_lost(self)
        self.idle = False
        return self.drain_effects()

    # Another configuration ------------------------------------------------------------------------------------------

    def objections(self, config: PartitionConfig) -> list[str]:
        """Why this partition cannot take a valid configuration; empty if it can."""
        found = reconfiguration.find_objections(self, config)
        self.plan = None if found else compare_configs(self.tree, self.config.root, config.root)
        return found

    def reconfigure(self, config: PartitionConfig, now: float) -> list[Effect]:
        """Apply a configuration. It cannot fail if there were no objections."""
        plan, self.plan = self.plan, None
        if plan is None or plan.before is not self.config.root or plan.after is not config.root:
            plan = compare_configs(self.tree, self.config.root, config.root)
        return self._act(now, lambda: reconfiguration.apply(self, config, plan))

    def retire(self, now: float) -> list[Effect]:
        """The partition left the configuration: end everything in it and accept nothing more."""
        self.begin_step(now)
        administration.retire(self)
        return self.drain_effects()
