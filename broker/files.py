"""The broker's files: its durable record (SQLite), and the watched file with the default configuration.

Both are endpoints of the broker's wire like sockets.

**Record.** The record of each RM and the versions of its configuration. The machine sends records and queries and
receives `Recorded` and `Answer`. A write is on disk (`synchronous=FULL`), all of it or nothing, when `Recorded` is
sent; a full or broken disk refuses it.

**Watched file.** It is polled for changes, and changes made elsewhere are written back to it. The machine receives
`ChangedFile` and sends `WriteFile`. The file is replaced in one step, so no reader sees half of it, and the previous
text is kept beside it in a file with the suffix `.previous`. Rejected: inotify, which needs a library and misses the
updates of mounted volumes (Kubernetes ConfigMaps among them).

Not here: what a record contains and when it is written (`rm_records.py`), what a change of the file means
(`config_updates.py`).
"""

import asyncio
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import astuple

from broker.queries import build_version_answer
from broker.registry import RmRecord
from broker.rm_records import decode_record
from broker.state import RMS_MAX, VERSIONS_MAX, VersionHistory
from common.config.model import compute_checksum
from common.config.parse import TEXT_BYTES_MAX
from common.control_messages import ChangedFile, ConfigVersion, ManagerRecord, RebaseVersion, Recorded, WriteFile
from common.messages import INT64_MAX, Header, Message
from common.names import FILE, RECORD
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


# Watched file --------------------------------------------------------------------------------------------------------

POLL_INTERVAL_S: Final = 0.5
"""Seconds between two polls. A change counts once two polls in a row find the same, as the writer may not have
finished.
"""

NEW_FILE_MODE: Final = 0o644
"""Mode of a new file, before the umask."""


class WatchedFile(Inbox):
    """A file that cannot be read at first has no text yet: `yunishard up` refuses it, but a broker that restarts has to
    run without it.
    """

    def __init__(self, path: Path, *, wake: Callable[[], None]) -> None:
        super().__init__(wake=wake)
        self.path = path
        self._timer: asyncio.TimerHandle | None = None
        self._last_warning = ""
        self._stamp: tuple[int, ...] | None = None
        self.text = ""
        with suppress(OSError):
            stamp = self._read_stamp()
            self.text = self._read()
            self._stamp = stamp
        self._seen = self._stamp

    def watch(self) -> None:
        """Poll the file from now on, at regular intervals; needs a running loop."""
        if self._timer is not None:
            self.poll()
        self._timer = asyncio.get_running_loop().call_later(POLL_INTERVAL_S, self.watch)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def send(self, message: Outgoing) -> None:
        """Write a text in place of the one that it changes. If that fails the change stays in force, as it is in the
        record. A missing file is created again.
        """
        wanted = decode_body(WriteFile, message.body)
        try:
            gone = not self.path.exists()
            if not gone and compute_checksum(self._read()) != wanted.replaces:
                _log.warning("%s has been edited since and is not overwritten: its present text counts", self.path)
                return
            self._write(wanted.text, gone=gone)
        except OSError as error:
            _log.warning(
                "%s cannot be written: %s; the change is in force and recorded, but not in the file",
                self.path,
                error.strerror or error,
            )
            return
        what = "was missing and is written again" if gone else f"written, the previous text is in {self._previous}"
        _log.info("%s %s", self.path, what)
        for _ in ("new", "complete"):
            self.poll()

    @property
    def _previous(self) -> Path:
        return self.path.with_name(self.path.name + ".previous")

    def _write(self, text: str, *, gone: bool) -> None:
        target = self.path.resolve()  # keeps a symbolic link
        new = target.with_name(f".{target.name}.new")
        new.unlink(missing_ok=True)
        try:
            # Private until it has the mode of the file that it replaces; never follows a link.
            mode = NEW_FILE_MODE if gone else 0o600
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if not gone:
                shutil.copymode(target, new)
                shutil.copy2(target, self._previous)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def poll(self) -> None:
        """Report a change once it is complete."""
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                self._last_warning = ""
            if stamp == self._stamp or stamp != self._seen:
                self._seen = stamp
                return
            text = self._read()
            if stamp != self._read_stamp():
                return
        except OSError as error:
            warning = f"cannot be read: {error.strerror or error}"
            if warning != self._last_warning:  # log each reason once
                self._last_warning = warning
                _log.warning("%s %s; the configuration in force stays", self.path, warning)
            return
        self._stamp, self._last_warning = stamp, ""
        if text != self.text:
            self.text = text
            self.put(Incoming(FILE, Header(kind="ChangedFile"), encode_body(ChangedFile(text=text))))

    def _read_stamp(self) -> tuple[int, ...]:
        """A value that differs after every change: the inode, as editors and mounts replace the file, and the ctime, as
        `cp -p` keeps the mtime.
        """
        found = self.path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def _read(self) -> str:
        if self.path.stat().st_size > TEXT_BYTES_MAX:
            raise OSError(f"has more than {TEXT_BYTES_MAX} bytes")
        try:
            return self.path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise OSError(f"is not UTF-8: {error}") from None
