"""A partition: the way into the engine.

    effects = partition.apply(command, now)      an update of the RM
    effects = partition.elapse(now)              timers that are due
    effects = partition.audit(now)               a look at whether all sums are right
    effects = partition.schedule(now, budget)    up to `budget` decisions
    when    = partition.deadline                 when to call again if nothing arrives
    effects = partition.reconfigure(config, now) another configuration, to which it had no `objections`

Pure: it reads no clock, sends nothing and logs nothing; `now` is Unix seconds and never goes back. What it knows is in
`books.py`, what each kind of input does in `updates/` and `reconfiguration.py`, and what a decision is in `cycle/`.
"""

from collections.abc import Sequence

from common.config.model import PartitionConfig
from common.control_messages import GroupsFound
from common.messages import Command
from common.query_messages import Actor
from common.rm_messages import (
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
    PredicatesAnswered,
    SyncBegin,
    SyncEnd,
)
from partition_worker.engine import (
    administration,
    draining,
    gangs,
    lifecycle,
    reconfiguration,
    reservations,
    resync,
    retirement,
)
from partition_worker.engine.application_states import AppEvent
from partition_worker.engine.books import Books
from partition_worker.engine.checks.auditor import Auditor
from partition_worker.engine.cycle import cycle
from partition_worker.engine.effects import Effect
from partition_worker.engine.outstanding_asks import Outstanding
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.engine.preemption import quota_enforcement
from partition_worker.engine.queues.changes import Plan
from partition_worker.engine.tuning import DEFAULT, Tuning
from partition_worker.engine.updates import allocation_updates, application_updates, node_updates, verdict_updates


class Partition(Books):
    """Everything of one partition, and the only way to change it."""

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
        self.outstanding = Outstanding()
        self.auditor = Auditor(self)
        self.decided = 0
        """Decisions made since this process began."""
        self.plan: Plan | None = None
        """For the configuration that was asked about last, if it can be taken; it can be made again."""
        self.idle = True
        """Whether the last `schedule` left nothing to decide, and nothing has come in since."""

    @property
    def deadline(self) -> float:
        """When to call `elapse` or `schedule` next: at once while there may be something to decide."""
        return self.next_timer if self.idle else 0.0

    @property
    def next_timer(self) -> float:
        """When `elapse` or `audit` has something to do."""
        return min(self.next_change, self.auditor.deadline)

    @property
    def next_change(self) -> float:
        """When `elapse` has something to do."""
        return min(
            self.timers.deadline,
            self.reserved.deadline,
            self.clean_at,
            self.quota_look_at,
            self.outstanding.deadline,
            self.next_forgetting,
            self.fleet.predicates.verdicts.deadline,
        )

    @property
    def _ignorant(self) -> bool:
        """Whether something runs that is not accounted yet, so that nothing may be placed: the RM still reports what it
        has, or some of that waits for the groups of its user.
        """
        return self.report is not None or self.waiting.running

    def apply(self, command: Command, now: float) -> list[Effect]:
        """Take an update of the RM; every item of it takes effect or is refused by itself.

        Raises:
            TypeError: for a command that is none of a partition's.
        """
        self.begin(now)
        if self.report is not None:
            command = resync.mentioned(self, command)
        match command:
            case NodeRequest():
                node_updates.handle(self, command)
            case ApplicationRequest():
                application_updates.handle(self, command)
            case AllocationRequest():
                allocation_updates.handle(self, command)
            case SyncBegin():
                resync.begin(self, command)
            case SyncEnd():
                resync.end(self, command)
            case _:
                raise TypeError(command)
        self.auditor.expect(self)
        self.idle = False
        return self.taken()

    def elapse(self, now: float) -> list[Effect]:
        """Let every timer go off that is due, except the auditor's."""
        self.begin(now)
        while (due := self.timers.due(now)) is not None:
            application, alarm = due
            match alarm:
                case "state":
                    gangs.lingered(self, application)
                case "placeholders":
                    gangs.timed_out(self, application)
                case "look":
                    self.readiness.touch_application(application)
            self.idle = False
        if self.reserved.deadline <= now:
            reservations.expire(self)
            self.idle = False
        for application in self.expired():
            lifecycle.fire(self, application, AppEvent.EXPIRE)
        if self.quota_look_at <= now:
            quota_enforcement.look(self)
        if self.outstanding.deadline <= now:
            self.outstanding.report(self)
        if self.clean_at <= now:
            draining.clean(self)
        if self.fleet.predicates.verdicts.deadline <= now:
            verdict_updates.elapse(self)
            self.idle = False
        return self.taken()

    def audit(self, now: float) -> list[Effect]:
        """Look at the next objects, whether their sums are right. No step: it changes nothing and tells people only."""
        self.now = max(now, self.now)
        self.auditor.go_on(self)
        return self.taken()

    def schedule(self, now: float, budget: int) -> list[Effect]:
        """Make up to `budget` decisions; fewer means that nothing more can be placed now."""
        self.begin(now)
        made = 0 if self._ignorant else cycle.run(self, budget)
        self.decided += made
        self.idle = self._ignorant or made < budget
        self.outstanding.expect(self)
        self.auditor.expect(self)
        return self.taken()

    def schedule_each(self, now: float, budget: int) -> list[tuple[cycle.Decision, list[Effect]]]:
        """As `schedule`, but each decision is a step of its own, told with its effects."""
        self.begin(now)
        made: list[tuple[cycle.Decision, list[Effect]]] = []
        for decision in () if self._ignorant else cycle.decisions(self, budget):
            made.append((decision, self.taken()))
            self.begin(now)
        self.decided += len(made)
        self.idle = len(made) < budget
        self.outstanding.expect(self)
        self.auditor.expect(self)
        return made

    def go_on(self, found: GroupsFound, now: float) -> list[Effect]:
        """A user that was asked for has been looked up."""
        self.begin(now)
        allocation_updates.follow(self, application_updates.go_on(self, found))
        self.idle = False
        return self.taken()

    def take_verdicts(self, answered: PredicatesAnswered, now: float) -> list[Effect]:
        """The RM has said on which nodes asks may run."""
        self.begin(now)
        verdict_updates.take(self, answered)
        self.idle = False
        return self.taken()

    # Administrators ---------------------------------------------------------------------------------------------------

    def kill(self, application_id: str, actor: Actor, now: float) -> list[Effect]:
        """Fail an application and release all it has. Raises administration.NotDone, and then nothing has changed."""
        self.begin(now)
        administration.kill(self, application_id, actor)
        self.idle = False
        return self.taken()

    def move(self, application_id: str, queue: str, actor: Actor, now: float) -> list[Effect]:
        """Let an application go on in another leaf. Raises administration.NotDone, and then nothing has changed."""
        self.begin(now)
        administration.move(self, application_id, queue, actor)
        self.idle = False
        return self.taken()

    # Another configuration ------------------------------------------------------------------------------------------

    def objections(self, config: PartitionConfig) -> list[str]:
        """Why this partition cannot take a configuration that passed validation; empty if it can."""
        found = reconfiguration.objections(self, config)
        self.plan = None if found else reconfiguration.plan(self, config)
        return found

    def reconfigure(self, config: PartitionConfig, now: float) -> list[Effect]:
        """Take another configuration, all of it. It cannot fail where there were no objections."""
        self.begin(now)
        plan, self.plan = self.plan, None
        if plan is None or plan.before is not self.config.root or plan.after is not config.root:
            plan = reconfiguration.plan(self, config)
        reconfiguration.apply(self, config, plan)
        self.idle = False
        return self.taken()

    def retire(self, now: float) -> list[Effect]:
        """The partition left the configuration: everything in it ends, and it takes nothing any more."""
        self.begin(now)
        retirement.retire(self)
        return self.taken()
