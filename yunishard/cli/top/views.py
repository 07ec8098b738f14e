"""The tables of `yunishard top`: their columns, sort orders, and where their rows come from.

The worker filters, sorts and cuts the rows (`/table/...`), so that a screen costs the same in a large cluster.

Not here: polling (`polling.py`), the screen (`app.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from yunishard.cli.commands.display import QUIET, Cell, Text, color_state, draw_bar
from yunishard.cli.commands.event import format_clock
from yunishard.cli.commands.event_texts import EventFilter, describe_event, name_type
from yunishard.cli.commands.listing import Frame, Row, as_amount, as_number, as_text
from yunishard.cli.commands.rest import Answer
from yunishard.common.rest.records import BatchView
from yunishard.common.units import UNKNOWN, format_ago, format_figure, format_percent, format_resources, list_kinds

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
class TopColumn:
    """A column of a table."""

    heading: str
    cell: Callable[[Row, Frame], Text]
    is_wide: bool = False
    """Left out on a narrow screen."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table: one tab of the screen."""

    title: str
    name: str
    """The table of the API; empty for events."""
    key: str
    """The column that identifies a row."""
    sorts: tuple[str, ...]
    """Sort orders of the API; the first one is used at the start."""
    columns: Callable[[Frame], Sequence[TopColumn]]
    """The columns, which depend on the resource types and the width."""
    kind: str = ""
    """The kind of object in paths of the API, for its explanation."""

    def make_request(self, partition: str, *, sort: str, text: str) -> tuple[Path, dict[str, str]]:
        """Return the path and the query of a request."""
        query = {"limit": str(ROWS_MAX), "sort": sort, "text": text}
        return ("partition", partition, "table", self.name), {key: value for key, value in query.items() if value}


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


# Cells ----------------------------------------------------------------------------------------------------------------


def _is_narrow(frame: Frame) -> bool:
    return frame.screen.width < NARROW


def _show_text(name: str) -> Callable[[Row, Frame], Text]:
    return lambda row, _: as_text(row.get(name)) or UNKNOWN


def _show_number(name: str) -> Callable[[Row, Frame], Text]:
    def show(row: Row, _: Frame) -> Text:
        number = as_number(row.get(name))
        return UNKNOWN if number is None else f"{number:,}"

    return show


def _show_amounts(name: str) -> Callable[[Row, Frame], Text]:
    return lambda row, _: format_resources(as_amount(row.get(name)))


def _show_ago(name: str) -> Callable[[Row, Frame], Text]:
    return lambda row, frame: format_ago(int(as_number(row.get(name)) or 0), frame.now_ns)


def _show_state(row: Row, _: Frame) -> Text:
    return color_state(as_text(row.get("state")))


def _show_queue(row: Row, _: Frame) -> Text:
    *above, name = as_text(row.get("queue")).split(".")
    return "  " * len(above) + name


def _show_running(row: Row, _: Frame) -> Text:
    running, most = as_number(row.get("runningApplications")), as_number(row.get("maxApplications"))
    if running is None:
        return UNKNOWN
    return f"{running:,}/{most:,}" if most else f"{running:,}"


def _make_bar(kind: str, *, used: str, maximum: str) -> TopColumn:
    """A column with a bar: what is used of a maximum, then pending; the mark is at the guaranteed amount."""

    def show(row: Row, frame: Frame) -> Text:
        amount = as_amount(row.get(used))
        if amount is None:
            return Cell(UNKNOWN, QUIET)
        value, most = amount.get(kind, 0), (as_amount(row.get(maximum)) or {}).get(kind)
        if most is None:
            return format_figure(kind, value)
        guaranteed = (as_amount(row.get("guaranteed")) or {}).get(kind, 0)
        pending = (as_amount(row.get("pending")) or {}).get(kind, 0)
        cells = BAR_NARROW if _is_narrow(frame) else 10
        bar = draw_bar(frame.screen, value, most, guaranteed=guaranteed, pending=pending, cells=cells)
        figures = format_percent(value, most).replace(" ", "")
        if not _is_narrow(frame):
            figures = f"{figures} {format_figure(kind, value)}/{format_figure(kind, most)}"
        return Cell(f"{bar.text} {figures}", bar.colour)

    return TopColumn(kind.upper(), show)


def _make_bars(frame: Frame, *, used: str, maximum: str) -> list[TopColumn]:
    kinds = list_kinds(dict.fromkeys(frame.resources))[:KINDS_MAX]
    return [_make_bar(kind, used=used, maximum=maximum) for kind in kinds]


# Tables ---------------------------------------------------------------------------------------------------------------


def _list_queue_columns(frame: Frame) -> Sequence[TopColumn]:
    return (
        TopColumn("QUEUE", _show_queue),
        TopColumn("STATE", _show_state),
        *_make_bars(frame, used="used", maximum="maximum"),
        TopColumn("RUNNING", _show_running),
        TopColumn("PENDING", _show_amounts("pending")),
        TopColumn("GUARANTEED", _show_amounts("guaranteed"), is_wide=True),
    )


def _list_application_columns(_: Frame) -> Sequence[TopColumn]:
    return (
        TopColumn("APPLICATION", _show_text("application")),
        TopColumn("STATE", _show_state),
        TopColumn("QUEUE", _show_text("queue")),
        TopColumn("USER", _show_text("user"), is_wide=True),
        TopColumn("USED", _show_amounts("used")),
        TopColumn("PENDING", _show_amounts("pending")),
        TopColumn("ASKS", _show_number("asks"), is_wide=True),
        TopColumn("WAITS FOR", _show_text("reason"), is_wide=True),
        TopColumn("SUBMITTED", _show_ago("submitted"), is_wide=True),
    )


def _list_node_columns(frame: Frame) -> Sequence[TopColumn]:
    return (
        TopColumn("NODE", _show_text("node")),
        TopColumn("STATE", _show_state),
        *_make_bars(frame, used="used", maximum="capacity"),
        TopColumn("ALLOCS", _show_number("allocations")),
        TopColumn("AVAILABLE", _show_amounts("available")),
        TopColumn("RACK", _show_text("rack"), is_wide=True),
    )


def _show_amounts_or_message(row: Row, _: Frame) -> Text:
    return as_text(row.get("message")) or (
        format_resources(as_amount(row.get("amounts"))) if row.get("amounts") else ""
    )


def _list_event_columns(_: Frame) -> Sequence[TopColumn]:
    return (
        TopColumn("TIME", lambda row, _: format_clock(int(as_number(row.get("time")) or 0))),
        TopColumn("TYPE", _show_text("type")),
        TopColumn("OBJECT", _show_text("object")),
        TopColumn("WHAT", _show_text("what")),
        TopColumn("OF", _show_text("reference")),
        TopColumn("DETAILS", _show_amounts_or_message),
    )


QUEUES: Final = TableSpec(
    "Queues",
    "queues",
    "queue",
    ("queue", "-used", "-pending", "-runningApplications"),
    _list_queue_columns,
    "queue",
)
APPLICATIONS: Final = TableSpec(
    "Applications",
    "applications",
    "application",
    ("-pending", "-used", "-submitted", "application", "queue", "user"),
    _list_application_columns,
    "application",
)
NODES: Final = TableSpec(
    "Nodes",
    "nodes",
    "node",
    ("node", "-utilization", "-available", "-allocations", "state"),
    _list_node_columns,
    "node",
)
EVENTS: Final = TableSpec("Events", "", "number", ("",), _list_event_columns)

TABLES: Final = (QUEUES, APPLICATIONS, NODES, EVENTS)
"""The tabs, in their order."""
