"""Where the history is kept: the protocol of a store, and the deletion of expired rows.

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

A failure may lose the last transactions and nothing else: the read position of a partition is in the same transaction
as its rows, so lost rows are read again and no row is written twice.

Not here: the statements (`tables.py`, `writer.py`), the stores of a single host (`sqlite_store.py`) and of several
(`postgres_store.py`).
"""

from contextlib import AbstractContextManager
from typing import Final, Protocol

from yunishard.webservice.history.tables import TIMED, HistoryTables
from yunishard.webservice.history.writer import SLICE_ROWS, HistoryWriter


class HistoryDamaged(Exception):
    """The content of the file is damaged or no history; the text is the reason."""


class HistoryTaken(OSError):
    """Another web service records this history."""


class HistoryStore(Protocol):
    """A history. Several web services may read it; one of them records it."""

    def open_writer(self) -> HistoryWriter:
        """Begin to record.

        Raises:
            HistoryDamaged: its content is damaged.
            HistoryTaken: another web service records it.
            OSError: a later release wrote it, or it cannot be used.
        """

    def open_rows(self, max_s: float) -> AbstractContextManager[HistoryTables]:
        """Read it, for no longer than this. Raises OSError, also while it is open."""

    def exists(self) -> bool:
        """Whether it was created."""

    def size(self) -> int | None:
        """Its bytes; None if only the web service that records it can tell. Never waits."""

    def describe(self, error: OSError) -> str:
        """The reason why it cannot be used, in one line."""

    def put_aside(self, damage: HistoryDamaged) -> str:
        """Rename a damaged one, for a later analysis. Returns what has happened, in one line."""

    def close(self) -> None:
        """Close what was opened to read it."""


# Expired rows ---------------------------------------------------------------------------------------------------------

SLICES_MAX: Final = 25
"""Statements after each write: they delete more rows than are written, so the bounds hold under a flood as well."""

PARTS: Final = 64
"""If the history is too large, the oldest one of so many equal parts of the recorded time is deleted first."""

PART_MIN_NS: Final = 60 * 10**9


def delete_expired(writer: HistoryWriter, *, bytes_max: int, age_max_ns: int, now_ns: int) -> None:
    """Delete rows that are too old, then the oldest rows of a history that is too large, up to the limit of one call.

    Raises:
        HistoryDamaged, OSError: as the writer.
    """
    left, oldest = SLICES_MAX, writer.find_oldest()
    if oldest is not None and oldest < now_ns - age_max_ns:
        left = _delete(writer, now_ns - age_max_ns, left)
    if left:
        writer.delete_partition(now_ns - age_max_ns)
    while left and writer.used_bytes() > bytes_max and (oldest := writer.find_oldest()) is not None:
        part_ns = max((now_ns - oldest) // PARTS, PART_MIN_NS)
        left = _delete(writer, oldest + part_ns, left, bytes_max=bytes_max)
    writer.release_space(bytes_max)


def _delete(writer: HistoryWriter, before_ns: int, slices: int, *, bytes_max: int = 0) -> int:
    """Delete older rows, by at most this number of statements, until the rows have no more bytes than this. Returns the
    number of statements that are left.
    """
    for table in TIMED:
        deleted = SLICE_ROWS
        while deleted == SLICE_ROWS and slices:
            if bytes_max and writer.used_bytes() <= bytes_max:
                return slices
            deleted = writer.delete_rows(table, before_ns)
            slices -= deleted > 0
    return slices
