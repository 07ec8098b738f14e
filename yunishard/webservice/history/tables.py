"""Executes statements on the tables of the history, which `store.py` describes, and encodes their rows.

Not here: the tables of a file (`formats/`) and those of a database (`common/postgres/store_formats/`), whose columns
have the same names.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import ClassVar, Final, Literal

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import astuple

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.query_messages import EndedApplication, Usage
from yunishard.webservice.history.collector import KINDS, ReadPosition

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

NUL: Final = "\0"
"""PostgreSQL refuses it in texts, and SQLite reads a text in JSON up to it."""

REPLACEMENT: Final = "\ufffd"
"""Stored in the place of NUL."""

Row = Mapping[str, object]
"""The values of a row by column; maps and lists are JSON in the table."""

Value = str | int | None | Sequence[str] | Sequence[int]
"""The value of a question mark in a query."""

Condition = tuple[str, Sequence[Value]]
"""A condition of a query, and the values of its question marks."""


class HistoryTables(ABC):
    """Executes statements, which are the same for all stores except for the parts that are here.

    In a statement, a table has the prefix `history_`, a question mark stands for a value, and the columns `user` and
    `groups` need quotation marks.
    """

    join: ClassVar[str]
    """The kind of join that reads the first table in the order of its index."""
    texts: ClassVar[str]
    """The texts of a JSON array, which is a value, as rows with the column `value`."""
    reuses_numbers: ClassVar[bool]
    """Whether a new row may get the number of one that was deleted."""

    @abstractmethod
    def rows(self, table: str, columns: Iterable[str]) -> str:
        """The rows of a JSON array, which is a value, with these columns of a table."""

    @abstractmethod
    def includes(self, beginnings: Mapping[int, frozenset[str]], queue: str) -> Condition:
        """Whether a right holds for the queue in this column. It begins at these queues, by number of the partition,
        and holds for all below them; at the root it also holds for queues that never existed.
        """

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[object, ...]]:
        """The rows that a statement returns. Raises OSError: it cannot be executed; TimeoutError: it takes too long."""

    @abstractmethod
    def change(self, sql: str, values: Sequence[Value], sign: Literal[1, -1] = 1) -> int:
        """Insert rows, or delete rows (-1). Returns their number."""

    def clean_name(self, text: str) -> str:
        """A name that the store accepts, also in an index."""
        return text.replace(NUL, REPLACEMENT)


# Rows -----------------------------------------------------------------------------------------------------------------

decode_amounts: Final = Decoder(Resources).decode


@cache
def _column_names(kind: type[Struct]) -> list[str]:
    """The columns of a record: its fields without `_ns` and `_id`."""
    return [name.removesuffix("_ns").removesuffix("_id") for name in kind.__struct_fields__]


def columns_of(record: Struct) -> dict[str, object]:
    """The values of a record by column."""
    return dict(zip(_column_names(type(record)), astuple(record), strict=True))


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
