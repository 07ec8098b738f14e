"""The SQLite file of the history: its tables, and `Store`, which writes batches of rows and deletes expired ones.

    partitions    the recorded partitions, with the read position of each
    totals        a row for each partition and minute
    queues, users, groups    their usage: a row when it changed, and one each hour
    applications  a row for each ended application
    allocations   a row for each, from its beginning on
    gaps          periods for which the history is incomplete
    reasons       why applications fail that have not ended yet

All but the first have `at`, the time by which a row is found and deleted: of a sample, of the end of an application, of
the beginning of an allocation (its end if the beginning is unknown), or of a gap. Times are Unix nanoseconds; columns
for resources and lists are JSON.

A power failure may lose the last transactions and nothing else: the read position of a partition is in the same
transaction as its rows, so lost rows are read again and no row is written twice.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder, encode
from msgspec.structs import astuple

from common.history_records import Began, Ended, EndedApplication, Failing, Usage
from common.messages import Resources
from common.names import DISTINCT
from common.query_messages import PartitionEntry
from common.sqlite_file import open_file, transaction
from webservice.history.collector import KINDS, Gap, ReadPosition, RowBatch, UsageByName

FORMATS: Final = Path(__file__).parent / "formats"
"""The statements that convert a file to each format, from the one before."""

FORMAT: Final = len([*FORMATS.glob("*.sql")])
"""The format of the file; a change of the tables needs another one."""

TIMED: Final = ("totals", "queues", "users", "groups", "applications", "allocations", "gaps", "reasons")
"""Tables whose rows have a time; each has an index on it."""

PRIVATE: Final = 0o600
"""Only the owner may read the file."""

LOG_BYTES: Final = 16 << 20
"""Bytes that SQLite's write-ahead log occupies on the disk once it is empty."""

LATEST_NS: Final = 2 * 3600 * 10**9
"""How far back to look for the latest usage: all usage is recorded once an hour."""

MERGED_NS: Final = 60 * 10**9
"""Gaps of one kind that are not farther apart are merged."""

UNKNOWN: Final = "UNKNOWN"
"""How an allocation ended if the worker did not report its end."""

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Error codes of a damaged file, missing tables included. After any other error the file may be usable later."""

_POSITION: Final = ", ".join(ReadPosition._fields)
"""The columns of a read position in `partitions`."""

_amounts: Final = Decoder(Resources)


class HistoryDamaged(Exception):
    """The content of the file is damaged or no history; the text is the reason."""


class HistoryUnusable(OSError):
    """The file cannot be written at present; the text is the reason."""


class HistoryTaken(HistoryUnusable):
    """Another web service records the history in this file."""


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Raise errors of SQLite as HistoryDamaged or HistoryUnusable."""
    try:
        yield
    except sqlite3.Error as error:
        code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & 0xFF in _DAMAGE:
            raise HistoryDamaged(str(error)) from error
        raise HistoryUnusable(str(error)) from error


def beside(path: Path, suffix: str) -> Path:
    """A file that belongs to the history in `path`."""
    return path.with_name(path.name + suffix)


@cache
def _column_names(kind: type[Struct]) -> list[str]:
    """The columns of a record: its fields without `_ns` and `_id`."""
    return [name.removesuffix("_ns").removesuffix("_id") for name in kind.__struct_fields__]


def _columns(record: Struct) -> dict[str, object]:
    """The values of a record by column."""
    return dict(zip(_column_names(type(record)), astuple(record), strict=True))


def _encode(value: object) -> str:
    """The text of a JSON column."""
    return encode(value, order="deterministic").decode()


class Store:
    """The file, open for writing, by one thread at a time. Only the process that holds the lock file writes.

    Raises:
        HistoryDamaged: its content is damaged.
        HistoryTaken: another process writes it.
        LaterFormat: a later release wrote it.
        HistoryUnusable: the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        with ExitStack() as opened:
            lock = os.open(beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            opened.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HistoryTaken("another process writes it") from None
            pragmas = ("auto_vacuum=INCREMENTAL", "synchronous=NORMAL", f"journal_size_limit={LOG_BYTES}")
            with sqlite_errors():
                self.file: Final = open_file(path, FORMATS, pragmas)
            opened.callback(self.file.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def used_bytes(self) -> int:
        """Bytes of all rows and indexes, without the free pages of the file."""
        return (self.pragma("page_count") - self.pragma("freelist_count")) * self.pragma("page_size")

    def pragma(self, name: str) -> int:
        """The value of a PRAGMA of SQLite."""
        value: int = self.file.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    # Reading on -------------------------------------------------------------------------------------------------------

    @sqlite_errors()
    def positions(self) -> dict[str, ReadPosition]:
        """The read position of each partition, by full name."""
        rows = self.file.execute(f"SELECT full_name, {_POSITION} FROM partitions")  # noqa: S608 - our own names
        return {name: ReadPosition(*position) for name, *position in rows}

    @sqlite_errors()
    def latest(self) -> dict[str, UsageByName]:
        """The latest non-zero usage, by full name of the partition."""
        found: dict[str, UsageByName] = {}
        for kind in KINDS:
            rows = self.file.execute(
                f"SELECT full_name, usage.name, max(at), running, allocated, pending FROM {kind} AS usage"  # noqa: S608
                " JOIN partitions ON partitions.id = usage.partition WHERE at >= sampled_ns - ?"
                " GROUP BY full_name, usage.name",
                (LATEST_NS,),
            )
            for full_name, name, _, running, allocated, pending in rows:
                usage = Usage(name, running, _amounts.decode(allocated), _amounts.decode(pending))
                if running or usage.allocated or usage.pending:
                    found.setdefault(full_name, {})[kind, name] = usage
        return found

    # Writing ----------------------------------------------------------------------------------------------------------

    @sqlite_errors()
    def write(self, batches: Iterable[RowBatch]) -> None:
        """Write these, all or none.

        Raises:
            HistoryDamaged, HistoryUnusable: none of them is written.
        """
        with transaction(self.file):
            for batch in batches:
                self._write(batch)

    def _write(self, batch: RowBatch) -> None:
        number = self._number(batch.partition, batch.at_ns)
        account = batch.account
        for happened in account.happened:
            match happened:
                case Began():  # a running allocation is unchanged if an RM that resumes reports it again
                    row = _columns(happened)
                    self._insert("allocations", "OR IGNORE", partition=number, began=happened.at_ns, **row)
                case Ended():
                    self._write_end(number, happened)
                case Failing():
                    self._insert("reasons", "OR REPLACE", partition=number, **_columns(happened))
        for application in account.ended:
            self._write_application(number, application)
        if account.sample is not None:
            totals = {name: value for name, value in _columns(account.sample).items() if name not in KINDS}
            self._insert("totals", at=batch.at_ns, partition=number, **totals)
        for kind, one in batch.usage:
            self._insert(kind, at=batch.at_ns, partition=number, **_columns(one))
        if account.keys is not None:
            self._end_all_but(number, batch.at_ns, account.keys)
        for gap in batch.gaps:
            self._write_gap(number, gap)
        marks = ", ".join("?" * len(batch.position))
        self.file.execute(
            f"UPDATE partitions SET ({_POSITION}) = ({marks}) WHERE id = ?",  # noqa: S608 - our own names
            (*batch.position, number),
        )

    def _insert(self, table: str, conflict: str = "", /, **columns: object) -> int | None:
        """Insert a row; maps and lists become JSON. Returns its number."""
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        values = [_encode(one) if isinstance(one, dict | list) else one for one in columns.values()]
        statement = f"INSERT {conflict} INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - our own names
        return self.file.execute(statement, values).lastrowid

    def _number(self, partition: PartitionEntry, at_ns: int) -> int:
        """The number of a partition; a removed one is known by its full name only, without its RM."""
        name, rm = partition.full_name, partition.rm_id
        known = self.file.execute("SELECT id, rm FROM partitions WHERE full_name = ?", (name,)).fetchone()
        if known is not None and rm not in ("", known[1]):
            self._rename(known[0], known[1], at_ns)
            known = None
        number = known[0] if known else self._insert("partitions", full_name=name, name=partition.name, rm=rm)
        assert number is not None
        return number

    def _rename(self, number: int, rm: str, at_ns: int) -> None:
        """Give a removed partition a name that no partition has: a partition of another RM has its full name now."""
        self._end_all_but(number, at_ns, [])
        suffix = f"{DISTINCT}{len(rm)}.{number}"
        self.file.execute("UPDATE partitions SET full_name = full_name || ? WHERE id = ?", (suffix, number))

    def _write_end(self, partition: int, one: Ended) -> None:
        done = self.file.execute(
            "UPDATE allocations SET ended = ?, how = ? WHERE partition = ? AND key = ? AND ended IS NULL",
            (one.at_ns, one.how, partition, one.key),
        )
        if not done.rowcount:
            self._insert("allocations", partition=partition, ended=one.at_ns, **_columns(one))

    def _end_all_but(self, partition: int, at_ns: int, keys: list[str]) -> None:
        """End all running allocations except those with these keys."""
        self.file.execute(
            "UPDATE allocations SET ended = ?, how = ? WHERE partition = ? AND ended IS NULL"
            " AND key NOT IN (SELECT value FROM json_each(?))",
            (at_ns, UNKNOWN, partition, _encode(keys)),
        )

    def _write_application(self, partition: int, one: EndedApplication) -> None:
        reasons = self.file.execute(
            "DELETE FROM reasons WHERE partition = ? AND application = ? AND at >= ? RETURNING message",
            (partition, one.application_id, one.submitted_ns),
        ).fetchall()
        (allocations,) = self.file.execute(
            "SELECT count(*) FROM allocations WHERE partition = ? AND application = ? AND at BETWEEN ? AND ?",
            (partition, one.application_id, one.submitted_ns, one.finished_ns),
        ).fetchone()
        used = {"resourceUsage": one.used, "preemptedResource": one.preempted, "placeholderResource": one.placeholders}
        row = _columns(one) | {
            "allocations": allocations,
            "message": one.message or (reasons[0][0] if reasons else ""),
            "used": {key: by_type for key, by_type in used.items() if by_type},
        }
        others = {name: value for name, value in row.items() if name not in ("finished", "preempted", "placeholders")}
        self._insert("applications", "OR IGNORE", at=one.finished_ns, partition=partition, **others)

    def _write_gap(self, partition: int, gap: Gap) -> None:
        """Write a gap, or extend the previous one of its kind: many gaps are shown as one."""
        done = self.file.execute(
            "UPDATE gaps SET until = ?, missed = missed + ? WHERE until >= ? AND reason = ?"
            " AND id = (SELECT max(id) FROM gaps WHERE partition = ? AND what = ?)",
            (gap.until_ns, gap.missed, gap.since_ns - MERGED_NS, gap.reason, partition, gap.what),
        )
        if not done.rowcount:
            row = {"what": gap.what, "until": gap.until_ns, "missed": gap.missed, "reason": gap.reason}
            self._insert("gaps", at=gap.since_ns, partition=partition, **row)


SLICE_ROWS: Final = 2_000
"""Rows deleted by one statement: some ten milliseconds."""

SLICES_MAX: Final = 25
"""Statements after each write: they delete more rows than are written, so the bounds hold under a flood as well."""

FREE_PAGES_MAX: Final = 2_000
"""Pages of 4 KiB that are returned to the disk at a time."""

PARTS: Final = 64
"""If the file is too large, the oldest one of so many equal parts of the recorded time is deleted first."""

PART_MIN_NS: Final = 60 * 10**9


@sqlite_errors()
def delete_expired(store: Store, *, bytes_max: int, age_max_ns: int, now_ns: int) -> None:
    """Delete rows that are too old, then the oldest rows of a file that is too large, up to the limit of one call.

    Raises:
        HistoryDamaged, HistoryUnusable: as the store.
    """
    left = _delete(store, now_ns - age_max_ns, SLICES_MAX)
    if left:
        _delete_partition(store, now_ns - age_max_ns)
    while left and store.used_bytes() > bytes_max and (oldest := _find_oldest(store)) is not None:
        part_ns = max((now_ns - oldest) // PARTS, PART_MIN_NS)
        left = _delete(store, oldest + part_ns, left, bytes_max=bytes_max)
    if store.pragma("page_count") * store.pragma("page_size") > bytes_max:  # on the disk
        store.file.executescript(f"PRAGMA incremental_vacuum({FREE_PAGES_MAX})")  # `execute` frees one page only


def _delete_partition(store: Store, before_ns: int) -> None:
    """Delete a removed partition of which all rows are older, but for those that recorded its removal."""
    latest = "max(sampled_ns, last_event_ns, ended_ns)"
    found = f"SELECT id FROM partitions WHERE instance = '' AND {latest} < ? LIMIT 1"  # noqa: S608 - our own names
    for number in store.file.execute(found, (before_ns,)).fetchall():
        for table, column in (*((table, "partition") for table in TIMED), ("partitions", "id")):
            store.file.execute(f"DELETE FROM {table} WHERE {column} = ?", number)  # noqa: S608 - our own names


def _find_oldest(store: Store) -> int | None:
    """The time of the oldest row of all tables."""
    times = [store.file.execute(f"SELECT min(at) FROM {table}").fetchone()[0] for table in TIMED]  # noqa: S608
    return min((at for at in times if at is not None), default=None)


def _delete(store: Store, before_ns: int, slices: int, *, bytes_max: int = 0) -> int:
    """Delete older rows, by at most this number of statements, until the rows have no more bytes than this. Returns the
    number of statements that are left.
    """
    for table in TIMED:
        deleted = SLICE_ROWS
        while deleted == SLICE_ROWS and slices:
            if bytes_max and store.used_bytes() <= bytes_max:
                return slices
            deleted = store.file.execute(
                f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE at < ? ORDER BY at LIMIT ?)",  # noqa: S608
                (before_ns, SLICE_ROWS),
            ).rowcount
            slices -= deleted > 0
    return slices
