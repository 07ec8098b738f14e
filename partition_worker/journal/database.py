"""The SQLite file of the steps: who may write to it, and each change of it as one transaction.

    meta    one row: of which partition, under which epoch, from which step on it is needed, the last step
    steps   number, time, kind, the encoded step, and a checksum of these

A transaction is on the disk when it has returned (`synchronous=FULL`), and checks in itself that the epoch is still
ours. A usual one is a single statement, because whoever runs Python lets others go first for each statement: a worker
that is busy deciding makes four of them wait four times.

Not here: the thread that calls this (`writer.py`), reading (`reading.py`).
"""

import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from partition_worker.journal.files import PRIVATE, Fenced, Files, JournalDamaged
from partition_worker.journal.log import check_log

FORMAT: Final = 1
"""Of the file, in its `user_version`."""

LOCK_MAX_S: Final = 2.0
"""How long to wait for somebody else who writes: an earlier worker that has not noticed yet."""

STATEMENT_STEPS: Final = 256
"""Rows that one statement inserts at most."""

SLICE_STEPS: Final = 512
"""Steps that are deleted at a time: more than are usually added at a time, so that deleting keeps up."""

SLICE_BYTES: Final = 4 << 20
"""The same in bytes of steps; a single one may have more."""

CHECKPOINT_PAGES: Final = 1000
"""Pages of 4 KiB that are written before SQLite moves them from its log into the database, which takes milliseconds."""

LOG_PREPARED_BYTES: Final = 4 << 20
"""Of the log that are written beforehand, as many as it has before that: to write over them takes the disk less time
than to let the file grow with each transaction."""

_ZEROS: Final = bytes(64 << 10)

LOG_BYTES: Final = 16 << 20
"""What the log may keep on the disk once it is empty again."""

SCHEMA: Final = {
    "meta": "CREATE TABLE meta (partition TEXT NOT NULL, epoch INTEGER NOT NULL, begins INTEGER NOT NULL,"
    " snapshot INTEGER NOT NULL, last INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT",
    "steps": "CREATE TABLE steps (number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL,"
    " step BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT",
    "last": "CREATE TRIGGER last AFTER INSERT ON steps BEGIN UPDATE meta SET last = NEW.number; END",
}
"""By name, as SQLite keeps it."""

_PASSING: Final = frozenset(
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
"""What the disk or somebody else is to blame for, and not the contents of the file."""


class Row(NamedTuple):
    """A step as the table has it."""

    number: int
    at: float
    kind: str
    step: bytes
    checksum: int


class Meta(NamedTuple):
    """The only row of its table."""

    partition: str
    epoch: int
    begins: int
    """The first step that is needed: after the snapshot, or the one that begins from an empty partition."""
    snapshot: int
    """The step after which it was taken; 0 for none."""
    last: int
    """The latest step. Not in the checksum: a trigger keeps it, and a step of this number has to be there."""
    checksum: int = 0


def row_of(number: int, at: float, kind: str, step: bytes) -> Row:
    """A row with its checksum."""
    return Row(number, at, kind, step, checksum_of(number, at, kind, step))


def checksum_of(number: int, at: float, kind: str, step: bytes) -> int:
    """Of a step and everything that stands beside it."""
    return zlib.crc32(step, zlib.crc32(kind.encode(), zlib.crc32(struct.pack(">qd", number, at))))


def checksum_of_meta(meta: Meta) -> int:
    """Of all that changes only with care."""
    numbers = struct.pack(">qqq", meta.epoch, meta.begins, meta.snapshot)
    return zlib.crc32(meta.partition.encode(), zlib.crc32(numbers))


def passing(error: sqlite3.Error) -> bool:
    """Whether it may work another time: the disk, or somebody else, is to blame, and not what is in the file."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF in _PASSING


@contextmanager
def explained(files: Files) -> Iterator[None]:
    """What SQLite complains about, as JournalDamaged or OSError."""
    try:
        yield
    except sqlite3.Error as error:
        if passing(error):
            raise OSError(f"{files.database}: the journal cannot be used: {error}") from error
        raise JournalDamaged(str(error)) from error
    except UnicodeDecodeError as error:  # in what SQLite complains about
        raise JournalDamaged("its names or texts are not as they were written") from error


def checked_meta(file: sqlite3.Connection, partition: str) -> Meta:
    """The row, if it is what it should be.

    Raises:
        JournalDamaged: it is not.
    """
    version = file.execute("PRAGMA user_version").fetchone()[0]
    if version != FORMAT:
        raise JournalDamaged(f"it has format {version}, and this release knows {FORMAT}")
    if dict(file.execute("SELECT name, sql FROM sqlite_schema")) != SCHEMA:
        raise JournalDamaged("its tables are not those of a journal")
    rows = file.execute("SELECT partition, epoch, begins, snapshot, last, checksum FROM meta").fetchall()
    if len(rows) != 1:
        raise JournalDamaged(f"it has {len(rows)} rows of what it is about")
    meta = _meta_of(rows[0])
    if meta.partition != partition:
        raise JournalDamaged(f"it is that of partition {meta.partition}")
    return meta


def _meta_of(values: tuple[object, ...]) -> Meta:
    match values:
        case (str(partition), int(epoch), int(begins), int(snapshot), int(last), int(checksum)):
            meta = Meta(partition, epoch, begins, snapshot, last, checksum)
            if meta.checksum == checksum_of_meta(meta):
                return meta
    raise JournalDamaged("what it says about itself is not as it was written")


class Database:
    """The file, open for writing under an epoch.

    Raises:
        Fenced: somebody has opened it under a higher one.
        JournalDamaged: it cannot be understood.
        OSError: the disk does not let us.
    """

    def __init__(self, files: Files, epoch: int) -> None:
        self.files = files
        self.forgetful = True
        """Whether there may be something that is not needed any more."""
        if not files.database.exists():
            files.clear()  # of one that was put aside or removed, and something came in between
        os.close(os.open(files.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        with explained(files):
            self._file = sqlite3.connect(
                files.database,
                isolation_level=None,
                timeout=LOCK_MAX_S,
                check_same_thread=False,  # opened in one thread, and then only the writer's
                cached_statements=STATEMENT_STEPS + 16,
            )
        try:
            with explained(files):
                self._claim(epoch)
        except BaseException:
            self._file.close()
            raise

    @property
    def last(self) -> int:
        """The latest step when it was opened; a snapshot may have been noted before what it was taken after."""
        return max(self._meta.last, self._meta.snapshot)

    def _claim(self, epoch: int) -> None:
        files = self.files
        version = self._file.execute("PRAGMA user_version").fetchone()[0]
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=FULL")
        self._file.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        self._file.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
        with self._transaction():
            if version == 0 and not self._file.execute("SELECT 1 FROM sqlite_schema").fetchone():
                self._create(epoch)
            self._meta = checked_meta(self._file, files.partition)
            if self._meta.epoch > epoch:
                raise Fenced(f"{files.database}: another worker has the partition, under epoch {self._meta.epoch}")
            check_log(self._file, files)
            if (found := self._file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise JournalDamaged(str(found).splitlines()[-1])  # after a line that only says which database
            self._meta = self._written(self._meta._replace(epoch=epoch))
        self.empty_log()  # or what was not finished would lie there still, for the next one to find
        self._prepare_log()

    def _prepare_log(self) -> None:
        """Zeros are nothing to SQLite. Nobody else writes meanwhile, and if the disk has no room it is only slower."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            with suppress(OSError), self.files.log.open("r+b") as log:
                if not os.fstat(log.fileno()).st_size:
                    for _ in range(LOG_PREPARED_BYTES // len(_ZEROS)):  # all at once the process would keep its memory
                        log.write(_ZEROS)
                    log.flush()
                    os.fsync(log.fileno())
        finally:
            self._file.execute("ROLLBACK")

    def _create(self, epoch: int) -> None:
        for statement in SCHEMA.values():
            self._file.execute(statement)
        self._file.execute(f"PRAGMA user_version={FORMAT}")
        meta = Meta(self.files.partition, epoch, begins=1, snapshot=0, last=0)
        self._file.execute("INSERT INTO meta VALUES (?, ?, ?, ?, ?, ?)", meta._replace(checksum=checksum_of_meta(meta)))

    # Changes ---------------------------------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row], *, fresh: bool) -> None:
        """Keep these steps, all or none; if they are `fresh`, nothing before them is needed any more. Those that a
        snapshot has already are as durable as can be.

        Raises:
            Fenced: another worker has the partition.
            sqlite3.Error: nothing has changed; see `passing`.
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
            meta = self._written(meta)
        self._meta, self.forgetful = meta, self.forgetful or fresh

    def _insert(self, rows: Sequence[Row]) -> None:
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
        done = self._file.execute(
            f"INSERT INTO steps SELECT * FROM (VALUES {places}) WHERE (SELECT epoch FROM meta) = ?",  # noqa: S608
            (*(field for row in rows for field in row), self._meta.epoch),
        )
        if done.rowcount != len(rows):
            raise _fenced()

    def note_snapshot(self, number: int) -> bool:
        """There is a snapshot after this step, and nothing up to it is needed any more; False if that is no news, as
        the partition has begun anew since.

        Raises:
            Fenced, sqlite3.Error: as `append`.
        """
        self.forgetful = True
        if number < self._meta.begins:
            return False
        with self._transaction():
            meta = self._written(self._meta._replace(begins=number + 1, snapshot=number))
        self._meta = meta
        return True

    def forget_some(self) -> None:
        """Delete a slice of what is not needed any more; after the last one nothing is left to forget.

        Raises:
            Fenced, sqlite3.Error: as `append`.
            OSError: a file cannot be removed.
        """
        oldest = self._file.execute(
            "SELECT number, length(step) FROM steps WHERE number < ? ORDER BY number LIMIT ?",
            (self._meta.begins, SLICE_STEPS),
        ).fetchall()
        if not oldest:
            self.files.forget_snapshots(before=self._meta.begins, but=self._meta.snapshot)
            self.forgetful = False
            return
        end, size = oldest[0]
        for number, length in oldest[1:]:
            size += length
            if size > SLICE_BYTES:
                break
            end = number
        done = self._file.execute(
            "DELETE FROM steps WHERE number <= ? AND (SELECT epoch FROM meta) = ?", (end, self._meta.epoch)
        )
        if not done.rowcount:
            raise _fenced()

    def used_bytes(self) -> int:
        """What the steps take, with what SQLite has not moved yet, but for the first LOG_PREPARED_BYTES of that, and
        without what it has free.
        """
        database, log = self.files.database, self.files.log
        size = database.stat().st_size + (max(0, log.stat().st_size - LOG_PREPARED_BYTES) if log.exists() else 0)
        free, page = (self._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
        used: int = size - free * page
        return used

    def empty_log(self) -> None:
        """Move what is in SQLite's log into the database, and give its room back, unless somebody else reads it."""
        self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        self._file.close()

    # Private ---------------------------------------------------------------------------------------------------------

    def _written(self, meta: Meta) -> Meta:
        """Inside a transaction: have this row from now on."""
        meta = meta._replace(checksum=checksum_of_meta(meta))
        done = self._file.execute(
            "UPDATE meta SET epoch = ?, begins = ?, snapshot = ?, checksum = ? WHERE epoch = ?",
            (meta.epoch, meta.begins, meta.snapshot, meta.checksum, self._meta.epoch),
        )
        if done.rowcount != 1:
            raise _fenced()
        return meta

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:  # some errors have ended it already
                self._file.execute("ROLLBACK")
            raise


def _fenced() -> Fenced:
    return Fenced("another worker has the partition now")
