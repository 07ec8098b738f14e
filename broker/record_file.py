"""The broker's durable record (SQLite): the record of each RM, and the versions of its configuration.

An endpoint of the broker's wire like a socket. The machine sends records and queries and receives `Recorded` and
`Answer`. A write is on disk (`synchronous=FULL`), all of it or nothing, when `Recorded` is sent; a full or broken disk
refuses it. Not here: what a record contains and when it is written (`rm_records.py`).
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import astuple

from broker.queries import build_version_answer
from broker.registry import RmRecord
from broker.rm_records import decode_record
from broker.state import RMS_MAX, VERSIONS_MAX, VersionHistory
from common.control_messages import ConfigVersion, ManagerRecord, RebaseVersion, Recorded
from common.messages import INT64_MAX, Header, Message
from common.names import RECORD
from common.query_messages import Answer, ReadConfig
from common.transport import Inbox
from common.wire import Incoming, Outgoing, decode_body, encode_body

FORMAT_VERSION: Final = 2
"""The file's `user_version`; a file with a later one is refused. Format 1 had configuration versions only."""

IN_MEMORY: Final = ":memory:"
"""The path of a record that ends with the process."""

LOCK_MAX_S: Final = 0.2
"""How long to wait for another process that has locked the file, such as a backup; the whole broker waits."""

_SCHEMA: Final = (
    (
        "CREATE TABLE IF NOT EXISTS versions (rm TEXT NOT NULL, number INTEGER NOT NULL, checksum TEXT NOT NULL, "
        "at_ns INTEGER NOT NULL, author TEXT NOT NULL, origin TEXT NOT NULL, base TEXT NOT NULL, config TEXT NOT NULL, "
        "PRIMARY KEY (rm, number)) STRICT"
    ),
    "CREATE TABLE managers (rm TEXT NOT NULL PRIMARY KEY, facts TEXT NOT NULL) STRICT",
    "CREATE TABLE incarnations (number INTEGER NOT NULL) STRICT",
)

_DELETE_OLDEST_RM: Final = """
DELETE FROM versions WHERE rm=(SELECT rm FROM versions GROUP BY rm ORDER BY min(rowid) LIMIT 1)
AND (SELECT count(DISTINCT rm) FROM versions) > ?
"""
"""Deletes the versions of the RM that was first known, if there are too many RMs."""

_Statement = tuple[str, Sequence[object]]

_log = logging.getLogger("core.config")


class RecordFile(Inbox):
    """The open file. Raises OSError for one that cannot be used."""

    def __init__(self, path: str | Path, *, wake: Callable[[], None]) -> None:
        super().__init__(wake=wake)
        self.problem = ""
        """Why the file could not be written when this broker started; empty if it could."""
        self._incarnation = 0
        self._path = path
        with self._usable():
            if path != IN_MEMORY:  # only this user may read it; SQLite gives its other files the same mode
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._file = sqlite3.connect(path, isolation_level=None, timeout=LOCK_MAX_S)
            try:
                self._open()
            except sqlite3.Error:
                self._file.close()
                raise

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Raise problems with the file as OSError."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last in messages of SQLite
            reason = error.strerror if isinstance(error, OSError) else error
            text = (
                f"{self._path}: the record of RMs and configurations cannot be used: {reason}; move it away, then RMs"
                " register again and report everything, and the history of configurations is gone"
            )
            raise OSError(text) from error

    def _open(self) -> None:
        found = self._file.execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT_VERSION:
            raise sqlite3.DatabaseError(f"it has format {found}, this release supports up to {FORMAT_VERSION}")
        damage = self._file.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(str(damage).splitlines()[-1])  # the first line names the database
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=FULL")
        if found < FORMAT_VERSION:
            with self._file:
                self._file.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    self._file.execute(statement)
                self._file.execute(f"PRAGMA user_version={FORMAT_VERSION}")

    def begin(self, unix_s: int) -> int:
        """Start a new incarnation of the broker at this time; its number is above all earlier ones.

        It is not less than the time either, so that it is above those in a file that was moved away, and those of a
        broker that found the disk full when it started. Raises OSError as the constructor does.
        """
        with self._usable():
            last = self._file.execute("SELECT max(number) FROM incarnations").fetchone()[0]
        self._incarnation = max(unix_s, (last or 0) + 1)
        self.problem = self._write_incarnation()
        return self._incarnation

    def _write_incarnation(self) -> str:
        """Write the incarnation; why that failed, or empty."""
        return self._commit(
            f"the start of broker {self._incarnation}",
            ("DELETE FROM incarnations", ()),
            ("INSERT INTO incarnations VALUES (?)", (self._incarnation,)),
        )

    def _commit(self, what: str, *statements: _Statement) -> str:
        """Execute the statements in one transaction; why that failed, or empty."""
        try:
            with self._file:
                self._file.execute("BEGIN IMMEDIATE")
                for statement, values in statements:
                    self._file.execute(statement, values)
        except sqlite3.Error as error:
            _log.warning("%s could not be recorded: %s", what, error)
            return str(error)
        return ""

    def read_records(self) -> list[RmRecord]:
        """The records in the order of registration. An RM whose record cannot be read has to register again. Raises
        OSError as the constructor does.
        """
        found: list[RmRecord] = []
        with self._usable():
            rows = self._file.execute("SELECT rm, CAST(facts AS BLOB) FROM managers").fetchall()
        for rm, text in rows:
            try:
                found.append(decode_record(text))
            except msgspec.MsgspecError as error:
                _log.warning("the record of RM %s cannot be read, so the RM has to register again: %s", rm, error)
        # records of releases without an order of registration come last, by the time of registration
        return sorted(found, key=lambda one: (not one.order, one.order or one.registered_ns))

    def read_histories(self) -> dict[str, VersionHistory]:
        """All configuration versions, by RM id in the order of the first version. Raises OSError as the constructor
        does.
        """
        found: dict[str, VersionHistory] = {}
        with self._usable():
            rows = self._file.execute(
                "SELECT rm, number, checksum, at_ns, author, origin, base,"
                " CASE WHEN rowid = max(rowid) OVER (PARTITION BY rm) THEN config ELSE '' END"
                " FROM versions ORDER BY rowid"
            )
            for rm, *fields in rows:
                found.setdefault(rm, VersionHistory()).entries.append(_build_version(fields))
        return found

    def close(self) -> None:
        self._file.close()

    # Endpoint -------------------------------------------------------------------------------------------------------

    def send(self, message: Outgoing) -> None:
        header = message.header
        match header.kind:
            case "ManagerRecord":
                self._write(header.rm, decode_body(ManagerRecord, message.body))
            case "RebaseVersion":
                self._rebase(header.rm, decode_body(RebaseVersion, message.body))
            case "ProbeRecord":
                self._answer(Recorded(number=0, problem=self._write_incarnation()), Header(kind="Recorded"))
            case "ReadConfig":
                self._read(header, decode_body(ReadConfig, message.body))
            case unknown:
                raise TypeError(unknown)

    def _write(self, rm: str, message: ManagerRecord) -> None:
        """Write or delete a record. With a version, delete those above the limits."""
        statements: list[_Statement] = [("DELETE FROM managers WHERE rm=?", (rm,))]
        if message.facts:
            statements.append(("INSERT INTO managers VALUES (?, ?)", (rm, message.facts.decode())))
        if message.version is not None:
            statements += [
                ("INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (rm, *astuple(message.version))),
                ("DELETE FROM versions WHERE rm=? AND number<=?", (rm, message.version.number - VERSIONS_MAX)),
                (_DELETE_OLDEST_RM, (RMS_MAX,)),
            ]
        problem = self._commit(f"changes of RM {rm}", *statements)
        self._answer(Recorded(number=message.number, problem=problem), Header(kind="Recorded", rm=rm))

    def _rebase(self, rm: str, rebase: RebaseVersion) -> None:
        """Set the base of the latest version. If the write fails, the next registration repeats it."""
        statement = "UPDATE versions SET base=? WHERE rm=? AND number=(SELECT max(number) FROM versions WHERE rm=?)"
        problem = self._commit(f"the base of the configuration of RM {rm}", (statement, (rebase.base, rm, rm)))
        self._answer(Recorded(number=0, problem=problem), Header(kind="Recorded"))

    def _read(self, header: Header, query: ReadConfig) -> None:
        try:
            row = self._file.execute(
                "SELECT number, checksum, at_ns, author, origin, base, config FROM versions WHERE rm=? AND number=?",
                (header.rm, min(query.version, INT64_MAX)),
            ).fetchone()
        except sqlite3.Error as error:
            answer = Answer(status=503, body=f"the record of configurations cannot be read: {error}".encode())
        else:
            answer = build_version_answer(header.rm, query.version, _build_version(row) if row else None)
        self._answer(answer, Header(kind="Answer", ref=header.ref))

    def _answer(self, message: Message, header: Header) -> None:
        self.put(Incoming(RECORD, header, encode_body(message)))


def _build_version(row: Sequence[int | str]) -> ConfigVersion:
    """The version in a row of the table, without its first column."""
    return msgspec.convert(dict(zip(ConfigVersion.__struct_encode_fields__, row, strict=True)), ConfigVersion)
