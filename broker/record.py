"""The durable record of the broker: an SQLite file that has all it decides about an RM before anybody hears of it.

An endpoint of the broker's wire like a socket: the machine sends it what is so of an RM and questions, and hears
`Recorded` and `Answer`. What it was given is on the disk (`synchronous=FULL`), all of it or nothing, when `Recorded`
says so; a disk that is full or broken refuses it. Not here: what it means (`facts.py`), which version of a
configuration counts (`versions.py`).
"""

import logging
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from broker.facts import Facts, decoded_facts, recorded_order
from broker.versions import RMS_MAX, VERSIONS_MAX, Entry, History
from common.control_messages import ConfigVersion, ManagerRecord, RebaseVersion, Recorded
from common.machine import Delivery, Send, send
from common.messages import INT64_MAX, Header
from common.names import BROKER, RECORD
from common.query_messages import Answer, ReadConfig
from common.wire import decoded

FORMAT: Final = 2
"""Of the file, in its `user_version`; a file of a later format is refused. Format 1 had versions only."""

IN_MEMORY: Final = ":memory:"
"""As a path: a record that ends with the process."""

LOCK_MAX_S: Final = 0.2
"""How long to wait for somebody else who has the file locked, a backup say; the whole broker waits meanwhile."""

_SCHEMA: Final = (
    """
CREATE TABLE IF NOT EXISTS versions (
    rm TEXT NOT NULL, number INTEGER NOT NULL, checksum TEXT NOT NULL, at_ns INTEGER NOT NULL, author TEXT NOT NULL,
    origin TEXT NOT NULL, base TEXT NOT NULL, config TEXT NOT NULL, PRIMARY KEY (rm, number)
) STRICT
""",
    """
CREATE TABLE managers (rm TEXT NOT NULL PRIMARY KEY, facts TEXT NOT NULL) STRICT
""",
    """
CREATE TABLE incarnations (number INTEGER NOT NULL) STRICT
""",
)

_log = logging.getLogger("core.config")


class VersionText(msgspec.Struct, frozen=True, kw_only=True):
    """One version with its text; `at` in Unix nanoseconds."""

    rm: str
    version: int
    checksum: str
    at: int
    author: str
    origin: str
    config: str


class Record:
    """The open file. Raises OSError for one that cannot be used."""

    def __init__(self, path: str | Path, *, wake: Callable[[], None]) -> None:
        self.problem = ""
        """Why it could not be written when this broker began; empty if it could."""
        self._incarnation = 0
        self._answers: deque[Delivery] = deque()
        self._wake = wake
        self._path = path
        with self._usable():
            if path != IN_MEMORY:  # nobody else is to read it; what SQLite puts beside it is as private
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._file = sqlite3.connect(path, isolation_level=None, timeout=LOCK_MAX_S)
            try:
                self._open()
            except sqlite3.Error:
                self._file.close()
                raise

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """What is wrong with the file, as OSError."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last in what SQLite complains about
            reason = error.strerror if isinstance(error, OSError) else error
            text = (
                f"{self._path}: the record of RMs and configurations cannot be used: {reason}; move it away, then RMs"
                " register anew and report everything, and the history of configurations is gone"
            )
            raise OSError(text) from error

    def _open(self) -> None:
        found = self._file.execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT:
            raise sqlite3.DatabaseError(f"it has format {found}, this is a release that knows {FORMAT}")
        damage = self._file.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(str(damage).splitlines()[-1])  # after a line that says which database
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=FULL")
        if found < FORMAT:
            with self._file:
                self._file.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    self._file.execute(statement)
                self._file.execute(f"PRAGMA user_version={FORMAT}")
        rows = self._file.execute("SELECT rm FROM versions ORDER BY rowid").fetchall()
        self._known: dict[str, None] = {rm: None for (rm,) in rows}
        """RM ids in the order in which they were first known."""

    def begin(self, unix_s: int) -> int:
        """A broker begins at this time: its incarnation, which is above all earlier ones.

        Not less than the time either, so that it is above those in a record that was put aside, or of a broker that
        found the disk full when it began. Raises OSError as the constructor does.
        """
        with self._usable():
            last = self._file.execute("SELECT max(number) FROM incarnations").fetchone()[0]
        self._incarnation = max(unix_s, (last or 0) + 1)
        self.problem = self._write_incarnation()
        if self.problem:
            _log.warning("the start of broker %d could not be recorded: %s", self._incarnation, self.problem)
        return self._incarnation

    def _write_incarnation(self) -> str:
        """Why that is not possible, if it is not."""
        try:
            with self._file:
                self._file.execute("BEGIN IMMEDIATE")
                self._file.execute("DELETE FROM incarnations")
                self._file.execute("INSERT INTO incarnations VALUES (?)", (self._incarnation,))
        except sqlite3.Error as error:
            return str(error)
        return ""

    def facts(self) -> list[Facts]:
        """What has to be known of each RM, in the order in which they registered. One that cannot be read has to
        register anew. Raises OSError as the constructor does.
        """
        found: list[Facts] = []
        with self._usable():
            rows = self._file.execute("SELECT rm, CAST(facts AS BLOB) FROM managers").fetchall()
        for rm, text in rows:
            try:
                found.append(decoded_facts(text))
            except msgspec.MsgspecError as error:
                _log.warning("the record of RM %s cannot be read, so the RM has to register again: %s", rm, error)
        return sorted(found, key=recorded_order)

    def histories(self) -> dict[str, History]:
        """All that is recorded, by RM id in the order in which they were first known. Raises OSError as the
        constructor does.
        """
        found: dict[str, History] = {}
        with self._usable():
            rows = self._file.execute(
                "SELECT rm, number, checksum, at_ns, author, origin, base FROM versions ORDER BY rowid"
            )
            for rm, *fields in rows:
                found.setdefault(rm, History()).entries.append(Entry(*fields))
            for rm, history in found.items():
                latest = history.latest
                assert latest is not None, rm
                text = self._file.execute("SELECT config FROM versions WHERE rm=? AND number=?", (rm, latest.number))
                history.text = text.fetchone()[0]
        return found

    def close(self) -> None:
        self._file.close()

    # Endpoint -------------------------------------------------------------------------------------------------------

    def receive(self) -> Delivery | None:
        return self._answers.popleft() if self._answers else None

    def send(self, message: Send) -> None:
        header = message.header
        match header.kind:
            case "ManagerRecord":
                self._record(header.rm, decoded(ManagerRecord, message.body))
            case "RebaseVersion":
                self._rebase(header.rm, decoded(RebaseVersion, message.body))
            case "ProbeRecord":
                self._answer(send(RECORD, Recorded(number=0, problem=self._write_incarnation())))
            case "ReadConfig":
                self._read(header, decoded(ReadConfig, message.body))
            case unknown:
                raise TypeError(unknown)

    def _record(self, rm: str, message: ManagerRecord) -> None:
        problem = ""
        try:
            with self._file:
                self._file.execute("BEGIN IMMEDIATE")
                self._write_facts(rm, message.facts)
                forgotten = self._write_version(rm, message.version) if message.version is not None else None
            if message.version is not None:
                self._known = dict.fromkeys(one for one in (*self._known, rm) if one != forgotten)
        except sqlite3.Error as error:
            problem = str(error)
            _log.warning("changes of RM %s could not be recorded: %s", rm, error)
        self._answer(send(RECORD, Recorded(number=message.number, problem=problem), Header(kind="Recorded", rm=rm)))

    def _write_facts(self, rm: str, facts: bytes) -> None:
        if facts:
            self._file.execute("INSERT OR REPLACE INTO managers VALUES (?, ?)", (rm, facts.decode()))
        else:
            self._file.execute("DELETE FROM managers WHERE rm=?", (rm,))

    def _write_version(self, rm: str, version: ConfigVersion) -> str | None:
        """Add a version, and say of which RM all had to be forgotten for it, if of any."""
        fields = (
            rm,
            version.number,
            version.checksum,
            version.at_ns,
            version.author,
            version.origin,
            version.base,
            version.config,
        )
        self._file.execute("INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", fields)
        return self._forget(rm, version.number)

    def _forget(self, rm: str, number: int) -> str | None:
        """Delete what is more than `versions.py` remembers, and say which RM that was all of, if any."""
        self._file.execute("DELETE FROM versions WHERE rm=? AND number<=?", (rm, number - VERSIONS_MAX))
        if rm in self._known or len(self._known) < RMS_MAX:
            return None
        oldest = next(iter(self._known))
        self._file.execute("DELETE FROM versions WHERE rm=?", (oldest,))
        return oldest

    def _rebase(self, rm: str, rebase: RebaseVersion) -> None:
        """Should this be lost, the next registration says the same again."""
        problem = ""
        try:
            self._file.execute(
                "UPDATE versions SET base=? WHERE rm=? AND number=(SELECT max(number) FROM versions WHERE rm=?)",
                (rebase.base, rm, rm),
            )
        except sqlite3.Error as error:
            problem = str(error)
            _log.warning("the base of the configuration of RM %s could not be recorded: %s", rm, error)
        self._answer(send(RECORD, Recorded(number=0, problem=problem)))

    def _read(self, header: Header, asked: ReadConfig) -> None:
        try:
            row = self._file.execute(
                "SELECT number, checksum, at_ns, author, origin, config FROM versions WHERE rm=? AND number=?",
                (header.rm, min(asked.version, INT64_MAX)),
            ).fetchone()
        except sqlite3.Error as error:
            answer = Answer(status=503, body=f"the record of configurations cannot be read: {error}".encode())
        else:
            answer = version_told(header.rm, asked.version, row)
        self._answer(send(BROKER, answer, Header(kind="Answer", ref=header.ref)))

    def _answer(self, message: Send) -> None:
        self._answers.append(Delivery(RECORD, message.header, message.body))
        self._wake()


def version_told(rm: str, wanted: int, row: tuple[int, str, int, str, str, str] | None) -> Answer:
    """The answer to who asked for a version: what is recorded of it, or that nothing is."""
    if row is None:
        text = f"RM {rm} has no version {wanted} of its configuration, or no longer"
        return Answer(status=404, body=text.encode())
    number, checksum, at_ns, author, origin, config = row
    document = VersionText(
        rm=rm, version=number, checksum=checksum, at=at_ns, author=author, origin=origin, config=config
    )
    return Answer(status=200, body=msgspec.json.encode(document))
