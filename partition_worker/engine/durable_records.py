"""The durable records of a partition: what its journal and its snapshots hold, and the image that they add up to.

A record is the value of one object after a change (an after-image), or its removal. A snapshot has the records of all
objects; a step of the journal has those of the objects that it changed. To recover, records are put into an image,
later ones in place of earlier ones, and the partition is built from that (`restoring.py`). No decision is made again,
so a journal does not depend on the release, the settings or the plug-ins that wrote it. Sums, orders, indexes, caches
and failed attempts are derived, never stored.

Records are MessagePack maps with the names of the fields, and `record` names the kind. Fields with their default are
left out, unknown fields are ignored. So a release may add a field with a default and read all earlier records; anything
else, also a new kind of record or a new value of a state, needs a new FORMAT (`journal/database.py`), so that earlier
releases leave the journal as it is. The messages of the RM protocol and the configuration inside records follow the
same rule.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import ClassVar, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import Struct

from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import AddApplicationRequest, Allocation, AllocationRelease, PreemptionPolicy
from yunishard.common.resources import EncodedSum


class Record(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag_field="record"):
    """Base of all records."""

    identified_by: ClassVar[str] = ""
    """The field that identifies the object among those of its kind; empty if there is only one."""

    @property
    def identity(self) -> str | int:
        """Identifies the object among those of its kind."""
        identity: str | int = getattr(self, self.identified_by) if self.identified_by else ""
        return identity


class OperatorMark(Struct, frozen=True, omit_defaults=True):
    """The user who stopped a queue or cordoned a node, the time, and the reason."""

    user: str = ""
    at_ns: int = 0
    reason: str = ""


class PartitionRecord(Record, frozen=True, tag="Partition"):
    """The partition itself."""

    config: PartitionConfig
    resolver: str
    """The type of its group resolver: that of its first configuration."""
    created_ns: int
    retired: bool = False
    stops: dict[str, OperatorMark] = {}
    """By path: the queues that an operator stopped, existing or not."""
    cordons: dict[str, OperatorMark] = {}
    """By id: the nodes that an operator cordoned, existing or not."""


class ReportRecord(Record, frozen=True, tag="FullReport"):
    """A full report of the RM is not complete yet."""


class QueueRecord(Record, frozen=True, tag="Queue"):
    """A queue. The settings of a queue that is configured follow from the configuration, and are left out."""

    identified_by = "path"
    path: str
    rank: int
    state: Literal["Active", "Draining"] = "Active"
    draining_since_ns: int = 0
    quota_preemption_at: float = 0.0
    lacking: EncodedSum = {}
    settings: "QueueSettings | None" = None


class QueueSettings(Struct, frozen=True, omit_defaults=True):
    """The settings of a queue that is dynamic, or no longer configured."""

    leaf: bool
    managed: bool = False
    max_applications: int = 0
    maximum: EncodedSum | None = None
    guaranteed: EncodedSum | None = None
    properties: dict[str, str] = {}
    template: "Template | None" = None
    submit_acl: "AclRecord | None" = None
    admin_acl: "AclRecord | None" = None
    admin_text: str = ""


class AclRecord(Struct, frozen=True, omit_defaults=True):
    """An access control list."""

    everybody: bool = False
    users: list[str] = []
    groups: list[str] = []


class Template(Struct, frozen=True, omit_defaults=True):
    """The settings of a new dynamic leaf."""

    max_applications: int = 0
    properties: dict[str, str] = {}
    maximum: Resources | None = None
    guaranteed: Resources | None = None


class NodeRecord(Record, frozen=True, tag="Node"):
    """A node."""

    identified_by = "node_id"
    node_id: str
    rank: int
    capacity: Resources
    attributes: dict[str, str] = {}
    schedulable: bool = True


class ApplicationRecord(Record, frozen=True, tag="Application"):
    """An application, running or ended, as it was submitted."""

    identified_by = "rank"
    application_id: str
    rank: int
    user: str
    groups: list[str] = []
    tags: dict[str, str] = {}
    placeholder_ask: Resources = {}
    gang_style: str = "Soft"
    placeholder_timeout_s: float = 0.0


class StatusRecord(Record, frozen=True, tag="ApplicationStatus"):
    """The fields of an application that change."""

    identified_by = "rank"
    rank: int
    """Of the application."""
    queue: str
    state: str
    submitted_ns: int
    started_ns: int = 0
    finished_ns: int = 0
    max_allocated: EncodedSum = {}
    """The maximum before its usage last fell; what it uses now may be more, and is in the records of its allocations.
    """
    usage: "list[UsageRecord]" = []
    task_groups: "list[TaskGroupRecord]" = []
    state_timeout_at: float | None = None
    """When its state timer ends, in Unix seconds; None if there is none."""
    placeholder_timeout_at: float | None = None
    back_off_until: float = 0.0
    charged_group: str | None = None
    """The group that it is charged to."""
    is_counted: bool = False
    """Whether it counts as running for its user and group."""
    is_allocating: bool = False
    """Whether it counts as running for the application limits of its queues before it runs."""


class StateLogRecord(Record, frozen=True, tag="ApplicationStates"):
    """The states that an application entered, with the times."""

    identified_by = "rank"
    rank: int
    """Of the application."""
    entered: list[tuple[int, str]] = []


class UsageRecord(Struct, frozen=True):
    """Amounts times seconds of ended allocations."""

    use: str
    instance_type: str
    amounts: EncodedSum


class TaskGroupRecord(Struct, frozen=True, omit_defaults=True):
    """The counters of a task group with placeholders."""

    name: str
    minimum: Resources
    count: int = 0
    replaced: int = 0
    timed_out: int = 0


class AllocationRecord(Record, frozen=True, tag="Allocation"):
    """An ask or allocation of an application."""

    identified_by = "key"
    key: str
    application_id: str
    resources: Resources
    created_ns: int
    priority: int = 0
    node_id: str = ""
    tags: dict[str, str] = {}
    task_group: str = ""
    placeholder: bool = False
    originator: bool = False
    preemption_policy: PreemptionPolicy | None = None
    bound_ns: int = 0
    rank: int = 0
    is_rm_asked: bool = False
    """Whether the RM evaluates predicates for it."""
    recovered: bool = False
    released: bool = False
    preempted: bool = False
    preempted_at: float = 0.0
    is_overdue: bool = False
    replaces: str = ""
    """The key of the placeholder that it replaces once that is released."""
    placeholder_used: bool = False
    placeholder_created_ns: int = 0
    preemption_triggered: bool = False
    scale_up_told: bool = False


class ForeignRecord(Record, frozen=True, tag="Foreign"):
    """A foreign allocation."""

    identified_by = "key"
    key: str
    node_id: str
    resources: Resources
    created_ns: int
    priority: int = 0
    tags: dict[str, str] = {}


class ReservationRecord(Record, frozen=True, tag="Reservation"):
    """A node that is reserved for an ask."""

    identified_by = "ask_key"
    ask_key: str
    node_id: str
    created: float
    rank: int
    keeps_room: bool = False
    """Whether the queues of the ask keep room for it."""
    keeps_since: float = 0.0
    """When victims were preempted for the ask, in Unix seconds; 0.0 without."""


class RejectionRecord(Record, frozen=True, tag="Rejection"):
    """A refused application, kept for queries."""

    identified_by = "application_id"
    application_id: str
    queue_name: str
    """The queue that was asked for; empty if placement chose none."""
    user: str
    groups: tuple[str, ...]
    at_ns: int
    reason: str
    """The reason that the RM received."""
    requested_queue: str = ""
    """The queue that the submission named."""


class SubmissionRecord(Record, frozen=True, tag="Submission"):
    """A submission that waits for a group lookup."""

    submission: AddApplicationRequest

    @property
    def identity(self) -> str:
        return self.submission.application_id


class HeldUpdateRecord(Record, frozen=True, tag="HeldUpdate"):
    """An ask or release of an application that waits for a group lookup."""

    identified_by = "number"
    application_id: str
    number: int
    """In order of arrival, in the whole partition."""
    ask: Allocation | None = None
    release: AllocationRelease | None = None


class PreemptionRecord(Record, frozen=True, tag="Preemption"):
    """An entry of the preemption log: the victims that were preempted together, and the reason."""

    at: float
    """Unix seconds."""
    reason: str
    queue: str
    """Path of the queue of the ask, or of the queue whose quota was enforced."""
    application_id: str
    """The application of the ask; empty for a quota."""
    ask_key: str
    """Empty for a quota."""
    node_id: str
    """The node that is reserved for the ask; empty for a quota."""
    victims: "tuple[VictimRecord, ...]"
    """The first victims."""
    victim_count: int
    """Number of all victims."""
    resources: EncodedSum
    """The usage of all victims."""
    lost: EncodedSum
    """Amount times seconds, over all victims."""

    @property
    def identity(self) -> str:
        return f"{self.at} {self.queue} {self.ask_key} {self.victims[0].key}"  # an ask may preempt twice at one time


class VictimRecord(Struct, frozen=True):
    """A preempted allocation."""

    key: str
    application_id: str
    queue: str
    node_id: str
    resources: Resources
    ran_s: int
    """Whole seconds since it got its node."""


class CooldownRecord(Record, frozen=True, tag="PreemptionCooldown"):
    """The last time that one queue preempted from another; both by path."""

    winner: str
    loser: str
    at: float
    """Unix seconds."""
    cool_down_s: float

    @property
    def identity(self) -> str:
        return f"{self.winner} {self.loser}"


class Removed(Record, frozen=True, tag="Removed"):
    """An object is gone."""

    kind: str
    key: str | int


AnyRecord = (
    PartitionRecord
    | ReportRecord
    | QueueRecord
    | NodeRecord
    | ApplicationRecord
    | StatusRecord
    | AllocationRecord
    | ForeignRecord
    | ReservationRecord
    | RejectionRecord
    | SubmissionRecord
    | HeldUpdateRecord
    | StateLogRecord
    | PreemptionRecord
    | CooldownRecord
    | Removed
)

_R = TypeVar("_R", bound=Record)

decode_records: Final = msgspec.msgpack.Decoder(list[AnyRecord]).decode
"""Decode the records of a step or of a part of a snapshot. Raises msgspec.MsgspecError."""


def kind_of(kind: type[Record]) -> str:
    """The name of a kind of records in the format."""
    return str(kind.__struct_config__.tag)


_KINDS: Final[dict[str, type[Record]]] = {kind_of(kind): kind for kind in get_args(AnyRecord)}


class Image:
    """The latest record of each object, in order of first mention."""

    def __init__(self) -> None:
        self._by_kind: dict[type[Record], dict[str | int, Record]] = {kind: {} for kind in _KINDS.values()}

    def apply(self, records: Iterable[Record]) -> None:
        """Apply the records of a step, in order."""
        for record in records:
            if isinstance(record, Removed):
                if record.kind in _KINDS:
                    self._by_kind[_KINDS[record.kind]].pop(record.key, None)
            else:
                self._by_kind[type(record)][record.identity] = record

    def find_previous(self, record: Record) -> Record | None:
        """The record that this one replaces, or removes."""
        kind, identity = type(record), record.identity
        if isinstance(record, Removed):
            kind, identity = _KINDS.get(record.kind, Removed), record.key
        return self._by_kind[kind].get(identity)

    def of(self, kind: type[_R]) -> Iterator[_R]:
        """The records of a kind."""
        return (record for record in self._by_kind[kind].values() if isinstance(record, kind))

    def find(self, kind: type[_R], identity: str | int = "") -> _R | None:
        """The record of an object."""
        record = self._by_kind[kind].get(identity)
        return record if isinstance(record, kind) else None

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(records.values() for records in self._by_kind.values())
