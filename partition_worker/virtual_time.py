"""Play the RM of one partition in virtual time: no clock, no waiting, the same input gives the same schedule.

`VirtualTime` wraps a partition, new (`yunishard simulate`) or copied from a live one (`yunishard plan`), and is its RM:

    time = VirtualTime(partition, observer, now=0.0)
    time.schedule(0.0, lambda: NodeRequest(nodes=[...]))
    time.schedule(60.0, lambda: Submission(application, tasks=(Task(ask, run_s=600.0),)))
    time.run()

An input is built when it is due, so that a long trace needs little memory. At each time, what ends comes first, then
the inputs in the order in which they were scheduled; then the partition decides until it has nothing more to decide.
The time then moves to the next event or timer of the partition. Decisions take no time.

Not here: what the RM does (`common/rm_player.py`), where applications come from and what is recorded of them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from yunishard.common.messages import rm_messages
from yunishard.common.messages.control_messages import GroupsFound, GroupsWanted
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.wire import NEVER
from yunishard.common.rm_player import (
    ENDS,
    INPUTS,
    Observer,
    PlayedApplication,
    PlayedTask,
    Resubmits,
    RmPlayer,
    Submission,
)
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.state import Changes

BUDGET: Final = 512
"""Decisions of one step, as in a worker."""

QUIET_S: Final = 86_400.0
"""Virtual seconds without an input or the end of a task, after which `run` ends if it has no other limit. Asks that
still wait then would wait for ever; the partition tries them again every few seconds.
"""

_NOT_DUE: Final = 1e300
"""Later than any time, but not NEVER: the partition does not report outstanding asks, as the cluster does not grow."""


class VirtualTime(RmPlayer):
    """The RM of a partition, and its clock."""

    def __init__(
        self,
        partition: Partition,
        observer: Observer,
        *,
        now: float,
        termination_delay_s: float = 0.0,
        resubmits: Resubmits = "all",
    ) -> None:
        """`now` is the Unix time at which to begin, at least that of the partition."""
        super().__init__(observer, now=now, termination_delay_s=termination_delay_s, resubmits=resubmits)
        self.partition = partition
        partition.tracking = False
        partition.outstanding.deadline = _NOT_DUE
        for application in partition.applications.values():
            request = rm_messages.AddApplicationRequest(application_id=application.application_id)
            is_failing = application.state in ("Failing", "Failed")
            self.applications[application.application_id] = PlayedApplication(request, is_failing=is_failing)
        for known in partition.allocations.values():
            self._adopt(known)

    def schedule(self, at: float, build: Callable[[], Submission | Command]) -> None:
        """Send an input at a time; `build` is called then."""
        self.call_at(at, INPUTS, partial(self._build, build))

    def act(self, action: Callable[[], Iterable[Effect]]) -> None:
        """Change the partition now, in another way than its RM does, such as `Partition.reconfigure`."""
        self._receive_effects(action())

    @property
    def next_event(self) -> float:
        """When something happens next: an event of the RM, or a timer of the partition."""
        return min(self.deadline, self.partition.next_change)

    def run(self, until: float = NEVER) -> None:
        """Play everything up to and including a time. Without one, until nothing more happens, or only timers of the
        partition have been due for `QUIET_S`.
        """
        quiet_since = self.now
        self._decide()
        while True:
            at = max(self.next_event, self.now)
            if at > until or at == NEVER:
                break
            if self.deadline <= at:
                quiet_since = at
            elif until == NEVER and self.deadline == NEVER and at - quiet_since > QUIET_S:
                break
            self.now = at
            self._play_due()
            self._decide()
        if until != NEVER:
            self.now = max(self.now, until)

    def _play_due(self) -> None:
        """Carry out all events that are due. Applications and asks are sent in one request; what ends comes before."""
        while self.deadline <= self.now:
            self.play_next()
            if self.batch.releases or self.batch.removals:
                self._flush()
        self._flush()

    def _flush(self) -> None:
        """Send the collected updates."""
        batch = self.batch
        if batch.applications:
            new, batch.applications = batch.applications, []
            self._apply(rm_messages.ApplicationRequest(new=new))
        if batch.asks or batch.releases:
            known = [one for one in batch.asks if one.allocation_key in self.tasks]
            releases = rm_messages.AllocationReleasesRequest(allocations_to_release=batch.releases)
            batch.asks, batch.releases = [], []
            self._apply(rm_messages.AllocationRequest(allocations=known, releases=releases))
        if batch.removals:
            gone, batch.removals = batch.removals, []
            self._apply(rm_messages.ApplicationRequest(remove=gone))

    def _decide(self) -> None:
        """Let the partition decide until there is nothing more to decide, nor to send at this time."""
        partition = self.partition
        while not partition.idle or partition.next_change <= self.now:
            self._receive_effects(partition.step(self.now, BUDGET))
            self._play_due()

    def _apply(self, command: Command) -> None:
        self._receive_effects(self.partition.apply(command, self.now))

    def _build(self, build: Callable[[], Submission | Command]) -> None:
        built = build()
        if isinstance(built, Submission):
            self.submit(built)
        else:
            self._flush()
            self._apply(built)

    def _adopt(self, known: Allocation) -> None:
        """Take over an ask or allocation that the partition had before, and confirm a release that was requested."""
        ask = rm_messages.Allocation(
            allocation_key=known.key,
            application_id=known.application_id,
            resource_per_alloc=known.resources,
            priority=known.priority,
            allocation_tags=known.tags,
            task_group_name=known.task_group,
            placeholder=known.placeholder,
            originator=known.originator,
            preemption_policy=known.preemption_policy,
        )
        is_swapping = known.partner is not None and not known.placeholder
        self.adopt(PlayedTask(ask, node_id="" if is_swapping else known.node_id))
        requested = rm_messages.UNKNOWN_TERMINATION
        if known.placeholder and known.partner is not None:
            requested = rm_messages.PLACEHOLDER_REPLACED
        elif known.released:
            requested = rm_messages.TIMEOUT
        elif known.preempted:
            requested = rm_messages.PREEMPTED_BY_SCHEDULER
        if requested:
            self.receive_part(rm_messages.AllocationRelease(allocation_key=known.key, termination_type=requested))

    # What the core reports --------------------------------------------------------------------------------------------

    def _receive_effects(self, effects: Iterable[Effect]) -> None:
        for record in self.partition.changes.preemptions:
            self.preemptors.update((victim.key, (record.ask_key, record.queue)) for victim in record.victims)
        self.partition.changes = Changes()
        for effect in effects:
            match effect.part:
                case GroupsWanted(user=user):
                    self.call_at(self.now, ENDS, partial(self._find_groups, user))
                case rm_messages.PredicatesAsked() as question:
                    self.call_at(self.now, ENDS, partial(self._admit, question))
                case part:
                    self.receive_part(part)
        self.preemptors.clear()

    def find_queue(self, application_id: str) -> str:
        """Return the path of the queue of an application; empty if there is no such one."""
        known = self.partition.applications.get(application_id)
        return "" if known is None else known.queue.path

    def _find_groups(self, user: str) -> None:
        """Answer a group lookup: the user is in a group of the same name."""
        self._receive_effects(self.partition.apply_groups(GroupsFound(user=user, groups=[user]), self.now))

    def _admit(self, question: rm_messages.PredicatesAsked) -> None:
        """Answer that every ask may run on every node, as soon as there is room."""
        verdicts = [
            rm_messages.Verdict(allocation_key=one.allocation_key, node_id=one.node_id, allocate=one.allocate)
            for one in question.asked
        ]
        preemptions = [
            rm_messages.PreemptionVerdict(allocation_key=one.allocation_key, node_id=one.node_id, index=one.start_index)
            for one in question.preemptions
        ]
        answer = rm_messages.PredicatesAnswered(question=question.question, verdicts=verdicts, preemptions=preemptions)
        self._receive_effects(self.partition.apply_verdicts(answer, self.now))
