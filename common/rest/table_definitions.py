"""The tables of a partition in REST: their columns, what they can be sorted and filtered by.

The web service checks requests and describes the routes with these definitions; the worker makes the rows
(`partition_worker/tables.py`). Commands and the dashboard read rows by the names of the columns, so a new column may be
added anywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

TableName = Literal["applications", "asks", "nodes", "queues", "users", "groups"]

TABLE_NAMES: Final[tuple[TableName, ...]] = get_args(TableName)

ROWS_MAX: Final = 10_000
"""Rows of one answer, also without the parameter `limit`. Making them takes a worker about a tenth of a second, during
which it does not schedule; the next rows are requested with `offset`.
"""

OFFSET_MAX: Final = 100_000_000
"""The largest `offset`; there are not so many rows."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """One table. A column that is not in `amounts` has a number, a text, a flag or null."""

    summary: str
    columns: tuple[str, ...]
    amounts: frozenset[str]
    """Columns with an amount of each resource type; `COLUMN.TYPE` sorts by one type."""
    filters: Mapping[str, str]
    """Query parameters that select rows, with their meaning."""
    unsorted: frozenset[str] = frozenset()
    """Columns that rows cannot be sorted by."""
    states: tuple[str, ...] = ()
    """Values of the filter `state` besides the empty one; without them the table has no such filter."""

    @property
    def sortable(self) -> tuple[str, ...]:
        """The columns that rows can be sorted by."""
        return tuple(name for name in self.columns if name not in self.unsorted)


_QUEUE: Final = {"queue": "Only in this queue.", "subtree": "`true`: also in all queues below `queue`."}
_USAGE: Final = {"text": "Only names that contain this text; case does not matter.", **_QUEUE}
_LIMITED: Final = {"limited": "`true`: only queues where a limit applies."}
_USAGE_COLUMNS: Final = ("name", "queue", "used", "maximum", "utilization", "runningApplications", "maxApplications")

LIVE_STATES: Final = ("new", "accepted", "starting", "running", "resuming", "completing", "failing")
"""States of applications that have not ended."""

TABLES: Final[Mapping[TableName, TableDefinition]] = {
    "applications": TableDefinition(
        summary="The applications, one row for each",
        columns=(
            *("application", "state", "queue", "user", "groups", "pending", "asks", "used", "allocations"),
            *("submitted", "started", "finished", "priority", "reason", "message"),
        ),
        amounts=frozenset({"pending", "used"}),
        filters={
            "state": "Only in this state. If empty: all that have not ended; `ended`: all that have; `all`: both.",
            **_QUEUE,
            "user": "Only of this user.",
            "node": "Only with an allocation on this node.",
            "text": "Only IDs that contain this text; case does not matter.",
        },
        unsorted=frozenset({"groups"}),
        states=(*LIVE_STATES, "completed", "failed", "rejected", "ended", "all"),
    ),
    "asks": TableDefinition(
        summary="The pending asks, one row for equal asks of an application",
        columns=(
            *("key", "application", "queue", "user", "state", "count", "resource", "priority", "created"),
            *("placeholder", "taskGroup", "requiredNode", "reason", "message"),
        ),
        amounts=frozenset({"resource"}),
        filters={
            "application": "Only of this application.",
            **_QUEUE,
            "user": "Only of this user.",
            "text": "Only with this text in the key of the first ask; case does not matter.",
        },
    ),
    "nodes": TableDefinition(
        summary="The nodes, one row for each",
        columns=(
            *("node", "state", "host", "rack", "instanceType", "partition", "capacity", "used", "foreign", "available"),
            *("allocations", "reserved", "utilization"),
        ),
        amounts=frozenset({"capacity", "used", "foreign", "available"}),
        filters={
            "state": "Only in this state; `reserved`: only those that are reserved for an ask.",
            "attribute": "Only with this attribute: `NAME=VALUE`.",
            "text": "Only IDs that contain this text; case does not matter.",
        },
        states=("schedulable", "unschedulable", "cordoned", "reserved"),
    ),
    "queues": TableDefinition(
        summary="The queues, one row for each",
        columns=(
            *("queue", "state", "leaf", "managed", "used", "guaranteed", "maximum", "pending", "headroom"),
            *("runningApplications", "maxApplications", "applications", "priority"),
        ),
        amounts=frozenset({"used", "guaranteed", "maximum", "pending", "headroom"}),
        filters={
            "state": "Only in this state.",
            "queue": "Only this queue.",
            "subtree": _QUEUE["subtree"],
            "text": "Only paths that contain this text; case does not matter.",
        },
        states=("active", "stopped", "draining"),
    ),
    "users": TableDefinition(
        summary="The usage and limits of users, one row for each user and queue",
        columns=_USAGE_COLUMNS,
        amounts=frozenset({"used", "maximum"}),
        filters={**_USAGE, **_LIMITED},
    ),
    "groups": TableDefinition(
        summary="The usage and limits of groups, one row for each group and queue",
        columns=_USAGE_COLUMNS,
        amounts=frozenset({"used", "maximum"}),
        filters={**_USAGE, **_LIMITED},
    ),
}


class SortOrder(NamedTuple):
    """The column that rows are sorted by."""

    column: str
    resource: str = ""
    """The resource type of a column with amounts; empty for the largest share of any type."""
    is_descending: bool = False


def parse_sort(name: TableName, text: str) -> SortOrder:
    """Parse the parameter `sort` of a table: `COLUMN` or `COLUMN.TYPE`, with `-` in front for descending order.

    Raises:
        ValueError: the table has no such column; the text names those it has.
    """
    table = TABLES[name]
    column, dot, resource = text.removeprefix("-").partition(".")
    if column not in table.sortable:
        raise ValueError(f"{name} cannot be sorted by {column[:64]!r}, but by {', '.join(table.sortable)}")
    if dot and (column not in table.amounts or not resource):
        amounts = ", ".join(f"{one}.TYPE" for one in table.columns if one in table.amounts)
        raise ValueError(f"{text[:64]!r} is no order of {name}: a resource type may follow in {amounts}")
    return SortOrder(column, resource, text.startswith("-"))
