"""Tables on standard output, and texts from outside on a terminal: names, messages and files of clients move no cursor
and change no text around them.

`clean` is for a field: the result is one line. `protect_terminal` is the second line of defence for everything that a
command writes: what reaches a terminal has no characters without a visible form, besides colours, tabs and line ends.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.table import Table

_LATIN_MAX: Final = 0xFF
_BASIC_MAX: Final = 0xFFFF

_UNSEEN: Final = re.compile(
    r"\x1b\[[0-9;]*m|"  # a colour
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Colours, and characters that a terminal does not show: control characters but tabs and line ends, characters of no
width, and those that change the direction of a line."""


def clean(text: str) -> str:
    """Return a text with escapes in place of characters that are not visible: it is one line, and moves no cursor.

    >>> clean("a\\x1b[2J\\n\\u202eb")
    'a\\\\x1b[2J\\\\x0a\\\\u202eb'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(ord(one)) for one in text)


def _escape(number: int) -> str:
    if number <= _LATIN_MAX:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= _BASIC_MAX else f"\\U{number:08x}"


def clean_output(text: str) -> str:
    """Return what a command writes, with escapes as in JSON for characters that a terminal does not show: a JSON
    document has the same meaning afterwards.
    """
    return _UNSEEN.sub(_replace, text)


def _replace(found: re.Match[str]) -> str:
    unseen = found[0]
    if len(unseen) > 1:  # a colour
        return unseen
    if ord(unseen) <= _BASIC_MAX:
        return f"\\u{ord(unseen):04x}"
    pair = unseen.encode("utf-16-be")
    return f"\\u{pair[:2].hex()}\\u{pair[2:].hex()}"


class CleanStream:
    """A stream to a terminal whose texts are cleaned; otherwise it is the stream."""

    def __init__(self, stream: TextIO) -> None:
        self.raw_stream: Final = stream

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        self.raw_stream.write(clean_output(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.raw_stream, name)


def clean_stream(stream: TextIO) -> TextIO:
    """Return the stream; if it leads to a terminal, its texts are cleaned."""
    if stream is None or isinstance(stream, CleanStream) or not stream.isatty():
        return stream
    return CleanStream(stream)  # type: ignore[return-value]  # it has all methods of the stream


def protect_terminal() -> None:
    """Clean what this process writes to standard output and standard error, where they lead to a terminal."""
    sys.stdout, sys.stderr = clean_stream(sys.stdout), clean_stream(sys.stderr)


def find_raw_stream(stream: TextIO) -> TextIO:
    """Return a stream for a program that moves the cursor; it has to clean its texts itself."""
    return stream.raw_stream if isinstance(stream, CleanStream) else stream


def write_control(sequence: str) -> None:
    """Write a control sequence of our own to standard output, with texts that are clean."""
    find_raw_stream(sys.stdout).write(sequence)


# Tables ---------------------------------------------------------------------------------------------------------------


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
