"""The journal's SQLite database: schema, transactions, fencing by epoch, reading, and verification.

    meta    one row: the partition, the epoch of its worker, the first step that is needed, the last step
    steps   number, time, kind, the encoded step, and a checksum of these

A transaction is durable when it returns (`synchronous=FULL`), and verifies that the epoch is still the worker's own.
The usual transaction is a single statement, because the thread releases the interpreter lock for each statement: four
statements would wait for a busy worker four times.

A reader verifies the checksums of all steps, finds gaps, and reads the snapshot. It fetches steps in pages, each in a
transaction of its own, so that a slow reader does not keep a running worker from truncating SQLite's write-ahead log.
"""

import os
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from common.journal_messages import Step
from partition_worker.journal.files import PRIVATE, Fenced, Files
from partition_worker.journal.snapshots import read_snapshot
from partition_worker.recovery import JournalDamaged

FORMAT: Final = 2
"""The format of the file, in its `user_version`."""

FORMAT_MIN: Final = 2
"""The earliest format that this release reads. Opening a journal for writing gives it the format FORMAT."""

LOCK_MAX_S: Final = 2.0
"""How long to wait for the lock of another writer: an earlier worker that is not fenced yet."""

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

SCHEMA: Final = {
    "meta": "CREATE TABLE meta (partition TEXT NOT NULL, epoch INTEGER NOT NULL, begins INTEGER NOT NULL,"
    " snapshot INTEGER NOT NULL, last INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT",
    "steps": "CREATE TABLE steps (number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL,"
    " step BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT",
    "last": "CREATE TRIGGER last AFTER INSERT ON steps BEGIN UPDATE meta SET last = NEW.number; END",
}
"""The statements by name, as SQLite stores them."""

_TRANSIENT: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
    }
)
"""Errors caused by the disk or another process, and not by the contents of the file."""


class Row(NamedTuple):
    """A row of the table `steps`."""

    number: int
    at: float
    kind: str
    step: bytes
    checksum: int


class Meta(NamedTuple):
    """The only row of the table `meta`."""

    partition: str
    epoch: int
    begins: int
    """The first step that is needed: after the snapshot, or the one that starts from an empty partition."""
    snapshot: int
    """The step after which the snapshot was taken; 0 without a snapshot."""
    last: int
    """The latest step. Not in the checksum: a trigger updates it, and a step of this number has to exist."""
    checksum: int = 0


def make_row(number: int, at: float, kind: str, step: bytes) -> Row:
    """Build a row with the checksum of the step and its columns."""
    checksum = zlib.crc32(step, zlib.crc32(kind.encode(), zlib.crc32(struct.pack(">qd", number, at))))
    return Row(number, at, kind, step, checksum)


def meta_checksum(meta: Meta) -> int:
    """The checksum of the meta row without `last`."""
    numbers = struct.pack(">qqq", meta.epoch, meta.begins, meta.snapshot)
    return zlib.crc32(meta.partition.encode(), zlib.crc32(numbers))


def is_transient(error: Exception) -> bool:
    """Whether a later attempt may succeed: the cause is the disk or another process, and not the file's contents."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return isinstance(error, OSError) or code & 0xFF in _TRANSIENT


@contextmanager
def translate_errors(files: Files) -> Iterator[None]:
    """Raise SQLite's errors as JournalDamaged or OSError."""
    try:
        yield
    except sqlite3.Error as error:
        if is_transient(error):
            raise OSError(f"{files.database}: the journal cannot be used: {error}") from error
        raise JournalDamaged(str(error)) from error
    except UnicodeDecodeError as error:  # in SQLite's error message
        raise JournalDamaged("its names or texts are not valid UTF-8") from error


def read_meta(file: sqlite3.Connection, partition: str) -> Meta:
    """Read the meta row, and verify the schema.

    Raises:
        JournalDamaged: the schema or the row is not valid, or of an earlier format.
        OSError: a later release wrote it.
    """
    version = file.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise OSError(
            f"the journal of partition {partition} has format {version}, and this release reads formats up to "
            f"{FORMAT}: start the release that wrote it, or a later one"
        )
    if version < FORMAT_MIN:
        raise JournalDamaged(f"it has format {version}, and this release reads formats from {FORMAT_MIN} on")
    if dict(file.execute("SELECT name, sql FROM sqlite_schema")) != SCHEMA:
        raise JournalDamaged("its tables are not the tables of a journal")
    rows = file.execute("SELECT partition, epoch, begins, snapshot, last, checksum FROM meta").fetchall()
    if len(rows) != 1:
        raise JournalDamaged(f"its table meta has {len(rows)} rows instead of one")
    match rows[0]:
        case (str(owner), int(epoch), int(begins), int(snapshot), int(last), int(checksum)):
            meta = Meta(owner, epoch, begins, snapshot, last, checksum)
            if checksum == meta_checksum(meta):
                if owner != partition:
                    raise JournalDamaged(f"it belongs to partition {owner}")
                return meta
    raise JournalDamaged("its meta row does not match its checksum")


class Database:
    """The database file, open for writing under an epoch.

    Raises:
        Fenced: another worker has opened it under a higher epoch.
        JournalDamaged: the file is damaged.
        OSError: a file cannot be read or written.
    """

    def __init__(self, files: Files, epoch: int) -> None:
        self.files = files
        self.has_garbage = True
        """Whether there may be steps or snapshots that are no longer needed."""
        if not files.database.exists():
            files.clear()  # leftovers of a journal whose removal was interrupted
        os.close(os.open(files.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        with translate_errors(files):
            self._file = sqlite3.connect(
                files.database,
                isolation_level=None,
                timeout=LOCK_MAX_S,
                check_same_thread=False,  # opened in one thread, then used by the writer's only
                cached_statements=STATEMENT_STEPS + 16,
            )
        try:
            with translate_errors(files):
                self._claim(epoch)
        except BaseException:
            self._file.close()
            raise

    def _claim(self, epoch: int) -> None:
        version = self._file.execute("PRAGMA user_version").fetchone()[0]
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=FULL")
        self._file.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        self._file.execute(f"PRAGMA journal_size_limit={WAL_BYTES_MAX}")
        is_new = version == 0 and not self._file.execute("SELECT 1 FROM sqlite_schema").fetchone()
        if not is_new:
            self._read_meta(epoch)  # first, as the journal of a later worker is not to be judged
        check_wal(self._file, self.files)
        with self._transaction():
            if is_new:
                self._create(epoch)
            meta = self._meta = self._read_meta(epoch)
            if (found := self._file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise JournalDamaged(str(found).splitlines()[-1])  # after a line that only names the database
            self._file.execute(f"PRAGMA user_version={FORMAT}")
            self._meta = self._update_meta(meta._replace(epoch=epoch))
        self.last = max(self._meta.last, self._meta.snapshot)
        """The latest step when the file was opened; a snapshot may be recorded before the steps that it contains."""
        self.truncate_wal()  # otherwise unfinished transactions stay in it
        self._preallocate_wal()

    def _read_meta(self, epoch: int) -> Meta:
        meta = read_meta(self._file, self.files.partition)
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
        for statement in SCHEMA.values():
            self._file.execute(statement)
        self._file.execute(f"PRAGMA user_version={FORMAT}")
        meta = Meta(self.files.partition, epoch, begins=1, snapshot=0, last=0)
        self._file.execute("INSERT INTO meta VALUES (?, ?, ?, ?, ?, ?)", meta._replace(checksum=meta_checksum(meta)))

    # Changes ---------------------------------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row], *, fresh: bool) -> None:
        """Store these steps, all or none. If they are `fresh`, no earlier step is needed any more. Steps that the
        snapshot contains are skipped.

        Raises:
            Fenced: another worker has the partition.
            sqlite3.Error: nothing has changed; see `is_transient`.
        """
        meta = self._meta
        if rows[0].number < meta.begins:
            rows, fresh = [row for row in rows if row.number >= meta.begins], False
        if rows and len(rows) <= STATEMENT_STEPS and not fresh:
            self._insert(rows)
            return
        if fresh:
            meta = meta._replace(begins=rows[0].number, snapshot=0)
        with self._transaction():
            for start in range(0, len(rows), STATEMENT_STEPS):
                self._insert(rows[start : start + STATEMENT_STEPS])
            meta = self._update_meta(meta)
        self._meta, self.has_garbage = meta, self.has_garbage or fresh

    def _insert(self, rows: Sequence[Row]) -> None:
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
        done = self._file.execute(
            f"INSERT INTO steps SELECT * FROM (VALUES {places}) WHERE (SELECT epoch FROM meta) = ?",  # noqa: S608
            (*(field for row in rows for field in row), self._meta.epoch),
        )
        if done.rowcount != len(rows):
            raise Fenced(_FENCED)

    def record_snapshot(self, number: int) -> bool:
        """Record that a snapshot after this step exists, so that earlier steps are not needed any more. False if the
        partition has restarted since.

        Raises:
            Fenced, sqlite3.Error: as `append`.
        """
        self.has_garbage = True
        if number < self._meta.begins:
            return False
        with self._transaction():
            meta = self._update_meta(self._meta._replace(begins=number + 1, snapshot=number))
        self._meta = meta
        return True

    def delete_slice(self) -> None:
        """Delete a slice of the steps that are not needed any more; when none are left, delete old snapshots.

        Raises:
            Fenced, sqlite3.Error: as `append`.
            OSError: a file cannot be removed.
        """
        sizes = "SELECT number, length(step) AS size FROM steps WHERE number < ? ORDER BY number LIMIT ?"
        sums = f"SELECT number, size, sum(size) OVER (ORDER BY number) AS total FROM ({sizes})"  # noqa: S608
        end = self._file.execute(
            f"SELECT max(number) FROM ({sums}) WHERE total <= ? OR total = size",  # noqa: S608
            (self._meta.begins, SLICE_STEPS, SLICE_BYTES),
        ).fetchone()[0]
        if end is None:
            for number, path in self.files.snapshots():  # one in progress has a later number
                if number < self._meta.begins and number != self._meta.snapshot:
                    path.unlink(missing_ok=True)
            self.has_garbage = False
            return
        done = self._file.execute(
            "DELETE FROM steps WHERE number <= ? AND (SELECT epoch FROM meta) = ?", (end, self._meta.epoch)
        )
        if not done.rowcount:
            raise Fenced(_FENCED)

    def used_bytes(self) -> int:
        """Bytes of the database and its write-ahead log, without free pages and the preallocated part of the log."""
        database, wal = self.files.database, self.files.wal
        size = database.stat().st_size + (max(0, wal.stat().st_size - WAL_PREALLOCATED_BYTES) if wal.exists() else 0)
        free, page = (self._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
        used: int = size - free * page
        return used

    def truncate_wal(self) -> None:
        """Move the write-ahead log into the database and truncate it, unless another process reads it."""
        self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        self._file.close()

    # Private ---------------------------------------------------------------------------------------------------------

    def _update_meta(self, meta: Meta) -> Meta:
        """Replace the meta row; to be called inside a transaction."""
        meta = meta._replace(checksum=meta_checksum(meta))
        done = self._file.execute(
            "UPDATE meta SET epoch = ?, begins = ?, snapshot = ?, checksum = ? WHERE epoch = ?",
            (meta.epoch, meta.begins, meta.snapshot, meta.checksum, self._meta.epoch),
        )
        if done.rowcount != 1:
            raise Fenced(_FENCED)
        return meta

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:  # some errors end the transaction
                self._file.execute("ROLLBACK")
            raise


# Verification of the write-ahead log --------------------------------------------------------------------------------

_WAL_HEAD_BYTES: Final = 32
_WAL_FRAME: Final = struct.Struct(">4xI8s8x")
"""Of a frame's head: whether a transaction ends here, and the salts; the page follows."""


def check_wal(file: sqlite3.Connection, files: Files) -> None:
    """Check that SQLite, which has the file open, reads every finished transaction in its write-ahead log.

    SQLite ignores everything after a damaged frame without an error, as if it had never been finished. A checkpoint
    returns the number of frames that it reads. It writes a transaction only after the previous one is durable, so the
    ignored part may hold the end of one transaction; the ends of two mean that a durable one is lost. (Nothing shows
    whether the very last one was finished.) The layout of the log is at https://sqlite.org/walformat.html.

    Raises:
        JournalDamaged: SQLite ignores a finished transaction.
    """
    size = _WAL_FRAME.size + file.execute("PRAGMA page_size").fetchone()[0]
    for _ in range(3):  # another process may write meanwhile
        content = files.wal.read_bytes() if files.wal.exists() else b""
        valid_frames = file.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        known_salts = (content[16:24], content[_WAL_HEAD_BYTES + 8 : _WAL_HEAD_BYTES + 16])  # one of them is undamaged
        ignored = range(_WAL_HEAD_BYTES + max(valid_frames, 0) * size, len(content) - size + 1, size)
        heads = (_WAL_FRAME.unpack_from(content, at) for at in ignored)
        lost = sum(ends_transaction and salts in known_salts for ends_transaction, salts in heads)
        if lost < 2:
            return
    raise JournalDamaged(f"{lost} transactions of its write-ahead log cannot be read any more")


# Reading ------------------------------------------------------------------------------------------------------------

PAGE_STEPS: Final = 1000
PAGE_BYTES: Final = 8 << 20
"""A page has at most this many steps, or this many bytes and one step more."""

_decoder = msgspec.msgpack.Decoder(Step)


def decode_step(row: Row) -> Step:
    """Decode the step of a row.

    Raises:
        JournalDamaged: it cannot be decoded.
    """
    try:
        step = _decoder.decode(row.step)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalDamaged(f"step {row.number} cannot be decoded: {error}") from None
    if step.number != row.number:
        raise JournalDamaged(f"step {row.number} holds the number {step.number}")
    return step


class JournalReader:
    """A journal opened read-only, also while a worker writes to it, or in a directory that cannot be written.

    SQLite creates the write-ahead log and its index if they are missing, and a reader would leave them behind. So
    without a log (after an orderly stop) the file is opened as immutable; a log without its index (a backup) is read
    from a temporary copy.

    Raises:
        JournalDamaged, OSError: it cannot be used.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self._open()

    def _open(self) -> None:
        path, log = self.files.database, self.files.wal
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no journal")
        self._is_shared = self._has_users()
        with translate_errors(self.files), ExitStack() as stack:
            mode = "mode=ro"
            if not _has_content(log):
                mode = "mode=ro&immutable=1"
            elif not self._is_shared:
                folder = stack.enter_context(TemporaryDirectory(prefix="yunishard-journal-"))
                path = [Path(shutil.copy(source, folder)) for source in (log, path)][-1]
            uri = f"file:{quote(str(path))}?{mode}"
            file = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=LOCK_MAX_S)
            self._file, self.close = stack.enter_context(closing(file)), stack.pop_all().close

    def _has_users(self) -> bool:
        """Whether a worker has the file open, or had when it was killed."""
        return _has_content(self.files.wal) and self.files.wal_index.exists()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if not self._is_shared and self._has_users():  # a worker has started
            self.close()
            self._open()
        with translate_errors(self.files):
            yield self._file

    def read_meta(self) -> Meta:
        """The present meta row."""
        with self._reading() as file:
            return read_meta(file, self.files.partition)

    def read_snapshot(self) -> tuple[Meta, bytes | None]:
        """The meta row, and the content of the snapshot that it names."""
        while True:
            meta = self.read_meta()
            try:
                return meta, read_snapshot(self.files.snapshot(meta.snapshot), meta.snapshot) if meta.snapshot else None
            except JournalDamaged:
                if self.read_meta().snapshot == meta.snapshot:  # else a running worker has just replaced it
                    raise

    def read_steps(self, first: int) -> Iterator[Step]:
        """Decode the steps from this number on."""
        return map(decode_step, self.read_rows(first))

    def find_first(self) -> int:
        """The first step in the file, needed or not."""
        with self._reading() as file:
            found = file.execute("SELECT min(number) FROM steps").fetchone()[0]
        return self.read_meta().begins if found is None else int(found)

    def read_rows(self, first: int) -> Iterator[Row]:
        """The steps from this number on. Skips steps that are no longer needed and are deleted meanwhile."""
        expected, last = first, first
        while expected <= last:
            meta, page = self._page(expected)
            last = meta.last
            for row in page:
                if row.number != expected and row.number > meta.begins:
                    raise JournalDamaged(f"step {expected} is missing")
                if row.number > last:
                    raise JournalDamaged(f"step {row.number} is after the last recorded step {last}")
                yield row
                expected = row.number + 1
            if not page and max(expected, meta.begins) <= last:
                raise JournalDamaged(f"its steps from {expected} to {last} are missing")
            if not page:
                return

    def _page(self, first: int) -> tuple[Meta, list[Row]]:
        """The next steps and the meta row, read in one transaction."""
        page: list[Row] = []
        size = 0
        with self._reading() as file:
            file.execute("BEGIN")
            try:
                meta = read_meta(file, self.files.partition)
                found = file.execute(
                    "SELECT number, at, kind, step, checksum FROM steps WHERE number >= ? ORDER BY number", (first,)
                )
                while len(page) < PAGE_STEPS and size < PAGE_BYTES and (row := found.fetchone()):
                    page.append(_check_row(row))
                    size += len(page[-1].step)
                found.close()
            finally:
                file.execute("ROLLBACK")
        return meta, page


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _check_row(values: tuple[object, ...]) -> Row:
    match values:
        case (int(number), float(at), str(kind), bytes(step), int(checksum)):
            row = make_row(number, at, kind, step)
            if row.checksum == checksum:
                return row
    raise JournalDamaged(f"step {values[0]} does not match its checksum")
