"""Text for a terminal or a pipe: tables, lists of facts, bars, and colours.

A table is drawn here rather than with rich, which needs 80 ms to start and seconds for thousands of rows. Colours, bars
and cut cells appear only on a terminal; otherwise the columns are plain, for `cut` and `grep`. Values that clients
chose cannot contain control characters of the terminal.

Not here: the options of lists and repeated output (`listing.py`), the formats of values (`common/text_formats.py`).
"""

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple

from yunishard.common.process.terminal import clean
from yunishard.common.text_formats import UNKNOWN, format_figure, list_kinds

GOOD: Final = "32"
BAD: Final = "31"
WARNING: Final = "33"
QUIET: Final = "2"
STRONG: Final = "1"

CELL_MIN: Final = 12
"""Characters of a cell on a terminal, below which it is not cut, even if its line then wraps."""

BAR_CELLS: Final = 10
"""Characters of a bar."""

_GOOD_STATES: Final = frozenset(
    {"active", "running", "completed", "completing", "ready", "schedulable", "healthy", "connected"}
)
_BAD_STATES: Final = frozenset({"failed", "rejected", "failing", "lost", "silent", "away", "unhealthy"})
_PAUSED_STATES: Final = frozenset({"stopped", "draining", "cordoned", "unschedulable", "starting", "resuming"})
_GAP: Final = "  "
_CUT: Final = "…"


class Cell(NamedTuple):
    """A text with a colour."""

    text: str
    colour: str = ""


Text = Cell | str


@dataclass(frozen=True, slots=True)
class Screen:
    """Where the output goes."""

    is_terminal: bool = False
    has_colours: bool = False
    has_blocks: bool = False
    """Whether it shows the block characters of bars."""
    width: int = 0
    """Characters of a line; 0 is unlimited."""
    height: int = 0

    @classmethod
    def detect(cls) -> "Screen":
        """Describe standard output. `NO_COLOR` and a terminal without colours turn them off."""
        if not sys.stdout.isatty():
            return cls()
        try:
            width, height = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            width, height = 80, 24
        return cls(
            is_terminal=True,
            has_colours=not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb",
            has_blocks=(sys.stdout.encoding or "").lower().replace("-", "") == "utf8",
            width=width,
            height=height,
        )

    def paint(self, text: str, colour: str) -> str:
        """Return the text with a colour, if this has colours."""
        return f"\x1b[{colour}m{text}\x1b[0m" if colour and self.has_colours and text else text


def color_state(state: str) -> Cell:
    """Return a state in lower case, with the colour of its meaning."""
    name = state.lower()
    colours = ((GOOD, _GOOD_STATES), (BAD, _BAD_STATES), (WARNING, _PAUSED_STATES))
    return Cell(name or UNKNOWN, next((colour for colour, states in colours if name in states), ""))


# Tables ---------------------------------------------------------------------------------------------------------------


def draw_table(
    screen: Screen, headings: Sequence[str], rows: Sequence[Sequence[Text]], *, right: Collection[int] = ()
) -> list[str]:
    """Return the lines of a table. The columns in `right` are aligned to the right, as numbers are."""
    if not rows and screen.is_terminal:
        return []
    texts, is_ascii = _list_texts(headings, rows)
    measure = len if is_ascii else _width
    widths = [max(map(measure, column)) for column in texts]
    if not screen.is_terminal and is_ascii:  # thousands of rows, for programs
        pads = ((str.rjust if index in right else str.ljust, widths[index]) for index in range(len(widths)))
        padded = (map(pad, column, repeat(width)) for column, (pad, width) in zip(texts, pads, strict=True))
        return list(map(str.rstrip, map(_GAP.join, zip(*padded, strict=True))))
    if screen.width:
        _narrow(widths, screen.width - len(_GAP) * (len(widths) - 1))
    all_rows = ([Cell(heading, STRONG) for heading in headings], *rows)
    lines = zip(all_rows, zip(*texts, strict=True), strict=True)
    return [_draw_line(screen, cells, shown, widths, right) for cells, shown in lines]


def _list_texts(headings: Sequence[str], rows: Sequence[Sequence[Text]]) -> tuple[list[list[str]], bool]:
    """Return the cleaned texts of each column, beginning with its heading, and whether all are ASCII."""
    texts: list[list[str]] = []
    is_ascii = True
    for heading, *cells in zip(headings, *rows, strict=True):
        column = [heading, *(one if isinstance(one, str) else one.text for one in cells)]
        whole = "".join(set(column))
        if not whole.isprintable():
            column = list(map(clean, column))
        is_ascii = is_ascii and whole.isascii()
        texts.append(column)
    return texts, is_ascii


def _draw_line(
    screen: Screen, cells: Sequence[Text], texts: Sequence[str], widths: Sequence[int], right: Collection[int]
) -> str:
    parts: list[str] = []
    blank = 0  # at the end of a line it is left out
    for index, (cell, text, width) in enumerate(zip(cells, texts, widths, strict=True)):
        shown, used = text, _width(text)
        if used > width:
            shown, used = _cut(text, width), width
        before, after = (width - used, 0) if index in right else (0, width - used)
        colour = cell.colour if isinstance(cell, Cell) else ""
        parts.append(" " * (blank + before) + screen.paint(shown, colour))
        blank = after + len(_GAP)
    return "".join(parts).rstrip()


def _narrow(widths: list[int], room: int) -> None:
    """Narrow the widest columns, in place, until all fit."""
    excess = sum(widths) - room
    while excess > 0:
        widest = max(widths)
        if widest <= CELL_MIN:
            return
        columns = [index for index, width in enumerate(widths) if width == widest]
        second = max([width for width in widths if width < widest], default=0)
        share = min(widest - max(second, CELL_MIN), -(-excess // len(columns)))
        for index in columns:
            cut = min(share, excess)
            widths[index] -= cut
            excess -= cut


def _width(text: str) -> int:
    """Return the number of character cells: two for wide characters of East Asian scripts, none for combining ones."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(one) in ("Mn", "Me") else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _cut(text: str, width: int) -> str:
    """Shorten the middle of a name, because names often differ at their ends; or the end of a list."""
    if not text.isascii() or ", " in text:
        while _width(text) > width - 1:
            text = text[:-1]
        return text + _CUT + " " * (width - 1 - _width(text))
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + _CUT + text[len(text) - tail :]


def draw_facts(screen: Screen, facts: Iterable[tuple[str, Text]]) -> list[str]:
    """Return lines of a name and a value; empty values are left out."""
    shown = [(name, value) for name, value in facts if (value.text if isinstance(value, Cell) else value)]
    width = max((len(name) for name, _ in shown), default=0) + len(_GAP)
    lines = []
    for name, value in shown:
        text, colour = value if isinstance(value, Cell) else (value, "")
        lines.append(screen.paint(clean(name).ljust(width), QUIET) + screen.paint(clean(text), colour))
    return lines


def draw_amounts(screen: Screen, amounts: Iterable[tuple[str, Mapping[str, int] | None]]) -> list[str]:
    """Return a table with a line for each resource type, and a column for each of the amounts."""
    shown = [(name.upper(), amount) for name, amount in amounts if amount is not None]
    kinds = list_kinds(*(amount for _, amount in shown))
    rows = [[kind, *(_figure(kind, amount) for _, amount in shown)] for kind in kinds]
    headings = ["RESOURCE", *(name for name, _ in shown)]
    return draw_table(screen, headings, rows, right=range(1, len(headings))) if rows else []


def _figure(kind: str, amount: Mapping[str, int]) -> str:
    return format_figure(kind, amount[kind]) if kind in amount else UNKNOWN


def draw_heading(screen: Screen, text: str) -> list[str]:
    """Return the lines between two parts: an empty one and a heading."""
    return ["", screen.paint(clean(text), STRONG)]


# Bars -----------------------------------------------------------------------------------------------------------------


class _Bars(NamedTuple):
    used: str
    pending: str
    free: str
    guaranteed: str


_BLOCKS: Final = _Bars("█", "▒", "·", "│")
_ASCII: Final = _Bars("#", "=", ".", "|")


def draw_bar(
    screen: Screen, used: float, total: float, *, guaranteed: float = 0, pending: float = 0, cells: int = BAR_CELLS
) -> Cell:
    """Return a bar of a total: used, then pending, then free, with a mark at the guaranteed amount.

    >>> draw_bar(Screen(), 5, 10, guaranteed=9, pending=2).text
    '#####==..|'
    """
    bars = _BLOCKS if screen.has_blocks else _ASCII
    total = max(total, 1)
    filled = min(cells, round(used / total * cells))
    if used > 0 and not filled:
        filled = 1
    waiting = min(cells - filled, -int(-pending / total * cells // 1))
    text = bars.used * filled + bars.pending * waiting + bars.free * (cells - filled - waiting)
    if guaranteed > 0:
        at = min(cells - 1, max(1, int(guaranteed / total * cells)))  # the first cell shows whether anything is used
        text = text[:at] + bars.guaranteed + text[at + 1 :]
    share = used / total
    return Cell(text, BAD if share > 1 else WARNING if share >= 1 else GOOD)
