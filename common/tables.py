"""Tables on standard output, for the commands."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from yunishard.common.process.terminal import clean

if TYPE_CHECKING:
    from rich.table import Table


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn with rich, if it is installed, on a terminal; otherwise in columns for `cut` and `grep`."""
    if sys.stdout.isatty() and find_spec("rich"):
        from rich.console import Console  # imported here, as it takes longer than everything else in a command

        Console().print(build_table(headings, rows))
        return
    rows = [list(map(clean, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        write("  ".join(cells).rstrip())


def build_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> "Table":
    """Build a table for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title or None, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))  # as Text, because cells may contain rich markup
    return table


def write(line: str) -> None:
    """Print a line, with empty lines before or after it. A line end within it is part of a name, and is escaped."""
    text = line.strip("\n")
    sys.stdout.write((line.replace(text, text.replace("\n", "\\x0a")) if "\n" in text else line) + "\n")


def write_text(text: str) -> None:
    """Print lines."""
    sys.stdout.write(text + "\n")
