"""Requests of the web service to the broker and the workers: read-only queries, and changes that an operator requests.

Each request except `ListPartitions` is answered by an `Answer` with the same `ref`.
"""

from typing import Annotated, Final, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

from yunishard.common.messages.kinds import Control, Part, Resources


class Actor(Part, frozen=True):
    """The authenticated requester of a change or a query."""

    user: str
    groups: list[str] = field(default_factory=list)
    scheduler_admin: bool = False
    """Whether the scheduler's own access control list includes the user; then queues are not checked."""


class Query(Control, frozen=True):
    """A read-only query to a partition; answered by an `Answer` with the same `ref`. Without a partition in the header
    the broker answers: with the metrics of all processes but the workers (`metrics`).
    """

    what: str
    name: str = ""
    """The partition's name for the answer."""
    args: dict[str, str] = field(default_factory=dict)
    viewer: "Actor | None" = None
    """The user for whom the answer is redacted by the access control lists of the queues; None for no redaction."""
    known: str = ""
    """The `version` of an earlier answer to the same query; status 304 means that it is still valid."""


class Answer(Control, frozen=True):
    """An HTTP status, and a JSON document for the client."""

    status: int
    body: bytes
    version: str = ""
    """Version of the state behind the answer: while it is the same, so is the answer. Empty if unknown."""
    next: str = ""
    """The `after` of the list's next page; empty at its end."""
    took_micro_seconds: int = 0
    """Time that the process spent on the answer."""


class ProcessHealth(Part, frozen=True):
    """Problems of one process at this moment (`common/process/health.py`); each is empty if there is none."""

    slow_writes: str = ""
    """To its journal, or the broker's record."""
    clock: str = ""
    memory: str = ""


class WorkerHealth(Struct):
    """The answer to the query `health`: the findings of an audit of the partition, and problems at this moment."""

    rm_errors: dict[str, int] = {}
    """Errors that the resource manager made in its asks and allocations within the last ten minutes, by cause."""
    negative: int = 0
    """How many of the total capacity and the root's allocated resources are negative."""
    inconsistent: bool = False
    """Whether the total differs from the sum of the node capacities."""
    nodes: int = 0
    reservations: int = 0
    negative_nodes: list[str] = []
    """Each node once for each of its negative amounts."""
    inconsistent_nodes: list[str] = []
    orphans_on_nodes: list[str] = []
    """Allocations on a node that no application has."""
    orphans_of_applications: list[str] = []
    """Allocations of an application that are not on their node."""
    drift: list[str] = []
    """Sums that differ from their parts."""
    syncing: bool = False
    journal_problem: str = ""
    poison: str = ""
    """Why a message was quarantined within the last hour; empty if none was."""
    process: ProcessHealth = ProcessHealth()


NOT_MODIFIED: Final = 304
"""The status of an answer without a body: the earlier answer is still valid."""

TOO_LONG: Final = 413
"""The status of an answer that would be too long, to a query with pages."""


# Changes to one partition --------------------------------------------------------------------------------------------


class KillApplication(Control, frozen=True):
    """Front end to worker: fail an application and release all its allocations. Answered by an `Answer` with the same
    `ref`.
    """

    application_id: str
    actor: Actor
    seen_only: bool = False
    """Whether an application that the actor may not see is reported as missing."""
    name: str = ""
    """The partition's name for the answer, as in `Query`; empty for its plain name."""


class MoveApplication(Control, frozen=True):
    """Front end to worker: move an application to another leaf. Answered by an `Answer` with the same `ref`."""

    application_id: str
    queue: str
    """Full path of an existing leaf."""
    actor: Actor
    seen_only: bool = False
    """As in `KillApplication`."""
    name: str = ""
    """As in `KillApplication`."""


QueueAction = Literal["stop", "start"]


class ChangeQueue(Control, frozen=True):
    """Front end to worker: stop a queue, so that it and those below it take no new applications and get nothing new, or
    start it again. Answered by an `Answer` with the same `ref`.
    """

    queue: str
    """Full path."""
    action: QueueAction
    actor: Actor
    reason: str = ""
    """Why it is stopped, for other operators."""
    seen_only: bool = False
    """As in `KillApplication`."""
    name: str = ""
    """As in `KillApplication`."""


NodeAction = Literal["cordon", "uncordon", "drain"]


class ChangeNode(Control, frozen=True):
    """Front end to worker: keep new allocations from a node (`cordon`), also ask the RM to release what runs there
    (`drain`), or let it take allocations again (`uncordon`). Answered by an `Answer` with the same `ref`.
    """

    node_id: str
    action: NodeAction
    actor: Actor
    reason: str = ""
    """Why it is cordoned, for other operators."""
    name: str = ""
    """As in `KillApplication`."""


OPERATIONS: Final = frozenset({"KillApplication", "MoveApplication", "ChangeQueue", "ChangeNode"})
"""Kinds of the changes that operators make to one object of a partition."""

WORKER_CHANGES: Final = OPERATIONS | {"Schedule"}
"""Kinds of the changes that the worker of a partition makes and answers."""

STEPS_MAX: Final = 1000
"""Decisions of one request: the worker does nothing else meanwhile, and all are in its answer."""


class Schedule(Control, frozen=True):
    """Front end to worker: make so many decisions, fewer if nothing is left to decide. Answered by an `Answer` with the
    same `ref` and a JSON document: the number `made`, the `decisions`, and `idle`, whether nothing is left.
    """

    steps: Annotated[int, Meta(ge=1, le=STEPS_MAX)]
    name: str = ""
    """As in `KillApplication`."""


# Configuration -------------------------------------------------------------------------------------------------------


class ChangeConfig(Control, frozen=True):
    """Front end to broker: give the RM of the header this configuration. Answered by an `Answer` with a JSON
    document: `checksum`, `version`, `partitions`, whether it is written back to the watched `file`, and the
    `followers` of that file who get it too; or with an error status the problems.
    """

    config: str
    author: str
    origin: str = "api"
    """The origin for the history: `api`, or `rollback to N`."""
    expected: str = ""
    """Checksum that has to be in force (If-Match), otherwise the answer is 412; empty for any."""
    overwrite: bool = False
    """Whether to overwrite the watched file even if it was edited and the edit is not in force; else the answer is
    409.
    """


class ReadConfig(Control, frozen=True):
    """Front end to broker: what the RM of the header runs, or has run. Answered by an `Answer` with a JSON document."""

    what: str
    """`current`, `history`, `version` with its number, or `default`: what an RM gets that sends no configuration."""
    version: int = 0
    extra: dict[str, str] = field(default_factory=dict)
    """The `extra` of the answer; only set by the broker, which adds it for `current`."""


class ConfigText(Struct, frozen=True, kw_only=True):
    """The document with the answer to `ReadConfig`, except for `history`: a configuration as it was written."""

    checksum: str
    config: str
    extra: dict[str, str] = {}
    """The RM's settings; only for `current`."""


class ReadHosts(Control, frozen=True):
    """Front end to broker: list the hosts. Answered by an `Answer` with a JSON document."""


HostAction = Literal["drain", "undrain", "remove", "rebalance"]


class ChangeHosts(Control, frozen=True):
    """Front end to broker: move the partitions of a host to others (`drain`), use the host again (`undrain`), discard a
    lost one (`remove`), or spread the partitions evenly (`rebalance`). Answered by an `Answer` with the same document
    as `ReadHosts`, once the action is recorded; the partitions move afterwards.
    """

    action: HostAction
    host: str = ""
    """Empty to rebalance."""


class EndSession(Control, frozen=True):
    """Front end to broker: end the session of the RM of the header, and its partitions, as its pause timeout would.
    Answered by an `Answer` with a JSON document: the `partitions` that end; or with 404 if no such RM is registered,
    with 409 if it is connected.
    """

    actor: Actor
    force: bool = False
    """Whether to end it even while it is connected."""


Change = (
    ChangeConfig | ChangeHosts | ChangeNode | ChangeQueue | EndSession | KillApplication | MoveApplication | Schedule
)
"""Requests that change something. Without an answer, the change may have been made all the same."""


# Registered RMs and partitions ---------------------------------------------------------------------------------------


class ListPartitions(Control, frozen=True):
    """Front end to broker: list the registered RMs and their partitions."""


class PartitionEntry(Part, frozen=True):
    """A partition: its normalised name, its own name within the RM, and the RM."""

    full_name: str
    name: str
    rm_id: str
    epoch: int = 0
    """Of its worker's lease."""
    life: int = 0
    """In the RM's session."""
    session: str = ""
    """Of the RM."""
    problem: str = ""
    """Why its worker cannot start; empty once it has started."""
    ending: str = ""
    """How its last worker crashed before it was ready; likewise."""

    @property
    def generation(self) -> str:
        """A text that changes with each generation of the partition."""
        return f"{self.session} {self.life}"


class ManagerEntry(Part, frozen=True):
    """An RM, also one without partitions. Times in Unix nanoseconds."""

    rm_id: str
    away_since_ns: int = 0
    """Time of its disconnection; 0 while it is connected."""
    nodes_astray: int = 0
    """Nodes that it has registered for partitions that it does not have, since the broker began."""


class RefusedChange(Part, frozen=True):
    """A configuration change, or a registration, that was refused."""

    rm_id: str
    origin: str
    """`registration`, `update` (by the RM), `file`, `api`, or `rollback to N`."""
    author: str
    reason: str
    at_ns: int


class ConfigRefusals(Part, frozen=True):
    """Configurations that are not in force because they were refused."""

    file: str = ""
    """Why the text of the watched file is not in force; empty if it is, or if there is none."""
    keeping: dict[str, str] = field(default_factory=dict)
    """RM id to why it keeps its configuration in place of the text of the file."""
    latest: RefusedChange | None = None
    """Since the broker started."""


class PartitionList(Control, frozen=True):
    """All partitions, and the build information of every RM, in the order of registration."""

    partitions: list[PartitionEntry]
    build_information: dict[str, dict[str, str]]
    started_ns: int
    """When the broker started, in Unix nanoseconds."""
    managers: list[ManagerEntry] = field(default_factory=list)
    record_problem: str = ""
    """Why the broker's record could not be written the last time; empty if it could."""
    process: ProcessHealth = ProcessHealth()
    """Of the broker."""
    refusals: ConfigRefusals = ConfigRefusals()
    refused: dict[str, str] = field(default_factory=dict)
    """Host to the latest other machine that was refused as this host (`HostView.refused`)."""


# Recorded events ------------------------------------------------------------------------------------------------------
#
# The answers of a worker about its recorded events: for the history (query `account`), and for event streams (query
# `event-lines`). Records are encoded as arrays, as there may be ten thousand of them each second. The parts of an
# answer are of the same moment. The REST API's form of events is in `common/rest/records.py`.

EVENTS_MAX: Final = 10_000
"""Events of one answer, about a hundredth of a second for the worker."""

ENDED_MAX: Final = 1_000
"""Ended applications in one answer."""

KEYS_MAX: Final = 100_000
"""Keys of running allocations in one answer. A partition with more sends none."""


class AllocationRecord(Struct, frozen=True, array_like=True, gc=False):
    """An event of an allocation."""

    at_ns: int
    key: str
    application_id: str
    queue: str
    user: str
    node_id: str
    resources: Resources


class Began(AllocationRecord, frozen=True, array_like=True, tag="began", gc=False):
    """The allocation was placed on its node."""


class Ended(AllocationRecord, frozen=True, array_like=True, tag="ended", gc=False):
    """The allocation was released with this type (`NODE_REMOVED` if its node was removed)."""

    how: str


class Failing(Struct, frozen=True, array_like=True, tag="failing", gc=False):
    """An application fails or has failed, with the reason."""

    at_ns: int
    application_id: str
    message: str


Happened = Began | Ended | Failing


class EndedApplication(Struct, frozen=True, array_like=True, gc=False):
    """An application that has completed, failed, was removed or rejected. Times in Unix nanoseconds, 0 is never."""

    application_id: str
    queue: str
    user: str
    groups: list[str]
    state: str
    submitted_ns: int
    started_ns: int
    finished_ns: int
    """Unique in the partition, and increasing."""
    message: str = ""
    used: dict[str, Resources] = field(default_factory=dict)
    """Amounts times seconds of all its allocations, by instance type."""
    preempted: dict[str, Resources] = field(default_factory=dict)
    placeholders: dict[str, Resources] = field(default_factory=dict)


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """The present usage of a queue with all below it, or of a user or group."""

    name: str
    running: int
    """Applications."""
    allocated: Resources
    pending: Resources = field(default_factory=dict)
    """Asks without a node; of queues only."""


class Sample(Struct, frozen=True, array_like=True):
    """The present usage of a partition, without queues, users and groups that use nothing."""

    running: int
    """Applications in the state Running."""
    allocated: int
    """Allocations since the partition began."""
    released: int
    """Releases, also of allocations that an RM reported."""
    capacity: Resources
    used: Resources
    queues: list[Usage]
    users: list[Usage]
    groups: list[Usage]


class Account(Struct, frozen=True, kw_only=True):
    """The answer to the query `account`."""

    instance: str
    """Identifies the event ring buffer: numbers of another one do not apply."""
    tracked: bool
    """Whether events are recorded at present."""
    first: int
    """The number of the first event of the answer: the requested one, or a later one if that was overwritten."""
    next: int
    """The number after the last event of the answer."""
    first_ns: int = 0
    """Time of the first event; 0 if there is none."""
    last_ns: int = 0
    """Time of the last event."""
    happened: list[Happened]
    ended: list[EndedApplication]
    """The oldest ones that finished after the requested time, in this order."""
    sample: Sample | None = None
    """If requested."""
    keys: list[str] | None = None
    """Of all running allocations, if requested, not too many, and no later event exists."""


# Events for streams ---------------------------------------------------------------------------------------------------

EVENT_LINES: Final = "event-lines"
"""The `what` of the query. Its `args`: `start`, the number of the first event, or nothing for none; `count`, the
maximum of events.
"""

COUNT_MAX: Final = 1000
"""The maximum of events in one answer, some ten milliseconds for the worker."""

RecordT = TypeVar("RecordT")


class EventLines(Struct, Generic[RecordT], frozen=True, kw_only=True):
    """Events from `first` on, in order."""

    instance: str
    """Identifies the event ring buffer."""
    tracking: bool
    """Whether events are recorded at present."""
    streams_max: int
    """The maximum of streams. Lowering it closes none."""
    streams_per_host_max: int
    """The maximum of streams with the same `Host` header."""
    lowest: int
    """The number of the oldest event in the buffer."""
    end: int
    """The number of the next event."""
    first: int
    """The number of the first event of the answer: the requested one, or the oldest if that was overwritten."""
    records: list[RecordT]
