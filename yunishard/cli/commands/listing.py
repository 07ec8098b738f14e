"""Lists of a running system: their columns, options, formats, order, and output again and again (`--watch`).

A command declares its columns, and a function that fetches the rows. The options are the same for all lists:

    add_list_options(parser, COLUMNS)                                  # and add_rest(parser) for --json
    return show_list(args, "application", COLUMNS, fetch)

JSON has all fields as the API sends them; CSV has all columns with amounts in base units, a column for each resource
type. `repeat` alone serves commands that show something else than a list.

Not here: how a table looks (`display.py`), requests (`rest.py`).
"""

import argparse
import gc
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from yunishard.cli.commands.display import (
    BAD,
    QUIET,
    WARNING,
    Cell,
    Screen,
    Text,
    color_state,
    draw_heading,
    draw_table,
)
from yunishard.cli.main import PROGRAM, CommandFailed, CommandUnusable, parse_whole, suggest
from yunishard.common.process.terminal import clean, clean_output, write_control, write_text
from yunishard.common.text_formats import (
    NONE,
    UNKNOWN,
    format_ago,
    format_bytes,
    format_resources,
    format_time,
    list_kinds,
)

Row = dict[str, object]
"""A row by the names of its columns."""

WATCH_DEFAULT_S: Final = 2.0
WATCH_MIN_S: Final = 0.1
WATCH_MAX_S: Final = 3600.0

ROWS_ON_TERMINAL: Final = 1000
"""Rows of a list on a terminal without `--limit`; a last line states how many there are. Elsewhere a list is whole."""

ROWS_MAX: Final = 1_000_000
"""The largest `--limit`; a larger one is wrong usage."""

OBJECTS_BETWEEN_COLLECTIONS: Final = 1_000_000
"""New objects after which Python looks for unreachable cycles: rows have none, and looking takes a third of the time of
a list of 20,000 rows.
"""

FULL: Final = 100
"""Percentage from which on a limit is full."""

NEARLY_FULL: Final = 80
"""Percentage from which on the share of a limit is coloured."""

WIDE, JSON, CSV, NAME = "wide", "json", "csv", "name"
FORMATS: Final = (WIDE, JSON, CSV, NAME)


@dataclass(slots=True)
class Rows:
    """Fetched rows."""

    rows: list[Row]
    total: int = 0
    """Rows that match, with those beyond the limit."""
    resources: list[str] = field(default_factory=list)
    """Resource types of all amounts."""
    is_sorted: bool = False
    """Whether they have the wanted order already."""
    problems: list[str] = field(default_factory=list)
    """Reports of rows that are missing; the command then fails after it has shown the others."""

    @classmethod
    def of(cls, value: object) -> "Rows":
        """Return the objects of a list in an answer as rows."""
        rows = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
        return cls(rows, len(rows))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The order and number of rows to fetch. `fetch` may ignore them, as both are applied to its result, too."""

    sort: str = ""
    """A column, with `-` before it for descending; empty for the usual order."""
    limit: int = 0
    """0 is unlimited."""


@dataclass(frozen=True, slots=True)
class Frame:
    """All that the text of a cell depends on besides its row."""

    screen: Screen
    now_ns: int
    resources: Sequence[str] = ()


Order = tuple[float, ...] | str
"""The sort key of a value."""


class Kind(NamedTuple):
    """How values of a kind are shown and sorted."""

    format: Callable[[object, Frame], Text]
    order: Callable[[object, Frame], Order]
    is_right: bool = False
    is_amount: bool = False
    varies: bool = False
    """Whether most rows have a value of their own, so that remembering its text does not pay."""


def as_amount(value: object) -> dict[str, int] | None:
    """Return a value of a row as an amount; None if it is not set."""
    return value if isinstance(value, dict) else None


def as_number(value: object) -> float | None:
    """Return a value of a row as a number; None if it is not set."""
    return value if isinstance(value, int | float) else None


def as_list(value: object) -> list[str]:
    """Return a value of a row as a list of texts."""
    return list(map(str, value)) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return a value of a row as text; empty if it is not set."""
    return "" if value is None else str(value)


def describe_mark(mark: object) -> str:
    """Return who stopped a queue or cordoned a node, when and why; empty without a mark."""
    if not isinstance(mark, dict):
        return ""
    user, reason = as_text(mark.get("user")), as_text(mark.get("reason"))
    since = format_ago(int(as_number(mark.get("time")) or 0), time.time_ns())
    return f"{since}{f' by {user}' if user else ''}{f': {reason}' if reason else ''}"


def _format_number(value: object, _: Frame) -> str:
    number = as_number(value)
    return UNKNOWN if number is None else f"{number:,}"


def _format_percent(value: object, _: Frame) -> str:
    number = as_number(value)
    return UNKNOWN if number is None else f"{number:g} %"


def _format_share(value: object, frame: Frame) -> Text:
    share = as_number(value)
    colour = "" if share is None or share < NEARLY_FULL else WARNING if share < FULL else BAD
    return Cell(_format_percent(value, frame), colour)


def _format_amounts(value: object, _: Frame) -> str:
    text = format_resources(as_amount(value))
    return "0" if text == NONE else text


def _format_age(value: object, frame: Frame) -> str:
    return format_ago(value, frame.now_ns) if isinstance(value, int) else UNKNOWN


def _format_flag(value: object, _: Frame) -> str:
    return UNKNOWN if value is None else "yes" if value else "no"


def _format_pairs(value: object, _: Frame) -> str:
    return " ".join(f"{key}={value[key]}" for key in sorted(value)) if isinstance(value, dict) and value else UNKNOWN


def _format_size(value: object, _: Frame) -> str:
    number = as_number(value)
    return UNKNOWN if number is None else format_bytes(number)


def _order_amounts(value: object, frame: Frame) -> Order:
    amount = as_amount(value) or {}
    return tuple(amount.get(kind, 0) for kind in list_kinds(dict.fromkeys(frame.resources)))


def _order_numbers(value: object, _: Frame) -> Order:
    number = as_number(value)
    return (-1 if number is None else number,)


def _order_texts(value: object, _: Frame) -> Order:
    return as_text(value)


TEXT: Final = Kind(lambda value, _: as_text(value) or UNKNOWN, _order_texts, varies=True)
NUMBER: Final = Kind(_format_number, _order_numbers, is_right=True)
PERCENT: Final = Kind(_format_percent, _order_numbers, is_right=True)
SHARE: Final = Kind(_format_share, _order_numbers, is_right=True)
AGE: Final = Kind(_format_age, _order_numbers, varies=True)
STATE: Final = Kind(lambda value, _: color_state(as_text(value)), _order_texts)
FLAG: Final = Kind(_format_flag, _order_numbers)
LIST: Final = Kind(lambda value, _: ", ".join(as_list(value)) or UNKNOWN, lambda value, _: ",".join(as_list(value)))
PAIRS: Final = Kind(_format_pairs, _format_pairs)
BYTES: Final = Kind(_format_size, _order_numbers, is_right=True)
AMOUNTS: Final = Kind(_format_amounts, _order_amounts, is_amount=True)
LIMITS: Final = Kind(lambda value, _: format_resources(as_amount(value), limit=True), _order_amounts, is_amount=True)


def _hashable(value: dict[object, object] | list[object]) -> object:
    """Return a key for a value of JSON, equal only for equal ones; its parts have no parts."""
    return tuple(value.items()) if isinstance(value, dict) else tuple(value)


class Column(NamedTuple):
    """A column: its name in JSON, CSV and `--sort`, and what a table shows of it."""

    name: str
    kind: Kind = TEXT
    heading: str = ""
    """The name in capitals if empty."""
    is_wide: bool = False
    """Shown with `-o wide` only."""
    cell: Callable[[Row, Frame], Text] | None = None
    """The text of a row's cell, if the kind alone does not determine it."""
    is_sortable: bool = True

    @property
    def title(self) -> str:
        """The heading as it is shown."""
        return self.heading or self.name.upper()

    def show(self, rows: Iterable[Row], frame: Frame) -> list[Text]:
        """Return the cells of all rows. Equal values are formatted once, because long lists have few different ones."""
        if self.cell:
            return [self.cell(row, frame) for row in rows]
        values = [row.get(self.name) for row in rows]
        if self.kind is TEXT:  # most of them are what is shown
            return [value if value and isinstance(value, str) else self.kind.format(value, frame) for value in values]
        if self.kind.varies:
            return [self.kind.format(value, frame) for value in values]
        shown: dict[object, Text] = {}
        cells: list[Text] = []
        for value in values:
            key = _hashable(value) if isinstance(value, dict | list) else value
            cell = shown.get(key)
            if cell is None:
                cell = shown[key] = self.kind.format(value, frame)
            cells.append(cell)
        return cells


Fetch = Callable[[Wanted], Rows]
Layout = Callable[[Rows, Frame], Sequence[Column]]

PARTITION: Final = Column("partition")


# Options --------------------------------------------------------------------------------------------------------------


def add_list_options(parser: argparse.ArgumentParser, columns: Sequence[Column]) -> None:
    """Add the options of all lists but `--json`, which `add_rest` adds."""
    about = "wide: more columns; csv, json: for programs; name: only the names"
    parser.add_argument("-o", "--output", metavar="|".join(FORMATS), type=_parse_format, help=about)
    parser.add_argument("--csv", action="store_true", help="print CSV: all columns, amounts in base units")
    names = ", ".join(column.name for column in columns if column.is_sortable)
    about = f"sort by a column, with - before it for descending: {names}"
    parser.add_argument("--sort", metavar="COLUMN", default="", help=about)
    about = f"rows to show (default: {ROWS_ON_TERMINAL} on a terminal, otherwise all)"
    parser.add_argument("--limit", metavar="N", type=parse_whole(1, ROWS_MAX), default=0, help=about)
    add_watch(parser)


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add `--watch`, for `repeat`."""
    about = f"show it again every so many seconds until Ctrl-C (default: {WATCH_DEFAULT_S:g})"
    parser.add_argument(
        "--watch", metavar="SECONDS", nargs="?", type=_parse_period, const=WATCH_DEFAULT_S, default=None, help=about
    )


def _parse_format(text: str) -> str:
    if text not in FORMATS:
        raise argparse.ArgumentTypeError(f"expected {', '.join(FORMATS)}, got {text[:32]!r}{suggest(text, FORMATS)}")
    return text


def _parse_period(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = -1
    if not WATCH_MIN_S <= seconds <= WATCH_MAX_S:
        bounds = f"{WATCH_MIN_S:g} to {WATCH_MAX_S:g} seconds"
        raise argparse.ArgumentTypeError(f"expected {bounds}, got {text[:32]!r}; a name comes before --watch")
    return seconds


def choose_format(args: argparse.Namespace) -> str:
    """Return the one of `FORMATS` that the options ask for; empty for the usual columns."""
    wanted = {args.output} if getattr(args, "output", "") else set[str]()
    wanted |= {name for name in (JSON, CSV) if getattr(args, name, False)}
    if len(wanted) > 1:
        raise CommandUnusable(f"{' and '.join(sorted(wanted))} exclude each other: choose one format")
    return wanted.pop() if wanted else ""


def check_sort(sort: str, columns: Sequence[Column]) -> str:
    """Return the order that `--sort` asks for. It may name a resource type after the column, as in `used.memory`.

    Raises:
        CommandUnusable: there is no such column.
    """
    name = sort.removeprefix("-")
    known = [column.name for column in columns if column.is_sortable]
    if not name or name in known or name.partition(".")[0] in [one.name for one in columns if one.kind.is_amount]:
        return sort
    near = suggest(name, known)
    there = f": there are {', '.join(known)}"
    raise CommandUnusable(f"--sort: unknown column {name[:64]!r}{near or there}")


# Output ---------------------------------------------------------------------------------------------------------------


def show_list(
    args: argparse.Namespace, noun: str, columns: Sequence[Column], fetch: Fetch, *, layout: Layout | None = None
) -> int:
    """Fetch and print a list, once or with `--watch` until Ctrl-C; return the exit status.

    Args:
        args: The options of `add_list_options` and `--json`.
        noun: The thing that a row describes, in the singular.
        columns: All columns; the first one is the name.
        fetch: Returns the rows.
        layout: Returns the columns of a table, if they depend on the rows or the screen.
    """
    form = choose_format(args)
    sort = check_sort(args.sort, columns)
    problems: list[str] = []
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)

    def draw(screen: Screen) -> list[str]:
        limit = args.limit or (ROWS_ON_TERMINAL if screen.is_terminal and form in ("", WIDE) else 0)
        found = fetch(Wanted(sort, limit))
        frame = Frame(screen, time.time_ns(), found.resources)
        problems[:] = found.problems
        found.total = max(found.total, len(found.rows))
        if not found.is_sorted:
            found.rows = sort_rows(found.rows, sort, columns, frame)
        found.rows = found.rows[: limit or None]
        if form == JSON:
            return format_json(found.rows, is_line=args.watch is not None)
        if form == NAME:
            return [clean(str(row[columns[0].name])) for row in found.rows]
        if form == CSV:
            return format_csv(columns, found.rows, found.resources)
        shown = layout(found, frame) if layout else columns
        lines = draw_rows([one for one in shown if form == WIDE or not one.is_wide], found.rows, frame)
        return [*lines, *_summarize(screen, noun, found, args)]

    status = repeat(args, draw)
    if problems:
        raise CommandFailed("; ".join(problems))
    return status


def draw_rows(columns: Sequence[Column], rows: Sequence[Row], frame: Frame) -> list[str]:
    """Return the lines of a table of rows."""
    right = [index for index, column in enumerate(columns) if column.kind.is_right]
    headings = [column.title for column in columns]
    cells = zip(*(column.show(rows, frame) for column in columns), strict=True)
    return draw_table(frame.screen, headings, list(cells), right=right)


def draw_section(screen: Screen, heading: str, columns: Sequence[Column], found: Rows) -> list[str]:
    """Return the lines of a part of a page: a heading with the number of rows, and a table; nothing without rows."""
    if not found.rows:
        return []
    count = max(found.total, len(found.rows))
    shown = "" if count == len(found.rows) else f", the first {len(found.rows):,}"
    frame = Frame(screen, time.time_ns(), found.resources)
    return [
        *draw_heading(screen, f"{heading} ({count:,}{shown})"),
        *draw_rows([one for one in columns if not one.is_wide], found.rows, frame),
    ]


def _summarize(screen: Screen, noun: str, found: Rows, args: argparse.Namespace) -> list[str]:
    """Return a last line for a terminal, if rows are left out or there are none."""
    text = ""
    if not found.total:
        text = f"no {noun}s"
    elif found.total > len(found.rows):
        text = f"{len(found.rows):,} of {found.total:,} {noun}s; --limit {found.total} shows all"
    if text and not screen.is_terminal and found.total:
        sys.stderr.write(f"{PROGRAM}: {text}\n")
    notes = found.problems if args.watch is not None else []  # without it they are the error of the command
    return [screen.paint(one, QUIET) for one in (*notes, text) if one and screen.is_terminal]


def sort_rows(rows: list[Row], sort: str, columns: Sequence[Column], frame: Frame) -> list[Row]:
    """Return the rows sorted by a column; equal ones keep their order."""
    if not sort:
        return rows
    name, _, resource = sort.removeprefix("-").partition(".")
    column = next(one for one in columns if one.name == name)

    def order(row: Row) -> Order:
        value = row.get(name)
        return ((as_amount(value) or {}).get(resource, 0),) if resource else column.kind.order(value, frame)

    return sorted(rows, key=order, reverse=sort.startswith("-"))


def format_json(document: object, *, is_line: bool = False) -> list[str]:
    """Return the lines of a JSON document; one, if `is_line`."""
    from msgspec.json import encode, format  # noqa: A004 - imported here, as tables need neither

    data = encode(document)
    return [(data if is_line else format(data, indent=2)).decode()]


def format_csv(columns: Sequence[Column], rows: Sequence[Row], resources: Sequence[str]) -> list[str]:
    """Return the lines of CSV (RFC 4180): amounts in base units, times as ISO 8601."""
    import csv
    import io

    kinds = list_kinds(dict.fromkeys(resources))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for one in columns for name in _csv_names(one, kinds)])
    writer.writerows([value for one in columns for value in _csv_values(one, row, kinds)] for row in rows)
    return text.getvalue().splitlines()


def _csv_names(column: Column, kinds: Sequence[str]) -> list[str]:
    return [f"{column.name}.{kind}" for kind in kinds] if column.kind.is_amount else [column.name]


def _csv_values(column: Column, row: Row, kinds: Sequence[str]) -> list[object]:
    value = row.get(column.name)
    if column.kind.is_amount:
        amount = as_amount(value) or {}
        return [amount.get(kind, "") for kind in kinds]
    if column.kind is AGE:
        return [format_time(int(as_number(value) or 0)) if value else ""]
    if column.kind is LIST:
        return [" ".join(as_list(value))]
    if column.kind is FLAG:
        return ["" if value is None else "true" if value else "false"]
    return ["" if value is None else value]


# Again and again ------------------------------------------------------------------------------------------------------


def repeat(args: argparse.Namespace, draw: Callable[[Screen], list[str]]) -> int:
    """Print what `draw` returns, once or with `--watch` until Ctrl-C; return the exit status.

    A terminal is redrawn in place; elsewhere the output is appended. A failure ends the command only the first time:
    later ones are shown, because the system may be restarting.
    """
    period_s: float | None = args.watch
    if period_s is None:
        _write_lines(draw(Screen.detect()))
        return 0
    lines = draw(Screen.detect())
    if not sys.stdout.isatty():
        while True:
            _write_lines(lines)
            sys.stdout.flush()
            lines = _draw_later(draw, period_s)
    write_control("\x1b[?25l\x1b[?7l\x1b[2J")  # without the cursor, long lines cut, on an empty screen
    try:
        failure = ""
        while True:
            _redraw(Screen.detect(), lines, period_s, failure)
            time.sleep(period_s)
            try:
                lines, failure = draw(Screen.detect()), ""
            except CommandFailed as failed:
                failure = str(failed)
    finally:
        write_control("\x1b[?7h\x1b[?25h\n")
        sys.stdout.flush()


def _draw_later(draw: Callable[[Screen], list[str]], period_s: float) -> list[str]:
    while True:
        time.sleep(period_s)
        try:
            return draw(Screen())
        except CommandFailed as failed:
            sys.stderr.write(f"{PROGRAM}: {failed}\n")


def _redraw(screen: Screen, lines: Sequence[str], period_s: float, failure: str) -> None:
    """Replace the content of the terminal, without an empty screen between."""
    command = shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
    head = clean(failure or f"every {period_s:g} s: {command}")[: max(0, screen.width - 10)]
    clock = time.strftime("%H:%M:%S")
    top = f"{screen.paint(head, '31' if failure else QUIET)}  {screen.paint(clock, QUIET)}"
    room = max(1, screen.height - 1)
    shown = [top, "", *lines]
    if len(shown) > room:
        shown = [*shown[: room - 1], screen.paint(f"{len(shown) - room + 1} more lines", QUIET)]
    write_control("\x1b[H" + "".join(f"{clean_output(line)}\x1b[K\n" for line in shown) + "\x1b[J")
    sys.stdout.flush()


def _write_lines(lines: Sequence[str]) -> None:
    if lines:
        write_text("\n".join(lines))


def quiet(text: str) -> Cell:
    """Return a cell in a quiet colour."""
    return Cell(text, QUIET)
