"""The history of a single host: a SQLite file, which one web service writes (`store.py` describes its tables)."""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from yunishard.common.history_records import Began, Ended, EndedApplication, Failing, Usage
from yunishard.common.messages.query_messages import PartitionEntry
from yunishard.common.names import DISTINCT
from yunishard.common.sqlite_file import open_file, transaction
from yunishard.webservice.history.collector import KINDS, Gap, ReadPosition, RowBatch, UsageByName
from yunishard.webservice.history.store import (
    LATEST_NS,
    MERGED_NS,
    POSITION,
    SLICE_ROWS,
    TIMED,
    UNKNOWN,
    Condition,
    HistoryDamaged,
    HistoryTaken,
    HistoryUnusable,
    Row,
    Value,
    application_row,
    columns_of,
    decode_amounts,
    encode_column,
    ended_row,
    is_used,
)

FORMATS: Final = Path(__file__).parent / "formats"
"""The statements that convert a file to each format, from the one before."""

FORMAT: Final = len([*FORMATS.glob("*.sql")])
"""The format of the file; a change of the tables needs another one."""

PRIVATE: Final = 0o600
"""Only the owner may read the file."""

LOG_BYTES: Final = 16 << 20
"""Bytes that SQLite's write-ahead log occupies on the disk once it is empty."""

FREE_PAGES_MAX: Final = 2_000
"""Pages of 4 KiB that are returned to the disk at a time."""

STEPS: Final = 10_000
"""Instructions of SQLite between two checks of the time limit of a query."""

DAMAGED: Final = ".damaged"
"""Suffix of a damaged file that was renamed; only the latest is preserved."""

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Error codes of a damaged file, missing tables included. After any other error the file may be usable later."""


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


class SqliteHistory:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def open_writer(self) -> "SqliteWriter":
        """Open the file for writing."""
        return SqliteWriter(self.path)

    @contextmanager
    def open_rows(self, max_s: float) -> Iterator["SqliteRows"]:
        """Open the file for reading, for no longer than this. Queries do not wait for the writer, nor it for them."""
        try:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as file:
                deadline = time.monotonic() + max_s
                file.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
                version = file.execute("PRAGMA user_version").fetchone()[0]
                if version != FORMAT:
                    raise sqlite3.DatabaseError(f"it has format {version}, and this release reads {FORMAT}")
                yield SqliteRows(file)
        except sqlite3.Error as error:
            is_over = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
            raise (TimeoutError if is_over else HistoryUnusable)(str(error)) from error

    def exists(self) -> bool:
        """Whether the file was created."""
        return self.path.exists()

    def size(self) -> int:
        """Bytes of the file, with SQLite's log beside it."""
        return sum(_measure(self._beside(suffix)) for suffix in ("", "-wal"))

    def describe(self, error: OSError) -> str:
        """The reason why the file cannot be used."""
        return f"{self.path} cannot be used: {error}"

    def put_aside(self, damage: HistoryDamaged) -> str:
        """Rename the damaged file."""
        renamed = self._beside(DAMAGED)
        for suffix in ("", "-wal", "-shm"):
            if (file := self._beside(suffix)).exists():
                file.replace(renamed.with_name(renamed.name + suffix))
        return f"the history in {self.path} is damaged ({damage}): it is now {renamed}, and a new one begins"

    def close(self) -> None:
        pass  # a query closes what it opens

    def _beside(self, suffix: str) -> Path:
        """A file that belongs to the history."""
        return self.path.with_name(self.path.name + suffix)


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # SQLite deletes its log when the file is closed
        return 0


# Reading --------------------------------------------------------------------------------------------------------------


class SqliteRows:
    """The file, open for reading."""

    join = "CROSS JOIN"  # SQLite does not change its order

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file
        self._functions = 0

    def table(self, name: str) -> str:
        """The name of a table in SQL."""
        return name

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[object, ...]]:
        """The rows that a query selects."""
        return self._file.execute(sql, values).fetchall()

    def includes(self, beginnings: Mapping[int, frozenset[str]], queue: str) -> Condition:
        """Whether a right that begins at these queues holds for the queue in this column."""
        name, self._functions = f"includes_{self._functions}", self._functions + 1
        self._file.create_function(
            name, 2, lambda partition, path: _includes(beginnings[partition], path), deterministic=True
        )
        return f"{name}(entry.partition, {queue})", []


def _includes(beginnings: frozenset[str], queue: str) -> bool:
    if "root" in beginnings:
        return True
    path = queue.lower()  # the queue of a rejected application is as the RM wrote it
    while path and path not in beginnings:
        path = path.rpartition(".")[0]
    return bool(path)


# Writing --------------------------------------------------------------------------------------------------------------


class SqliteWriter:
    """The file, open for writing, by one thread at a time. Only the process that holds the lock file writes.

    Raises:
        HistoryDamaged: its content is damaged.
        HistoryTaken: another process writes it.
        LaterFormat: a later release wrote it.
        HistoryUnusable: the disk refuses.
    """

    is_due = False

    def __init__(self, path: Path) -> None:
        with ExitStack() as opened:
            lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
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

    def renew(self) -> None:
        pass  # the lock lasts as long as the process

    def used_bytes(self) -> int:
        """Bytes of all rows and indexes, without the free pages of the file."""
        return (self.pragma("page_count") - self.pragma("freelist_count")) * self.pragma("page_size")

    @sqlite_errors()
    def pragma(self, name: str) -> int:
        """The value of a PRAGMA of SQLite."""
        value: int = self.file.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    @sqlite_errors()
    def positions(self) -> dict[str, ReadPosition]:
        """The read position of each partition, by full name."""
        rows = self.file.execute(f"SELECT full_name, {POSITION} FROM partitions")  # noqa: S608 - our own names
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
                usage = Usage(name, running, decode_amounts(allocated), decode_amounts(pending))
                if is_used(usage):
                    found.setdefault(full_name, {})[kind, name] = usage
        return found

    @sqlite_errors()
    def write(self, batches: Iterable[RowBatch]) -> None:
        """Write these, all or none.

        Raises:
            HistoryDamaged, HistoryUnusable: none of them is written.
        """
        with transaction(self.file):
            for batch in batches:
                self._write(batch)

    @sqlite_errors()
    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Insert rows, all or none."""
        with transaction(self.file):
            for row in rows:
                self._insert(table, **row)

    def _write(self, batch: RowBatch) -> None:
        number = self._number(batch.partition, batch.at_ns)
        account = batch.account
        for happened in account.happened:
            match happened:
                case Began():  # a running allocation is unchanged if an RM that resumes reports it again
                    row = columns_of(happened)
                    self._insert("allocations", "OR IGNORE", partition=number, began=happened.at_ns, **row)
                case Ended():
                    self._write_end(number, happened)
                case Failing():
                    self._insert("reasons", "OR REPLACE", partition=number, **columns_of(happened))
        for application in account.ended:
            self._write_application(number, application)
        if account.sample is not None:
            totals = {name: value for name, value in columns_of(account.sample).items() if name not in KINDS}
            self._insert("totals", at=batch.at_ns, partition=number, **totals)
        for kind, one in batch.usage:
            self._insert(kind, at=batch.at_ns, partition=number, **columns_of(one))
        if account.keys is not None:
            self._end_all_but(number, batch.at_ns, account.keys)
        for gap in batch.gaps:
            self._write_gap(number, gap)
        marks = ", ".join("?" * len(batch.position))
        self.file.execute(
            f"UPDATE partitions SET ({POSITION}) = ({marks}) WHERE id = ?",  # noqa: S608 - our own names
            (*batch.position, number),
        )

    def _insert(self, table: str, conflict: str = "", /, **columns: object) -> int | None:
        """Insert a row; maps and lists become JSON. Returns its number."""
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        values = [encode_column(one) for one in columns.values()]
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
            self._insert("allocations", partition=partition, **ended_row(one))

    def _end_all_but(self, partition: int, at_ns: int, keys: list[str]) -> None:
        """End all running allocations except those with these keys."""
        self.file.execute(
            "UPDATE allocations SET ended = ?, how = ? WHERE partition = ? AND ended IS NULL"
            " AND key NOT IN (SELECT value FROM json_each(?))",
            (at_ns, UNKNOWN, partition, encode_column(keys)),
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
        row = application_row(one, reasons[0][0] if reasons else "")
        self._insert("applications", "OR IGNORE", partition=partition, allocations=allocations, **row)

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

    # Deleting ---------------------------------------------------------------------------------------------------------

    @sqlite_errors()
    def find_oldest(self) -> int | None:
        """The time of the oldest row of all tables."""
        times = [self.file.execute(f"SELECT min(at) FROM {table}").fetchone()[0] for table in TIMED]  # noqa: S608
        return min((at for at in times if at is not None), default=None)

    @sqlite_errors()
    def delete_rows(self, table: str, before_ns: int) -> int:
        """Delete the oldest rows from before this time, at most SLICE_ROWS. Returns their number."""
        return self.file.execute(
            f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE at < ? ORDER BY at LIMIT ?)",  # noqa: S608
            (before_ns, SLICE_ROWS),
        ).rowcount

    @sqlite_errors()
    def delete_partition(self, before_ns: int) -> None:
        """Delete a removed partition of which all rows are older, but for those that recorded its removal."""
        latest = "max(sampled_ns, last_event_ns, ended_ns)"
        found = f"SELECT id FROM partitions WHERE instance = '' AND {latest} < ? LIMIT 1"  # noqa: S608 - our own names
        for number in self.file.execute(found, (before_ns,)).fetchall():
            for table, column in (*((table, "partition") for table in TIMED), ("partitions", "id")):
                self.file.execute(f"DELETE FROM {table} WHERE {column} = ?", number)  # noqa: S608 - our own names

    @sqlite_errors()
    def release_space(self, bytes_max: int) -> None:
        """Return free pages to the disk if the file is larger than this."""
        if self.pragma("page_count") * self.pragma("page_size") > bytes_max:
            self.file.executescript(f"PRAGMA incremental_vacuum({FREE_PAGES_MAX})")  # `execute` frees one page only
