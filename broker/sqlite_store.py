"""The store of one machine: the broker's record in an SQLite file.

A write is one transaction, on disk when it returns (`synchronous=FULL`). The fields of an RM are a JSON object, of
which unknown fields are ignored. Texts of configurations, which may have megabytes, are in a table of their own, by
their SHA-256. Pages of removed texts are used for later ones; the file itself never shrinks.

Not here: the messages to the record, and what the methods promise (`store.py`), earlier formats
(`record_conversion.py`).
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker.config_versions import VersionHistory
from broker.hosts import HostRow
from broker.record_conversion import LAST_WITH_TEXTS, convert_record
from broker.registry import RmRecord
from broker.store import COLUMNS, Store, TextLost, build_histories, build_records, build_version, compute_digest
from common.control_messages import ConfigVersion, HostChange, ManagerRecord
from common.messages import INT64_MAX
from common.sqlite_file import decode_text, find_format, open_file, transaction

FORMATS: Final = Path(__file__).parent / "formats"
"""The statements that convert a file to each format, from the one before."""

TABLES: Final = ("managers", "versions", "incarnations")
"""The tables that are read at the start. Texts are checked when they are read."""

_log = logging.getLogger("core.config")


class SqliteStore(Store):
    """The open file, for one thread at a time. Raises OSError for one that cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._usable():
            if 0 < find_format(path) <= LAST_WITH_TEXTS:
                convert_record(path, FORMATS)
            self._file = open_file(path, FORMATS, ["synchronous=FULL"], checked=TABLES)
        self._file.text_factory = decode_text

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
                self._file.execute("INSERT OR REPLACE INTO managers VALUES (?, ?)", (rm, record.facts.decode()))
            else:
                self._file.execute("DELETE FROM managers WHERE rm=?", (rm,))
            if version is not None:
                config = version.config.encode()
                digest = compute_digest(config)
                self._remove("rm=? AND (number>=? OR number<1)", rm, version.number)
                self._file.execute(
                    "INSERT INTO texts VALUES (?, ?) ON CONFLICT DO UPDATE SET config=excluded.config"
                    " WHERE config<>excluded.config",  # damaged
                    (digest, config),
                )
                values = (rm, *(getattr(version, name) for name in COLUMNS), digest)
                self._file.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def remove_versions(self, rm: str, up_to: int) -> None:
        with self._transaction():
            self._remove("rm=? AND number<=?", rm, up_to)

    def _remove(self, condition: str, rm: str, number: int) -> None:
        """Remove versions, and the texts that no other version has."""
        query = f"DELETE FROM versions WHERE {condition} RETURNING digest"  # noqa: S608
        digests = self._file.execute(query, (rm, number)).fetchall()
        query = "DELETE FROM texts WHERE digest=?1 AND NOT EXISTS (SELECT 1 FROM versions WHERE digest=?1)"
        self._file.executemany(query, digests)

    def rebase(self, rm: str, base: str) -> None:
        with self._transaction():
            self._file.execute(
                "UPDATE versions SET base=? WHERE rm=? AND number=(SELECT max(number) FROM versions WHERE rm=?)",
                (base, rm, rm),
            )

    def read_records(self) -> list[RmRecord]:
        with self._usable():
            rows = self._file.execute("SELECT rm, CAST(facts AS BLOB) FROM managers").fetchall()
        return build_records(rows)

    def read_histories(self) -> dict[str, VersionHistory]:
        with self._usable():
            rows = self._file.execute(f"SELECT rm, {', '.join(COLUMNS)} FROM versions ORDER BY rm, number")  # noqa: S608
            return build_histories(rows)

    def read_version(self, rm: str, number: int) -> ConfigVersion | None:
        try:
            row = self._file.execute(
                f"SELECT digest, config, {', '.join(COLUMNS)} FROM versions LEFT JOIN texts USING (digest)"  # noqa: S608
                " WHERE rm=? AND number=?",
                (rm, min(number, INT64_MAX)),
            ).fetchone()
        except sqlite3.OperationalError as error:
            raise OSError(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise TextLost(str(error)) from error
        return build_version(rm, *row) if row else None

    def close(self) -> None:
        self._file.close()
