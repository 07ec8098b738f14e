"""The store of one machine: the broker's record in an SQLite file.

A write is one transaction, on disk when it returns (`synchronous=FULL`). The fields of an RM are a JSON object, of
which unknown fields are ignored; only its configuration, which may have megabytes, is in a column of its own.

Not here: the messages to the record, and what the methods promise (`store.py`).
"""

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import astuple, replace

from broker.hosts import HostRow
from broker.registry import RmRecord
from broker.rm_records import decode_record, sort_records
from broker.state import RMS_MAX, VERSIONS_MAX, VersionHistory
from broker.store import Store
from common.control_messages import ConfigVersion, HostChange, ManagerRecord
from common.messages import INT64_MAX
from common.sqlite_file import open_file, transaction

FORMATS: Final = Path(__file__).parent / "formats"
"""The statements that convert a file to each format, from the one before."""

_WRITE_RECORD: Final = (
    "INSERT INTO managers VALUES (:rm, :facts, coalesce(:text, ''))"
    " ON CONFLICT (rm) DO UPDATE SET facts=excluded.facts, text=coalesce(:text, text)"
)

_DELETE_OLDEST_RM: Final = (
    "DELETE FROM versions WHERE rm=(SELECT rm FROM versions GROUP BY rm ORDER BY min(rowid) LIMIT 1)"
    " AND (SELECT count(DISTINCT rm) FROM versions) > ?"
)
"""Deletes the versions of the RM that was first known, if there are too many RMs."""

_log = logging.getLogger("core.config")


class SqliteStore(Store):
    """The open file, for one thread at a time. Raises OSError for one that cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._usable():
            self._file = open_file(path, FORMATS, ["synchronous=FULL"])

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Raise problems with the file as OSError."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last in messages of SQLite
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            text = (
                f"{self._path}: the record of RMs and configurations cannot be used: {reason}; move it away, then RMs"
                " register again and report everything, and the history of configurations is gone"
            )
            raise OSError(text) from error

    def read_incarnation(self) -> int:
        with self._usable():
            return self._read_incarnation()

    def _read_incarnation(self) -> int:
        found: int = self._file.execute("SELECT coalesce(max(number), 0) FROM incarnations").fetchone()[0]
        return found

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All statements within take effect, or none. Raises OSError then, or if a later broker has written."""
        try:
            with transaction(self._file):
                if (later := self._read_incarnation()) > self.incarnation:
                    raise OSError(f"broker {later} has taken the place of this one, {self.incarnation}")
                yield
        except sqlite3.Error as error:
            raise OSError(str(error)) from error

    def read_hosts(self) -> list[HostRow]:
        return []

    def change_host(self, host: str, change: HostChange) -> None:
        raise OSError(f"host {host} is the only one: partitions move between the hosts of one --store only")

    def remove_journal(self, partition: str, epoch: int) -> None:
        """Nothing to do: the supervisor removes files."""

    def probe(self) -> None:
        with self._transaction():
            self._file.execute("DELETE FROM incarnations")
            self._file.execute("INSERT INTO incarnations VALUES (?)", (self.incarnation,))

    def write(self, rm: str, record: ManagerRecord) -> None:
        version = record.version
        with self._transaction():
            if record.facts:
                facts = record.facts.decode()
                self._file.execute(_WRITE_RECORD, {"rm": rm, "facts": facts, "text": record.text})
            else:
                self._file.execute("DELETE FROM managers WHERE rm=?", (rm,))
            if version is not None:
                values = (rm, *astuple(version))
                self._file.execute("INSERT OR REPLACE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
                oldest = version.number - VERSIONS_MAX
                self._file.execute("DELETE FROM versions WHERE rm=? AND number<=?", (rm, oldest))
                self._file.execute(_DELETE_OLDEST_RM, (RMS_MAX,))

    def rebase(self, rm: str, base: str) -> None:
        with self._transaction():
            self._file.execute(
                "UPDATE versions SET base=? WHERE rm=? AND number=(SELECT max(number) FROM versions WHERE rm=?)",
                (base, rm, rm),
            )

    def read_records(self) -> list[RmRecord]:
        found: list[RmRecord] = []
        with self._usable():
            rows = self._file.execute("SELECT rm, CAST(facts AS BLOB), text FROM managers").fetchall()
        for rm, facts, text in rows:
            try:
                found.append(replace(decode_record(facts), text=text))
            except msgspec.MsgspecError as error:
                _log.warning("the record of RM %s cannot be read, so the RM has to register again: %s", rm, error)
        return sort_records(found)

    def read_histories(self) -> dict[str, VersionHistory]:
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

    def read_version(self, rm: str, number: int) -> ConfigVersion | None:
        try:
            row = self._file.execute(
                "SELECT number, checksum, at_ns, author, origin, base, config FROM versions WHERE rm=? AND number=?",
                (rm, min(number, INT64_MAX)),
            ).fetchone()
        except sqlite3.Error as error:
            raise OSError(str(error)) from error
        return _build_version(row) if row else None

    def close(self) -> None:
        self._file.close()


def _build_version(row: Sequence[int | str]) -> ConfigVersion:
    """The version in a row of the table, without its first column."""
    return msgspec.convert(dict(zip(ConfigVersion.__struct_encode_fields__, row, strict=True)), ConfigVersion)
