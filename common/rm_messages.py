"""The RM protocol: every message between a resource manager and the core, and the parts that they are made of.

An RM sends commands (`NodeRequest`, `ApplicationRequest`, `AllocationRequest`, ...) to a partition and calls
(`RegisterResourceManager`, `UpdateConfiguration`, ...) to the core. A partition sends news (`AllocationResponse`, ...),
and the core sends replies. `docs/protocol.md` describes the protocol; its reference is generated from this file.
"""

from typing import Final

from msgspec import field

from common.messages import Amount, Call, Command, Int32, Message, News, Part, Reply, Resources

UPDATE_ITEMS_MAX: Final = 50_000
"""Nodes, applications, asks and releases in one update, together. A partition takes an update as a whole, and nothing
else meanwhile; one with more is refused (`malformed`), for a worker that is busy for too long is replaced, and its
successor would be given the same.
"""


# Parts of commands and news ------------------------------------------------------------------------------------------


class PreemptionPolicy(Part, frozen=True):
    """Whether an allocation may be a victim (`self`) and may make victims (`other`); absent means neither."""

    allow_preempt_self: bool = False
    allow_preempt_other: bool = False


class Allocation(Part, frozen=True):
    """An ask (no node) or something that already runs (with its node)."""

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
    """One allocation or ask that ends; no key means all of the application, no application means a foreign
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


class RejectedAllocation(Part, frozen=True):
    """An ask or allocation that the core refused, and why."""

    allocation_key: str
    application_id: str = ""
    reason: str = ""
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class UserGroupInformation(Part, frozen=True):
    """Who submits, with all groups in order."""

    user: str = ""
    groups: list[str] = field(default_factory=list)


class AddApplicationRequest(Part, frozen=True):
    """A new application. The queue is a wish: placement rules decide."""

    application_id: str = ""
    queue_name: str = ""
    partition_name: str = ""
    ugi: UserGroupInformation = field(default_factory=UserGroupInformation)
    tags: dict[str, str] = field(default_factory=dict)
    execution_timeout_milli_seconds: Amount = 0
    placeholder_ask: Resources = field(default_factory=dict)
    gang_scheduling_style: str = ""


class RemoveApplicationRequest(Part, frozen=True):
    """An application to remove with everything it has."""

    application_id: str = ""
    partition_name: str = ""


class AcceptedApplication(Part, frozen=True):
    """An application that has its queue."""

    application_id: str
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class RejectedApplication(Part, frozen=True):
    """An application that was refused, and why."""

    application_id: str
    reason: str = ""
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class UpdatedApplication(Part, frozen=True):
    """A state that an application entered, with the cause, at a time in Unix nanoseconds."""

    application_id: str
    state: str
    state_transition_timestamp: int = 0
    message: str = ""
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class PredicatesArgs(Part, frozen=True):
    """May this ask run on this node? Without `allocate`: may the node be kept for it, or may it take the place of its
    placeholder there?
    """

    allocation_key: str
    node_id: str
    allocate: bool = False


class Verdict(PredicatesArgs, frozen=True):
    """The answer to that."""

    refusal: str = ""
    """Why not, in words that people will read; empty for yes."""


class NodeInfo(Part, frozen=True):
    """A node and what is to happen to it; `action` is one of the `NODE_` numbers below."""

    node_id: str = ""
    action: int = 0
    attributes: dict[str, str] = field(default_factory=dict)
    schedulable_resource: Resources | None = None


class AcceptedNode(Part, frozen=True):
    """A node that joined its partition."""

    node_id: str
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class EventRecord(Part, frozen=True):
    """Something that happened, with the numbers of `common/event_codes.py`."""

    type: int
    object_id: str
    message: str = ""
    timestamp_nano: int = 0
    event_change_type: int = 0
    event_change_detail: int = 0
    reference_id: str = ""
    resource: Resources = field(default_factory=dict)
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class UpdateContainerSchedulingState(Part, frozen=True):
    """What became of an attempt to place an ask. Only `SCHEDULING_FAILED` is ever told, for asks that a larger cluster
    would help.
    """

    application_id: str
    allocation_key: str
    state: int = 0
    reason: str = ""
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class RejectedNode(Part, frozen=True):
    """A node that was refused, and why."""

    node_id: str
    reason: str = ""
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


NODE_CREATE: Final = 1

NODE_UPDATE: Final = 2

NODE_DRAIN: Final = 3

NODE_DECOMMISSION: Final = 4

NODE_DRAIN_TO_SCHEDULABLE: Final = 5

NODE_CREATE_DRAIN: Final = 6

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
    """Nodes that appear, change or go. The partition of a node is its attribute `si/node-partition`."""

    nodes: list[NodeInfo] = field(default_factory=list)
    rm_id: str = ""


class ApplicationRequest(Command, frozen=True):
    """Applications that come and go; the new ones are handled first."""

    new: list[AddApplicationRequest] = field(default_factory=list)
    remove: list[RemoveApplicationRequest] = field(default_factory=list)
    rm_id: str = ""


class AllocationRequest(Command, frozen=True):
    """Asks, running allocations and releases; `allocations` are handled before `releases`."""

    allocations: list[Allocation] = field(default_factory=list)
    releases: AllocationReleasesRequest = field(default_factory=AllocationReleasesRequest)
    rm_id: str = ""


class SyncBegin(Command, frozen=True):
    """The RM is about to report everything that it has in this partition, as it would to an empty one. Until `SyncEnd`
    nothing new is placed, and what is reported a second time in the same words is accepted.
    """

    reason: str = ""
    """For people."""


class SyncEnd(Command, frozen=True):
    """That was everything: what was not mentioned since `SyncBegin` is removed, answered by `SyncDone`. The numbers are
    those that the RM has reported, and where they are not those that arrived nothing is removed.
    """

    nodes: int = 0
    applications: int = 0
    allocations: int = 0
    """Asks, allocations and foreign allocations."""


class PredicatesAnswered(Command, frozen=True):
    """The answer to the `PredicatesAsked` of this number. Not numbered: what is lost is asked again."""

    question: int
    verdicts: list[Verdict] = field(default_factory=list)
    """What is left out is refused."""


UPDATES: Final[dict[str, type[Command]]] = {
    kind.__name__: kind for kind in (NodeRequest, ApplicationRequest, AllocationRequest)
}
"""The commands that carry something to do, by kind."""

NUMBERED: Final[dict[str, type[Command]]] = {**UPDATES, "SyncBegin": SyncBegin, "SyncEnd": SyncEnd}
"""The commands that are numbered, by kind: updates, and what is said around a whole series of them."""


class StateDumpAnswered(Command, frozen=True):
    """The answer to the `StateDumpAsked` of this number. Not numbered."""

    question: int
    text: str = ""
    """What the RM knows, as a JSON object of at most STATE_DUMP_BYTES_MAX bytes."""
    problem: str = ""
    """Why there is none, in words that people will read."""


UNNUMBERED: Final = frozenset({"Ack", PredicatesAnswered.__name__, StateDumpAnswered.__name__})
"""The kinds of commands that are never numbered, and of which nothing comes back where nobody can take them."""


# News ----------------------------------------------------------------------------------------------------------------


class NodeResponse(News, frozen=True):
    """What became of the created nodes of one request."""

    accepted: list[AcceptedNode] = field(default_factory=list)
    rejected: list[RejectedNode] = field(default_factory=list)
    cause: int = 0


class ApplicationResponse(News, frozen=True):
    """What became of new applications, and states that applications entered."""

    accepted: list[AcceptedApplication] = field(default_factory=list)
    rejected: list[RejectedApplication] = field(default_factory=list)
    updated: list[UpdatedApplication] = field(default_factory=list)
    cause: int = 0
    """Number of the input or scheduling cycle, within the partition, that this follows from."""


class AllocationResponse(News, frozen=True):
    """New allocations, releases, refusals. A message carries entries of one sort only, so their order is never lost."""

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
    """How many others of the same request are not in the list."""


RELEASES_IGNORED_MAX: Final = 100
"""Items of a `ReleasesIgnored`; further ones are only counted."""


class EventResponse(News, frozen=True):
    """Events that concern the RM."""

    events: list[EventRecord] = field(default_factory=list)
    cause: int = 0
    missed: int = 0
    """How many events since the last message of this kind are not in this one: they are only in the history."""


class PredicatesAsked(News, frozen=True):
    """Which asks may run where? Answered by `PredicatesAnswered`; only for RMs with this capability, not numbered."""

    question: int
    deadline_milli_seconds: int
    """An answer that takes longer may be of no use."""
    asked: list[PredicatesArgs]


PREDICATES: Final = "predicates"
"""The capability of an RM that has a say in which ask may run on which node."""


class StateDumpAsked(News, frozen=True):
    """What does the RM itself know? Somebody looks for a fault. Answered by `StateDumpAnswered`; only for RMs with this
    capability, not numbered.
    """

    question: int
    deadline_milli_seconds: int
    """An answer that takes longer is of no use."""


STATE_DUMP: Final = "state-dump"
"""The capability of an RM that says what it knows when it is asked."""

STATE_DUMP_BYTES_MAX: Final = 1 << 20
"""Of what it says then; a longer text is left out of the state dump, which says so."""

QUESTIONS: Final = frozenset({PredicatesAsked.__name__, StateDumpAsked.__name__})
"""The kinds of news that are questions: not numbered, each with at most one answer."""


class SyncDone(News, frozen=True):
    """The answer to `SyncEnd`: what the RM did not mention, by id, and is gone. The partition places again."""

    nodes: list[str] = field(default_factory=list)
    applications: list[str] = field(default_factory=list)
    allocations: list[str] = field(default_factory=list)
    problem: str = ""
    """Why nothing was removed, if the numbers did not agree; then the RM begins a new `SyncBegin`."""
    cause: int = 0


EVENTS: Final = "events"
"""The capability of an RM that wants to hear of events as they happen, besides those that concern it alone."""


class SchedulingStateResponse(News, frozen=True):
    """Asks that only a larger cluster would help, each told once."""

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
    """What it can do, or wants, that not every RM does: `predicates`, `events`, `state-dump`. Unknown ones are
    ignored.
    """


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
    """Partition to the life that this number belongs to; partitions left out are in their first, 0."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Partition to the number of the last command that the core has acknowledged in that life; the RM does not keep it
    any more. A partition that has fewer begins anew (`PartitionRestarted`). Partitions left out have none.
    """


class Leave(Call, frozen=True):
    """The RM goes for good: its partitions end with everything in them. Answered by `Left`, once and for all."""

    reason: str = ""
    """For people."""


class Left(Reply, frozen=True):
    """Nothing is left of this RM; it may register again, in a new session."""


class Registered(Reply, frozen=True):
    """The RM is registered, or has resumed, with these partitions (normalised names) and the configuration of this
    checksum. With a partition in the header it answers a `Resume` of that partition, and has only its name and life.
    """

    partitions: list[str]
    checksum: str = ""
    lives: dict[str, int] = field(default_factory=dict)
    """Partition to its life where that is not the first."""
    heartbeat_milli_seconds: int = 0
    """How often a peer that has nothing else to say sends a `Heartbeat`; 0 for never."""
    silence_milli_seconds: int = 0
    """A peer that has said nothing for so long counts as gone; 0 for never."""
    window_messages: int = 0
    """The credit of each lane: so many messages may be on their way without their acknowledgement."""
    window_bytes: int = 0
    """The same in bytes of bodies. As long as fewer are on their way one more message may go, of any size."""


class ConfigurationUpdated(Reply, frozen=True):
    """The RM's partitions run this configuration. Without a `ref` in the header somebody else changed it."""

    checksum: str
    partitions: list[str]
    """Normalised names of all partitions from now on; what is sent to others is refused."""
    lives: dict[str, int] = field(default_factory=dict)
    """Partition to its life where that is not the first: one that went and came back numbers anew."""
    author: str = ""
    """Who changed it; empty for the RM itself."""


class ResumeWanted(Reply, frozen=True):
    """A process between the RM and its partitions has restarted, so that messages may be lost: the RM has to send
    `Resume`. With a partition in the header only that partition has to resume: its worker has restarted. An RM may
    resume all partitions all the same.
    """

    reason: str = ""


class Goodbye(Reply, frozen=True):
    """The core stops, or what the RM talks to does. Nothing of the session is lost: the RM connects again and resumes,
    not before the pause has passed.
    """

    reason: str = ""
    retry_after_milli_seconds: int = 0


class Heartbeat(Message, frozen=True):
    """From either end of a link, to the other end only: still here. Any other message says so too."""

    incarnation: str = ""
    """Of the process that sends it, where its peer has to notice that it began anew: another text, another process."""


class Refused(Reply, frozen=True):
    """A message that was not acted on: which (`seq`, or `ref` in the header), a code for programs, a text for
    people.
    """

    code: str
    reason: str
    seq: int = 0
    partition_name: str = ""
    """Normalised; set by the SDK from the header, and not sent."""


class Ack(Command, frozen=True):
    """Carries only the `ack` of its header, when there is nothing else to say."""


class Received(News, frozen=True):
    """The core's `Ack`: carries only the `ack` of its header."""


class PartitionRestarted(News, frozen=True):
    """This partition lost what it knew, as its journal is damaged, gone or older than what the RM knows: numbering
    starts anew in the life that the header says, and the RM reports everything again, between `SyncBegin` and
    `SyncEnd`.
    """

    reason: str = ""
    """What is wrong with the journal, for people."""


# Counting a full report -----------------------------------------------------------------------------------------------


def count_reported(command: Command) -> SyncEnd:
    """The nodes that are created, the applications that are new, and every allocation; what goes counts for nothing."""
    match command:
        case NodeRequest(nodes=nodes):
            return SyncEnd(nodes=sum(one.action in (NODE_CREATE, NODE_CREATE_DRAIN) for one in nodes))
        case ApplicationRequest(new=new):
            return SyncEnd(applications=len(new))
        case AllocationRequest(allocations=allocations):
            return SyncEnd(allocations=len(allocations))
    return SyncEnd()


def add_counts(one: SyncEnd, other: SyncEnd) -> SyncEnd:
    """The sums."""
    return SyncEnd(
        nodes=one.nodes + other.nodes,
        applications=one.applications + other.applications,
        allocations=one.allocations + other.allocations,
    )
