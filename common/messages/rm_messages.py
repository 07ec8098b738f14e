"""The RM protocol: the messages between an RM and the core, and their parts.

An RM sends commands (`NodeRequest`, `ApplicationRequest`, `AllocationRequest`, ...) to a partition and calls
(`RegisterResourceManager`, `UpdateConfiguration`, ...) to the core. A partition sends news (`AllocationResponse`, ...),
and the core sends replies. `docs/protocol.md` describes the protocol; its reference is generated from this file.
"""

from typing import Final

from msgspec import field
from msgspec.structs import replace

from yunishard.common.messages.kinds import Amount, Call, Command, Int32, Message, News, Part, Reply, Resources

UPDATE_ITEMS_MAX: Final = 50_000
"""The maximum of nodes, applications, asks and releases in one update, together; a larger update is refused
(`malformed`). A partition processes an update as a whole, and a worker that is busy for too long is replaced by one
that would receive the same update.
"""


# Parts of commands and news ------------------------------------------------------------------------------------------


class PreemptionPolicy(Part, frozen=True):
    """Whether an allocation may be a victim (`self`) and may make victims (`other`); absent means neither."""

    allow_preempt_self: bool = False
    allow_preempt_other: bool = False


class Allocation(Part, frozen=True):
    """An ask (without a node), or an allocation (with its node)."""

    allocation_key: str = ""
    application_id: str = ""
    partition_name: str = ""
    resource_per_alloc: Resources = field(default_factory=dict)
    node_id: str = ""
    priority: Int32 = 0
    allocation_tags: dict[str, str] = field(default_factory=dict)
    task_group_name: str = ""
    placeholder: bool = False
    originator: bool = False
    preemption_policy: PreemptionPolicy | None = None


class AllocationRelease(Part, frozen=True):
    """The end of one allocation or ask. Without a key it is all of the application, without an application a foreign
    allocation.
    """

    partition_name: str = ""
    application_id: str = ""
    allocation_key: str = ""
    termination_type: int = 0
    message: str = ""


class AllocationReleasesRequest(Part, frozen=True):
    """The releases of an `AllocationRequest`; a struct of its own because the scheduler interface nests it."""

    allocations_to_release: list[AllocationRelease] = field(default_factory=list)


class _Result(Part, frozen=True, kw_only=True):
    """A part of news, with the partition that sent them."""

    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class RejectedAllocation(_Result, frozen=True):
    """An ask or allocation that the core refused, with the reason."""

    allocation_key: str
    application_id: str = ""
    reason: str = ""


class UserGroupInformation(Part, frozen=True):
    """The user that submits, with all groups in order."""

    user: str = ""
    groups: list[str] = field(default_factory=list)


class AddApplicationRequest(Part, frozen=True):
    """A new application. Placement rules decide whether it gets the requested queue."""

    application_id: str = ""
    queue_name: str = ""
    partition_name: str = ""
    ugi: UserGroupInformation = field(default_factory=UserGroupInformation)
    tags: dict[str, str] = field(default_factory=dict)
    execution_timeout_milli_seconds: Amount = 0
    placeholder_ask: Resources = field(default_factory=dict)
    gang_scheduling_style: str = ""


class RemoveApplicationRequest(Part, frozen=True):
    """An application to remove with its allocations and asks."""

    application_id: str = ""
    partition_name: str = ""


class AcceptedApplication(_Result, frozen=True):
    """An application that was placed in a queue."""

    application_id: str


class RejectedApplication(_Result, frozen=True):
    """An application that was refused, with the reason."""

    application_id: str
    reason: str = ""


class UpdatedApplication(_Result, frozen=True):
    """A state that an application entered, with the cause, at a time in Unix nanoseconds."""

    application_id: str
    state: str
    state_transition_timestamp: int = 0
    message: str = ""


class PredicatesArgs(Part, frozen=True):
    """The question whether an ask may run on a node. Without `allocate`: whether the node may be reserved for it, or
    whether the ask may replace its placeholder there.
    """

    allocation_key: str
    node_id: str
    allocate: bool = False


class Verdict(PredicatesArgs, frozen=True):
    """The answer about one ask and node."""

    refusal: str = ""
    """The reason, for operators; empty for yes."""


class PreemptionPredicatesArgs(Part, frozen=True):
    """The question whether an ask would run on a node without these victims, removed in their order."""

    allocation_key: str
    node_id: str
    preempt_allocation_keys: list[str]
    start_index: int = 0


class PreemptionVerdict(Part, frozen=True):
    """The answer about one ask and node."""

    allocation_key: str
    node_id: str
    index: int = 0
    """Of the last victim that is needed."""
    refusal: str = ""
    """The reason, for operators, if all victims are not enough; empty for yes."""


class NodeInfo(Part, frozen=True):
    """A node and the change of it; `action` is one of the `NODE_` numbers below."""

    node_id: str = ""
    action: int = 0
    attributes: dict[str, str] = field(default_factory=dict)
    schedulable_resource: Resources | None = None


class AcceptedNode(_Result, frozen=True):
    """A node that joined its partition."""

    node_id: str


class EventRecord(_Result, frozen=True):
    """An event. Its type, change and detail are numbers of the scheduler interface."""

    type: int
    object_id: str
    message: str = ""
    timestamp_nano: int = 0
    event_change_type: int = 0
    event_change_detail: int = 0
    reference_id: str = ""
    resource: Resources = field(default_factory=dict)


class UpdateContainerSchedulingState(_Result, frozen=True):
    """The result of an attempt to place an ask. Only `SCHEDULING_FAILED` is sent, for asks that a larger cluster could
    place.
    """

    application_id: str
    allocation_key: str
    state: int = 0
    reason: str = ""


class RejectedNode(_Result, frozen=True):
    """A node that was refused, with the reason."""

    node_id: str
    reason: str = ""


NODE_CREATE: Final = 1

NODE_UPDATE: Final = 2

NODE_DRAIN: Final = 3

NODE_DECOMMISSION: Final = 4

NODE_DRAIN_TO_SCHEDULABLE: Final = 5

NODE_CREATE_DRAIN: Final = 6

NODE_CREATIONS: Final = (NODE_CREATE, NODE_CREATE_DRAIN)
"""The actions that create a node."""

UNKNOWN_TERMINATION: Final = 0

STOPPED_BY_RM: Final = 1

TIMEOUT: Final = 2

PREEMPTED_BY_SCHEDULER: Final = 3

PLACEHOLDER_REPLACED: Final = 4

SCHEDULING_FAILED_ON_RM: Final = 5

SCHEDULING_FAILED: Final = 4
"""The state of an ask that found no node, in an `UpdateContainerSchedulingState`."""


# Commands ------------------------------------------------------------------------------------------------------------


class NodeRequest(Command, frozen=True):
    """Nodes to create, change or remove. The partition of a node is its attribute `si/node-partition`."""

    nodes: list[NodeInfo] = field(default_factory=list)
    rm_id: str = ""


class ApplicationRequest(Command, frozen=True):
    """Applications to add and to remove; the new ones are processed first."""

    new: list[AddApplicationRequest] = field(default_factory=list)
    remove: list[RemoveApplicationRequest] = field(default_factory=list)
    rm_id: str = ""


class AllocationRequest(Command, frozen=True):
    """Asks, running allocations and releases; `allocations` are processed before `releases`."""

    allocations: list[Allocation] = field(default_factory=list)
    releases: AllocationReleasesRequest = field(default_factory=AllocationReleasesRequest)
    rm_id: str = ""


class SyncBegin(Command, frozen=True):
    """The start of a full report of this partition, as the RM would send it to an empty one. Until `SyncEnd` the
    partition places nothing, and accepts items that it has already, if they are equal.
    """

    reason: str = ""
    """For operators."""


class SyncEnd(Command, frozen=True):
    """The end of a full report, answered by `SyncDone`: the partition removes items that were not reported since
    `SyncBegin`. The numbers count the items that the RM reported; if another number arrived, nothing is removed.
    """

    nodes: int = 0
    applications: int = 0
    allocations: int = 0
    """Asks, allocations and foreign allocations."""


class PredicatesAnswered(Command, frozen=True):
    """The answer to the `PredicatesAsked` of this number. Not numbered: if it is lost, the question is repeated."""

    question: int
    verdicts: list[Verdict] = field(default_factory=list)
    """Pairs without a verdict are refused."""
    preemptions: list[PreemptionVerdict] = field(default_factory=list)
    """Likewise."""


UPDATES: Final[dict[str, type[Command]]] = {
    kind.__name__: kind for kind in (NodeRequest, ApplicationRequest, AllocationRequest)
}
"""The commands that carry items, by kind."""

NUMBERED: Final[dict[str, type[Command]]] = {**UPDATES, "SyncBegin": SyncBegin, "SyncEnd": SyncEnd}
"""The numbered commands by kind: updates, and the start and end of a full report."""


class StateDumpAnswered(Command, frozen=True):
    """The answer to the `StateDumpAsked` of this number. Not numbered."""

    question: int
    text: str = ""
    """The state of the RM, as a JSON object of at most STATE_DUMP_BYTES_MAX bytes."""
    problem: str = ""
    """The reason if there is none, for operators."""


UNNUMBERED: Final = frozenset({"Ack", PredicatesAnswered.__name__, StateDumpAnswered.__name__})
"""The kinds of commands that are never numbered, and that are dropped without a refusal if they cannot be delivered."""


# News ----------------------------------------------------------------------------------------------------------------


class NodeResponse(News, frozen=True):
    """The results for the created nodes of one request."""

    accepted: list[AcceptedNode] = field(default_factory=list)
    rejected: list[RejectedNode] = field(default_factory=list)
    cause: int = 0


class ApplicationResponse(News, frozen=True):
    """The results for new applications, and states that applications entered."""

    accepted: list[AcceptedApplication] = field(default_factory=list)
    rejected: list[RejectedApplication] = field(default_factory=list)
    updated: list[UpdatedApplication] = field(default_factory=list)
    cause: int = 0
    """Number of the input or scheduling cycle, within the partition, that this follows from."""


class AllocationResponse(News, frozen=True):
    """New allocations, releases, refusals. A message carries entries of one list only, which keeps their order."""

    new: list[Allocation] = field(default_factory=list)
    released: list[AllocationRelease] = field(default_factory=list)
    rejected_allocations: list[RejectedAllocation] = field(default_factory=list)
    cause: int = 0


class ReleasesIgnored(News, frozen=True):
    """Releases of one `AllocationRequest` that had no effect, because there is no such partition, or it has no such
    application, ask or allocation. Sent for diagnosis only: it is not numbered, so it is lost if the connection breaks.
    """

    ignored: list[AllocationRelease] = field(default_factory=list)
    """The releases as the RM sent them, with the reason as `message`; at most RELEASES_IGNORED_MAX."""
    more: int = 0
    """The number of further ones of the same request."""


RELEASES_IGNORED_MAX: Final = 100
"""Items of a `ReleasesIgnored`; further ones are only counted."""


class EventResponse(News, frozen=True):
    """Events that concern the RM."""

    events: list[EventRecord] = field(default_factory=list)
    cause: int = 0
    missed: int = 0
    """The number of events since the last message of this kind that are only in the event history."""


class PredicatesAsked(News, frozen=True):
    """The question which asks may run on which nodes, to RMs with this capability, not numbered."""

    question: int
    deadline_milli_seconds: int
    """A later answer may have no effect."""
    asked: list[PredicatesArgs]
    preemptions: list[PreemptionPredicatesArgs] = field(default_factory=list)
    """Only with the capability `preemption-predicates`; at most one for an ask and node."""


PREDICATES: Final = "predicates"
"""The capability of an RM that decides which ask may run on which node."""

PREEMPTION_PREDICATES: Final = "preemption-predicates"
"""The capability of an RM with `predicates` that also decides whether an ask would run on a node without victims."""


class StateDumpAsked(News, frozen=True):
    """The request for the RM's own state, for a state dump; to RMs with this capability, not numbered."""

    question: int
    deadline_milli_seconds: int
    """A later answer has no effect."""


STATE_DUMP: Final = "state-dump"
"""The capability of an RM that reports its own state on request."""

STATE_DUMP_BYTES_MAX: Final = 1 << 20
"""Bytes of that state; the state dump contains a note in place of a longer one."""

QUESTIONS: Final = frozenset({PredicatesAsked.__name__, StateDumpAsked.__name__})
"""The kinds of news that are questions: not numbered, each with at most one answer."""


class SyncDone(News, frozen=True):
    """The answer to `SyncEnd`: the items that the partition removed, by id. The partition places again."""

    nodes: list[str] = field(default_factory=list)
    applications: list[str] = field(default_factory=list)
    allocations: list[str] = field(default_factory=list)
    problem: str = ""
    """The reason if nothing was removed, because the numbers differ or the worker was restarted during the report; then
    the RM sends a new full report.
    """
    cause: int = 0


EVENTS: Final = "events"
"""The capability of an RM that receives all events as they happen."""


CAPABILITIES: Final = (PREDICATES, PREEMPTION_PREDICATES, EVENTS, STATE_DUMP)


class SchedulingStateResponse(News, frozen=True):
    """Asks that only a larger cluster could place, each reported once."""

    updated: list[UpdateContainerSchedulingState] = field(default_factory=list)
    cause: int = 0


# Calls and replies ---------------------------------------------------------------------------------------------------


class RegisterResourceManager(Call, frozen=True):
    """Join the core. A new session of a known RM removes all that the old session had; no configuration means the
    core's own.
    """

    rm_id: str = ""
    version: str = ""
    policy_group: str = ""
    build_info: dict[str, str] = field(default_factory=dict)
    config: str = ""
    extra_config: dict[str, str] = field(default_factory=dict)
    capabilities: list[str] = field(default_factory=list)
    """Those of `CAPABILITIES` that the RM supports. Unknown ones are ignored."""


class UpdateConfiguration(Call, frozen=True):
    """Run another configuration, in all partitions or in none; answered by `ConfigurationUpdated` or `Refused`. The
    settings in `extra_config` replace the old ones even if the configuration is refused.
    """

    rm_id: str = ""
    policy_group: str = ""
    config: str = ""
    extra_config: dict[str, str] = field(default_factory=dict)


class Resume(Call, frozen=True):
    """Continues the session after a broken connection or a restart: both sides retransmit what the other has not
    acknowledged. With a partition in the header only that partition resumes: the maps name it alone, and the other
    partitions are not interrupted. The core refuses that with `busy` if all partitions have to resume.
    """

    received: dict[str, int] = field(default_factory=dict)
    """Partition to the number of the last news that the RM has; partitions left out have none."""
    lives: dict[str, int] = field(default_factory=dict)
    """Partition to the generation of this number; partitions left out are in their first, 0."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Partition to the number of the last command that the core has acknowledged in that generation; the RM no longer
    keeps it. A partition that has fewer lost its state (`PartitionRestarted`). Partitions left out have none.
    """
    configuration_number: int = 0
    """The highest number of a configuration that the RM has received in this session. A core with a lower one lost its
    latest state, and refuses with `unknown-session`."""


class Leave(Call, frozen=True):
    """The RM leaves permanently: its partitions are removed with everything in them. Answered by `Left`."""

    reason: str = ""
    """For operators."""


class Left(Reply, frozen=True):
    """The RM was removed. It may register again, in a new session."""


class Registered(Reply, frozen=True):
    """The RM is registered, or has resumed, with these partitions (normalised names) and the configuration of this
    checksum. With a partition in the header it answers a `Resume` of that partition, and has only its name and
    generation.
    """

    partitions: list[str]
    checksum: str = ""
    lives: dict[str, int] = field(default_factory=dict)
    """Partition to its generation where that is not the first."""
    heartbeat_milli_seconds: int = 0
    """Interval of the `Heartbeat` of an idle peer; 0 for none."""
    silence_milli_seconds: int = 0
    """Time without a message after which a peer is considered disconnected; 0 for never."""
    window_messages: int = 0
    """The window of each lane: messages that may be in flight without acknowledgement."""
    window_bytes: int = 0
    """The same in bytes of bodies. While fewer are in flight, one more message of any size may follow."""
    configuration_number: int = 0
    """Number of the configuration in force. It grows with each change; `Resume` repeats it."""


class ConfigurationUpdated(Reply, frozen=True):
    """The RM's partitions run this configuration. Without a `ref` in the header the change was not the RM's own."""

    checksum: str
    partitions: list[str]
    """Normalised names of all partitions from now on; commands to others are refused."""
    lives: dict[str, int] = field(default_factory=dict)
    """Partition to its generation where that is not the first: removing and adding a partition starts a new one."""
    author: str = ""
    """The author of the change; empty for the RM itself."""
    configuration_number: int = 0
    """As in `Registered`."""


class ResumeWanted(Reply, frozen=True):
    """A process between the RM and its partitions has restarted, so that messages may be lost: the RM has to send
    `Resume`. With a partition in the header only that partition has to resume: its worker has restarted. An RM may
    resume all partitions all the same.
    """

    reason: str = ""


class Goodbye(Reply, frozen=True):
    """The core stops, or the process that the RM is connected to. The session is kept: after the pause the RM connects
    again and resumes.
    """

    reason: str = ""
    retry_after_milli_seconds: int = 0


class Heartbeat(Message, frozen=True):
    """A sign of life between the two ends of a connection. Any other message is one, too."""

    incarnation: str = ""
    """Identifies a start of the sending process, where its peer has to detect a restart."""


class Refused(Reply, frozen=True):
    """A message that had no effect: its `seq`, or `ref` in the header, a code for programs, a reason for operators."""

    code: str
    reason: str
    seq: int = 0
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class Ack(Command, frozen=True):
    """Carries only the `ack` of its header, if there is no other message to carry it."""


class Received(News, frozen=True):
    """The core's `Ack`: carries only the `ack` of its header."""


class PartitionRestarted(News, frozen=True):
    """The partition lost its state, because its journal is damaged, missing or older than the RM's state. Numbers start
    again in the generation of the header, and the RM sends a full report, between `SyncBegin` and `SyncEnd`.
    """

    reason: str = ""
    """The problem of the journal, for operators."""


# Counting a full report -----------------------------------------------------------------------------------------------


def count_reported(before: SyncEnd, command: Command) -> SyncEnd:
    """Add the created nodes, new applications and allocations of a command to the counts of a full report."""
    match command:
        case NodeRequest(nodes=nodes):
            created = sum(one.action in NODE_CREATIONS for one in nodes)
            return replace(before, nodes=before.nodes + created)
        case ApplicationRequest(new=new):
            return replace(before, applications=before.applications + len(new))
        case AllocationRequest(allocations=allocations):
            return replace(before, allocations=before.allocations + len(allocations))
    return before
