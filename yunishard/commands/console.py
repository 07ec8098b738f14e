"""Input and output that the commands share: exit codes, tables, JSON, reading a configuration file.

Not here: options and dispatch (`yunishard/cli.py`), requests to a running system (`rest.py`).
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.config.yaml_nodes import TEXT_BYTES_MAX

REFUSED: Final = 1
"""Exit code: the command ran, and was refused or found a problem."""

UNUSABLE: Final = 2
"""Exit code: wrong usage, an unreadable file, or no answer."""

STDIN: Final = "-"
"""In place of a file name: standard input."""


def show(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn with rich on a terminal, otherwise in plain columns for `cut` and `grep`."""
    if sys.stdout.isatty():
        _draw(headings, rows)
        return
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _draw(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD  # imported here, as it takes longer than everything else in a command
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # as Text, because values from users may contain rich markup
    Console().print(table)


def print_json(document: object) -> None:
    """Print a JSON document."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def read_bounded(file: str) -> bytes:
    """Read a configuration file up to one byte more than the limit, so that the caller can detect a larger one.

    Raises:
        OSError: the file cannot be read.
    """
    if file == STDIN:
        return sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    with Path(file).open("rb") as opened:
        return opened.read(TEXT_BYTES_MAX + 1)
