"""Messages between the system's own processes: configuration roll-out, the broker's record, worker liveness, groups.

The web service's queries are in `query_messages.py`, the worker's journal in `journal_messages.py`.
"""

from typing import Final, Literal

from msgspec import Raw, field

from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages.kinds import Control, Part
from yunishard.common.names import LOCAL_HOST


class PrepareConfig(Control, frozen=True):
    """Broker to worker: validate this configuration. Answered by a `ConfigVote`; nothing changes yet."""

    rollout: int
    config: PartitionConfig
    live: bool = False
    """Whether it changes the running partition; otherwise it starts from an empty one."""


class EncodedPrepareConfig(Part, frozen=True):
    """`PrepareConfig` as the broker sends it, with the configuration as the analysis has encoded it."""

    rollout: int
    config: Raw
    live: bool = False


class TextRead(Control, frozen=True):
    """Child process to broker: the outcome of the analysis of a configuration text."""

    analysis: bytes = b""
    """Encoded; empty if there is none."""
    problem: str = ""
    """Why the text is refused without an analysis."""
    unavailable: str = ""
    """Why there is no analysis at present, which has nothing to do with the text."""
    used_s: float = 0.0
    """Processor seconds that it took."""


class ConfigVote(Control, frozen=True):
    """Worker to broker: the worker can run the configuration, or the reason why not."""

    rollout: int
    reason: str = ""
    """Empty means yes."""


class CommitConfig(Control, frozen=True):
    """Broker to worker: run the prepared configuration."""

    rollout: int


class AbortConfig(Control, frozen=True):
    """Broker to worker: discard the prepared configuration."""

    rollout: int


class RetirePartition(Control, frozen=True):
    """Broker to worker: the partition is no longer configured. It fails its applications, tells its RM, and answers
    `Retired` once the RM has acknowledged that.
    """


class Retired(Control, frozen=True):
    """Worker to broker: the partition has no applications left, and the worker may stop."""


class PartitionRemoved(Control, frozen=True):
    """Broker to worker: the partition of the header has ended. The worker deletes its journal when it stops."""


class Settings(Control, frozen=True):
    """Broker to worker: the RM's settings (`extraConfig`), all of them, in place of the earlier ones."""

    values: dict[str, str]
    capabilities: list[str] = field(default_factory=list)
    """Of the RM, from its registration."""


# The watched queues.yaml ---------------------------------------------------------------------------------------------


class ChangedFile(Control, frozen=True):
    """The broker's shell to its machine: the watched `queues.yaml` has this text now."""

    text: str


class WriteFile(Control, frozen=True):
    """The broker's machine to its shell: write this text to the watched `queues.yaml`."""

    text: str
    replaces: str
    """Checksum of the text to replace. A file with another text is not overwritten."""


# The broker's record -------------------------------------------------------------------------------------------------


class VersionEntry(Control, frozen=True, kw_only=True, gc=False):
    """A version of the configuration of an RM, without its text."""

    number: int
    """From 1, per RM."""
    checksum: str
    at_ns: int
    author: str
    origin: str
    """`registration`, `update`, `file`, `api`, or `rollback to N`."""
    base: str
    """Checksum of the text of the configuration's owner (the RM, or the file): as long as the owner has that text,
    changes on top of it stay in force.
    """
    size: int = 0
    """Bytes of the text."""


class ConfigVersion(VersionEntry, frozen=True, kw_only=True, gc=False):
    """In a `ManagerRecord`: the RM of its header runs this configuration from now on."""

    config: str


class ManagerRecord(Control, frozen=True):
    """The broker's machine to its record: store the state of the header's RM, atomically, before it is made known.
    Answered by `Recorded`.
    """

    number: int
    """Of this message, by which its answer is known."""
    facts: bytes
    """The durable state without the configuration (`broker/rm_records.py`); empty once the RM was removed."""
    version: ConfigVersion | None = None
    """The configuration in force from now on; None if it stays."""


class RemoveVersions(Control, frozen=True):
    """The broker's machine to its record: remove the versions of the header's RM up to a number, with the texts that no
    other version has. Answered by `VersionsRemoved`.
    """

    up_to: int


class VersionsRemoved(Control, frozen=True):
    """The record to the broker's machine: a `RemoveVersions` has been carried out, or has failed."""

    problem: str = ""
    """Why it failed; empty if it did not."""


class ReadVersion(Control, frozen=True):
    """The broker's machine to its record: read the text of a version of the header's RM. Answered by `VersionRead`."""

    version: int


class VersionRead(Control, frozen=True):
    """The record to the broker's machine: the text of a version of the header's RM."""

    version: int
    text: str = ""
    problem: str = ""
    """Why there is no text."""
    may_retry: bool = False
    """Whether the text may be there, as the record could not be read at present."""


class Recorded(Control, frozen=True):
    """The record to the broker's machine: the state of the header's RM is durable, or the reason why it is not."""

    number: int
    """Of the `ManagerRecord`; 0 in the answer to anything else."""
    problem: str = ""
    """Empty when it is durable."""


class RebaseVersion(Control, frozen=True):
    """The broker's machine to its record: set the `base` of the latest version of the header's RM. Answered by a
    `Recorded` without a number.
    """

    base: str


HostChange = Literal["drain", "undrain", "remove"]


class RecordHost(Control, frozen=True):
    """The broker's machine to its record: a host is draining, or no longer, or is removed. Answered by `HostRecorded`
    with the same `ref`.
    """

    host: str
    change: HostChange


class HostRecorded(Control, frozen=True):
    """The record to the broker's machine: the outcome of `RecordHost`."""

    host: str
    change: HostChange
    problem: str = ""
    """Why it is not recorded; empty when it is durable."""


class RemoveJournal(Control, frozen=True):
    """Broker to its record: remove what a worker has left of the journal of the partition in the header, up to the
    epoch in the header. The partition has ended.
    """


class ProbeRecord(Control, frozen=True):
    """The broker's machine to its record, after a failed write: test whether writing works again. Answered by a
    `Recorded` without a number.
    """


# The lease of the leader ---------------------------------------------------------------------------------------------


STORE_SILENCE: Final = 2
"""Durations of the leader's lease, a lease timeout in all, after which a host that has not polled counts as cut off
from the store."""


class PollLease(Control, frozen=True):
    """The broker's machine to its shell: renew the leases of this host and of this epoch, or try to acquire the latter
    if that is 0. Answered by `LeasePolled`.
    """

    epoch: int
    duration_s: float
    ended: float | None = None
    """The renewal of the leader's lease after which that has ended, as far as this broker has seen (`LeaseWatch`)."""
    host_ended: float | None = None
    """The same of the lease of this host, if another system has held it."""


class Rival(Part, frozen=True):
    """Another system that holds the lease of this host."""

    machine: str
    """The name of its machine, and its address in the network of the store."""
    address: str
    """Where other hosts reach its broker; empty if they do not."""
    since: int
    """When it acquired the lease, in Unix seconds."""
    expires: float
    """Identifies its latest renewal."""
    left_s: float
    is_copy: bool
    """Whether it has the same host id: then one of the two state directories is a copy of the other."""


class Refusal(Part, frozen=True):
    """Another machine was refused as a host, as the host runs already."""

    host: str
    machine: str
    address: str
    count: int
    """How often."""
    at_s: float
    """The latest time, in Unix seconds by the clock of the database."""


class LeasePolled(Control, frozen=True):
    """The shell to the broker's machine: who leads now."""

    epoch: int = 0
    """Of this broker's lease; 0 if another one leads."""
    holder: str = ""
    """The host of the other one, and where this host reaches it."""
    endpoint: str = ""
    public_key: str = ""
    expires: float = 0.0
    """Identifies the latest renewal of its lease."""
    left_s: float = 0.0
    """Seconds until its lease expires by the clock of the database."""
    problem: str = ""
    """Why nothing is known; empty otherwise."""
    rival: Rival | None = None
    """The system that holds the lease of this host; nothing else is known then."""
    heartbeats: dict[str, float] = field(default_factory=dict)
    """For the leader: the latest poll of each host, by the clock of the database, which identifies it."""
    refusals: list[Refusal] = field(default_factory=list)
    """For the leader: the latest refusal for each host, if it is not older than REFUSAL_SHOWN_S."""


REFUSAL_SHOWN_S: Final = 3600.0
"""Seconds for which hosts list and health check show that another machine was refused as a host."""


# Registry and liveness -----------------------------------------------------------------------------------------------


class Hello(Control, frozen=True):
    """A process to the broker, at its start and after each restart of the broker. `role` is supervisor, worker, rmproxy
    or webservice. The header of a worker with a partition names it, its epoch, RM, session and generation. A worker
    without one waits for its `Grant`.
    """

    role: str
    host: str = LOCAL_HOST
    """Of the supervisor and of a worker: the name of their host."""
    address: str = ""
    """Of the supervisor: where other hosts reach the broker of its host; empty if they do not."""
    cores: int = 1
    """Of the supervisor: processors of its host."""
    memory_bytes: int = 0
    """Of the supervisor: memory of its host."""
    pid: int = 0
    """Of a worker, for operators, as are the next two."""
    release: str = ""
    compiled: bool = False
    """Whether the worker's engine is compiled."""
    workers: dict[str, str] = field(default_factory=dict)
    """Of the supervisor: the workers that run, to the partition of each; empty while it has none."""
    rollout: int = 0
    """Of a worker: the last roll-out that it has carried out, 0 if it runs nothing."""
    prepared: int = 0
    """Of a worker: the roll-out that it has voted for, while that is neither committed nor aborted; 0 for none."""
    problem: str = ""
    """Of a worker: why it could not recover from its journal, for operators. Empty if it could, or has no journal."""
    recovered: bool = False
    """Of a worker: whether its state comes from the journal, which may be older than the RM's, as the RM has not
    resumed since.
    """


class Grant(Control, frozen=True):
    """Broker to worker: serve the header's partition under the header's epoch, until the process ends."""


class WorkersWanted(Control, frozen=True):
    """Broker to supervisor: keep one worker running for each of these partitions."""

    partitions: list[str]
    dismissed: dict[str, str] = field(default_factory=dict)
    """Workers that have lost their lease since the last such message, and the partition of each. They do not count any
    more: if the partition is still wanted, here or elsewhere, another worker takes over, so they are killed; otherwise
    they are stopped.
    """
    elsewhere: list[str] = field(default_factory=list)
    """Partitions that other hosts serve, so that they have not ended."""


class HostLeaves(Control, frozen=True):
    """Supervisor to broker: its host stops. Its partitions move to others at once."""


class WorkerEnded(Control, frozen=True):
    """Supervisor to broker: this worker has ended. The header has its partition and epoch, if it had any."""

    worker: str
    """Its peer name."""
    reason: str
    """Why it ended before it was ready, at most WORKER_REASON_CHARS_MAX characters; empty if it was ready, or was asked
    to stop.
    """
    cannot_start: bool = False
    """Whether the worker itself, or the operating system, reported why it cannot start. Otherwise it crashed, was
    killed or was too slow, and the next attempt may succeed.
    """


WORKER_REASON_CHARS_MAX: Final = 1000
"""Characters of a `WorkerEnded` reason; the supervisor cuts off the rest."""


class Repeat(Control, frozen=True):
    """Broker to worker: the RM has resumed; retransmit the news after the `ack` of the header, and place again."""

    acknowledged: int = 0
    """The number of the RM's last command that this worker, or one before it, has acknowledged."""


class Repeated(Control, frozen=True):
    """Worker to broker: the retransmission for the `Repeat` with the same `ref` begins."""


class Pause(Control, frozen=True):
    """Broker to worker: the RM is disconnected; place nothing until it resumes (`Repeat`)."""


class ManagerAway(Control, frozen=True):
    """Proxy to broker: the RM of the header has sent no message for too long, or its connection is closed."""


class SessionMoved(Control, frozen=True):
    """Broker to proxy: the RM of the header has resumed its session through another proxy."""


class NodesAstray(Control, frozen=True):
    """Proxy to broker: the RM of the header has registered so many nodes for partitions that it does not have. The
    proxy has refused them.
    """

    count: int


class Echo(Control, frozen=True):
    """Broker to proxy: return this message, with its `ref`, once all messages before it have had their effect."""


class Figures(Control, frozen=True):
    """A process without queries to the broker, periodically: its metrics."""

    families: bytes
    """Encoded by `common/process/metrics.py`."""


# Group lookup --------------------------------------------------------------------------------------------------------


class GroupsWanted(Control, frozen=True):
    """The worker's machine to its shell: look up the groups of this user; answered by `GroupsFound`."""

    user: str


class GroupsFound(Control, frozen=True):
    """The worker's shell to its machine: the groups of a user, the primary one first, or why they are not known."""

    user: str
    groups: list[str] = field(default_factory=list)
    problem: str = ""
    """Empty when the groups were found."""
