"""Rows of the history as CSV (RFC 4180): a line with the names of the columns, then a line for each row.

The columns are the keys of the JSON object, all of them in each line. Times are RFC 3339, resources `memory=5 vcore=2`
in base units. A text that a spreadsheet would take for a formula begins with an apostrophe, as users choose what their
applications are called.

Not here: which rows (`reading.py`).
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from common.rest.history import PastRow
from common.rest.partition import HistoryView, rfc3339

MEDIA: Final = "text/csv"

LINES: Final = 500
"""In one piece of what is sent."""

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What the text of a formula begins with."""

_TIMES: Final = frozenset({"submission_time", "start_time", "finished_time", "timestamp", "since", "until"})


def pieces(view: type[PastRow], rows: Sequence[PastRow]) -> Iterator[bytes]:
    """The text, in pieces of several lines."""
    names = view.__struct_fields__
    yield _lines([view.__struct_encode_fields__])
    waiting = iter(rows)
    while some := list(islice(waiting, LINES)):
        yield _lines([[_cell(name, getattr(row, name)) for name in names] for row in some])


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _cell(name: str, value: object) -> str:
    match value:
        case None:
            return ""
        case int():
            return (rfc3339(value) if value else "") if name in _TIMES else str(value)
        case str():
            return _harmless(value)
        case list():
            return _harmless(";".join(map(str, value)))
        case dict():
            return _harmless(_amounts(value))
        case HistoryView():
            return _harmless("; ".join(_uses(value)))
    raise TypeError(f"{name} is {value!r}")


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _amounts(amounts: Mapping[str, int]) -> str:
    return " ".join(f"{kind}={amounts[kind]}" for kind in sorted(amounts))


def _uses(used: HistoryView) -> Iterator[str]:
    """Amounts times seconds: what for, on which type of instance, how much."""
    for key, by_type in msgspec.to_builtins(used).items():
        for instance_type in sorted(by_type):
            yield f"{key} {instance_type}: {_amounts(by_type[instance_type])}"
