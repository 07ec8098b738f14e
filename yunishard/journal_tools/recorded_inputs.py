"""The commands of the RM after a moment, put together from the records of a journal.

A journal has the changed objects of each step, not the messages of the RM. A new object in the step of a command is
what the RM submitted; an object that such a step removes is what it released. The rest follows from decisions.

Not recorded, so assumed or left out: the queue that an application asked for (the one in which it was placed), changes
of asks, refused asks, and for how long an allocation would have run that was preempted, or runs at the end.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages import rm_messages
from yunishard.common.messages.journal_messages import Step
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.query_messages import OPERATIONS
from yunishard.journal_tools.views import Change, Replay
from yunishard.partition_worker.engine.durable_records import (
    AllocationRecord,
    ApplicationRecord,
    ForeignRecord,
    Image,
    NodeRecord,
    PartitionRecord,
    RejectionRecord,
    Removed,
    StatusRecord,
)

_FROM_RM: Final = frozenset({"NodeRequest", "ApplicationRequest", "AllocationRequest", "SyncBegin", "SyncEnd"})
"""Kinds of steps that carry out a command of the RM."""


class RecordedAsk(Struct):
    """An ask as the RM submitted it, and its fate."""

    ask: rm_messages.Allocation
    at: float
    """When it was submitted, or the moment of the replay."""
    is_known: bool = False
    """Whether it was there at the moment of the replay."""
    was_running: bool = False
    """Whether it ran at that moment."""
    is_reported: bool = False
    """Whether the RM reported it as running."""
    started: float | None = None
    node_id: str = ""
    ended: float | None = None
    preempted: float | None = None
    has_run_time: bool = False
    """Whether it ended as its RM wanted, so that its run time is known."""

    @property
    def run_s(self) -> float | None:
        """For how long it ran; None if that is not known."""
        if self.started is None or self.ended is None or not self.has_run_time:
            return None
        return max(0.0, self.ended - self.started)


class RecordedInputs(Struct):
    """Everything that came from outside after a moment, in order."""

    commands: list[tuple[float, Command]] = []
    """Changes of nodes and foreign allocations, and allocations that the RM reported as running."""
    applications: list[tuple[float, rm_messages.AddApplicationRequest]] = []
    asks: dict[str, RecordedAsk] = {}
    removals: dict[str, float] = {}
    """By application: when the RM removed it."""
    configs: list[tuple[float, PartitionConfig]] = []
    left_out: Counter[str] = field(default_factory=Counter)
    """The inputs that cannot be replayed, by kind."""
    confirmation_s: float = 0.0
    """Mean time from a preemption to its confirmation by the RM."""
    end: float = 0.0
    """The time of the last step."""


def collect_inputs(replay: Replay) -> RecordedInputs:
    """Read the rest of a journal that was read up to a moment.

    Raises:
        JournalDamaged, OSError: it cannot be read.
    """
    return _Collector(replay).collect()


class _Collector:
    def __init__(self, replay: Replay) -> None:
        self.inputs = RecordedInputs(end=replay.recovery.at)
        self._replay = replay
        self._delays: list[float] = []
        for record in replay.recovery.image.of(AllocationRecord):
            known = RecordedAsk(_build_ask(record), replay.recovery.at, is_known=True)
            if record.node_id and not record.replaces:
                known.started, known.node_id = record.bound_ns / 1e9, record.node_id
                known.was_running = True
            self.inputs.asks[record.key] = known

    @property
    def _image(self) -> Image:
        return self._replay.recovery.image

    def collect(self) -> RecordedInputs:
        for step, found in self._replay.read():
            changes = list(found)
            self.inputs.end = step.at
            if step.kind in OPERATIONS:
                self.inputs.left_out["operator change"] += 1
            for change in changes:
                self._read_change(step, change, changes)
        if self._delays:
            self.inputs.confirmation_s = sum(self._delays) / len(self._delays)
        return self.inputs

    def _read_change(self, step: Step, change: Change, changes: Sequence[Change]) -> None:
        is_command = step.kind in _FROM_RM
        match change.after, change.before:
            case AllocationRecord() as ask, before:
                self._read_ask(step, ask, before if isinstance(before, AllocationRecord) else None)
            case Removed(), AllocationRecord() as ask:
                self._read_end(step, ask)
            case ApplicationRecord() as new, None:
                self.inputs.applications.append((step.at, _build_application(new, changes)))
            case Removed(), ApplicationRecord(application_id=name) if step.kind == "ApplicationRequest":
                self.inputs.removals[name] = step.at
            case StatusRecord(finished_ns=finished, rank=rank), _ if finished and step.kind == "ApplicationRequest":
                if (application := self._image.find(ApplicationRecord, rank)) is not None:
                    self.inputs.removals.setdefault(application.application_id, step.at)
            case RejectionRecord() as rejection, _ if is_command:
                self.inputs.applications.append((step.at, _build_rejected(rejection)))
            case NodeRecord() as node, before if is_command:
                node_before = before if isinstance(before, NodeRecord) else None
                self._send(step, rm_messages.NodeRequest(nodes=list(_build_nodes(node, node_before))))
            case Removed(), NodeRecord(node_id=node_id) if is_command:
                gone = rm_messages.NodeInfo(node_id=node_id, action=rm_messages.NODE_DECOMMISSION)
                self._send(step, rm_messages.NodeRequest(nodes=[gone]))
            case ForeignRecord() as foreign, _ if is_command:
                self._send(step, rm_messages.AllocationRequest(allocations=[_build_foreign(foreign)]))
            case Removed(), ForeignRecord(key=key) if is_command:
                self._send(step, _build_release("", key))
            case PartitionRecord(config=config), PartitionRecord(config=earlier) if config != earlier:
                self.inputs.configs.append((step.at, config))

    def _send(self, step: Step, command: Command) -> None:
        self.inputs.commands.append((step.at, command))

    def _read_ask(self, step: Step, ask: AllocationRecord, before: AllocationRecord | None) -> None:
        known = self.inputs.asks.get(ask.key)
        if before is None:
            if known is not None:
                self.inputs.left_out["repeated ask key"] += 1
                return
            known = self.inputs.asks[ask.key] = RecordedAsk(_build_ask(ask), step.at)
            if ask.node_id:
                known.started, known.node_id, known.is_reported = step.at, ask.node_id, True
                running = replace(known.ask, node_id=ask.node_id)
                self._send(step, rm_messages.AllocationRequest(allocations=[running]))
            return
        if known is None or known.ended is not None:
            return
        if ask.resources != before.resources or ask.priority != before.priority:
            self.inputs.left_out["ask change"] += 1
        if known.started is None and ask.node_id and not ask.replaces:
            known.started, known.node_id = step.at, ask.node_id
        if ask.preempted and not before.preempted:
            known.preempted = step.at

    def _read_end(self, step: Step, ask: AllocationRecord) -> None:
        known = self.inputs.asks.get(ask.key)
        if known is None or known.ended is not None:
            return
        known.ended = step.at
        known.has_run_time = step.kind in ("AllocationRequest", "ApplicationRequest") and not (
            ask.preempted or ask.released
        )
        if known.is_reported:
            self._send(step, _build_release(ask.application_id, ask.key))
        if known.preempted is not None:
            self._delays.append(step.at - known.preempted)


# Commands from records ------------------------------------------------------------------------------------------------


def _build_ask(record: AllocationRecord) -> rm_messages.Allocation:
    return rm_messages.Allocation(
        allocation_key=record.key,
        application_id=record.application_id,
        resource_per_alloc=record.resources,
        priority=record.priority,
        allocation_tags=record.tags,
        task_group_name=record.task_group,
        placeholder=record.placeholder,
        originator=record.originator,
        preemption_policy=record.preemption_policy,
    )


def _build_application(record: ApplicationRecord, changes: Iterable[Change]) -> rm_messages.AddApplicationRequest:
    """The submission; the queue is the one in which it was placed, as the requested one is not recorded."""
    statuses = (one.after for one in changes if isinstance(one.after, StatusRecord))
    queue = next((one.queue for one in statuses if one.rank == record.rank), "")
    return rm_messages.AddApplicationRequest(
        application_id=record.application_id,
        queue_name=queue,
        ugi=rm_messages.UserGroupInformation(user=record.user, groups=record.groups),
        tags=record.tags,
        execution_timeout_milli_seconds=round(record.placeholder_timeout_s * 1000) if record.placeholder_ask else 0,
        placeholder_ask=record.placeholder_ask,
        gang_scheduling_style=record.gang_style,
    )


def _build_rejected(record: RejectionRecord) -> rm_messages.AddApplicationRequest:
    """A submission that was refused; its tags and asks are not recorded."""
    return rm_messages.AddApplicationRequest(
        application_id=record.application_id,
        queue_name=record.requested_queue,
        ugi=rm_messages.UserGroupInformation(user=record.user, groups=list(record.groups)),
    )


def _build_nodes(node: NodeRecord, before: NodeRecord | None) -> Iterable[rm_messages.NodeInfo]:
    if before is None:
        action = rm_messages.NODE_CREATE if node.schedulable else rm_messages.NODE_CREATE_DRAIN
        yield rm_messages.NodeInfo(
            node_id=node.node_id, action=action, attributes=node.attributes, schedulable_resource=node.capacity
        )
        return
    if node.capacity != before.capacity or node.attributes != before.attributes:
        update = rm_messages.NODE_UPDATE
        yield rm_messages.NodeInfo(
            node_id=node.node_id, action=update, attributes=node.attributes, schedulable_resource=node.capacity
        )
    if node.schedulable != before.schedulable:
        action = rm_messages.NODE_DRAIN_TO_SCHEDULABLE if node.schedulable else rm_messages.NODE_DRAIN
        yield rm_messages.NodeInfo(node_id=node.node_id, action=action)


def _build_foreign(record: ForeignRecord) -> rm_messages.Allocation:
    return rm_messages.Allocation(
        allocation_key=record.key,
        node_id=record.node_id,
        resource_per_alloc=record.resources,
        priority=record.priority,
        allocation_tags=record.tags,
    )


def _build_release(application_id: str, key: str) -> rm_messages.AllocationRequest:
    release = rm_messages.AllocationRelease(
        application_id=application_id, allocation_key=key, termination_type=rm_messages.STOPPED_BY_RM
    )
    return rm_messages.AllocationRequest(
        releases=rm_messages.AllocationReleasesRequest(allocations_to_release=[release])
    )
