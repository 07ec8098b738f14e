"""Durable records of RMs: what each contains, when it is written, and which messages wait for the write.

    recorded --something changed--> being written --Recorded--> recorded, and the held messages are sent
                                          | the disk is full
                                          +--> retried after RETRY_S: only messages about this RM wait

A decision about a configuration is recorded before it takes effect, so it is refused if the write fails. Every other
change has already happened when it is written. Facts that a record does not contain (which proxy the RM uses, whether
it is away, which workers are present) are found out again after a restart. Not here: the file (`record_file.py`).
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from broker.config_validation import analyses
from broker.outgoing import OutboxBarrier
from broker.registry import Registry, RmSession
from broker.state import BrokerState
from common.config.model import compute_checksum
from common.config.problems import ConfigError
from common.control_messages import ConfigVersion, ManagerRecord, ProbeRecord, Recorded
from common.messages import Header
from common.names import RECORD, distinct_name, normalise_partition_name
from common.rm_messages import Refused
from common.wire import NEVER, Outgoing, make_outgoing

RETRY_S: Final = 1.0
"""Seconds until a failed write of a record is retried."""

PROBE_S: Final = 2.0
"""Seconds after a failed write until the broker probes whether the file can be written again."""


class RmRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The durable fields of an `RmSession`, and the leases. Unknown fields of later releases are ignored."""

    rm: str
    session: str
    registered_ns: int
    call: str
    text: str
    build_info: dict[str, str] = msgspec.field(default_factory=dict)
    extra: dict[str, str] = msgspec.field(default_factory=dict)
    capabilities: list[str] = msgspec.field(default_factory=list)
    follows_core: bool = False
    passed_over: str = ""
    rollout: int = 0
    lives: dict[str, int] = msgspec.field(default_factory=dict)
    """Generations of the partitions."""
    lives_begun: int = 0
    """The highest generation."""
    leaving: list[str] = msgspec.field(default_factory=list)
    order: int = 0
    """0 in records of releases without an order of registration."""
    partition_order: dict[str, int] = msgspec.field(default_factory=dict)
    leases: dict[str, int] = msgspec.field(default_factory=dict)
    """Full partition name to the epoch of its worker's lease."""


def build_record(session: RmSession, registry: Registry) -> RmRecord:
    """The record of an RM with this session."""
    return RmRecord(
        rm=session.rm,
        session=session.session,
        registered_ns=session.registered_ns,
        call=session.call,
        text=session.text,
        build_info=dict(session.build_info),
        extra=dict(session.extra),
        capabilities=list(session.capabilities),
        follows_core=session.follows_core,
        passed_over=session.passed_over,
        rollout=session.rollout,
        lives=dict(session.generations),
        lives_begun=session.last_generation,
        leaving=list(session.leaving),
        order=session.order,
        partition_order=dict(session.partition_order),
        leases={name: registry.slots[name].epoch for name in session.partitions},
    )


def restore_session(record: RmRecord) -> RmSession:
    """The session in a record. Raises ConfigError if this release cannot load its configuration."""
    analysis = analyses.get(record.text)
    if analysis.configuration is None:
        raise ConfigError(analysis.problems)
    return RmSession(
        rm=record.rm,
        session=record.session,
        registered_ns=record.registered_ns,
        call=record.call,
        text=record.text,
        checksum=compute_checksum(record.text),
        configs={_full_name(record, one.name): one for one in analysis.configuration.partitions},
        build_info=record.build_info,
        extra=record.extra,
        capabilities=record.capabilities,
        follows_core=record.follows_core,
        passed_over=record.passed_over,
        rollout=record.rollout,
        generations=record.lives,
        last_generation=record.lives_begun,
        leaving=tuple(record.leaving),
        order=record.order,
        partition_order=record.partition_order,
    )


def _full_name(record: RmRecord, name: str) -> str:
    """The full name that a partition had when it was recorded: its lease is under that name."""
    distinct = distinct_name(record.rm, name)
    return distinct if distinct in record.leases else normalise_partition_name(record.rm, name)


def order_of_registration(record: RmRecord) -> tuple[bool, int]:
    """Sort key of records. Records without an order come last, by the time of registration."""
    return (False, record.order) if record.order else (True, record.registered_ns)


def encode_record(record: RmRecord | None) -> bytes:
    """Encode a record as JSON; empty for an RM that is gone."""
    return b"" if record is None else msgspec.json.encode(record)


def decode_record(data: bytes) -> RmRecord:
    """Raises msgspec.MsgspecError for anything that is not a record."""
    try:
        return msgspec.json.decode(data, type=RmRecord)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Write:
    number: int
    record: RmRecord | None


class RmPersistence:
    """Writes records when RMs change, and holds back messages about an RM until its record is durable."""

    def __init__(self, state: BrokerState, durable: dict[str, RmRecord], *, problem: str, now: float) -> None:
        """`problem` says why the record could not be written when the broker started; empty if it could."""
        self.problem = ""
        """Why the latest write failed; empty if it did not."""
        self._probe_at = NEVER
        self._state = state
        self._durable = durable
        self._writing: dict[str, _Write] = {}
        """RM id to the write that the record has not answered."""
        self._retry_at: dict[str, float] = {}
        self._barrier = OutboxBarrier(_subject_of)
        self._numbers = 0
        if problem:
            self._count_write(problem, now)

    @property
    def deadline(self) -> float:
        return min((self._probe_at, *self._retry_at.values()))

    def record_decision(self, session: RmSession, version: ConfigVersion | None) -> tuple[int, Outgoing]:
        """Write what an RM is to have before it takes effect: the number of the write and the message to send."""
        return self._write(session.rm, build_record(session, self._state.registry), version)

    def persist(self, rm: str) -> list[Outgoing]:
        """Write the record of an RM that changed; if it is durable already, return the messages that waited for it."""
        session = self._state.registry.sessions.get(rm)
        record = build_record(session, self._state.registry) if session is not None else None
        if rm in self._writing or rm in self._retry_at:
            self._barrier.close(rm)
            return []
        if record == self._durable.get(rm):
            self._state.registry.leases_changed |= self._barrier.is_closed(rm)
            return self._barrier.open(rm)
        self._barrier.close(rm)
        return [self._write(rm, record)[1]]

    def filter_sends(self, sends: list[Outgoing]) -> list[Outgoing]:
        """The messages that may be sent now; the others wait until the record is durable."""
        return self._barrier.filter_sends(sends)

    def handle_recorded(self, rm: str, recorded: Recorded, now: float) -> bool:
        """Take the answer to a write; whether it answers the latest one. `persist` must follow."""
        if not recorded.number:
            self._count_write(recorded.problem, now)
            return False
        written = self._writing.get(rm)
        if written is None or written.number != recorded.number:
            return False
        del self._writing[rm]
        self._state.registry.changed_rms[rm] = None
        self._count_write(recorded.problem, now)
        if recorded.problem:
            return True
        if written.record is None:
            self._durable.pop(rm, None)
        else:
            self._durable[rm] = written.record
        return True

    def schedule_retry(self, rm: str, problem: str, now: float) -> None:
        """Retry a failed write of something that has already happened."""
        self._state.warnings.append(f"changes of RM {rm} cannot be recorded now, and are tried again: {problem}")
        self._retry_at[rm] = now + RETRY_S

    def _count_write(self, problem: str, now: float) -> None:
        self.problem, self._probe_at = problem, now + PROBE_S if problem else NEVER
        if problem:
            self._state.counters.record_failures += 1
        else:
            self._state.counters.record_writes += 1

    def retry_due(self, now: float) -> list[Outgoing]:
        """Mark the RMs whose retry is due as changed, and probe the file if that is due."""
        for rm in [rm for rm, at in self._retry_at.items() if at <= now]:
            del self._retry_at[rm]
            self._state.registry.changed_rms[rm] = None
        if self._probe_at > now:
            return []
        self._probe_at = NEVER  # until the file has answered
        return [make_outgoing(RECORD, ProbeRecord(), Header(kind="ProbeRecord"))]

    def durable_leases(self) -> dict[str, int]:
        """The workers that should run: while a lease is not durable, the one before it counts."""
        leases: dict[str, int] = {}
        for partition, slot in self._state.registry.slots.items():
            durable = self._durable.get(slot.rm) if self._barrier.is_closed(slot.rm) else None
            leases[partition] = durable.leases.get(partition, slot.epoch) if durable else slot.epoch
        return leases

    def _write(self, rm: str, record: RmRecord | None, version: ConfigVersion | None = None) -> tuple[int, Outgoing]:
        self._numbers += 1
        self._writing[rm] = _Write(self._numbers, record)
        self._retry_at.pop(rm, None)
        message = ManagerRecord(number=self._numbers, facts=encode_record(record), version=version)
        return self._numbers, make_outgoing(RECORD, message, Header(kind="ManagerRecord", rm=rm))


def _subject_of(message: Outgoing) -> str:
    """The RM whose record must be durable before this message is sent; empty if it need not be."""
    return "" if message.to == RECORD or message.header.kind == Refused.__name__ else message.header.rm
