"""The store of one machine: the broker's record in an SQLite file.

A write is one transaction, on disk when it returns (`synchronous=FULL`). The fields of an RM are a JSON object, of
which unknown fields are ignored. Texts of configurations, which may have megabytes, are in a table of their own, by
their SHA-256. Pages of removed texts are used for later ones; the file itself never shrinks.

Not here: the messages to the record, and the statements (`store.py`).
"""

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from yunishard.broker.hosts import HostRow
from yunishard.broker.store import Execute, RecordDamaged, Store
from yunishard.common.messages.control_messages import HostChange
from yunishard.common.process.folders import sync_path
from yunishard.common.sqlite_file import (
    IN_MEMORY,
    decode_text,
    find_log,
    open_file,
    remove_database,
    transaction,
)

FORMATS: Final = Path(__file__).parent / "formats"
"""The statements that convert a file to each format, from the one before."""

NEW: Final = ".new"
"""Behind the name of a file that is to take the place of the record once it is complete."""

TABLES: Final = ("managers", "versions", "incarnations")
"""The tables that are read at the start. Texts are checked when they are read."""

_log = logging.getLogger("core.config")


class SqliteStore(Store):
    """The open file, for one thread at a time. Raises OSError for one that cannot be used."""

    facts_column = "CAST(facts AS BLOB)"  # as a text, it would have valid characters in the place of others

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: tuple[tuple[int, int] | None, ...] = ()
        """Of the files, once they are open."""
        try:
            self._open()
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last in messages of SQLite
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            text = (
                f"{self._path}: the record of RMs and configurations cannot be used: {reason}; move it away, then RMs"
                " register again and report everything, and the history of configurations is gone"
            )
            raise OSError(text) from error

    # Files ----------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._file = open_file(self._path, FORMATS, ["synchronous=FULL"], checked=TABLES)
        self._file.text_factory = decode_text
        self._identity = self._identify()

    def _identify(self) -> tuple[tuple[int, int] | None, ...]:
        """Device and inode of the database and of its write-ahead log; None for a file that is not there."""
        found: list[tuple[int, int] | None] = []
        for path in () if self._path == IN_MEMORY else (self._path, find_log(self._path)):
            try:
                status = path.stat()
            except FileNotFoundError:
                found.append(None)
            else:
                found.append((status.st_dev, status.st_ino))
        return tuple(found)

    def has_own_files(self) -> bool:
        return self._identify() == self._identity

    def _check_files(self) -> None:
        """Write the record again if its files have been deleted: what is written to them would be lost with this
        process. Raises OSError if that fails, or if another file is in their place.
        """
        found = self._identify()
        if found == self._identity:
            return
        if found and found[0] not in (None, self._identity[0]):
            raise OSError(
                f"{self._path} is another file than the one with which the broker started: changes are refused; stop"
                " the system to continue with that file, or move it away, then the broker writes its record again"
            )
        try:
            self._write_again()
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            text = f"{self._path} was deleted while the broker runs, and cannot be written again: {reason}"
            raise OSError(f"{text}; do not stop the broker before that works, as the record would be lost") from error
        _log.warning("%s was deleted while the broker runs: it is written again, and nothing is lost", self._path)

    def _write_again(self) -> None:
        """Copy the record from the open files, which exist until they are closed, to a new one."""
        new = self._path.with_name(self._path.name + NEW)
        remove_database(new)
        try:
            os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._file.execute("VACUUM INTO ?", (str(new),))
            sync_path(new)
            self._file.close()  # also deletes the write-ahead log, if that has the old name
            remove_database(self._path)
            new.replace(self._path)
        finally:
            remove_database(new)
        sync_path(self._path.parent)
        self._open()

    # Reading and writing --------------------------------------------------------------------------------------------

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return self._file.execute(statement, values).fetchall()

    @contextmanager
    def _reading(self) -> Iterator[Execute]:
        try:
            yield self._execute
        except sqlite3.OperationalError as error:
            raise OSError(str(error)) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the last in messages of SQLite
            raise RecordDamaged(str(error)) from error

    def read_incarnation(self) -> int:
        with self._reading() as execute:
            [(found,)] = execute("SELECT coalesce(max(number), 0) FROM incarnations", ())
        return msgspec.convert(found, int)

    @contextmanager
    def _transaction(self) -> Iterator[Execute]:
        self._check_files()
        try:
            with transaction(self._file):
                if (later := self.read_incarnation()) > self.incarnation:
                    raise OSError(f"broker {later} has taken the place of this one, {self.incarnation}")
                yield self._execute
        except sqlite3.Error as error:
            raise OSError(str(error)) from error

    def probe(self) -> None:
        with self._transaction() as execute:
            execute("DELETE FROM incarnations", ())
            execute("INSERT INTO incarnations VALUES (?)", (self.incarnation,))

    def read_hosts(self) -> list[HostRow]:
        return []

    def change_host(self, host: str, change: HostChange) -> None:
        raise OSError(f"host {host} is the only one: partitions move between the hosts of one --store only")

    def remove_journal(self, partition: str, epoch: int) -> None:
        """Nothing to do: the supervisor removes files."""

    def close(self) -> None:
        self._file.close()
