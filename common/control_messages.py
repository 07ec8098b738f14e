"""Messages between the system's own processes: configuration roll-out, the broker's record, worker liveness, groups.

The web service's queries are in `query_messages.py`, the worker's journal in `journal_messages.py`.
"""

from typing import Final

from msgspec import field

from common.config.model import PartitionConfig
from common.messages import Control


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


class Settings(Control, frozen=True):
    """Broker to worker: the RM's settings (`extraConfig`), all of them, in place of the earlier ones."""

    values: dict[str, str]
    capabilities: list[str] = field(default_factory=list)
    """Of the RM, as it said when it registered."""


# The watched queues.yaml ---------------------------------------------------------------------------------------------


class ChangedFile(Control, frozen=True):
    """The broker's shell to its machine: the watched file of queues has this text now."""

    text: str


class WriteFile(Control, frozen=True):
    """The broker's machine to its shell: the watched file of queues is to have this text."""

    text: str
    replaces: str
    """Checksum of the text that it takes the place of. If somebody has written another one since, that stays."""


# The broker's record -------------------------------------------------------------------------------------------------


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
    """What has to outlive the broker (`broker/rm_records.py`); empty once nothing is left of the RM."""
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


# Registry and liveness -----------------------------------------------------------------------------------------------


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


class NodesAstray(Control, frozen=True):
    """Proxy to broker: the RM of the header has registered so many nodes for partitions that it does not have. The
    proxy has refused them.
    """

    count: int


class Echo(Control, frozen=True):
    """Broker to proxy: send this back, with its `ref`, when everything before it has had its effect."""


class Figures(Control, frozen=True):
    """A process that nobody asks questions to the broker, every few seconds: what it has to tell about itself."""

    process: str
    """Its role."""
    families: bytes
    """As `common/metrics.py` writes them."""


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
