"""Read a journal and verify it: checksums of all steps, no gaps, and the snapshot.

A reader fetches steps in pages, each in a transaction of its own, so that a slow reader does not keep a running worker
from truncating SQLite's write-ahead log.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import msgspec

from common.journal_messages import Step
from partition_worker.journal.database import (
    LOCK_MAX_S,
    Meta,
    Row,
    check_wal,
    read_meta,
    row_checksum,
    translate_errors,
)
from partition_worker.journal.files import Files, JournalDamaged
from partition_worker.journal.snapshots import read_snapshot

PAGE_STEPS: Final = 1000
PAGE_BYTES: Final = 8 << 20
"""A page has at most this many steps, or this many bytes and one step more."""

SNAPSHOT_ATTEMPTS: Final = 3
"""Attempts to read the snapshot: a running worker may replace it at any moment."""

_step = msgspec.msgpack.Decoder(Step)


@dataclass(frozen=True, slots=True)
class RecoveryData:
    """The snapshot, if there is one, and the steps after it.

    The steps are read while they are iterated, which raises JournalDamaged at a damaged step.
    """

    snapshot: bytes | None
    snapshot_number: int
    steps: Iterator[Step]


@contextmanager
def open_recovery(files: Files) -> Iterator[RecoveryData]:
    """Open a journal and read what a worker recovers from.

    Raises:
        JournalDamaged: the files are damaged.
        OSError: there is no journal, or it cannot be read.
    """
    with closing(JournalReader(files)) as reader:
        meta, snapshot = reader.snapshot()
        yield RecoveryData(snapshot, meta.snapshot, map(decode_step, reader.rows(meta.begins)))


def decode_step(row: Row) -> Step:
    """Decode the step of a row.

    Raises:
        JournalDamaged: it cannot be decoded.
    """
    try:
        step = _step.decode(row.step)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalDamaged(f"step {row.number} cannot be decoded: {error}") from None
    if step.number != row.number:
        raise JournalDamaged(f"step {row.number} holds the number {step.number}")
    return step


class JournalReader:
    """A journal opened read-only, also while a worker writes to it.

    Raises:
        JournalDamaged, OSError: it cannot be used.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        if not files.database.exists():
            raise FileNotFoundError(f"{files.database}: there is no journal")
        with translate_errors(files):
            self._file = sqlite3.connect(
                f"file:{quote(str(files.database))}?mode=ro",
                uri=True,
                isolation_level=None,
                timeout=LOCK_MAX_S,
            )
        try:
            with translate_errors(files):
                self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                check_wal(self._file, files)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._file.close()

    def meta(self) -> Meta:
        """The present meta row."""
        with translate_errors(self.files):
            return read_meta(self._file, self.files.partition)

    def snapshot(self) -> tuple[Meta, bytes | None]:
        """The meta row, and the content of the snapshot that it names."""
        for _ in range(SNAPSHOT_ATTEMPTS - 1):
            meta = self.meta()
            try:
                return self._snapshot_of(meta)
            except JournalDamaged:
                if self.meta().snapshot == meta.snapshot:
                    raise
        return self._snapshot_of(self.meta())

    def _snapshot_of(self, meta: Meta) -> tuple[Meta, bytes | None]:
        if not meta.snapshot:
            return meta, None
        return meta, read_snapshot(self.files.snapshot(meta.snapshot), meta.snapshot)

    def first(self) -> int:
        """The first step in the file, needed or not."""
        with translate_errors(self.files):
            found = self._file.execute("SELECT min(number) FROM steps").fetchone()[0]
        return self.meta().begins if found is None else int(found)

    def rows(self, first: int) -> Iterator[Row]:
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
        with translate_errors(self.files):
            self._file.execute("BEGIN")
            try:
                meta = read_meta(self._file, self.files.partition)
                found = self._file.execute(
                    "SELECT number, at, kind, step, checksum FROM steps WHERE number >= ? ORDER BY number", (first,)
                )
                while len(page) < PAGE_STEPS and size < PAGE_BYTES and (row := found.fetchone()):
                    page.append(_checked(row))
                    size += len(page[-1].step)
                found.close()
            finally:
                self._file.execute("ROLLBACK")
        return meta, page


def _checked(values: tuple[object, ...]) -> Row:
    match values:
        case (int(number), float(at), str(kind), bytes(step), int(checksum)):
            if checksum == row_checksum(number, at, kind, step):
                return Row(number, at, kind, step, checksum)
    raise JournalDamaged(f"step {values[0]} does not match its checksum")
