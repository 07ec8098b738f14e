"""Every message of the system, by the way it travels: the file to read first.

A message is a header and a body. The header says where the message goes and is all that the proxy and the broker look
at; the body is one of the structs below, a MessagePack map whose keys are the field names of the scheduler interface
(`applicationID`, `allocationKey`, ...) with default values left out. The class name is the `kind` in the header.

Not here: how bytes become messages (`wire.py`), numbering and acknowledgement (`outbox.py`), what a message does.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct, field

from common.config.model import PartitionConfig

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

Amount = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Resources = dict[str, Amount]
"""Resource type to quantity in base units (`memory` in bytes, `vcore` in thousandths). A missing type is 0."""


def interface_name(name: str) -> str:
    """The scheduler interface's spelling of a field: `application_id` is `applicationID`, `queue_name` is
    `queueName`.
    """
    first, *rest = name.split("_")
    camel = first + "".join(word.capitalize() for word in rest)
    return camel[:-2] + "ID" if camel.endswith("Id") else camel


class Header(Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """What a message is and where it goes; on the wire an array in this order. Unknown trailing elements are
    ignored.
    """

    kind: str
    rm: str = ""
    """RM id; empty between processes when no RM is meant."""
    partition: str = ""
    """Normalised name (`<rm-id>_<name>`); empty when the message is about none, or about several (see
    `common/split.py`).
    """
    session: str = ""
    """The RM's session: one life of one RM process."""
    seq: int = 0
    """Number of this message in its lane (session, partition, direction), from 1; 0 for what is not numbered."""
    ack: int = 0
    """Highest number received in the opposite lane; 0 says nothing."""
    epoch: int = 0
    """The lease under which a worker speaks; between broker and worker only."""
    ref: str = ""
    """Of a call or question: chosen by who asks, repeated by who answers."""
    life: int = 0
    """How often the partition has started anew in this session: numbers of an earlier life mean nothing in this one.
    An RM repeats what the last `PartitionRestarted` said.
    """


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=interface_name):
    """A piece of a message, as the scheduler interface names and nests it."""


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=interface_name):
    """A whole body. Subclasses register under their class name, which is the `kind` in the header."""

    kinds: ClassVar[dict[str, type["Message"]]] = {}

    def __init_subclass__(cls) -> None:
        """Make the class known under its name."""
        super().__init_subclass__()
        Message.kinds[cls.__name__] = cls


class Command(Message, frozen=True):
    """From the resource manager to a partition: numbered and acknowledged."""


class News(Message, frozen=True):
    """From a partition to its resource manager: numbered and acknowledged."""


class Call(Message, frozen=True):
    """From the resource manager to the core as a whole; answered by one `Reply` with the same `ref`."""


class Reply(Message, frozen=True):
    """From the core as a whole to the resource manager."""


class Control(Message, frozen=True):
    """Between our own processes."""


UPDATE_ITEMS_MAX: Final = 50_000
"""Nodes, applications, asks and releases in one update, together. A partition takes an update as a whole, and nothing
else meanwhile; one with more is refused (`malformed`), for a worker that is busy for too long is replaced, and its
successor would be given the same.
"""


# Parts of commands and news -----------------------------------------------------------------------------------------


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


# Commands -----------------------------------------------------------------------------------------------------------


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


# News ---------------------------------------------------------------------------------------------------------------


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


# Calls and replies --------------------------------------------------------------------------------------------------


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
    """Go on after a broken connection, in the same session: what was sent and not acknowledged is sent again, both
    ways.
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
    """The RM is in (or in again), with these partitions (normalised names) and the configuration of this checksum."""

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
    """Something between the RM and its partitions began anew, and what was on its way may be lost: the RM is to send
    `Resume`, upon which both sides repeat what the other does not have.
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


# Control: roll-out of a configuration -------------------------------------------------------------------------------


class PrepareConfig(Control, frozen=True):
    """Broker to worker: could you run this? Answered by a `ConfigVote`; nothing changes yet."""

    rollout: int
    config: PartitionConfig
    live: bool = False
    """As a change of the partition that runs; otherwise from an empty one."""


class ConfigVote(Control, frozen=True):
    """Worker to broker: yes, or the reason why not."""

    rollout: int
    reason: str = ""
    """Empty means yes."""


class CommitConfig(Control, frozen=True):
    """Broker to worker: run it."""

    rollout: int


class AbortConfig(Control, frozen=True):
    """Broker to worker: forget it."""

    rollout: int


class RetirePartition(Control, frozen=True):
    """Broker to worker: the partition is no longer configured. It fails its applications, tells its RM, and answers
    `Retired` once the RM has acknowledged that.
    """


class Retired(Control, frozen=True):
    """Worker to broker: nothing is left, this worker may stop."""


class ChangeConfig(Control, frozen=True):
    """Front end to broker: give the RM of the header this configuration. Answered by an `Answer` with a JSON
    document: `checksum`, `version`, `partitions`, whether it is written back to the watched `file`, and the
    `followers` of that file who get it too; or with an error status the problems.
    """

    config: str
    author: str
    origin: str = "api"
    """Where it comes from, for the history: `api`, or `rollback to N`."""
    expected: str = ""
    """Checksum of what the author believes to change; with another one in force the answer is 412. Empty: any."""
    overwrite: bool = False
    """Whether to overwrite the watched file even if it was edited and the edit is not in force; else the answer is
    409.
    """


class ReadConfig(Control, frozen=True):
    """Front end to broker: what the RM of the header runs, or has run. Answered by an `Answer` with a JSON document."""

    what: str
    """`current`, `history`, `version` with its number, or `default`: what an RM gets that sends no configuration."""
    version: int = 0


class ChangedFile(Control, frozen=True):
    """The broker's shell to its machine: the watched file of queues has this text now."""

    text: str


class WriteFile(Control, frozen=True):
    """The broker's machine to its shell: the watched file of queues is to have this text."""

    text: str
    replaces: str
    """Checksum of the text that it takes the place of. If somebody has written another one since, that stays."""


class ConfigVersion(Control, frozen=True):
    """In a `ManagerRecord`: the RM of its header runs this configuration from now on."""

    number: int
    """From 1, per RM."""
    checksum: str
    at_ns: int
    author: str
    origin: str
    """`registration`, `update`, `file`, `api`, or `rollback to N`."""
    base: str
    """Checksum of the text of whoever owns the configuration (the RM, or the file): while the owner still has that
    text, what was changed on top of it holds.
    """
    config: str


class ManagerRecord(Control, frozen=True):
    """The broker's machine to its record, before anybody hears of it: this is so of the RM of the header from now on,
    all or nothing. Answered by `Recorded`.
    """

    number: int
    """Of this message, by which its answer is known."""
    facts: bytes
    """What has to outlive the broker (`broker/facts.py`); empty once nothing is left of the RM."""
    version: ConfigVersion | None = None
    """The version of its configuration that comes with it, if there is one."""


class Recorded(Control, frozen=True):
    """The record to the broker's machine: what it said of the RM of the header is durable, or why it cannot be."""

    number: int
    """Of the `ManagerRecord`; 0 in the answer to anything else."""
    problem: str = ""
    """Empty when it is durable."""


class RebaseVersion(Control, frozen=True):
    """The broker's machine to its record: the latest version of the RM of the header stands on this text now. Answered
    by a `Recorded` without a number.
    """

    base: str


class ProbeRecord(Control, frozen=True):
    """The broker's machine to its record, after a write that failed: can it be written again? Answered by a `Recorded`
    without a number.
    """


class Settings(Control, frozen=True):
    """Broker to worker: the RM's settings (`extraConfig`), all of them, in place of the earlier ones."""

    values: dict[str, str]
    capabilities: list[str] = field(default_factory=list)
    """Of the RM, as it said when it registered."""


# Control: who lives -------------------------------------------------------------------------------------------------


class Hello(Control, frozen=True):
    """A process to the broker, when it starts and whenever the broker has begun anew: `role` is supervisor, worker,
    rmproxy or webservice. The header of a worker's says what it runs: partition, epoch, RM, session, life.
    """

    role: str
    rollout: int = 0
    """Of a worker: the last roll-out that it has carried out, 0 if it runs nothing."""
    prepared: int = 0
    """Of a worker: the roll-out that it has voted for, while that is neither committed nor aborted; 0 for none."""
    problem: str = ""
    """Of a worker: why it could not go on from its journal, in words for people. Empty when it could, or has none."""
    recovered: bool = False
    """Of a worker: whether all that comes from its journal, and the RM has not resumed since: the journal may be older
    than what the RM knows."""


class WorkersWanted(Control, frozen=True):
    """Broker to supervisor: keep exactly these workers running; partition to epoch of its lease."""

    partitions: dict[str, int]
    managers: dict[str, str] = field(default_factory=dict)
    """Partition to the RM that has it: those of one RM take turns with those of others."""


class WorkerEnded(Control, frozen=True):
    """Supervisor to broker: the worker of the header's partition, under the header's epoch, ended before it was ready.
    The supervisor starts it again after a pause.
    """

    reason: str
    """At most WORKER_REASON_CHARS_MAX characters, for people."""
    cannot_start: bool = False
    """Whether the worker itself, or the operating system, reported why it cannot start. Otherwise it crashed, was
    killed or was too slow, and the next attempt may succeed.
    """


WORKER_REASON_CHARS_MAX: Final = 1000
"""Characters of a `WorkerEnded` reason; the supervisor cuts off the rest."""


class Repeat(Control, frozen=True):
    """Broker to worker: the RM is back; send again what comes after the `ack` of the header, and place again."""

    acknowledged: int = 0
    """The number of the RM's last command that this worker, or one before it, has acknowledged."""


class Pause(Control, frozen=True):
    """Broker to worker: the RM is away. Nothing new is placed until it is back (`Repeat`)."""


class ManagerAway(Control, frozen=True):
    """Proxy to broker: nothing has been heard of the RM of the header for too long, or its connection is gone."""


class Echo(Control, frozen=True):
    """Broker to proxy: send this back, with its `ref`, when everything before it has had its effect."""


# Control: what a worker keeps ---------------------------------------------------------------------------------------


class Step(Part, frozen=True, array_like=True):
    """One thing that changed a partition, as its journal has it: what came or fell due and when, and what the RM was
    told because of it. The same steps in the same order give the same partition, and the same words.
    """

    number: int
    """From 1, without gaps, over the whole life of the journal."""
    at: float
    """Unix seconds."""
    source: str
    """The peer that the message came from; empty for time that passed."""
    header: Header
    """Of the message; for time that passed its kind is `TICK`."""
    body: bytes = b""
    budget: int = 0
    """How many decisions were allowed, when time passed; 0 if only timers went off."""
    told: list[tuple[int, str, bytes]] = field(default_factory=list)
    """The news that followed: number in the lane, kind, body."""
    acknowledged: int = 0
    """The last number in that lane that the RM had acknowledged."""


TICK: Final = "tick"


class Append(Control, frozen=True):
    """The worker's machine to its journal: keep these, all or none. Answered by `Kept` when they are durable."""

    steps: list[bytes]
    """Encoded `Step`s, in order."""
    first: int
    """The number of the first of them; the others follow without a gap."""
    fresh: bool = False
    """Whether the first begins from an empty partition, so that nothing before it is needed any more."""


class Kept(Control, frozen=True):
    """The journal to the worker's machine: everything up to this step is durable."""

    number: int


class NotKept(Control, frozen=True):
    """The journal to the worker's machine: what it was given last is not durable. It tries again by itself, unless
    another worker has the partition now (`fenced`): then nothing that this one says counts any more.
    """

    problem: str
    fenced: bool = False


class SetAside(Control, frozen=True):
    """In a step of the journal instead of a command of the RM that ended the worker again and again: the command has no
    effect, and what it would have added is rejected.
    """

    kind: str
    """Of the command."""
    reason: str
    nodes: list[str] = field(default_factory=list)
    applications: list[str] = field(default_factory=list)
    allocations: list[RejectedAllocation] = field(default_factory=list)


class TakeSnapshot(Control, frozen=True):
    """The worker's machine to its journal: write down the whole partition as it is after this step, so that the steps
    up to it are not needed any more. Answered by `SnapshotTaken`.
    """

    number: int


class SnapshotTaken(Control, frozen=True):
    """The journal to the worker's machine: the snapshot is durable, or why it is not."""

    number: int
    problem: str = ""


# Control: questions from the front end ------------------------------------------------------------------------------


class Query(Control, frozen=True):
    """A read-only question to a partition; answered by an `Answer` with the same `ref`. Without a partition in the
    header the broker answers: what it has heard of the figures of all processes that are no workers (`metrics`).
    """

    what: str
    name: str = ""
    """The partition's name as the asker wants to see it."""
    args: dict[str, str] = field(default_factory=dict)
    viewer: "Actor | None" = None
    """Who wants to know, and is shown only what the queues' access control lists let them see; None for one who may
    see everything.
    """
    known: str = ""
    """The `version` of an answer to the same question that the asker still has; status 304 says that it holds."""


class Actor(Part, frozen=True):
    """Who wants something done, as the front end has established it."""

    user: str
    groups: list[str] = field(default_factory=list)
    scheduler_admin: bool = False
    """Whether the scheduler's own access control list names them; then no queue is asked."""


class KillApplication(Control, frozen=True):
    """Front end to worker: fail an application and release all it has. Answered by an `Answer` with the same `ref`."""

    application_id: str
    actor: Actor
    seen_only: bool = False
    """Whether what the actor may not see is, for them, not there."""
    name: str = ""
    """The partition's name for the answer, as in `Query`; empty for its plain name."""


class MoveApplication(Control, frozen=True):
    """Front end to worker: let an application go on in another leaf. Answered by an `Answer` with the same `ref`."""

    application_id: str
    queue: str
    """Full path of an existing leaf."""
    actor: Actor
    seen_only: bool = False
    """As in `KillApplication`."""
    name: str = ""
    """As in `KillApplication`."""


STEPS_MAX: Final = 1000
"""Decisions that may be asked for at once: all that time the worker does nothing else, and all are in its answer."""


class Schedule(Control, frozen=True):
    """Front end to worker: make so many decisions, fewer if nothing is left to decide. Answered by an `Answer` with the
    same `ref` and a JSON document: `made`, how many; `decisions`, what each was; `idle`, whether nothing is left.
    """

    steps: Annotated[int, Meta(ge=1, le=STEPS_MAX)]
    name: str = ""
    """As in `KillApplication`."""


class GroupsWanted(Control, frozen=True):
    """The worker's machine to its shell: look up the groups of this user; answered by `GroupsFound`."""

    user: str


class GroupsFound(Control, frozen=True):
    """The worker's shell to its machine: the groups of a user, the primary one first, or why they are not known."""

    user: str
    groups: list[str] = field(default_factory=list)
    problem: str = ""
    """Empty when the groups were found."""


class Answer(Control, frozen=True):
    """Status as in HTTP, and a JSON document that is passed on as it is."""

    status: int
    body: bytes
    version: str = ""
    """Of what was asked about: as long as it is the same, so is the answer. Empty if that is not known."""
    next: str = ""
    """The `after` with which the list goes on; empty at its end."""
    took_micro_seconds: int = 0
    """How long it took to answer, in which nothing else was done."""


NOT_MODIFIED: Final = 304
"""The status of an answer without a body: that of the version that the asker knows holds."""

TOO_LONG: Final = 413
"""The status of an answer that would be too long, to a question that has pages."""


class ListPartitions(Control, frozen=True):
    """Front end to broker: who is registered, with what?"""


class Figures(Control, frozen=True):
    """A process that nobody asks questions to the broker, every few seconds: what it has to tell about itself."""

    process: str
    """Its role."""
    families: bytes
    """As `common/families.py` writes them."""


class NodesAstray(Control, frozen=True):
    """Proxy to broker: the RM of the header has registered so many nodes for partitions that it does not have. The
    proxy has refused them.
    """

    count: int


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

    @property
    def generation(self) -> str:
        """Another text for each partition of this name that began from nothing."""
        return f"{self.session} {self.life}"


class ManagerEntry(Part, frozen=True):
    """An RM, also one without partitions. Times in Unix nanoseconds."""

    rm_id: str
    session: str
    registered_ns: int = 0
    """When this session began."""
    away_since_ns: int = 0
    """Since when nothing is heard of it; 0 while it is there."""
    nodes_astray: int = 0
    """Nodes that it has registered for partitions that it does not have, since the broker began."""


class PartitionList(Control, frozen=True):
    """All partitions, and the build information of every RM, in the order of registration."""

    partitions: list[PartitionEntry]
    build_information: dict[str, dict[str, str]]
    started_ns: int
    """When the broker started, in Unix nanoseconds."""
    managers: list[ManagerEntry] = field(default_factory=list)
    record_problem: str = ""
    """Why the broker's record could not be written the last time; empty if it could."""
