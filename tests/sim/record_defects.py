"""Deliberate defects of the records of a partition, of its snapshots, and of recovery from both.

Each takes the place of a function while a seed runs, as those in `mutations.py` do. Those of a record are where it is
built, so that steps and snapshots have them. Not here: how soon each is found (`test_record_defects.py`).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from tests.sim.disk import Writer
from tests.sim.faults import Traits, often
from tests.sim.mutations import Defect, replaced
from yunishard.common.messages.control_messages import Repeat
from yunishard.common.messages.journal_messages import NO_RECORDS, TICK, Append, Step
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.session import Outbox
from yunishard.common.messages.wire import Outgoing
from yunishard.partition_worker import partition_host, recovery, worker
from yunishard.partition_worker.engine import durable_records, recording
from yunishard.partition_worker.engine.durable_records import (
    AllocationRecord,
    ApplicationRecord,
    CooldownRecord,
    ForeignRecord,
    HeldUpdateRecord,
    Image,
    NodeRecord,
    PartitionRecord,
    PreemptionRecord,
    QueueRecord,
    Record,
    RejectionRecord,
    Removed,
    ReservationRecord,
    StateLogRecord,
    StatusRecord,
    SubmissionRecord,
)
from yunishard.partition_worker.engine.nodes.nodes import Nodes
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.ready_queues import Readiness, SwapCandidates
from yunishard.partition_worker.engine.reservation_index import ReservationIndex
from yunishard.partition_worker.engine.state import PartitionState, Timers
from yunishard.partition_worker.engine.user_limits import Usage
from yunishard.partition_worker.recovery import Recovery
from yunishard.partition_worker.worker import Worker

# A record forgets a field ---------------------------------------------------------------------------------------------


def _named(defect: Defect, name: str) -> Defect:
    defect.__name__ = name
    return defect


def _writes(change: Callable[[Record], Record | None], name: str) -> Defect:
    """Each record is written as this makes it; None for not at all."""
    before = recording._build_records

    def build(*args: object) -> Iterator[Record]:
        found = (change(one) for one in before(*args))  # type: ignore[arg-type]  # as it was called
        return (one for one in found if one is not None)

    return _named(lambda: replaced(recording, "_build_records", build), name)


def forget(kind: type[Record], **values: object) -> Defect:
    """Records of this kind always have these values."""
    name = f"forget_{durable_records.kind_of(kind)}_{'_'.join(values)}"
    return _writes(lambda one: replace(one, **values) if isinstance(one, kind) else one, name)


def leave_out(kind: type[Record]) -> Defect:
    """There are no records of this kind."""
    name = f"leave_out_{durable_records.kind_of(kind)}"
    return _writes(lambda one: None if isinstance(one, kind) else one, name)


def forget_the_settings_of_a_queue() -> Iterator[None]:
    """A queue that is not configured is recorded without its properties and limits."""

    def change(one: Record) -> Record:
        if isinstance(one, QueueRecord) and one.settings is not None:
            bare = replace(one.settings, properties={}, maximum=None, template=None)
            return replace(one, settings=bare)
        return one

    return _writes(change, "")()


def keep_what_is_removed() -> Iterator[None]:
    """A removal is written, and ignored in recovery."""
    before = Image.apply

    def apply(image: Image, records: Iterable[Record]) -> None:
        before(image, [one for one in records if not isinstance(one, Removed)])

    return replaced(Image, "apply", apply)


# Recovery does not rebuild something ----------------------------------------------------------------------------------


def _restores(change: Callable[[Partition], object], name: str) -> Defect:
    """A partition is restored, and then changed."""
    before = recovery.restore_partition

    def restore(image: Image, **options: object) -> Partition:
        partition = before(image, **options)  # type: ignore[arg-type]  # as it was called
        change(partition)
        return partition

    return _named(lambda: replaced(recovery, "restore_partition", restore), name)


def skip(owner: type, method: str) -> Defect:
    """A partition is restored without these calls."""
    before = recovery.restore_partition

    def restore(image: Image, **options: object) -> Partition:
        for _ in replaced(owner, method, lambda *args, **names: None):
            return before(image, **options)  # type: ignore[arg-type]  # as it was called
        raise AssertionError

    return _named(lambda: replaced(recovery, "restore_partition", restore), f"skip_{owner.__name__}_{method}")


def _empty_nodes(partition: Partition) -> None:
    for node in partition.nodes:
        node.allocated_sum = []
        node.available_sum = list(node.capacity_sum)


def _count_applications_again(partition: Partition) -> None:
    partition.application_ranks = 0


# A step is applied wrongly --------------------------------------------------------------------------------------------


def tell_twice() -> Iterator[None]:
    """What a step told the RM is told twice after a recovery."""
    before = Recovery.apply_step

    def apply_step(one: Recovery, step: Step) -> None:
        before(one, step)
        for sent in step.told:
            one.outbox.add(sent.kind, sent.body)
        one.outbox.last -= len(step.told)

    return replaced(Recovery, "apply_step", apply_step)


def _reads(change: Callable[[Step], Step], name: str) -> Defect:
    """Each step is applied as this makes it."""
    before = Recovery.apply_step
    return _named(lambda: replaced(Recovery, "apply_step", lambda one, step: before(one, change(step))), name)


def apply_the_last_step_first() -> Iterator[None]:
    """The records of the last two steps are applied in the wrong order."""
    before = recovery.recover

    def recover(
        host: partition_host.PartitionHost, snapshot: Iterable[bytes] | None, steps: Iterable[Step]
    ) -> Recovery:
        every = list(steps)
        if len(every) > 1:
            last, other = every[-1], every[-2]
            every[-2:] = [replace(other, records=last.records), replace(last, records=other.records)]
        return before(host, snapshot, every)

    return replaced(worker, "recover", recover)


def apply_the_snapshot_last() -> Iterator[None]:
    """The records of the snapshot take the place of later ones."""
    before = Recovery.restore
    read = Recovery.read_snapshot
    snapshots: dict[int, list[Record]] = {}

    def read_snapshot(one: Recovery, content: Iterable[bytes]) -> None:
        read(one, content)
        snapshots[id(one)] = list(one.image)

    def restore(one: Recovery, host: partition_host.PartitionHost) -> None:
        one.image.apply(snapshots.pop(id(one), []))
        before(one, host)

    for _ in replaced(Recovery, "read_snapshot", read_snapshot):
        yield from replaced(Recovery, "restore", restore)


# A change is not marked -----------------------------------------------------------------------------------------------


def _every(state: PartitionState, key: object) -> bool:
    return True


def unmark(kind: str, which: Callable[[PartitionState, object], bool] = _every, name: str = "") -> Defect:
    """Changes of some objects of a kind are not marked."""
    before = recording.collect_changes

    def collect_changes(state: PartitionState) -> list[Record]:
        marks = getattr(state.changes, kind)
        if isinstance(marks, dict):
            for key in [key for key in marks if which(state, key)]:
                del marks[key]
        else:
            setattr(state.changes, kind, type(marks)())
        return before(state)

    return _named(
        lambda: replaced(partition_host, "collect_changes", collect_changes), f"unmark_{kind}_{name}".rstrip("_")
    )


# Snapshots ------------------------------------------------------------------------------------------------------------


def snapshot_without(kind: type[Record]) -> Defect:
    """Snapshots have no records of this kind."""
    before = recording.list_everything

    def list_everything(state: PartitionState) -> Iterator[Record]:
        return (one for one in before(state) if not isinstance(one, kind))

    name = f"snapshot_without_{durable_records.kind_of(kind)}"
    return _named(lambda: replaced(recovery, "list_everything", list_everything), name)


def snapshot_of_a_later_step() -> Iterator[None]:
    """A snapshot is taken when it is written, and so has later steps than it says."""
    before = Writer._write

    def write(one: Writer, kind: str, what: Append | int | None, data: bytes) -> None:
        before(one, kind, what, b"".join(one._snapshot()) if kind == "TakeSnapshot" else data)

    return replaced(Writer, "_write", write)


# News -----------------------------------------------------------------------------------------------------------------


def forget_what_is_unacknowledged() -> Iterator[None]:
    """A snapshot has no messages to the RM."""
    before = Recovery.read_snapshot

    def read_snapshot(one: Recovery, content: Iterable[bytes]) -> None:
        before(one, content)
        one.outbox = Outbox(one.outbox.last)

    return replaced(Recovery, "read_snapshot", read_snapshot)


def number_again() -> Iterator[None]:
    """A snapshot does not have the number of the last message to the RM, if all are acknowledged."""
    before = Recovery.read_snapshot

    def read_snapshot(one: Recovery, content: Iterable[bytes]) -> None:
        before(one, content)
        if not len(one.outbox):
            one.outbox = Outbox()

    return replaced(Recovery, "read_snapshot", read_snapshot)


def repeat_what_was_acknowledged() -> Iterator[None]:
    """What the RM says that it has received does not count when it resumes."""
    before = Worker._resume

    def resume(one: Worker, header: Header, repeat: Repeat) -> list[Outgoing]:
        return before(one, replace(header, ack=0), repeat)

    return replaced(Worker, "_resume", resume)


def forget_what_was_received() -> Iterator[None]:
    """A snapshot does not have the number of the RM's last command."""
    before = Recovery.read_snapshot

    def read_snapshot(one: Recovery, content: Iterable[bytes]) -> None:
        before(one, content)
        one.received = 0

    return replaced(Recovery, "read_snapshot", read_snapshot)


RECOVERIES: Final = often("worker dies", "snapshot is taken")
"""The traits of worlds that show a defect of recovery soon."""

TRAITS: Final[dict[str, Traits]] = {
    "leave_out_HeldUpdate": {**RECOVERIES, "resolver": "os", "rms": 4},
    "leave_out_Submission": {**RECOVERIES, "resolver": "os"},
    "unmark_submissions": {**RECOVERIES, "resolver": "os"},
    "forget_what_is_unacknowledged": often("worker dies", "snapshot is taken", "RM is slow"),
    "unmark_report": often("worker dies", "RM dies"),
    "snapshot_of_a_later_step": often("worker dies", "snapshot is taken", "disk is slow"),
}
"""Other traits, by the name of the defect that needs them."""

CONSEQUENCES: Final[tuple[Defect, ...]] = (
    forget(AllocationRecord, node_id=""),
    forget(AllocationRecord, resources={"vcore": 500}),
    forget(AllocationRecord, priority=0),
    forget(AllocationRecord, placeholder=False),
    forget(AllocationRecord, task_group=""),
    forget(AllocationRecord, replaces=""),
    forget(AllocationRecord, scale_up_told=False),
    forget(AllocationRecord, preemption_policy=None),
    forget(ApplicationRecord, user="ann"),
    forget(ApplicationRecord, placeholder_ask={}),
    forget(ApplicationRecord, placeholder_timeout_s=900.0),
    forget(StatusRecord, state="Accepted"),
    forget(StatusRecord, state_timeout_at=None),
    forget(StatusRecord, placeholder_timeout_at=None),
    forget(StatusRecord, task_groups=[]),
    forget(StatusRecord, is_counted=False),
    forget(NodeRecord, schedulable=True),
    forget(NodeRecord, capacity={}),
    forget(NodeRecord, attributes={}),
    forget(ForeignRecord, resources={}),
    forget(PartitionRecord, stops={}),
    forget(PartitionRecord, cordons={}),
    forget(QueueRecord, state="Active"),
    forget(QueueRecord, draining_since_ns=0),
    leave_out(StatusRecord),
    leave_out(HeldUpdateRecord),
    leave_out(SubmissionRecord),
    leave_out(ForeignRecord),
    leave_out(QueueRecord),
    keep_what_is_removed,
    skip(Queue, "add_pending"),
    skip(Queue, "add_allocated"),
    skip(Queue, "add_preempting"),
    skip(Queue, "add_running"),
    skip(Queue, "exchange_priority"),
    skip(Usage, "restore"),
    skip(ReservationIndex, "insert"),
    skip(Readiness, "update_cluster_size"),
    skip(Nodes, "reopen"),
    skip(Timers, "start"),
    _restores(_empty_nodes, "forget_what_nodes_use"),
    _restores(_count_applications_again, "count_applications_again"),
    tell_twice,
    _reads(lambda step: replace(step, records=NO_RECORDS) if step.kind == TICK else step, "skip_decisions"),
    _reads(lambda step: replace(step, told=[]), "forget_what_was_told"),
    _reads(lambda step: replace(step, received=0), "forget_the_number_of_the_command"),
    apply_the_last_step_first,
    apply_the_snapshot_last,
    unmark("allocations"),
    unmark("allocations", lambda state, key: key in state.allocations, "that_are_there"),
    unmark("allocations", lambda state, key: key not in state.allocations, "that_are_gone"),
    unmark("applications"),
    unmark(
        "applications",
        lambda state, rank: not any(one.rank == rank for one in state.applications.values()),
        "that_ended",
    ),
    unmark("submitted"),
    unmark("nodes"),
    unmark("queues"),
    unmark("foreign"),
    unmark("reservations"),
    unmark("submissions"),
    unmark("partition"),
    *map(snapshot_without, (AllocationRecord, ApplicationRecord, StatusRecord, NodeRecord, QueueRecord, ForeignRecord)),
    snapshot_of_a_later_step,
    forget_what_is_unacknowledged,
    number_again,
    repeat_what_was_acknowledged,
    forget_what_was_received,
)
"""Defects that are found without a comparison of a worker and its records: by what follows from a wrong recovery."""

COMPARED: Final[tuple[Defect, ...]] = (
    forget_the_settings_of_a_queue,
    forget(AllocationRecord, preempted=False),
    forget(AllocationRecord, preemption_triggered=False),
    forget(AllocationRecord, placeholder_used=False),
    forget(AllocationRecord, bound_ns=0),
    forget(StatusRecord, usage=[]),
    forget(StatusRecord, max_allocated={}),
    forget(StatusRecord, finished_ns=0),
    forget(StatusRecord, is_allocating=False),
    forget(StatusRecord, charged_group=None),
    forget(ApplicationRecord, groups=[]),
    forget(PartitionRecord, retired=False),
    leave_out(PreemptionRecord),
    leave_out(CooldownRecord),
    leave_out(RejectionRecord),
    leave_out(StateLogRecord),
    leave_out(ReservationRecord),
    snapshot_without(ReservationRecord),
    skip(SwapCandidates, "offer"),
    unmark("report"),
    unmark("entered"),
    unmark("preemptions"),
    unmark("cooldowns"),
    unmark("rejections"),
    snapshot_without(PreemptionRecord),
    snapshot_without(StateLogRecord),
    skip(Queue, "count_allocating"),
)
"""Defects that only the comparison finds soon: of what is shown to people, or what seldom matters."""
