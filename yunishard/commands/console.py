"""Input and output that the commands share: actions, tables, JSON, reading a configuration file.

Not here: dispatch and exit codes (`yunishard/cli.py`), requests to a running system (`rest.py`).
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.config.parse import TEXT_BYTES_MAX
from common.config.problems import UNKNOWN_LINE, Problem
from yunishard.cli import NOT_DONE, UNUSABLE, CommandFailed

if TYPE_CHECKING:
    from rich.table import Table

STDIN: Final = "-"
"""In place of a file name: standard input."""


def add_actions(parser: argparse.ArgumentParser, actions: Mapping[str, str]) -> dict[str, argparse.ArgumentParser]:
    """Add actions with their summaries to the parser of a command; return their parsers."""
    branch = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    return {
        name: branch.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.", allow_abbrev=False)
        for name, about in actions.items()
    }


def config_directory() -> Path:
    """Return the user's directory for keys and tokens: `$XDG_CONFIG_HOME/yunishard`."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "yunishard"


def show(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn with rich on a terminal, otherwise in plain columns for `cut` and `grep`."""
    if sys.stdout.isatty():
        from rich.console import Console  # imported here, as it takes longer than everything else in a command

        Console().print(build_table(headings, rows))
        return
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
        table.add_row(*map(Text, row))  # as Text, because values from users may contain rich markup
    return table


def write(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def print_json(document: object) -> None:
    """Print a JSON document."""
    write(json.dumps(document, indent=2, ensure_ascii=False))


def format_file_name(file: str) -> str:
    """Return a file name for messages."""
    return "<stdin>" if file == STDIN else file


def read_configuration(file: str) -> str:
    """Read the text of a configuration file.

    Raises:
        CommandFailed: it cannot be read, is no UTF-8 text, or is larger than any system accepts.
    """
    status = UNUSABLE
    try:
        with nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as opened:
            data = opened.read(TEXT_BYTES_MAX + 1)
        if len(data) <= TEXT_BYTES_MAX:
            return data.decode()
        reason, status = f"larger than {TEXT_BYTES_MAX:,} bytes, the most a configuration may have", NOT_DONE
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 text (byte {error.start})"
    raise CommandFailed(f"{format_file_name(file)}: cannot be read: {reason}", status=status)


def format_problem(file: str, problem: Problem, label: str = "") -> str:
    """Format a problem of a configuration in one line, place first, as compilers do."""
    place = format_file_name(file) if problem.line == UNKNOWN_LINE else f"{format_file_name(file)}:{problem.line}"
    path = f"{problem.path}: " if problem.path else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return " ".join(f"{place}: {label}{path}{problem.message}{hint}".splitlines())
