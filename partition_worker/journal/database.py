"""The journal's SQLite database: schema, errors, reading and verification.

    meta    one row: the partition, the epoch of its worker, the first step that is needed, the last step
    steps   number, time, kind, the encoded step, and a checksum of these

A reader verifies the checksums of all steps, finds gaps, and reads the snapshot. It fetches steps in pages, each in a
transaction of its own, so that a slow reader does not keep a running worker from truncating SQLite's write-ahead log.
"""

import shutil
import sqlite3
import struct
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from yunishard.common.messages.journal_messages import Step
from yunishard.common.process.folders import make_temporary_folder
from yunishard.partition_worker.journal.files import Files, read_snapshot
from yunishard.partition_worker.journal.protocol import StepReader
from yunishard.partition_worker.recovery import JournalDamaged

FORMAT: Final = 1
"""The format of the file, in its `user_version`."""

FORMAT_MIN: Final = 1
"""The earliest format that this release reads. Opening a journal for writing gives it the format FORMAT."""

LOCK_MAX_S: Final = 2.0
"""How long to wait for the lock of another writer: an earlier worker that is not fenced yet."""

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


@contextmanager
def translate_errors(files: Files | None = None) -> Iterator[None]:
    """Raise SQLite's errors as JournalDamaged, or as OSError if a later attempt may succeed. The text of an OSError
    names the database of `files`.
    """
    try:
        yield
    except sqlite3.Error as error:
        code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & 0xFF in _TRANSIENT:
            prefix = f"{files.database}: the journal cannot be used: " if files is not None else ""
            raise OSError(f"{prefix}{error}") from error
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


class DatabaseReader(StepReader):
    """The methods that read a journal, open for reading or writing."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @abstractmethod
    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """The connection; errors are translated."""

    def read_meta(self) -> Meta:
        """The present meta row."""
        with self._reading() as file:
            return read_meta(file, self.files.partition)

    def open_snapshot(self) -> tuple[Meta, Iterator[bytes] | None]:
        """The meta row, and the content of the snapshot that it names, in pieces."""
        while True:
            meta = self.read_meta()
            try:
                return meta, read_snapshot(self.files.snapshot(meta.snapshot), meta.snapshot) if meta.snapshot else None
            except JournalDamaged:
                if self.read_meta().snapshot == meta.snapshot:  # else a running worker has just replaced it
                    raise

    def find_first(self) -> int:
        """The first step in the file, needed or not."""
        with self._reading() as file:
            found = file.execute("SELECT min(number) FROM steps").fetchone()[0]
        return self.read_meta().begins if found is None else int(found)

    def _read_page(self, first: int) -> tuple[int, int, Iterator[Step]]:
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
        if page and page[-1].number > meta.last:
            raise JournalDamaged(f"step {page[-1].number} is after the last recorded step {meta.last}")
        return meta.begins, meta.last, map(decode_step, page)


class JournalReader(DatabaseReader):
    """A journal opened read-only, also while a worker writes to it, or in a directory that cannot be written.

    SQLite creates the write-ahead log and its index if they are missing, and a reader would leave them behind. So
    without a log (after an orderly stop) the file is opened as immutable; a log without its index (a backup) is read
    from a temporary copy.

    Raises:
        JournalDamaged, OSError: it cannot be used.
    """

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._open()

    def _open(self) -> None:
        path, log = self.files.database, self.files.wal
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no journal")
        self.files.check(is_written=False)
        self._is_shared = self._has_users()
        with translate_errors(self.files), ExitStack() as stack:
            mode = "mode=ro"
            if not _has_content(log):
                mode = "mode=ro&immutable=1"
            elif not self._is_shared:
                folder = stack.enter_context(make_temporary_folder("journal"))
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


class HistoryReader(JournalReader):
    """A journal that is read from its oldest snapshot with all steps after it, needed or not."""

    def read_meta(self) -> Meta:
        """The meta row as if that snapshot was the latest one."""
        meta = super().read_meta()
        with self._reading() as file:
            first = file.execute("SELECT min(number) FROM steps").fetchone()[0]
        if first is None or not meta.snapshot:
            return meta
        stored = (number for number, path in self.files.snapshots() if path == self.files.snapshot(number))
        oldest = min((number for number in stored if first - 1 <= number <= meta.snapshot), default=meta.snapshot)
        return meta._replace(begins=oldest + 1, snapshot=oldest)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _check_row(values: tuple[object, ...]) -> Row:
    match values:
        case (int(number), float(at), str(kind), bytes(step), int(checksum)):
            row = make_row(number, at, kind, step)
            if row.checksum == checksum:
                return row
    raise JournalDamaged(f"step {values[0]} does not match its checksum")
