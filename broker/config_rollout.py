"""Configuration roll-out: two-phase commit of one configuration to every partition of an RM, or to none.

    voting --every worker yes--> recording --it is durable--> committed    (CommitConfig to all, RetirePartition to
      |                              |                                      those that left the configuration)
      +--any no, or timeout----------+--it cannot be recorded--> aborted    (AbortConfig to all)

A `ConfigChange` (a registration or an update) collects the votes; each RM has at most one in progress. The decision is
recorded before it takes effect: a broker that dies before has changed nothing, one that dies after finds the decision
in its record. Not here: what a change means (`rm_sessions.py`, `config_updates.py`).
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import ClassVar, Final

from msgspec import Raw

from yunishard.broker.registry import Registry, RmSession
from yunishard.broker.rm_records import RmPersistence, build_record
from yunishard.broker.state import BrokerState, ChangeRefused, RolloutOutcome
from yunishard.common.messages import control_messages
from yunishard.common.messages.wire import NEVER, Outgoing
from yunishard.common.names import usual_name
from yunishard.common.text_formats import format_bytes

ROLLOUT_MAX_S: Final = 20.0
"""Timeout for workers to start and vote; then the configuration is refused. It is shorter than the callers' timeouts,
so that they receive the reason."""

REGISTRATION_MAX_S: Final = 600.0
"""Timeout of a whole registration. Each vote extends the roll-out's timeout by ROLLOUT_MAX_S up to this, because the
workers of hundreds of partitions start in turns."""

ENDINGS_MAX: Final = 3
"""Workers of one partition that may crash before they are ready; then the change is refused. Each is replaced within a
second, so the caller has the reason long before the timeout.
"""

NAMES_MAX: Final = 10
"""Partitions that a refusal names; the others are counted."""


@dataclass(kw_only=True)
class ConfigChange(ABC):
    """A registration or an update in progress: the vote on one configuration, and what it means to the RM."""

    label: ClassVar[str]
    """For sentences that end with `of RM x`."""
    duration_max_s: ClassVar[float] = ROLLOUT_MAX_S
    """Each vote extends the deadline by ROLLOUT_MAX_S, up to this time from the start."""

    target: RmSession
    """The session with this configuration, as planned when the change started; its `rollout` is the number of this
    roll-out."""
    parsed: dict[str, Raw]
    """Its encoded configuration, by full partition name."""
    version: control_messages.ConfigVersion | None
    """The new entry of the history; None if the text in force stays the same."""
    started_at: float
    deadline: float
    live: frozenset[str] = frozenset()
    """Partitions that run and keep their state; the others start empty. Only used for membership."""
    endings: dict[str, str] = field(default_factory=dict)
    """Partition to how its worker ended during the vote without a reason of its own."""
    crashes: Counter[str] = field(default_factory=Counter)
    """How many did."""
    accepted: set[str] = field(default_factory=set)
    """Partitions whose workers voted yes; only used for membership and size."""
    recording: int = 0
    """The number under which the decision is being recorded; 0 before the decision."""
    order: int = 0
    """Position in the order of registration of new partitions, once the decision has been made."""

    def build_prepare(self, registry: Registry, partition: str) -> Outgoing:
        """Ask a worker for its vote."""
        return registry.build_prepare(self.target, partition, self.parsed[partition], live=partition in self.live)

    def build_outcome(
        self, registry: Registry, outcome: type[control_messages.CommitConfig | control_messages.AbortConfig]
    ) -> list[Outgoing]:
        """Request all workers to commit or to abort."""
        target, message = self.target, outcome(rollout=self.target.rollout)
        return [registry.build_worker_message(target, partition, message) for partition in target.configs]

    @abstractmethod
    def plan_session(self, state: BrokerState) -> RmSession:
        """The RM's session once this change is in force."""

    @abstractmethod
    def apply(self, state: BrokerState, now: float) -> list[Outgoing]:
        """Put the change in force: all workers voted yes and the decision is durable."""

    @abstractmethod
    def report_refusal(self, state: BrokerState, refusal: ChangeRefused) -> list[Outgoing]:
        """Answer the requester that the change is refused."""


class ConfigChanges:
    """The changes in progress, by RM id."""

    def __init__(self, state: BrokerState, persistence: RmPersistence) -> None:
        self._state = state
        self._persistence = persistence
        self._in_progress: dict[str, ConfigChange] = {}
        self._ended: dict[int, control_messages.ConfigVersion] = {}
        """Versions that are being recorded of RMs that have ended since, by the number of the write. An RM has one at
        most.
        """

    @property
    def deadline(self) -> float:
        """When the first roll-out times out."""
        return min((one.deadline for one in self._in_progress.values()), default=NEVER)

    def find(self, rm: str) -> ConfigChange | None:
        """The change of this RM."""
        return self._in_progress.get(rm)

    def find_for_partition(self, partition: str) -> ConfigChange | None:
        """The change that this partition takes part in."""
        slot = self._state.registry.slots.get(partition)
        change = self._in_progress.get(slot.rm) if slot else None
        return change if change is not None and partition in change.target.configs else None

    def extend_deadlines(self, seconds: float) -> None:
        """Extend all timeouts by a time in which the broker did not run."""
        for change in self._in_progress.values():
            change.deadline += seconds
            change.started_at += seconds

    def start(self, change: ConfigChange) -> list[Outgoing]:
        """Ask the present workers for their votes; the others are asked when they send Hello. One that could not start
        is tried again now, so that the caller soon has the worker or the reason.

        Raises:
            ChangeRefused: the record has no room for the configuration.
        """
        registry, rm = self._state.registry, change.target.rm
        self._check_room(change)
        self._in_progress[rm] = change
        slots = {name: registry.assign_slot(rm, name) for name in change.target.configs}
        for slot in slots.values():
            if slot.problem or slot.ending:
                slot.due = min(slot.due, change.started_at)
        present = [name for name, slot in slots.items() if slot.is_present]
        return [change.build_prepare(registry, partition) for partition in present] or self._decide(change)

    def _check_room(self, change: ConfigChange) -> None:
        """Refuse a change whose configuration the record cannot take, even without all that it may remove."""
        if change.version is None:
            return
        state, size = self._state, change.version.size
        limit = state.settings.record_max_bytes
        others = sum(one.version.size for one in self._in_progress.values() if one.version is not None)
        missing = state.versions.find_shortage(change.target.rm, others + size, state.registry.sessions, limit)
        if missing:
            reason = (
                f"the broker's record has no room for a configuration of {format_bytes(size)}: it would be"
                f" {format_bytes(missing)} above {format_bytes(limit)}, the limit of the setting record-max; use"
                " shorter configurations, end RMs that are not needed, or raise the limit"
            )
            raise ChangeRefused(HTTPStatus.INSUFFICIENT_STORAGE, reason)

    def list_rms(self) -> dict[str, None]:
        """The RMs that are registered, or will be when a change is complete."""
        return dict.fromkeys([*self._state.registry.sessions, *self._in_progress])

    def count_vote(self, partition: str, vote: control_messages.ConfigVote, now: float) -> list[Outgoing]:
        change = self.find_for_partition(partition)
        if change is None or change.target.rollout != vote.rollout:
            self._note_objection(partition, vote)
            return []
        if change.recording:
            return []  # from a worker that restarted after the decision
        if vote.reason:
            refusal = ChangeRefused(HTTPStatus.CONFLICT, f"partition {usual_name(partition)}: {vote.reason}")
            return self.abort(change, refusal, "objected")
        change.accepted.add(partition)
        change.deadline = max(change.deadline, min(now + ROLLOUT_MAX_S, change.started_at + change.duration_max_s))
        return self._decide(change)

    def _note_objection(self, partition: str, vote: control_messages.ConfigVote) -> None:
        """A restarted worker may reject the configuration in force: then its partition cannot start."""
        owner = self._state.registry.owner(partition)
        if owner is None or not vote.reason or vote.rollout != owner.rollout:
            return
        problem = f"its worker cannot run the configuration in force: {vote.reason}"
        self._state.registry.slots[partition].problem = problem
        self._state.warnings.append(f"partition {partition}: {problem}")

    def handle_worker_ended(self, partition: str, ended: control_messages.WorkerEnded) -> list[Outgoing]:
        """Handle the end of a worker that was not ready. If it cannot start, the change is aborted at once, so that the
        caller receives the reason: a retry within seconds would not help. After a crash the next attempt may succeed,
        up to ENDINGS_MAX times.
        """
        change = self.find_for_partition(partition)
        if change is None or change.recording or partition in change.accepted or not ended.reason:
            return []
        name = usual_name(partition)
        if not ended.cannot_start:
            change.endings[partition] = ended.reason
            change.crashes[partition] += 1
            if change.crashes[partition] < ENDINGS_MAX:
                return []
            reason = (
                f"{ENDINGS_MAX} workers of partition {name} ended before they were ready, the last one: "
                f"{ended.reason}; the log has the reason"
            )
            return self.abort(change, ChangeRefused(HTTPStatus.SERVICE_UNAVAILABLE, reason), "unstartable")
        reason = f"the worker of partition {name} cannot start: {ended.reason}; correct that, then try again"
        return self.abort(change, ChangeRefused(HTTPStatus.SERVICE_UNAVAILABLE, reason), "unstartable")

    def complete(self, change: ConfigChange, recorded: control_messages.Recorded, now: float) -> list[Outgoing]:
        """Apply a change whose decision is durable, or abort it if it could not be recorded."""
        if recorded.problem:
            reason = f"the configuration cannot be recorded: {recorded.problem}"
            return self.abort(change, ChangeRefused(HTTPStatus.SERVICE_UNAVAILABLE, reason), "unrecorded")
        counters = self._state.counters
        counters.rollouts["committed"] += 1
        counters.rollout_s.observe(max(0.0, now - change.started_at))
        if change.version is not None:
            self._state.versions.add_version(change.target.rm, change.version)
        del self._in_progress[change.target.rm]
        return change.apply(self._state, now)

    def end(self, change: ConfigChange, refusal: ChangeRefused) -> list[Outgoing]:
        """Abort the change of an RM that ends. If its version is being recorded, it counts as the latest, as it does
        after a restart: it is in force when the RM registers again with the same configuration of its own.
        """
        if change.recording and change.version is not None:
            self._ended[change.recording] = change.version
            self._state.versions.add_version(change.target.rm, change.version)
        return self.abort(change, refusal, "ended")

    def settle_ended(self, rm: str, recorded: control_messages.Recorded) -> None:
        """Withdraw the version of an RM that has ended if it could not be recorded."""
        version = self._ended.pop(recorded.number, None)
        if version is not None and recorded.problem:
            self._state.versions.withdraw_version(rm, version.number)

    def expire(self, now: float) -> list[Outgoing]:
        """Abort the roll-outs that have timed out."""
        sends: list[Outgoing] = []
        for change in [one for one in self._in_progress.values() if one.deadline <= now]:
            waited_s = change.deadline - change.started_at
            refusal = ChangeRefused(HTTPStatus.SERVICE_UNAVAILABLE, self._explain_timeout(change, waited_s))
            sends += self.abort(change, refusal, "expired")
        return sends

    def _explain_timeout(self, change: ConfigChange, waited_s: float) -> str:
        """Which workers did not vote, and why if one of them is known to have ended."""
        missing = [partition for partition in change.target.configs if partition not in change.accepted]
        slots = self._state.registry.slots
        names = ", ".join(map(usual_name, missing[:NAMES_MAX]))
        if len(missing) > NAMES_MAX:
            names += f" and {len(missing) - NAMES_MAX} more (of {len(change.target.configs)} partitions)"
        reason = f"no answer from the workers of {names} within {waited_s:.0f} s"
        for partition in missing:
            if ending := change.endings.get(partition) or slots[partition].problem or slots[partition].ending:
                return f"{reason}; that of {usual_name(partition)} ended before it was ready: {ending}"
        return reason

    def abort(self, change: ConfigChange, refusal: ChangeRefused, outcome: RolloutOutcome) -> list[Outgoing]:
        """Refuse the change and free the slots of workers that it alone needed."""
        self._state.counters.rollouts[outcome] += 1
        registry = self._state.registry
        del self._in_progress[change.target.rm]
        registry.changed_rms[change.target.rm] = None  # releases what waits for the end of the change
        session = registry.sessions.get(change.target.rm)
        sends = change.build_outcome(registry, control_messages.AbortConfig)
        for partition in change.target.configs:
            if session is None or not session.has(partition):
                registry.free_slot(partition)
            elif partition in session.leaving:  # its retirement continues
                sends.append(registry.build_retirement(session, partition))
        return [*sends, *change.report_refusal(self._state, refusal)]

    def _decide(self, change: ConfigChange) -> list[Outgoing]:
        if len(change.accepted) < len(change.target.configs):
            return []
        change.deadline = NEVER
        change.order = self._state.registry.next_order()
        session = change.plan_session(self._state)
        record = build_record(session, self._state.registry)
        change.recording, message = self._persistence.write(session.rm, record, change.version)
        return [message]
