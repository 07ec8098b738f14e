"""Durable records of RMs: what each contains, when it is written, and which messages wait for the write.

    recorded --something changed--> being written --Recorded--> recorded, and the held messages are sent
                                          | the disk is full
                                          +--> retried after RETRY_S: only messages about this RM wait

A decision about a configuration is recorded before it takes effect, so it is refused if the write fails. Every other
change has already happened when it is written. Facts that a record does not contain (which proxy the RM uses, whether
it is away, which workers are present) are found out again after a restart. Not here: the store (`store.py`).
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from yunishard.broker.registry import Registry, RmRecord, RmSession
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import (
    ConfigVersion,
    ManagerRecord,
    ProbeRecord,
    Recorded,
    RemoveJournal,
)
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Refused
from yunishard.common.messages.wire import NEVER, Outgoing, make_outgoing
from yunishard.common.names import RECORD
from yunishard.common.retries import RepeatedFailure

RETRY_S: Final = 1.0
"""Seconds after a failed write until it is retried, or until the broker probes the file if it was a decision's."""

HELD_MAX: Final = 1_000
"""Messages held for one RM. A write takes a millisecond, so only a blocked disk reaches this bound. Further messages
are dropped, as by a broken connection, and their senders repeat them."""


SETTINGS_BYTES_MAX: Final = 1 << 20
"""Bytes of an RM's settings, build information and capabilities, as a message has them: they are in its record, which
is read at the start and written again with each change of a lease. A registration or update with more is refused. A
Kubernetes config map cannot have more."""


def find_excess(*settings: object) -> str:
    """Why these settings of an RM are too large; empty if they are not."""
    if len(msgspec.msgpack.encode(settings)) <= SETTINGS_BYTES_MAX:
        return ""
    return f"the RM's settings, build information and capabilities have more than {SETTINGS_BYTES_MAX} bytes"


def build_record(session: RmSession, registry: Registry) -> RmRecord:
    """The record of an RM with this session."""
    record = msgspec.convert(session, RmRecord, from_attributes=True)
    slots = {name: registry.slots[name] for name in session.partitions}
    leases = {name: slot.epoch for name, slot in slots.items()}
    hosts = {name: host for name, slot in slots.items() if (host := slot.worker_host or slot.host)}
    return replace(record, leases=leases, hosts=hosts)


def restore_session(record: RmRecord, checksum: str) -> RmSession:
    """The session in a record, with the checksum of the configuration in force."""
    session = msgspec.convert(record, RmSession, from_attributes=True)
    return replace(session, checksum=checksum, leases={}, hosts={})


def decode_record(data: bytes | str) -> RmRecord:
    """Raises msgspec.MsgspecError for anything that is not a record."""
    try:
        return msgspec.json.decode(data, type=RmRecord)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


class RmPersistence:
    """Writes records when RMs change, and holds back messages about an RM until its record is durable."""

    def __init__(self, state: BrokerState, durable: dict[str, RmRecord], *, problem: str, now: float) -> None:
        """`problem` is the reason why the record could not be written when the broker started; empty if it could."""
        self.problem = ""
        """Why the latest write failed; empty if it did not."""
        self.deadline = NEVER
        """When failed writes are retried, or the file is probed."""
        self._state = state
        self._durable = durable
        self._writing: dict[str, tuple[int, RmRecord | None]] = {}
        """RM id to the number and record of the write that is not answered yet; no record for an RM that is gone."""
        self._failed: dict[str, None] = {}
        """Ids of the RMs whose write is to be retried."""
        self._held: dict[str, list[Outgoing]] = {}
        """RM id to the messages that wait for its record; all and only RMs whose record is not durable."""
        self._numbers = 0
        self._failure = RepeatedFailure()
        if problem:
            self._count_write(problem, now)

    def persist(self, rm: str) -> list[Outgoing]:
        """Write the record of an RM that changed; if it is durable already, return the messages that waited for it."""
        session = self._state.registry.sessions.get(rm)
        record = build_record(session, self._state.registry) if session is not None else None
        is_written = rm not in self._writing and rm not in self._failed
        if is_written and record == self._durable.get(rm):
            return self._held.pop(rm, [])
        self._held.setdefault(rm, [])
        return [self.write(rm, record)[1]] if is_written else []

    def is_durable(self, rm: str) -> bool:
        """Whether the record has the present state of this RM."""
        return rm not in self._held

    def filter_outgoing(self, messages: list[Outgoing]) -> list[Outgoing]:
        """The messages that may be sent now; those about an RM whose record is not durable are held."""
        free: list[Outgoing] = []
        for one in messages:
            is_for_record = one.to == RECORD and one.header.kind != RemoveJournal.__name__
            may_pass = is_for_record or one.header.kind == Refused.__name__
            held = None if may_pass else self._held.get(one.header.rm)
            if held is None:
                free.append(one)
            elif len(held) < HELD_MAX:
                held.append(one)
        return free

    def handle_recorded(self, rm: str, recorded: Recorded, now: float) -> bool:
        """Handle the answer to a write; whether it answers the latest one. `persist` must follow."""
        number, record = self._writing.get(rm, (0, None))
        if not recorded.number:
            self._count_write(recorded.problem, now, is_of_rm=False)
        if not recorded.number or recorded.number != number:
            return False
        del self._writing[rm]
        self._state.registry.changed_rms[rm] = None
        self._count_write(recorded.problem, now)
        if not recorded.problem:
            self._durable.pop(rm, None)
            if record is not None:
                self._durable[rm] = record
        return True

    def schedule_retry(self, rm: str) -> None:
        """Retry a failed write of something that has already happened."""
        self._failed[rm] = None

    def _count_write(self, problem: str, now: float, *, is_of_rm: bool = True) -> None:
        self.problem, self.deadline = problem, now + RETRY_S if problem or self._failed else NEVER
        self._state.counters.record_writes["refused" if problem else "durable"] += 1
        if problem and self._failure.is_news(problem, now):
            what = "changes of resource managers cannot be recorded now, and are tried again each second"
            self._state.warnings.append(f"{what}: {problem}")
        elif not problem and not self._failed and self._failure.is_over() and is_of_rm:  # a probe writes less
            self._state.notes.append("changes of resource managers can be recorded again")

    def retry_due(self, now: float) -> list[Outgoing]:
        """Mark the RMs whose write failed as changed, or probe the file if there are none."""
        if self.deadline > now:
            return []
        self.deadline = now + RETRY_S
        failed, self._failed = self._failed, {}
        self._state.registry.changed_rms.update(failed)
        return [] if failed else [make_outgoing(RECORD, ProbeRecord())]

    def write(self, rm: str, record: RmRecord | None, version: ConfigVersion | None = None) -> tuple[int, Outgoing]:
        """Write the record of an RM, or remove it: the number of the write, and the message to send."""
        self._numbers += 1
        self._writing[rm] = self._numbers, record
        self._failed.pop(rm, None)
        facts = b"" if record is None else msgspec.json.encode(record)
        message = ManagerRecord(number=self._numbers, facts=facts, version=version)
        return self._numbers, make_outgoing(RECORD, message, Header(kind="ManagerRecord", rm=rm))
