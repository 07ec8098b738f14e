"""The tables of `yunishard top`: their columns, sort orders, and where their rows come from.

The worker filters, sorts and cuts the rows (`/table/...`), so that a screen costs the same in a large cluster.

Not here: polling (`polling.py`), the screen (`app.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from yunishard.cli.commands.display import BAR_CELLS, Text
from yunishard.cli.commands.event import format_clock
from yunishard.cli.commands.listing import Column, Frame, Row, as_amount, as_number, as_text
from yunishard.cli.commands.partition_tables import draw_bars, indent_path, make_column
from yunishard.cli.commands.rest import Answer
from yunishard.common.rest.catalogue import TABLES as TABLES_OF_API
from yunishard.common.rest.catalogue import TableName
from yunishard.common.rest.columns import View
from yunishard.common.rest.event_texts import EventFilter, describe_event, name_type
from yunishard.common.rest.records import BatchView
from yunishard.common.text_formats import format_resources, list_kinds

ROWS_MAX: Final = 300
"""Rows of a table, the first ones in its order; a line below states how many there are. More make a terminal slow."""

KINDS_MAX: Final = 2
"""Resource types with a bar: cores and memory first."""

NARROW: Final = 110
"""Characters of a line below which columns that say less are left out."""

BAR_NARROW: Final = 6
"""Characters of a bar on a narrow screen."""

Path = tuple[str, ...]


@dataclass(slots=True)
class Listing:
    """Rows to show, of `total` that match."""

    rows: list[Row]
    total: int
    resources: list[str]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table: one tab of the screen."""

    title: str
    name: TableName | None
    """The table of the catalogue; None for events."""
    key: str
    """The column that identifies a row."""
    sorts: tuple[str, ...]
    """Sort orders of the API; the first one is used at the start."""
    kind: str = ""
    """The kind of object in paths of the API, for its explanation."""

    def make_request(self, partition: str, *, sort: str, text: str) -> tuple[Path, dict[str, str]]:
        """Return the path and the query of a request."""
        query = {"limit": str(ROWS_MAX), "sort": sort, "text": text}
        return ("partition", partition, "table", str(self.name)), {key: value for key, value in query.items() if value}

    def columns(self, found: Listing, frame: Frame, sort: str) -> Sequence[Column]:
        """Return the columns, which depend on the resource types, the order and the width."""
        if self.name is None:
            return _EVENTS
        table, is_narrow = TABLES_OF_API[self.name], frame.screen.width < NARROW
        view = View.TOP if is_narrow else View.TOP | View.TOP_WIDE
        columns = [make_column(table, one) for one in table.list_columns(view)]
        if table.is_tree and sort.removeprefix("-") == self.key:
            columns[0] = columns[0]._replace(cell=indent_path)
        if table.bars is not None:
            kinds = list_kinds(dict.fromkeys(frame.resources))[:KINDS_MAX]
            columns[2:2] = draw_bars(table, found.rows, kinds, BAR_NARROW if is_narrow else BAR_CELLS)
        return columns


def decode_table(answer: Answer) -> Listing:
    """Return the rows of a table of the API."""
    table = answer.decode(_Table)
    return Listing([dict(zip(table.columns, row, strict=False)) for row in table.rows], table.total, table.resources)


class _Table(msgspec.Struct):
    """A table of the API."""

    columns: list[str]
    rows: list[list[object]]
    total: int
    resources: list[str] = []


def decode_events(answer: Answer, text: str) -> Listing:
    """Return the events of a batch that contain a text, the newest first."""
    batch = answer.decode(BatchView)
    wanted = EventFilter(text=text)
    found = [one for one in batch.EventRecords or [] if wanted.selects(one)]
    rows: list[Row] = [{"number": f"{number}", "event": one} for number, one in enumerate(found)]
    for row, one in zip(rows, found, strict=True):
        amounts = {kind: amount.value for kind, amount in one.resource.resources.items()}
        row.update(
            time=one.timestampNano,
            type=name_type(one),
            object=one.objectID,
            what=describe_event(one),
            reference=one.referenceID,
            message=one.message,
            amounts=amounts,
        )
    return Listing(rows[::-1], len(rows), [])


def _show_amounts_or_message(row: Row, _: Frame) -> Text:
    return as_text(row.get("message")) or (
        format_resources(as_amount(row.get("amounts"))) if row.get("amounts") else ""
    )


_EVENTS: Final = (
    Column("time", cell=lambda row, _: format_clock(int(as_number(row.get("time")) or 0))),
    Column("type"),
    Column("object"),
    Column("what"),
    Column("reference", heading="OF"),
    Column("details", cell=_show_amounts_or_message),
)


def _declare(title: str, name: TableName) -> TableSpec:
    table = TABLES_OF_API[name]
    return TableSpec(title, name, table.key, table.sorts, table.noun)


QUEUES: Final = _declare("Queues", "queues")
APPLICATIONS: Final = _declare("Applications", "applications")
NODES: Final = _declare("Nodes", "nodes")
EVENTS: Final = TableSpec("Events", None, "number", ("",))

TABLES: Final = (QUEUES, APPLICATIONS, NODES, EVENTS)
"""The tabs, in their order."""
