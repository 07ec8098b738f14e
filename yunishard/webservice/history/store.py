"""Where the history is kept: the protocols of a store, and the deletion of expired rows, which all stores share.

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

Not here: the tables of a file (`sqlite_store.py`) and those of a database of several hosts (`postgres_store.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Final, Protocol

from msgspec import Struct
from msgspec.json import Decoder, encode
from msgspec.structs import astuple

from yunishard.common.history_records import Ended, EndedApplication, Usage
from yunishard.common.messages.kinds import Resources
from yunishard.webservice.history.collector import KINDS, ReadPosition, RowBatch, UsageByName

TIMED: Final = ("totals", "queues", "users", "groups", "applications", "allocations", "gaps", "reasons")
"""Tables whose rows have a time; each has an index on it."""

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "partitions": ("full_name", "name", "rm", *ReadPosition._fields),
    "totals": ("at", "partition", "running", "allocated", "released", "capacity", "used"),
    **dict.fromkeys(KINDS, ("at", "partition", "name", "running", "allocated", "pending")),
    "applications": (
        *("at", "partition", "application", "queue", "user", "groups", "state", "submitted", "started", "allocations"),
        *("message", "used"),
    ),
    "allocations": (
        *("at", "partition", "key", "application", "queue", "user", "node", "resources", "began", "ended", "how"),
    ),
    "gaps": ("at", "partition", "what", "until", "missed", "reason"),
    "reasons": ("at", "partition", "application", "message"),
}
"""The columns of each table, but for its number."""

LATEST_NS: Final = 2 * 3600 * 10**9
"""How far back to look for the latest usage: all usage is recorded once an hour."""

MERGED_NS: Final = 60 * 10**9
"""Gaps of one kind that are not farther apart are merged."""

UNKNOWN: Final = "UNKNOWN"
"""How an allocation ended if the worker did not report its end."""

POSITION: Final = ", ".join(ReadPosition._fields)
"""The columns of a read position in `partitions`."""

Row = Mapping[str, object]
"""The values of a row by column; maps and lists are JSON in the table."""

Value = str | int | Sequence[str] | Sequence[int]
"""The value of a question mark in a query."""

Condition = tuple[str, Sequence[Value]]
"""A condition of a query, and the values of its question marks."""


class HistoryDamaged(Exception):
    """The content of the file is damaged or no history; the text is the reason."""


class HistoryUnusable(OSError):
    """The history cannot be written at present; the text is the reason."""


class HistoryTaken(HistoryUnusable):
    """Another web service records this history."""


class HistoryWriter(Protocol):
    """Writes rows, for one thread at a time. Only one web service has one.

    Its methods raise HistoryDamaged if the content is damaged, and OSError if it cannot be used at present; then
    nothing is written.
    """

    @property
    def is_due(self) -> bool:
        """Whether to call `renew` now, unless rows are written."""

    def positions(self) -> dict[str, ReadPosition]:
        """The read position of each partition, by full name."""

    def latest(self) -> dict[str, UsageByName]:
        """The latest non-zero usage, by full name of the partition."""

    def write(self, batches: Iterable[RowBatch]) -> None:
        """Write these, all or none."""

    def renew(self) -> None:
        """Keep other web services from recording."""

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        """Insert rows, all or none. Each gets a new number."""

    def used_bytes(self) -> int:
        """Bytes of all rows and indexes."""

    def find_oldest(self) -> int | None:
        """The time of the oldest row of all tables."""

    def delete_rows(self, table: str, before_ns: int) -> int:
        """Delete the oldest rows from before this time, at most SLICE_ROWS. Returns their number."""

    def delete_partition(self, before_ns: int) -> None:
        """Delete a removed partition whose removal was recorded before this time, with the rows about it."""

    def release_space(self, bytes_max: int) -> None:
        """Return free space to the disk if more than this is in use."""

    def close(self) -> None:
        """Let another web service record."""


class HistoryRows(Protocol):
    """Reads rows. Tables are named as above; the columns `user` and `groups` may need quotation marks."""

    join: str
    """The kind of join that reads the first table in the order of its index."""

    def table(self, name: str) -> str:
        """The name of a table in SQL."""

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[object, ...]]:
        """The rows that a query selects. Raises OSError: it cannot be read; TimeoutError: it takes too long."""

    def includes(self, beginnings: Mapping[int, frozenset[str]], queue: str) -> Condition:
        """Whether a right holds for the queue in this column. It begins at these queues, by number of the partition,
        and holds for all below them; at the root it also holds for queues that never existed.
        """


class HistoryStore(Protocol):
    """A history. Several web services may read it; one of them records it."""

    def open_writer(self) -> HistoryWriter:
        """Begin to record.

        Raises:
            HistoryDamaged: its content is damaged.
            HistoryTaken: another web service records it.
            OSError: a later release wrote it, or it cannot be used.
        """

    def open_rows(self, max_s: float) -> AbstractContextManager[HistoryRows]:
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


# Rows -----------------------------------------------------------------------------------------------------------------

decode_amounts: Final = Decoder(Resources).decode


@cache
def _column_names(kind: type[Struct]) -> list[str]:
    """The columns of a record: its fields without `_ns` and `_id`."""
    return [name.removesuffix("_ns").removesuffix("_id") for name in kind.__struct_fields__]


def columns_of(record: Struct) -> dict[str, object]:
    """The values of a record by column."""
    return dict(zip(_column_names(type(record)), astuple(record), strict=True))


def encode_column(value: object) -> object:
    """The value of a column; a map or list becomes JSON."""
    return encode(value, order="deterministic").decode() if isinstance(value, dict | list) else value


def ended_row(one: Ended) -> dict[str, object]:
    """The row of an allocation whose beginning is not recorded."""
    return {**columns_of(one), "ended": one.at_ns}


def application_row(one: EndedApplication, reason: str) -> dict[str, object]:
    """The row of an ended application, which failed for this reason unless it has its own; without `allocations`."""
    used = {"resourceUsage": one.used, "preemptedResource": one.preempted, "placeholderResource": one.placeholders}
    row = columns_of(one) | {
        "at": one.finished_ns,
        "message": one.message or reason,
        "used": {key: by_type for key, by_type in used.items() if by_type},
    }
    return {name: value for name, value in row.items() if name not in ("finished", "preempted", "placeholders")}


def is_used(usage: Usage) -> bool:
    """Whether the usage is not zero."""
    return bool(usage.running or usage.allocated or usage.pending)


# Expired rows ---------------------------------------------------------------------------------------------------------

SLICE_ROWS: Final = 2_000
"""Rows deleted by one statement: some ten milliseconds."""

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
