"""The SQLite file of the history: writes batches of rows, each in one transaction, and deletes expired rows.

A power failure may lose the last transactions and nothing else: the read position of a partition is in the same
transaction as its rows, so lost rows are read again and none is there twice.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.json import Decoder, Encoder

from common.history_records import AllocationRecord, Began, Ended, EndedApplication, Failing, Usage
from common.messages import Resources
from common.names import DISTINCT
from common.query_messages import PartitionEntry
from webservice.history.collector import KINDS, Gap, Kind, Named, Place, Portion
from webservice.history.tables import FORMAT, SCHEMA, TIMED

PRIVATE: Final = 0o600
"""Only the owner may read the file."""

LOG_BYTES: Final = 16 << 20
"""Bytes that SQLite's write-ahead log keeps on the disk once it is empty."""

LOCK_MAX_S: Final = 5.0
"""Seconds to wait for another process that has locked the file, such as the `sqlite3` tool."""

LATEST_NS: Final = 2 * 3600 * 10**9
"""How far back to look for the latest usage: everybody's is noted once an hour."""

MERGED_NS: Final = 60 * 10**9
"""Gaps of one kind that are not farther apart are one."""

UNKNOWN: Final = "UNKNOWN"
"""How an allocation ended if the worker did not report its end."""

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""What the contents of the file are to blame for, missing tables too. Everything else may work another time."""

_encoder: Final = Encoder(order="deterministic")
_amounts: Final = Decoder(Resources)


class HistoryDamaged(Exception):
    """A file that is no history, or no longer; the text says why."""


class HistoryUnusable(OSError):
    """A file that must not be written, or cannot be at present; the text says why."""


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """What SQLite complains about, as HistoryDamaged or HistoryUnusable."""
    try:
        yield
    except sqlite3.Error as error:
        code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & 0xFF in _DAMAGE:
            raise HistoryDamaged(str(error)) from error
        raise HistoryUnusable(str(error)) from error


def json_text(value: Mapping[str, object] | list[str]) -> str:
    """As columns have what is no number and no text."""
    return _encoder.encode(value).decode()


def _row(partition: int, one: AllocationRecord) -> tuple[object, ...]:
    """What a row of `allocations` begins with, from `at` to `resources`."""
    resources = json_text(one.resources)
    return one.at_ns, partition, one.key, one.application_id, one.queue, one.user, one.node_id, resources


def _used(one: EndedApplication) -> dict[str, object]:
    """With the keys of the REST API, without what is empty."""
    found = {"resourceUsage": one.used, "preemptedResource": one.preempted, "placeholderResource": one.placeholders}
    return {key: by_type for key, by_type in found.items() if by_type}


class Store:
    """The file, open for writing, by one thread at a time.

    Raises:
        HistoryDamaged: it cannot be understood.
        HistoryUnusable: a later release wrote it, or the disk does not let us.
    """

    def __init__(self, path: Path) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        with sqlite_errors():
            self.file: Final = sqlite3.connect(path, isolation_level=None, timeout=LOCK_MAX_S, check_same_thread=False)
        try:
            with sqlite_errors():
                self._open(path)
        except BaseException:
            self.file.close()
            raise
        self._ids: dict[tuple[str, str], int] = {}
        """Number of each partition, by full name and RM."""

    def _open(self, path: Path) -> None:
        version = self.file.execute("PRAGMA user_version").fetchone()[0]
        empty = not self.file.execute("SELECT 1 FROM sqlite_schema").fetchone()
        if version > FORMAT:
            raise HistoryUnusable(f"a later release wrote it: it has format {version}, this release knows {FORMAT}")
        if version < FORMAT and not empty:
            raise HistoryDamaged(f"it has format {version}, and there never was one")
        if empty:
            self.file.execute("PRAGMA auto_vacuum=INCREMENTAL")
        self.file.execute("PRAGMA journal_mode=WAL")
        self.file.execute("PRAGMA synchronous=NORMAL")
        self.file.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
        if empty:
            with self.transaction():
                for statement in filter(str.strip, SCHEMA.split(";")):
                    self.file.execute(statement)
                for table in TIMED:
                    self.file.execute(f"CREATE INDEX {table}_at ON {table} (at)")
                self.file.execute(f"PRAGMA user_version={FORMAT}")
        elif (found := self.file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise HistoryDamaged(str(found).splitlines()[-1])

    def close(self) -> None:
        self.file.close()

    def used_bytes(self) -> int:
        """Bytes of all rows and indexes, without the free pages of the file."""
        return (self._pragma("page_count") - self._pragma("freelist_count")) * self._pragma("page_size")

    def file_bytes(self) -> int:
        """Bytes of the file on the disk, without SQLite's write-ahead log."""
        return self._pragma("page_count") * self._pragma("page_size")

    def _pragma(self, name: str) -> int:
        with sqlite_errors():
            value: int = self.file.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is done within, or nothing."""
        self.file.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.file.execute("COMMIT")
        except BaseException:
            if self.file.in_transaction:  # some errors have ended it already
                self.file.execute("ROLLBACK")
            raise

    # Where to go on ---------------------------------------------------------------------------------------------------

    def places(self) -> dict[str, Place]:
        """Up to where each partition has been read, by full name."""
        columns = "full_name, instance, next_event, last_event_ns, ended_ns, sampled_ns, unsure"
        with sqlite_errors():
            rows = self.file.execute(f"SELECT {columns} FROM partitions").fetchall()  # noqa: S608
        return {
            name: Place(instance, next_event, last_event_ns, ended_ns, sampled_ns, bool(unsure))
            for name, instance, next_event, last_event_ns, ended_ns, sampled_ns, unsure in rows
        }

    def latest(self) -> dict[str, Named]:
        """The latest usage of everybody who has some, by full name of the partition."""
        found: dict[str, Named] = {}
        for kind in KINDS:
            with sqlite_errors():
                rows = self.file.execute(
                    f"SELECT full_name, usage.name, max(at), running, allocated, pending FROM {kind} AS usage"  # noqa: S608
                    " JOIN partitions ON partitions.id = usage.partition WHERE at >= sampled_ns - ?"
                    " GROUP BY full_name, usage.name",
                    (LATEST_NS,),
                ).fetchall()
            for full_name, name, _, running, allocated, pending in rows:
                usage = Usage(name, running, _amounts.decode(allocated), _amounts.decode(pending))
                if running or usage.allocated or usage.pending:
                    found.setdefault(full_name, {})[kind, name] = usage
        return found

    # Writing ----------------------------------------------------------------------------------------------------------

    def write(self, portions: Iterable[Portion]) -> None:
        """Keep these, all or none.

        Raises:
            HistoryDamaged, HistoryUnusable: none of them is kept.
        """
        self._ids.clear()  # some may be of a transaction that was taken back
        with sqlite_errors(), self.transaction():
            for portion in portions:
                self._write(portion)

    def _write(self, portion: Portion) -> None:
        number = self._number(portion.partition, portion.at_ns)
        for happened in portion.happened:
            match happened:
                case Began():
                    self._began(number, happened)
                case Ended():
                    self._ended(number, happened)
                case Failing():
                    self._failing(number, happened)
        for application in portion.ended:
            self._application(number, application)
        self._sample(number, portion)
        for kind, one in portion.usage:
            self._usage(number, portion.at_ns, kind, one)
        if portion.keys is not None:
            self._settle(number, portion.at_ns, portion.keys)
        for gap in portion.gaps:
            self._gap(number, gap)
        place = portion.place
        self.file.execute(
            "UPDATE partitions SET instance = ?, next_event = ?, last_event_ns = ?, ended_ns = ?, sampled_ns = ?,"
            " unsure = ? WHERE id = ?",
            (
                place.instance,
                place.next_event,
                place.last_event_ns,
                place.ended_ns,
                place.sampled_ns,
                int(place.unsure),
                number,
            ),
        )

    def _number(self, partition: PartitionEntry, at_ns: int) -> int:
        """The number of a partition; one that has ended is known by its full name only, without its RM."""
        name, rm = partition.full_name, partition.rm_id
        if (name, rm) not in self._ids:
            known = self.file.execute("SELECT id, rm FROM partitions WHERE full_name = ?", (name,)).fetchone()
            if known is not None and rm not in ("", known[1]):
                self._set_aside(known[0], known[1], at_ns)
                known = None
            self._ids = {key: number for key, number in self._ids.items() if key[0] != name}
            self._ids[name, rm] = known[0] if known is not None else self._added(partition)
        return self._ids[name, rm]

    def _added(self, partition: PartitionEntry) -> int:
        done = self.file.execute(
            "INSERT INTO partitions (full_name, name, rm) VALUES (?, ?, ?)",
            (partition.full_name, partition.name, partition.rm_id),
        )
        assert done.lastrowid is not None
        return done.lastrowid

    def _set_aside(self, number: int, rm: str, at_ns: int) -> None:
        """A partition of another RM has the full name now: what was kept of the one that had it before stays its own,
        under a name that no partition has.
        """
        self._settle(number, at_ns, [])
        suffix = f"{DISTINCT}{len(rm)}.{number}"
        self.file.execute("UPDATE partitions SET full_name = full_name || ? WHERE id = ?", (suffix, number))

    def _began(self, partition: int, one: Began) -> None:
        """One that is known to run goes on: an RM that reports everything anew reports it again."""
        self.file.execute(
            "INSERT OR IGNORE INTO allocations (at, partition, key, application, queue, user, node, resources, began)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*_row(partition, one), one.at_ns),
        )

    def _ended(self, partition: int, one: Ended) -> None:
        done = self.file.execute(
            "UPDATE allocations SET ended = ?, how = ? WHERE partition = ? AND key = ? AND ended IS NULL",
            (one.at_ns, one.how, partition, one.key),
        )
        if done.rowcount:
            return
        self.file.execute(
            "INSERT INTO allocations (at, partition, key, application, queue, user, node, resources, ended, how)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*_row(partition, one), one.at_ns, one.how),
        )

    def _settle(self, partition: int, at_ns: int, keys: list[str]) -> None:
        self.file.execute(
            "UPDATE allocations SET ended = ?, how = ? WHERE partition = ? AND ended IS NULL"
            " AND key NOT IN (SELECT value FROM json_each(?))",
            (at_ns, UNKNOWN, partition, json_text(keys)),
        )

    def _failing(self, partition: int, one: Failing) -> None:
        self.file.execute(
            "INSERT OR REPLACE INTO reasons (at, partition, application, message) VALUES (?, ?, ?, ?)",
            (one.at_ns, partition, one.application_id, one.message),
        )

    def _application(self, partition: int, one: EndedApplication) -> None:
        reasons = self.file.execute(
            "DELETE FROM reasons WHERE partition = ? AND application = ? AND at >= ? RETURNING message",
            (partition, one.application_id, one.submitted_ns),
        ).fetchall()
        (allocations,) = self.file.execute(
            "SELECT count(*) FROM allocations WHERE partition = ? AND application = ? AND at BETWEEN ? AND ?",
            (partition, one.application_id, one.submitted_ns, one.finished_ns),
        ).fetchone()
        self.file.execute(
            "INSERT OR IGNORE INTO applications (at, partition, application, queue, user, groups, state, submitted,"
            " started, allocations, message, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                one.finished_ns,
                partition,
                one.application_id,
                one.queue,
                one.user,
                json_text(one.groups),
                one.state,
                one.submitted_ns,
                one.started_ns,
                allocations,
                one.message or (reasons[0][0] if reasons else ""),
                json_text(_used(one)),
            ),
        )

    def _sample(self, partition: int, portion: Portion) -> None:
        sample = portion.sample
        if sample is None:
            return
        self.file.execute(
            "INSERT INTO totals (at, partition, running, allocated, released, capacity, used)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                portion.at_ns,
                partition,
                sample.running,
                sample.allocated,
                sample.released,
                json_text(sample.capacity),
                json_text(sample.used),
            ),
        )

    def _usage(self, partition: int, at_ns: int, kind: Kind, one: Usage) -> None:
        self.file.execute(
            f"INSERT INTO {kind} (at, partition, name, running, allocated, pending) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
            (at_ns, partition, one.name, one.running, json_text(one.allocated), json_text(one.pending)),
        )

    def _gap(self, partition: int, gap: Gap) -> None:
        """One that follows another of its kind makes that longer: where gaps are many, they are told as one."""
        done = self.file.execute(
            "UPDATE gaps SET until = ?, missed = missed + ? WHERE until >= ? AND reason = ?"
            " AND id = (SELECT max(id) FROM gaps WHERE partition = ? AND what = ?)",
            (gap.until_ns, gap.missed, gap.since_ns - MERGED_NS, gap.reason, partition, gap.what),
        )
        if not done.rowcount:
            self.file.execute(
                "INSERT INTO gaps (at, partition, what, until, missed, reason) VALUES (?, ?, ?, ?, ?, ?)",
                (gap.since_ns, partition, gap.what, gap.until_ns, gap.missed, gap.reason),
            )


SLICE_ROWS: Final = 2_000
"""Deleted by one statement: some ten milliseconds."""

SLICES_MAX: Final = 25
"""At a time, which is after each writing: more than comes in, so the bounds hold under a flood as well."""

FREE_PAGES_MAX: Final = 2_000
"""Pages of 4 KiB that are given back to the disk at a time."""

PARTS: Final = 64
"""Where there is too much, what is in the oldest one of so many equal parts of the whole time goes first."""

PART_MIN_NS: Final = 60 * 10**9


def delete_expired(store: Store, *, bytes_max: int, age_max_ns: int, now_ns: int) -> None:
    """Forget what is due, as much as may be done at a time.

    Raises:
        HistoryDamaged, HistoryUnusable: as the store says.
    """
    left = _forget(store, now_ns - age_max_ns, SLICES_MAX)
    while left and store.used_bytes() > bytes_max and (oldest := _oldest(store)) is not None:
        part_ns = max((now_ns - oldest) // PARTS, PART_MIN_NS)
        left = _forget(store, oldest + part_ns, left, bytes_max=bytes_max)
    if store.file_bytes() > bytes_max:
        with sqlite_errors():
            store.file.executescript(f"PRAGMA incremental_vacuum({FREE_PAGES_MAX})")  # `execute` frees one page only


def _oldest(store: Store) -> int | None:
    """The time of the oldest row of all."""
    with sqlite_errors():
        times = [store.file.execute(f"SELECT min(at) FROM {table}").fetchone()[0] for table in TIMED]  # noqa: S608
    return min((at for at in times if at is not None), default=None)


def _forget(store: Store, before_ns: int, slices: int, *, bytes_max: int = 0) -> int:
    """Delete what is older than this, in so many slices at most, and no more than is needed for so few bytes; how many
    slices are left.
    """
    for table in TIMED:
        deleted = SLICE_ROWS
        while deleted == SLICE_ROWS and slices:
            if bytes_max and store.used_bytes() <= bytes_max:
                return slices
            with sqlite_errors():
                deleted = store.file.execute(
                    f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE at < ? ORDER BY at LIMIT ?)",  # noqa: S608
                    (before_ns, SLICE_ROWS),
                ).rowcount
            slices -= deleted > 0
    return slices
