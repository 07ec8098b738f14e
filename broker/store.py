"""The broker's durable record: a `Store` with the statements of all kinds, and the endpoint that executes them.

    machine --ManagerRecord--> RecordEndpoint --in its thread--> Store.write --durable, or failed--> Recorded

The machine sends records and queries, and receives `Recorded` and `Answer` in the same order, once they are carried
out. So the loop never waits for a disk. Not here: what a record contains and when it is written (`rm_records.py`).
"""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import ClassVar, Final, TypeVar

import msgspec

from yunishard.broker.config_versions import VERSIONS_BYTES_MAX, VersionHistory
from yunishard.broker.hosts import HostRow
from yunishard.broker.queries import build_version_answer
from yunishard.broker.registry import NUMBER_MAX, RmRecord
from yunishard.broker.rm_records import decode_record
from yunishard.common.messages.control_messages import (
    ConfigVersion,
    HostChange,
    HostRecorded,
    ManagerRecord,
    ProbeRecord,
    ReadVersion,
    RebaseVersion,
    Recorded,
    RecordHost,
    RemoveVersions,
    VersionEntry,
    VersionRead,
    VersionsRemoved,
)
from yunishard.common.messages.kinds import INT64_MAX, Header
from yunishard.common.messages.query_messages import Answer, ReadConfig
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body, make_outgoing
from yunishard.common.names import NUMBERS_PER_INCARNATION, RECORD
from yunishard.common.process.health import WriteTimes
from yunishard.common.transport.inbox import ThreadEndpoint

RECORD_NAME: Final = "broker.sqlite"
"""The record in the state directory."""

QUEUED_BYTES_MAX: Final = 256 << 20
"""Bytes that wait for the disk. Further messages are refused like failed writes, unless nothing else waits."""

MESSAGE_BYTES: Final = 1 << 10
"""Bytes that a message counts in addition to its body."""

COLUMNS: Final = VersionEntry.__struct_fields__
"""Columns of the table of versions, without the RM in front and the key of the text behind."""

_COLUMNS: Final = ", ".join(COLUMNS)

INCARNATION_MAX: Final = INT64_MAX // NUMBERS_PER_INCARNATION - 1
"""Largest number of a broker: the epochs that it grants fit into 64 bits. A store with a larger one is not used."""

UNREADABLE: Final = "\ufffd"
"""In the place of bytes in a text that are no UTF-8."""

_T = TypeVar("_T")
_log = logging.getLogger("core.config")


Execute = Callable[[str, Sequence[object]], list[tuple[object, ...]]]
"""Executes a statement, in which question marks stand for values; the rows that it returns."""


class RecordDamaged(OSError):
    """A part of the record is missing or damaged, such as the text of a version. Another attempt does not help."""


class Store(ABC):
    """The record of RMs and configurations, open for one broker. Its methods block; one thread at a time calls them.

    A method that writes returns once all of it is durable. If it raises OSError, with the reason in one line, it has
    changed nothing.
    """

    facts_column: ClassVar[str] = "facts"
    """The facts of an RM, of which a part that is no UTF-8 does not become valid."""

    incarnation: int = 0
    """The number of this start of the broker; 0 before it."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Execute]:
        """Execute statements that change nothing. Raises RecordDamaged or OSError."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Execute]:
        """Execute statements that take effect together, or not at all. Raises OSError then, or if a later broker has
        written.
        """

    def begin(self, unix_s: int) -> tuple[int, str]:
        """Start a new incarnation of the broker at this time: its number, and why it could not be written (empty if it
        could).

        The number is above all earlier ones. It is not less than the time either, so that it is above those in a record
        that was moved away, and those of a broker that found the disk full when it started. Once it is written, all
        writes of earlier brokers fail.
        """
        if (latest := self.read_incarnation()) >= INCARNATION_MAX:
            raise OSError(f"the record names {latest} as the number of its last broker, and no broker has that")
        self.incarnation = max(unix_s, latest + 1)
        try:
            self.probe()
        except OSError as error:
            _log.warning("the start of broker %s could not be recorded: %s", self.incarnation, error)
            return self.incarnation, str(error)
        return self.incarnation, ""

    def read_records(self) -> list[RmRecord]:
        """The records in the order of registration. An RM whose record cannot be read has to register again."""
        with self._reading() as execute:
            rows = execute(f"SELECT rm, {self.facts_column} FROM managers", ())  # noqa: S608 - our own name
        return build_records(rows)

    def read_histories(self) -> dict[str, VersionHistory]:
        """All configuration versions by RM id. Reads no text."""
        with self._reading() as execute:
            return build_histories(execute(f"SELECT rm, {_COLUMNS} FROM versions ORDER BY rm, number", ()))  # noqa: S608

    def read_version(self, rm: str, number: int) -> ConfigVersion | None:
        """A version with its text. Raises RecordDamaged if the text is not the one that was written."""
        query = f"SELECT digest, config, {_COLUMNS} FROM versions LEFT JOIN texts USING (digest)"  # noqa: S608
        with self._reading() as execute:
            rows = execute(f"{query} WHERE rm = ? AND number = ?", (rm, min(number, INT64_MAX)))
        if not rows:
            return None
        digest, config, *fields = rows[0]
        return build_version(rm, *msgspec.convert((digest, config), tuple[str, bytes | None]), *fields)

    def write(self, rm: str, record: ManagerRecord) -> None:
        """Write or delete the record of an RM. With a version, delete the RM's later ones, which a removal that failed
        has left. Each text is there once, however many versions have it.
        """
        with self._transaction() as execute:
            if record.facts:
                insert = "INSERT INTO managers VALUES (?, ?) ON CONFLICT (rm) DO UPDATE SET facts = excluded.facts"
                execute(insert, (rm, record.facts.decode()))
            else:
                execute("DELETE FROM managers WHERE rm = ?", (rm,))
            if record.version is not None:
                _write_version(execute, rm, record.version)

    def remove_versions(self, rm: str, up_to: int) -> None:
        """Remove the versions of an RM up to this number, and the texts that no other version has."""
        with self._transaction() as execute:
            _remove_versions(execute, "rm = ? AND number <= ?", rm, up_to)

    def rebase(self, rm: str, base: str) -> None:
        """Set the base of the RM's latest version."""
        latest = "SELECT max(number) FROM versions WHERE rm = ?"
        with self._transaction() as execute:
            execute(f"UPDATE versions SET base = ? WHERE rm = ? AND number = ({latest})", (base, rm, rm))  # noqa: S608

    @abstractmethod
    def read_incarnation(self) -> int:
        """The latest incarnation that was written; 0 if there is none."""

    @abstractmethod
    def probe(self) -> None:
        """Write the incarnation again, to test whether writing works."""

    @abstractmethod
    def read_hosts(self) -> list[HostRow]:
        """All hosts that were not removed; none if the store is of one host."""

    @abstractmethod
    def change_host(self, host: str, change: HostChange) -> None:
        """Record that a host is draining or not, or remove it."""

    @abstractmethod
    def remove_journal(self, partition: str, epoch: int) -> None:
        """Remove the journal of a partition that has ended, unless a worker of a later epoch has opened it."""

    @abstractmethod
    def close(self) -> None:
        """Release the record."""

    def has_own_files(self) -> bool:
        """Whether the files of the record are still those that are open, neither deleted nor replaced."""
        return True


def _write_version(execute: Execute, rm: str, version: ConfigVersion) -> None:
    """Write a version in place of those from its number on."""
    config = version.config.encode()
    digest = compute_digest(config)
    _remove_versions(execute, "rm = ? AND (number >= ? OR number < 1)", rm, version.number)
    execute(
        "INSERT INTO texts VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET config = excluded.config"
        " WHERE texts.config <> excluded.config",  # damaged
        (digest, config),
    )
    values = (rm, *(getattr(version, name) for name in COLUMNS), digest)
    marks = ", ".join("?" * len(values))
    execute(f"INSERT INTO versions (rm, {_COLUMNS}, digest) VALUES ({marks})", values)  # noqa: S608 - our own names


def _remove_versions(execute: Execute, condition: str, rm: str, number: int) -> None:
    """Remove versions, and the texts that no other version has."""
    removed = execute(f"DELETE FROM versions WHERE {condition} RETURNING digest", (rm, number))  # noqa: S608
    for digest in dict.fromkeys(removed):
        execute(
            "DELETE FROM texts WHERE digest = ?"
            " AND NOT EXISTS (SELECT 1 FROM versions WHERE versions.digest = texts.digest)",
            digest,
        )


def compute_digest(config: bytes) -> str:
    """The key of a text in the record."""
    return hashlib.sha256(config).hexdigest()


def build_entry(values: Sequence[object]) -> VersionEntry:
    """The entry of a version in a row of COLUMNS."""
    return msgspec.convert(dict(zip(VersionEntry.__struct_encode_fields__, values, strict=True)), VersionEntry)


def build_histories(rows: Iterable[Sequence[object]]) -> dict[str, VersionHistory]:
    """The versions in rows of the RM and COLUMNS, in order, by RM. An RM of which a row cannot be read has none: it
    registers again, and no earlier configuration takes the place of the one in force.
    """
    found: dict[str, VersionHistory] = {}
    damaged: dict[str, str] = {}
    for rm, *fields in rows:
        try:
            found.setdefault(str(rm), VersionHistory()).entries.append(_check_entry(build_entry(fields)))
        except msgspec.ValidationError as error:
            damaged[str(rm)] = str(error)
    for rm, problem in damaged.items():
        _log.warning("the versions of the configuration of RM %s cannot be read, and are not used: %s", rm, problem)
        del found[rm]
    return found


def _check_entry(entry: VersionEntry) -> VersionEntry:
    if not 1 <= entry.number <= NUMBER_MAX:
        raise msgspec.ValidationError(f"the number {entry.number} of a version is out of range")
    if not 0 <= entry.size <= VERSIONS_BYTES_MAX:
        raise msgspec.ValidationError(f"the size {entry.size} of version {entry.number} is out of range")
    if UNREADABLE in entry.checksum:
        raise msgspec.ValidationError(f"the checksum of version {entry.number} is not valid")
    return entry


def build_records(rows: Iterable[Sequence[object]]) -> list[RmRecord]:
    """The records in rows of the RM and its facts, in the order of registration, without those that cannot be read."""
    found: list[RmRecord] = []
    for rm, facts in rows:
        try:
            record = decode_record(facts if isinstance(facts, bytes) else str(facts))
            if record.rm != rm:
                raise msgspec.ValidationError(f"it is that of RM {record.rm}")
            found.append(record)
        except msgspec.MsgspecError as error:
            _log.warning("the record of RM %s cannot be read, so the RM has to register again: %s", rm, error)
    return sorted(found, key=lambda one: one.order)


def build_version(rm: str, digest: str, config: bytes | None, *values: object) -> ConfigVersion:
    """The version in a row of the key of its text, the text, and COLUMNS. Raises RecordDamaged if that is not the text
    with this key.
    """
    entry = build_entry(values)
    if config is None or compute_digest(config) != digest:
        raise RecordDamaged(
            f"the text of version {entry.number} of RM {rm} is {'missing' if config is None else 'damaged'}"
        )
    try:
        return ConfigVersion(**msgspec.structs.asdict(entry), config=config.decode())
    except UnicodeDecodeError:
        raise RecordDamaged(f"the text of version {entry.number} of RM {rm} is not valid UTF-8") from None


class RecordEndpoint(ThreadEndpoint):
    """The record as an endpoint of the broker's wire."""

    def __init__(self, store: Store, *, wake: Callable[[], None]) -> None:
        super().__init__("record", wake=wake)
        self._store = store
        self.writes = WriteTimes()

    def send(self, message: Outgoing) -> None:
        size = MESSAGE_BYTES + len(message.body)
        if self.queued and self.queued + size > QUEUED_BYTES_MAX:
            problem = f"{self.queued >> 20} MiB of other changes wait for the disk"
            self.put(execute(self._store, message, problem))
        else:
            self.run(partial(self._execute, message), size)

    def check_files(self) -> None:
        """Probe the record if its files have been deleted or replaced: the machine learns that from the answer. Every
        write checks this, too, so this is for a broker that writes nothing; needs a running loop.
        """
        if not self.queued and not self._store.has_own_files():
            self.send(make_outgoing(RECORD, ProbeRecord()))

    def _execute(self, message: Outgoing) -> Incoming:
        if message.header.kind in ("ReadConfig", "ReadVersion"):
            return execute(self._store, message)
        with self.writes.measure():
            return execute(self._store, message)


def execute(store: Store, message: Outgoing, problem: str = "") -> Incoming:
    """Carry out a message to the record, or refuse it because of a problem; the answer."""
    header, rm, number = message.header, message.header.rm, 0
    write: Callable[[], None]
    match header.kind:
        case "ReadConfig":
            query = decode_body(ReadConfig, message.body)
            version, problem = _attempt(partial(store.read_version, rm, query.version), problem)
            failure = Answer(status=503, body=f"the record of configurations cannot be read: {problem}".encode())
            answer = failure if problem else build_version_answer(rm, query, version)
            return Incoming(RECORD, Header(kind="Answer", ref=header.ref), encode_body(answer))
        case "ReadVersion":
            found = _read_text(store, rm, decode_body(ReadVersion, message.body).version, problem)
            return Incoming(RECORD, Header(kind="VersionRead", rm=rm), encode_body(found))
        case "RemoveVersions":
            up_to = decode_body(RemoveVersions, message.body).up_to
            _, problem = _attempt(partial(store.remove_versions, rm, up_to), problem)
            if problem:
                _log.warning("earlier configurations of RM %s stay until the next start: %s", rm, problem)
            return Incoming(RECORD, Header(kind="VersionsRemoved"), encode_body(VersionsRemoved(problem=problem)))
        case "ManagerRecord":
            record = decode_body(ManagerRecord, message.body)
            number, write = record.number, partial(store.write, rm, record)
        case "RecordHost":
            wanted = decode_body(RecordHost, message.body)
            _, problem = _attempt(partial(store.change_host, wanted.host, wanted.change), problem)
            outcome = HostRecorded(host=wanted.host, change=wanted.change, problem=problem)
            return Incoming(RECORD, Header(kind="HostRecorded", ref=header.ref), encode_body(outcome))
        case "RebaseVersion":
            write = partial(store.rebase, rm, decode_body(RebaseVersion, message.body).base)
        case "RemoveJournal":
            write = partial(store.remove_journal, header.partition, header.epoch)
        case "ProbeRecord":
            write = store.probe
        case unknown:
            raise TypeError(unknown)
    _, problem = _attempt(write, problem)
    if problem and header.partition:  # the machine logs the others, which are tried again
        _log.warning("the end of %s could not be recorded: %s", header.partition, problem)
    recorded = Recorded(number=number, problem=problem)
    return Incoming(RECORD, Header(kind="Recorded", rm=rm if number else ""), encode_body(recorded))


def _read_text(store: Store, rm: str, number: int, problem: str) -> VersionRead:
    try:
        if problem:
            raise OSError(problem)
        version = store.read_version(rm, number)
        if version is None:
            raise RecordDamaged(f"the record has no version {number} of RM {rm}")
        return VersionRead(version=number, text=version.config)
    except OSError as error:
        return VersionRead(version=number, problem=str(error), may_retry=not isinstance(error, RecordDamaged))


def _attempt(work: Callable[[], _T], problem: str) -> tuple[_T | None, str]:
    """Do this, unless there is a problem already; the result, and the problem."""
    if problem:
        return None, problem
    try:
        return work(), ""
    except OSError as error:
        return None, str(error)
