"""Journals in SQLite files: transactions under an epoch, fencing, trimming, deletion.

A transaction is durable when it returns (`synchronous=FULL`), and verifies that the epoch is still the worker's own.
The usual transaction is a single statement, because the thread releases the interpreter lock for each statement: four
statements would wait for a busy worker four times.

With `history_bytes`, earlier snapshots and the steps between them are kept for replays
(`yunishard/journal_tools/replay.py`), as many as fit. Recovery does not use them, and they are deleted first if the
journal reaches its maximum size.

A snapshot is a file beside the database. It gets its name in the transaction that records it, so the snapshot of a
worker that is fenced replaces nothing.
"""

import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from yunishard.common.process.folders import lock_folder, remove_any, sync_path
from yunishard.common.sqlite_file import transaction
from yunishard.partition_worker.journal import database
from yunishard.partition_worker.journal.database import Meta, Row, translate_errors
from yunishard.partition_worker.journal.files import PRIVATE, SUFFIX, Files, write_snapshot
from yunishard.partition_worker.journal.protocol import Fenced, Journal, Journals, Statistics
from yunishard.partition_worker.recovery import JournalDamaged

STATEMENT_STEPS: Final = 256
"""The maximum of rows in one INSERT statement."""

SLICE_STEPS: Final = 512
"""Steps deleted at a time: more than a usual transaction adds, so that deletion keeps up."""

SLICE_BYTES: Final = 4 << 20
"""Bytes of steps deleted at a time; a single step may have more."""

CHECKPOINT_PAGES: Final = 1000
"""Pages of 4 KiB after which SQLite moves them from the write-ahead log to the database, which takes milliseconds."""

WAL_PREALLOCATED_BYTES: Final = 4 << 20
"""Bytes of the write-ahead log that are preallocated, as many as it has before a checkpoint: overwriting takes the disk
less time than growing the file with each transaction.
"""

_FENCED: Final = "another worker has the partition now"

_ZEROS: Final = bytes(64 << 10)

WAL_BYTES_MAX: Final = 16 << 20
"""Bytes of the write-ahead log that stay allocated after a checkpoint."""


class _StepColumns(msgspec.Struct, array_like=True):
    """The first fields of a `Step`, which have columns of their own."""

    number: int
    at: float
    kind: str


_step_columns = msgspec.msgpack.Decoder(_StepColumns)


def _check_existence(files: Files, inode: int) -> None:
    """Raise an error if the database is not the one that was opened."""
    if not files.database.exists() or files.database.stat().st_ino != inode:
        raise OSError(f"{files.database}: an earlier worker has just deleted it")


class SqliteJournal(database.DatabaseReader, Journal):
    """The journal of one partition in an SQLite database. See `Journal` for the errors."""

    def __init__(self, files: Files, epoch: int, history_bytes: int = 0) -> None:
        super().__init__(files)
        self.has_garbage = True
        self._history_bytes = history_bytes
        """Bytes of earlier steps and snapshots that are kept for replays."""
        self._segment_bytes: dict[int, int] = {}
        """By the number of an earlier snapshot: its bytes, with those of the steps up to the next one."""
        self._is_unsettled = False
        """Whether the outcome of the last call of `append` is unknown."""
        self._process = os.getpid()
        with lock_folder(files.folder):  # an earlier worker deletes its files under this lock
            if not os.path.lexists(files.database):
                files.clear()  # leftovers of a journal whose removal was interrupted
            files.check()
            os.close(os.open(files.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
            inode = files.database.stat().st_ino
        with translate_errors(files), ExitStack() as stack:
            self._file = sqlite3.connect(
                files.database,
                isolation_level=None,
                timeout=database.LOCK_MAX_S,
                check_same_thread=False,  # opened in one thread, then used by the writer's only
                cached_statements=STATEMENT_STEPS + 16,
            )
            stack.callback(self._file.close)
            try:
                self._claim(epoch)
                files.remove_unfinished_snapshots()  # no process can record one of an earlier epoch
            except sqlite3.Error:
                _check_existence(files, inode)  # the reason of an I/O error may be that its log is gone
                raise
            _check_existence(files, inode)
            stack.pop_all()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with translate_errors():
            yield self._file

    def _claim(self, epoch: int) -> None:
        version = self._file.execute("PRAGMA user_version").fetchone()[0]
        is_new = version == 0 and not self._file.execute("SELECT 1 FROM sqlite_schema").fetchone()
        if not is_new:
            self._read_meta(epoch)  # first: the journal of a later worker or release is not judged, and not changed
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=FULL")
        self._file.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        self._file.execute(f"PRAGMA journal_size_limit={WAL_BYTES_MAX}")
        check_wal(self._file, self.files)
        with transaction(self._file):
            if is_new:
                self._create(epoch)
            meta = self._meta = self._read_meta(epoch)
            if (found := self._file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise JournalDamaged(str(found).splitlines()[-1])  # after a line that only names the database
            self._file.execute(f"PRAGMA user_version={database.FORMAT}")
            self._meta = self._update_meta(meta._replace(epoch=epoch))
        self._truncate_wal()  # otherwise unfinished transactions stay in it
        self._preallocate_wal()

    def _read_meta(self, epoch: int) -> Meta:
        meta = database.read_meta(self._file, self.files.partition)
        if meta.epoch > epoch:
            raise Fenced(f"{self.files.database}: another worker has the partition, under epoch {meta.epoch}")
        return meta

    def _preallocate_wal(self) -> None:
        """Fill the log with zeros, which SQLite ignores, under the write lock. A full disk only slows commits down."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            with suppress(OSError), self.files.wal.open("r+b") as wal:
                if not os.fstat(wal.fileno()).st_size:
                    for _ in range(WAL_PREALLOCATED_BYTES // len(_ZEROS)):  # in pieces, which need less memory
                        wal.write(_ZEROS)
                    wal.flush()
                    os.fsync(wal.fileno())
        finally:
            self._file.execute("ROLLBACK")

    def _create(self, epoch: int) -> None:
        for statement in database.SCHEMA.values():
            self._file.execute(statement)
        self._file.execute(f"PRAGMA user_version={database.FORMAT}")
        meta = Meta(self.files.partition, epoch, begins=1, snapshot=0, last=0)
        self._file.execute(
            "INSERT INTO meta VALUES (?, ?, ?, ?, ?, ?)", meta._replace(checksum=database.meta_checksum(meta))
        )

    # Changes ---------------------------------------------------------------------------------------------------------

    def append(self, steps: Sequence[bytes], *, fresh: bool) -> int:
        rows = [_build_row(step) for step in steps]
        last = rows[-1].number
        with translate_errors():
            if self._is_unsettled:
                self._meta = self._read_meta(self._meta.epoch)
                rows = [row for row in rows if row.number > self._meta.last]
            if rows and rows[0].number < self._meta.begins:
                rows, fresh = [row for row in rows if row.number >= self._meta.begins], False
            self._is_unsettled = True
            self._append_rows(rows, fresh=fresh)
        self._is_unsettled = False
        self._meta = self._meta._replace(last=last)
        return last

    def _append_rows(self, rows: Sequence[Row], *, fresh: bool) -> None:
        if rows and len(rows) <= STATEMENT_STEPS and not fresh:
            self._insert(rows)
            return
        meta = self._meta._replace(begins=rows[0].number, snapshot=0) if fresh and rows else self._meta
        with transaction(self._file):
            for start in range(0, len(rows), STATEMENT_STEPS):
                self._insert(rows[start : start + STATEMENT_STEPS])
            self._meta = self._update_meta(meta)
        self.has_garbage |= fresh

    def _insert(self, rows: Sequence[Row]) -> None:
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
        done = self._file.execute(
            f"INSERT INTO steps SELECT * FROM (VALUES {places}) WHERE (SELECT epoch FROM meta) = ?",  # noqa: S608
            (*(field for row in rows for field in row), self._meta.epoch),
        )
        if done.rowcount != len(rows):
            raise Fenced(_FENCED)

    def write_snapshot(self, number: int, content: Iterable[bytes]) -> None:
        write_snapshot(self.files.unfinished_snapshot(number, self._process), number, content)

    def record_snapshot(self, number: int) -> bool:
        self.has_garbage = True
        if number < self._meta.begins:
            return False
        if not self._meta.snapshot:  # earlier ones are of a partition that ended: no history may begin with them
            self._remove_snapshots(self._meta.begins + 1)
        path, unfinished = self.files.snapshot(number), self.files.unfinished_snapshot(number, self._process)
        with translate_errors(), transaction(self._file):
            meta = self._update_meta(self._meta._replace(begins=number + 1, snapshot=number))
            if unfinished.exists() or not path.exists():  # else an earlier attempt was not committed
                if path.is_dir():
                    remove_any(path)
                unfinished.replace(path)
                sync_path(self.files.folder)
        self._meta = meta
        return True

    def read_snapshot(self) -> Iterator[bytes] | None:
        return self.open_snapshot()[1]

    def trim(self) -> None:
        sizes = "SELECT number, length(step) AS size FROM steps WHERE number < ? ORDER BY number LIMIT ?"
        sums = f"SELECT number, size, sum(size) OVER (ORDER BY number) AS total FROM ({sizes})"  # noqa: S608
        with translate_errors():
            first = self._find_first_kept()
            if first is None:
                return
            self.has_garbage = False
            end = self._file.execute(
                f"SELECT max(number) FROM ({sums}) WHERE total <= ? OR total = size",  # noqa: S608
                (first, SLICE_STEPS, SLICE_BYTES),
            ).fetchone()[0]
            if end is None:
                self._remove_snapshots(first)
                return
            done = self._file.execute(
                "DELETE FROM steps WHERE number <= ? AND (SELECT epoch FROM meta) = ?", (end, self._meta.epoch)
            )
        if not done.rowcount:
            raise Fenced(_FENCED)
        self.has_garbage = True

    def _find_first_kept(self) -> int | None:
        """The first step that is kept: the one after the oldest snapshot from which the history is not too large. None
        if a size has just been computed, so that a call takes a short time: call it again.
        """
        first, left = self._meta.begins, self._history_bytes
        if not left or not self._meta.snapshot:
            return first
        earlier = {number: path for number, path in self.files.snapshots() if path == self.files.snapshot(number)}
        for number in sorted(earlier, reverse=True):
            if number >= self._meta.snapshot:
                continue
            if number not in self._segment_bytes:
                steps = "SELECT coalesce(sum(length(step)), 0) FROM steps WHERE number > ? AND number < ?"
                size: int = self._file.execute(steps, (number, first)).fetchone()[0]
                self._segment_bytes[number] = size + earlier[number].stat().st_size
                return None
            left -= self._segment_bytes[number]
            if left < 0:
                break
            first = number + 1
        return first

    def _remove_snapshots(self, first: int) -> None:
        """Remove the snapshots from which no step before this one is kept, and unfinished ones."""
        self._read_meta(self._meta.epoch)
        for number, path in self.files.snapshots():  # one in progress has a later number
            is_kept = number >= first - 1 and path == self.files.snapshot(number)
            if number < self._meta.begins and number != self._meta.snapshot and not is_kept:
                remove_any(path)
                self._segment_bytes.pop(number, None)

    def used_bytes(self) -> int:
        """Bytes of the database and its write-ahead log, without free pages and the preallocated part of the log."""
        file, wal = self.files.database, self.files.wal
        size = file.stat().st_size + (max(0, wal.stat().st_size - WAL_PREALLOCATED_BYTES) if wal.exists() else 0)
        with translate_errors():
            free: int = self._file.execute("PRAGMA freelist_count").fetchone()[0]
            page: int = self._file.execute("PRAGMA page_size").fetchone()[0]
        return size - free * page

    def compact(self) -> None:
        history_bytes, self._history_bytes = self._history_bytes, 0  # the history gives way, too
        self.has_garbage |= bool(history_bytes)
        try:
            while self.has_garbage:
                self.trim()
        finally:
            self._history_bytes = history_bytes
        with translate_errors():
            self._truncate_wal()

    def statistics(self) -> Statistics:
        meta = self._meta
        return Statistics(meta.begins, meta.snapshot, max(meta.last, meta.snapshot), self.files.size_bytes())

    def delete(self) -> None:
        try:
            with lock_folder(self.files.folder), translate_errors():
                self._file.execute("BEGIN IMMEDIATE")
                self._read_meta(self._meta.epoch)
                self.files.clear()
                remove_any(self.files.damaged)
        finally:
            self.close()  # SQLite leaves files of the same names alone, as the database was unlinked

    def close(self) -> None:
        self._file.close()

    def _truncate_wal(self) -> None:
        """Move the write-ahead log into the database and truncate it, unless another process reads it."""
        self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    # Private ---------------------------------------------------------------------------------------------------------

    def _update_meta(self, meta: Meta) -> Meta:
        """Replace the meta row; to be called inside a transaction."""
        meta = meta._replace(checksum=database.meta_checksum(meta))
        done = self._file.execute(
            "UPDATE meta SET epoch = ?, begins = ?, snapshot = ?, checksum = ? WHERE epoch = ?",
            (meta.epoch, meta.begins, meta.snapshot, meta.checksum, self._meta.epoch),
        )
        if done.rowcount != 1:
            raise Fenced(_FENCED)
        return meta


def _build_row(step: bytes) -> Row:
    columns = _step_columns.decode(step)
    return database.make_row(columns.number, columns.at, columns.kind, step)


class SqliteJournals(Journals):
    """The journals in a directory."""

    def __init__(self, folder: Path, history_bytes: int = 0) -> None:
        """`history_bytes` of each journal's earlier steps and snapshots are kept for replays."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._history_bytes = folder, history_bytes

    def open(self, partition: str, epoch: int) -> SqliteJournal:
        return SqliteJournal(Files(self._folder, partition), epoch, self._history_bytes)

    def epochs(self) -> dict[str, int]:
        found = {}
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            files = Files(self._folder, path.name.removesuffix(SUFFIX))
            with closing(database.JournalReader(files)) as reader:
                found[files.partition] = reader.read_meta().epoch
        return found

    def set_aside(self, partition: str, epoch: int) -> str:
        files = Files(self._folder, partition)
        with suppress(JournalDamaged, FileNotFoundError), closing(database.JournalReader(files)) as reader:
            if (present := reader.read_meta().epoch) > epoch:
                raise Fenced(f"{files.database}: another worker has the partition, under epoch {present}")
        return str(files.put_aside())


# Verification of the write-ahead log --------------------------------------------------------------------------------

_WAL_HEAD_BYTES: Final = 32
_WAL_FRAME: Final = struct.Struct(">4xI8s8x")
"""Of a frame's head: whether a transaction ends here, and the salts; the page follows."""


def check_wal(file: sqlite3.Connection, files: Files) -> None:
    """Check that SQLite, which has the file open, reads every finished transaction in its write-ahead log.

    SQLite ignores everything after a damaged frame without an error, as if it had never been finished. A checkpoint
    returns the number of frames that it reads. It writes a transaction only after the previous one is durable, so the
    ignored part may hold the end of one transaction; the ends of two mean that a durable one is lost. (Nothing shows
    whether the very last one was finished.)

    A log that was moved into the database begins again with a new header. The frames before it stay in the file until
    they are overwritten, also if the process is killed after the header; their salts are not those of the header.
    The layout of the log is at https://sqlite.org/walformat.html.

    Raises:
        JournalDamaged: SQLite ignores a finished transaction.
    """
    size = _WAL_FRAME.size + file.execute("PRAGMA page_size").fetchone()[0]
    for _ in range(3):  # another process may write meanwhile
        content = files.wal.read_bytes() if files.wal.exists() else b""
        valid_frames = file.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        salts_at = 16 if _has_valid_header(content) else _WAL_HEAD_BYTES + 8  # in the header, or in the first frame
        ignored = range(_WAL_HEAD_BYTES + max(valid_frames, 0) * size, len(content) - size + 1, size)
        heads = (_WAL_FRAME.unpack_from(content, at) for at in ignored)
        known_salts = content[salts_at : salts_at + 8]
        lost = sum(ends_transaction and salts == known_salts for ends_transaction, salts in heads)
        if lost < 2:
            return
    raise JournalDamaged(f"{lost} transactions of its write-ahead log cannot be read any more")


def _has_valid_header(content: bytes) -> bool:
    """Whether the header of a write-ahead log matches its checksum, whose byte order is in the last bit of its magic
    number.
    """
    sum_0 = sum_1 = 0
    for value_0, value_1 in struct.iter_unpack(">II" if content[3:4] == b"\x83" else "<II", content[:24]):
        sum_0 = (sum_0 + value_0 + sum_1) & 0xFFFFFFFF
        sum_1 = (sum_1 + value_1 + sum_0) & 0xFFFFFFFF
    return content[24:_WAL_HEAD_BYTES] == struct.pack(">II", sum_0, sum_1)
