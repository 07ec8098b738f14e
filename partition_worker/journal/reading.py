"""Reading a journal, and finding out whether it still holds everything it once had.

Whatever is read is checked: each step's checksum, that none is missing between the first one that is needed and the
last one that was kept, and the snapshot. It is read in pages, each in a transaction of its own, so that a reader who
takes their time does not keep a running worker from emptying SQLite's log.

Not here: writing (`database.py`), what the steps mean (`partition_worker/replica.py`).
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import msgspec

from common.journal_messages import Step
from partition_worker.journal import snapshots
from partition_worker.journal.database import LOCK_MAX_S, Meta, Row, checked_meta, checksum_of, explained
from partition_worker.journal.files import Files, JournalDamaged
from partition_worker.journal.log import check_log

PAGE_STEPS: Final = 1000
PAGE_BYTES: Final = 8 << 20
"""Read at a time: so many steps, or so many bytes and one step more."""

SNAPSHOT_LOOKS: Final = 3
"""How often to look for the snapshot: a running worker may put another one in its place at any moment."""

_step = msgspec.msgpack.Decoder(Step)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a worker begins from: the snapshot, if there is one, and the steps after it.

    The steps are read while they are taken, and raise JournalDamaged where that is found.
    """

    snapshot: bytes | None
    snapshot_number: int
    steps: Iterator[Step]


@contextmanager
def recovered(files: Files) -> Iterator[Recovered]:
    """What is in a journal, which stays open meanwhile.

    Raises:
        JournalDamaged: it is not as it was written.
        OSError: it is not there, or cannot be read.
    """
    with closing(Reader(files)) as reader:
        meta, snapshot = reader.snapshot()
        yield Recovered(snapshot, meta.snapshot, map(step_of, reader.rows(meta.begins)))


def step_of(row: Row) -> Step:
    """The step in a row.

    Raises:
        JournalDamaged: it cannot be understood.
    """
    try:
        step = _step.decode(row.step)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalDamaged(f"step {row.number} cannot be understood: {error}") from None
    if step.number != row.number:
        raise JournalDamaged(f"step {row.number} calls itself {step.number}")
    return step


class Reader:
    """A journal, open for reading only, whether somebody writes to it or not.

    Raises:
        JournalDamaged, OSError: it cannot be used.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        if not files.database.exists():
            raise FileNotFoundError(f"{files.database}: there is no journal")
        with explained(files):
            self._file = sqlite3.connect(
                f"file:{quote(str(files.database))}?mode=ro",
                uri=True,
                isolation_level=None,
                timeout=LOCK_MAX_S,
            )
        try:
            with explained(files):
                self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                check_log(self._file, files)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._file.close()

    def meta(self) -> Meta:
        """What the journal says about itself now."""
        with explained(self.files):
            return checked_meta(self._file, self.files.partition)

    def snapshot(self) -> tuple[Meta, bytes | None]:
        """The content of the snapshot, if there is one, and what the journal says about itself."""
        for _ in range(SNAPSHOT_LOOKS - 1):
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
        return meta, snapshots.read(self.files.snapshot(meta.snapshot), meta.snapshot)

    def first(self) -> int:
        """The first step that is still there, whether it is needed or not."""
        with explained(self.files):
            found = self._file.execute("SELECT min(number) FROM steps").fetchone()[0]
        return self.meta().begins if found is None else int(found)

    def rows(self, first: int) -> Iterator[Row]:
        """The steps from this one on; without those that are no longer needed and go meanwhile."""
        expected, last = first, first
        while expected <= last:
            meta, page = self._page(expected)
            last = meta.last
            for row in page:
                if row.number != expected and row.number > meta.begins:
                    raise JournalDamaged(f"step {expected} is missing")
                if row.number > last:
                    raise JournalDamaged(f"step {row.number} is there, and the last one was {last}")
                yield row
                expected = row.number + 1
            if not page and max(expected, meta.begins) <= last:
                raise JournalDamaged(f"its steps from {expected} to {last} are missing")
            if not page:
                return

    def _page(self, first: int) -> tuple[Meta, list[Row]]:
        """The next steps, and what the journal says about itself in the same moment."""
        page: list[Row] = []
        size = 0
        with explained(self.files):
            self._file.execute("BEGIN")
            try:
                meta = checked_meta(self._file, self.files.partition)
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
            if checksum == checksum_of(number, at, kind, step):
                return Row(number, at, kind, step, checksum)
    raise JournalDamaged(f"step {values[0]} is not as it was written")
