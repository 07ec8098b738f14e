"""Registry of RM sessions and worker slots (which RM has which partitions, and which worker serves each), and the
messages to them.

Durable values are frozen and replaced as a whole (`set_session`); leases are the epochs of worker slots. Each change of
either marks the RM in `changed_rms`, so that `rm_records.py` records it. Not here: registration (`rm_sessions.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Annotated, Final

from msgspec import Meta, Raw, Struct, field
from msgspec.structs import replace

from yunishard.broker.config_analysis import AnalysedPartition
from yunishard.common.messages import control_messages
from yunishard.common.messages.kinds import INT64_MAX, Control, Header, Message
from yunishard.common.messages.query_messages import Answer, PartitionEntry
from yunishard.common.messages.rm_messages import PartitionRestarted, Refused, Registered, ResumeWanted
from yunishard.common.messages.wire import NEVER, Outgoing, encode_body, make_outgoing
from yunishard.common.names import (
    NUMBERS_PER_INCARNATION,
    RECORD,
    RM_ID,
    distinct_name,
    external_name,
    normalise_partition_name,
    usual_name,
)
from yunishard.common.retries import RestartDelay

NUMBER_MAX: Final = 2**62
"""Largest number in a record: numbers that follow fit into 64 bits, too. A record with a larger one is not used."""

Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class RmRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The durable fields of an RM's session, and the leases of its workers. Unknown fields of later releases are
    ignored.
    """

    rm: str
    session: str
    registered_ns: Annotated[int, Meta(ge=-INT64_MAX, le=INT64_MAX)]
    """Unix nanoseconds."""
    call: str
    """Hash of the registration's body: the same call repeated in the same session changes nothing."""
    build_info: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    """The RM's settings (`extraConfig`), as received."""
    capabilities: list[str] = field(default_factory=list)
    """Optional protocol features that the RM supports."""
    follows_core: bool = False
    """Whether the RM sent no configuration and uses the core's default configuration."""
    passed_over: str = ""
    """Checksum of the default configuration that the RM could not start with, so that it is not offered again."""
    configs: dict[str, None] = field(default_factory=dict)
    """Full names of the configured partitions, in their order. The record has the configuration as the latest version
    of the RM."""
    rollout: Number = 0
    """Number of the roll-out that set the configuration. A worker with another number receives it again."""
    generations: dict[str, Number] = field(default_factory=dict, name="lives")
    """Partition to its generation in this session; absent means 0, the first one."""
    last_generation: Number = field(default=0, name="lives_begun")
    """The highest generation that any partition has had. The next one is above it, so removed partitions need no
    record."""
    leaving: list[str] = field(default_factory=list)
    """Partitions that are no longer configured and whose workers report the final releases to the RM."""
    order: Number = 0
    """Position of the RM in the order of registration; lower is earlier. Later sessions keep it until the RM leaves or
    its pause timeout expires."""
    partition_order: dict[str, Number] = field(default_factory=dict)
    """Positions of partitions that were configured after the RM registered; the others have the RM's position."""
    leases: dict[str, Number] = field(default_factory=dict)
    """Full partition name to the epoch of its worker's lease; only set in records."""
    hosts: dict[str, str] = field(default_factory=dict)
    """Full partition name to the host on which its worker runs, or is to run if there is none; only set in records. A
    later leader plans moves in progress again."""


class RmSession(RmRecord, frozen=True, kw_only=True):
    """The current session of one RM."""

    proxy: str = ""
    """Name of the proxy that the RM is connected to; empty after a broker restart until the RM resumes."""
    checksum: str = ""
    """Of the configuration in force."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """All partitions that have a worker."""
        return (*self.configs, *self.leaving)

    def generation(self, partition: str) -> int:
        return self.generations.get(partition, 0)

    def list_generations(self, partitions: Iterable[str]) -> dict[str, int]:
        """Generations of those of these partitions that are not in their first one, by the names that the RM uses."""
        return {usual_name(name): self.generation(name) for name in partitions if self.generation(name)}

    def latest_generation(self, partition: str) -> int:
        """The highest generation of this partition that the RM may have seen; of a removed partition, that of any."""
        return self.generation(partition) if self.has(partition) else self.last_generation

    def has(self, partition: str) -> bool:
        return partition in self.configs or partition in self.leaving

    def full_name(self, partition: str) -> str:
        """The full name of the partition that the RM calls by this name; unchanged if the RM has no such partition."""
        if self.has(partition):
            return partition
        distinct = distinct_name(self.rm, partition)
        return distinct if self.has(distinct) else partition

    def position(self, partition: str) -> int:
        """Position of a configured partition in the order of registration."""
        return self.partition_order.get(partition, self.order)

    def ordered(self, before: "RmSession | None", order: int) -> "RmSession":
        """This session with positions in the order of registration: the RM and the partitions that it had `before` keep
        theirs, all others get `order`.
        """
        if before is None:
            return replace(self, order=order, partition_order={})
        positions = {name: before.position(name) if name in before.configs else order for name in self.configs}
        others = {name: position for name, position in positions.items() if position != before.order}
        return replace(self, order=before.order, partition_order=others)

    # Messages to the RM ---------------------------------------------------------------------------------------------

    def build_message(
        self, message: Message, *, to: str = "", ref: str = "", partition: str = "", generation: int = 0
    ) -> Outgoing:
        """A message about the session or a partition (by full name); to its proxy, unless `to` names another one."""
        kind, name = type(message).__name__, usual_name(partition)
        header = Header(kind=kind, rm=self.rm, partition=name, session=self.session, ref=ref, life=generation)
        return make_outgoing(to or self.proxy, message, header)

    def build_registered(self, ref: str, partition: str = "") -> Outgoing:
        """Confirm a registration or resumption, or the resumption of one partition. The proxy adds the heartbeat
        interval and the flow-control window.
        """
        names = [partition] if partition else list(self.configs)
        message = Registered(
            partitions=list(map(usual_name, names)),
            checksum="" if partition else self.checksum,
            lives=self.list_generations(names),
            configuration_number=0 if partition else self.rollout,
        )
        return self.build_message(message, ref=ref, partition=partition)

    def request_resume(self, reason: str, partition: str = "") -> list[Outgoing]:
        """Ask the RM to resume, or to resume one partition, because messages on the way to or from it may be lost;
        nothing if it is not connected.
        """
        return [self.build_message(ResumeWanted(reason=reason), partition=partition)] if self.proxy else []

    def build_partition_restarted(self, partition: str, reason: str) -> Outgoing:
        """Notify the RM that a partition starts empty in a new generation."""
        generation = self.generation(partition)
        return self.build_message(PartitionRestarted(reason=reason), partition=partition, generation=generation)


@dataclass(slots=True)
class WorkerSlot:
    """The slot of one partition's worker."""

    rm: str
    epoch: int
    """Epoch of the worker's lease, or of the next worker's while there is none."""
    worker: str = ""
    """The peer name of the worker that has the lease; empty until one has it. Other workers are ignored."""
    host: str = ""
    """The host on which the worker is to run; empty if there is none yet."""
    worker_host: str = ""
    """The host of the worker that has the lease. Another one than `host` while the partition moves."""
    give_up_at: float = NEVER
    """When the slot has waited too long for a worker on its host; NEVER while it has one."""
    is_inherited: bool = False
    """Whether an earlier broker granted the lease, and may have forwarded messages of the partition."""
    is_awaited: bool = False
    """Whether a worker to which an earlier broker granted the lease may still run, and claim it."""
    is_present: bool = False
    """Whether the worker has recovered, and sent Hello for the partition."""
    was_served: bool = False
    """Whether any worker was present."""
    resumption: str = ""
    """The `ref` of the `Repeat` that the worker has not carried out yet; empty otherwise. Numbered messages that it
    sent before are not forwarded: the RM may lack earlier ones."""
    has_sent: bool = False
    """Whether the partition has sent anything in its generation to the RM."""
    last_seen: float = 0.0
    """When the worker last sent anything or got the lease, or when the broker started and began to await it."""
    granted_at: float = -NEVER
    """When the worker got the lease; long ago if that was from an earlier broker."""
    due: float = 0.0
    """When the next worker may get the lease."""
    delay: RestartDelay = dataclass_field(default_factory=RestartDelay)
    problem: str = ""
    """Why the worker cannot start or cannot run the configuration in force; cleared by its Hello."""
    ending: str = ""
    """How the last worker crashed before it was ready; cleared likewise."""

    @property
    def is_moving(self) -> bool:
        """Whether a worker has the lease until one on another host can take over."""
        return bool(self.worker and self.host) and self.worker_host != self.host


class Registry:
    """RM sessions by RM id, worker slots by partition."""

    def __init__(self, incarnation: int = 0, *, has_store: bool = False) -> None:
        self._has_store = has_store
        """Whether the broker's record has the journals, too."""
        self.sessions: dict[str, RmSession] = {}
        self.slots: dict[str, WorkerSlot] = {}
        """Includes partitions whose configuration is still being voted on."""
        self.leaving: dict[str, float] = {}
        """Partition that is being taken down to the time at which its worker stops even if the RM has not acknowledged
        everything."""
        self.away: dict[str, float] = {}
        """RM id to the time since when the RM has been away."""
        self.last_seen: dict[str, float] = {}
        """Proxy or other peer without a slot to when it last sent a heartbeat."""
        self.changed_rms: dict[str, None] = {}
        """Ids of RMs with changes that have not been handed to persistence yet."""
        self.ending: dict[str, WorkerSlot] = {}
        """The slots of partitions that have ended, until that is durable. Their workers and journals stay until then: a
        broker that begins before has these partitions again."""
        self.removals: list[Outgoing] = []
        """Messages to workers whose partitions have ended, and about the journals that such workers have left."""
        self.dismissed: dict[str, str] = {}
        """Workers that have lost their lease since then, and the partition of each."""
        self._epochs = incarnation * NUMBERS_PER_INCARNATION
        """The last assigned epoch; those of an earlier broker are lower."""
        self._resumptions = 0
        self._order = 0
        """The last assigned position in the order of registration."""

    def find_session(self, rm: str, session: str) -> RmSession | None:
        """The RM's session, if this is its current one."""
        found = self.sessions.get(rm)
        return found if found is not None and found.session == session else None

    def owner(self, partition: str) -> RmSession | None:
        """The session of the RM that has this partition configured."""
        slot = self.slots.get(partition)
        found = self.sessions.get(slot.rm) if slot else None
        return found if found is not None and partition in found.configs else None

    def set_session(self, session: RmSession, *, leave_by: float = 0.0) -> None:
        """Replace the RM's session. Slots of partitions that it no longer has are freed; partitions that start to leave
        have until `leave_by`.
        """
        rm = session.rm
        before = self.sessions.get(rm)
        self.sessions[rm] = session
        self.changed_rms[rm] = None
        for partition in before.partitions if before is not None else ():
            if not session.has(partition):
                self.free_slot(partition)
        for partition in session.configs:
            self.assign_slot(rm, partition)
            self.leaving.pop(partition, None)
        for partition in session.leaving:
            self.assign_slot(rm, partition)
            self.leaving.setdefault(partition, leave_by)

    def remove_rm(self, rm: str) -> None:
        """Remove the RM and free the slots of its partitions."""
        for partition in self.sessions.pop(rm).partitions:
            self.free_slot(partition)
        self.away.pop(rm, None)
        self.changed_rms[rm] = None

    def next_order(self) -> int:
        """Assign the next position in the order of registration."""
        self._order += 1
        return self._order

    def restore(self, session: RmSession, record: RmRecord, *, leave_by: float, now: float) -> None:
        """Restore a session, and the leases and hosts in its record."""
        self._order = max(self._order, session.order, *session.partition_order.values())
        for partition in session.partitions:
            epoch = record.leases.get(partition)
            if epoch is not None:
                slot = WorkerSlot(session.rm, epoch, is_inherited=True, is_awaited=True, was_served=True, last_seen=now)
                slot.host = record.hosts.get(partition, "")
                self.slots[partition] = slot
        self.set_session(session, leave_by=leave_by)

    def assign_slot(self, rm: str, partition: str) -> WorkerSlot:
        """The partition's slot, created without a worker if there is none."""
        if partition not in self.slots:
            self.slots[partition] = WorkerSlot(rm, self._next_epoch())
        return self.slots[partition]

    def renew_lease(self, partition: str) -> None:
        """Take the lease from the worker, if there is one, so that another one can get it under a later epoch."""
        slot = self.slots[partition]
        self.dismiss(slot.worker, partition)
        slot.epoch, slot.worker, slot.worker_host = self._next_epoch(), "", ""
        slot.is_present = slot.is_awaited = False
        slot.resumption = ""
        self.changed_rms[slot.rm] = None

    def _next_epoch(self) -> int:
        self._epochs += 1
        return self._epochs

    def dismiss(self, worker: str, partition: str) -> None:
        """Have its supervisor stop a worker that has no lease for this partition any more."""
        if worker:
            self.dismissed[worker] = partition

    def find_partition(self, worker: str) -> str:
        """The partition whose lease the worker has; empty if it has none."""
        return next((name for name, slot in self.slots.items() if slot.worker == worker), "")

    def free_slot(self, partition: str) -> None:
        """Remove the partition's slot, so that the supervisor stops its worker."""
        slot = self.slots.pop(partition, None)
        if slot is not None:
            self.ending[partition] = slot
        if slot is not None and slot.worker:
            self.dismiss(slot.worker, partition)
            header = Header(kind=control_messages.PartitionRemoved.__name__, rm=slot.rm, partition=partition)
            self.removals.append(make_outgoing(slot.worker, control_messages.PartitionRemoved(), header))
        elif slot is not None:
            self.remove_journal(partition, slot.epoch)
        self.leaving.pop(partition, None)

    def remove_journal(self, partition: str, epoch: int) -> None:
        """Have the rows of an ended partition removed that a worker up to this epoch has left in the store. Files are
        removed by the supervisor.
        """
        if self._has_store:
            rm = self.ending[partition].rm if partition in self.ending else ""
            header = Header(kind=control_messages.RemoveJournal.__name__, rm=rm, partition=partition, epoch=epoch)
            self.removals.append(make_outgoing(RECORD, control_messages.RemoveJournal(), header))

    def extend_deadlines(self, seconds: float, now: float) -> None:
        """Extend all timeouts by a time in which the broker did not run."""
        for slot in self.slots.values():
            slot.last_seen = min(now, slot.last_seen + seconds)
        for times in (self.away, self.last_seen):
            for name in times:
                times[name] = min(now, times[name] + seconds)
        for partition in self.leaving:
            self.leaving[partition] += seconds

    def partition_entries(self) -> Iterator[PartitionEntry]:
        """Every configured partition in the order of registration; those registered together by name."""
        found = [(one.position(name), name, one) for one in self.sessions.values() for name in one.configs]
        for _, full_name, one in sorted(found, key=lambda entry: entry[:2]):
            yield PartitionEntry(
                full_name=full_name,
                name=external_name(one.rm, full_name),
                rm_id=one.rm,
                epoch=self.slots[full_name].epoch,
                life=one.generation(full_name),
                session=one.session,
                problem=self.slots[full_name].problem,
                ending=self.slots[full_name].ending,
            )

    def name_problem(self, rm: str, partitions: list[str]) -> str:
        """Why an RM cannot have partitions with these plain names; empty if it can. `common/config` has checked the
        form of each name.
        """
        if not rm:
            return "partition cannot be created without name or RM, one is not set"
        if not RM_ID.fullmatch(rm):
            return f"RM id {rm!r} must be 1 to 64 letters, digits and '_', '.', ':', '-'"
        for name in partitions:
            if name.startswith(f"{rm}_"):
                return f"partition name {name!r} must not begin with the RM's own prefix {rm + '_'!r}"
        return ""

    def full_name(self, rm: str, name: str) -> str:
        """The full name for a partition of an RM: its present one, or else the usual one, or a distinct one if a
        partition of another RM has the usual name (also one that is leaving or still being voted on).
        """
        usual, distinct = normalise_partition_name(rm, name), distinct_name(rm, name)
        if distinct in self.slots:
            return distinct
        return distinct if usual in self.slots and self.slots[usual].rm != rm else usual

    def by_full_name(self, rm: str, partitions: Iterable[AnalysedPartition]) -> dict[str, Raw]:
        """The encoded partitions of an RM's configuration by their present or future full names."""
        return {self.full_name(rm, one.name): one.config for one in partitions}

    # Messages to workers --------------------------------------------------------------------------------------------

    def build_worker_message(self, session: RmSession, partition: str, message: Control, *, ack: int = 0) -> Outgoing:
        """A message to the worker of one of an RM's partitions."""
        header = self._build_worker_header(session, partition, type(message).__name__, ack=ack)
        return make_outgoing(self.slots[partition].worker, message, header)

    def _build_worker_header(self, session: RmSession, partition: str, kind: str, *, ack: int = 0) -> Header:
        life = session.generation(partition)
        return Header(kind=kind, rm=session.rm, partition=partition, session=session.session, life=life, ack=ack)

    def build_prepare(self, session: RmSession, partition: str, config: Raw, *, live: bool) -> Outgoing:
        """Ask the worker of a partition for its vote on the configuration of a session."""
        body = control_messages.EncodedPrepareConfig(rollout=session.rollout, config=config, live=live)
        header = self._build_worker_header(session, partition, control_messages.PrepareConfig.__name__)
        return Outgoing(self.slots[partition].worker, header, encode_body(body))

    def build_repeat(
        self, session: RmSession, partition: str, message: control_messages.Repeat, *, ack: int = 0
    ) -> Outgoing:
        """Have the worker of a partition retransmit; until it begins to, what it has sent before is not forwarded."""
        repeat = self.build_worker_message(session, partition, message, ack=ack)
        self._resumptions += 1
        slot = self.slots[partition]
        slot.resumption = str(self._resumptions) if slot.worker else ""
        return Outgoing(repeat.to, replace(repeat.header, ref=slot.resumption), repeat.body)

    def build_settings(self, session: RmSession, partitions: Iterable[str]) -> list[Outgoing]:
        """The RM's settings for the workers of these partitions; they replace the earlier ones."""
        message = control_messages.Settings(values=session.extra, capabilities=session.capabilities)
        return [self.build_worker_message(session, partition, message) for partition in partitions]

    def build_first_settings(self, session: RmSession, partitions: Iterable[str]) -> list[Outgoing]:
        """The RM's settings for new partitions; nothing if the RM has no settings."""
        return self.build_settings(session, partitions) if session.extra or session.capabilities else []

    def build_retirement(self, session: RmSession, partition: str) -> Outgoing:
        """Notify a worker that its partition is no longer configured."""
        return self.build_worker_message(session, partition, control_messages.RetirePartition())


def build_refusal(to: str, header: Header, code: str, reason: str) -> Outgoing:
    """Refuse the message with this header."""
    answer = Header(kind="Refused", rm=header.rm, session=header.session, ref=header.ref)
    return make_outgoing(to, Refused(code=code, reason=reason, seq=header.seq), answer)


def build_answer(to: str, ref: str, status: int, body: bytes) -> Outgoing:
    """Answer a front end."""
    return make_outgoing(to, Answer(status=status, body=body), Header(kind="Answer", ref=ref))
