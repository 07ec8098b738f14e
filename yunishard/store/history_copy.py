"""Copies the history and the audit log of a stopped system, through the protocols of the web service."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Final

import msgspec

from yunishard.webservice.audit import AuditLines
from yunishard.webservice.history.store import HistoryStore
from yunishard.webservice.history.tables import COLUMNS, TIMED, HistoryTables

COPY_MAX_S: Final = 24 * 3600.0
"""Time limit for reading a history."""

PAGE_ROWS: Final = 5_000
"""Rows that are copied in one transaction."""

CHUNK_LINES: Final = 2_000
"""Lines of the audit log that are copied at a time; one has some hundred bytes."""


def is_empty(history: HistoryStore, audit: AuditLines) -> bool:
    """Whether there is no history and no audit log. Raises OSError."""
    with closing(history.open_writer()) as writer:
        return not writer.positions() and next(audit.read(), None) is None


def copy_history(old: HistoryStore, new: HistoryStore) -> None:
    """Copy all rows into an empty history, in which they get new numbers.

    Raises:
        OSError: a part may be copied.
    """
    with closing(new.open_writer()) as writer, old.open_rows(COPY_MAX_S) as reading:
        for page in _read_pages(reading, "partitions"):
            writer.insert("partitions", page)
        numbers = _read_numbers(reading)
        with new.open_rows(COPY_MAX_S) as written:
            renumbered = {numbers[name]: number for name, number in _read_numbers(written).items()}
        for table in TIMED:
            for page in _read_pages(reading, table):
                # A row of a partition that is not there any more cannot be selected.
                rows = [one | {"partition": renumbered.get(_as_number(one["partition"]))} for one in page]
                writer.insert(table, [one for one in rows if one["partition"] is not None])


def _read_numbers(reading: HistoryTables) -> dict[str, int]:
    """The number of each partition by its full name."""
    rows = reading.execute("SELECT full_name, id FROM history_partitions")
    return dict(msgspec.convert(rows, list[tuple[str, int]]))


def _as_number(value: object) -> int:
    return msgspec.convert(value, int)


def _read_pages(reading: HistoryTables, table: str) -> Iterator[list[dict[str, object]]]:
    """The rows of a table in the order of their numbers, without these."""
    columns, last = COLUMNS[table], 0
    names = ", ".join(f'"{name}"' for name in columns)
    while True:
        query = f"SELECT id, {names} FROM history_{table} WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608
        rows = reading.execute(query, (last, PAGE_ROWS))
        if not rows:
            return
        yield [dict(zip(columns, values, strict=True)) for _, *values in rows]
        last = _as_number(rows[-1][0])


def copy_audit_log(old: AuditLines, new: AuditLines) -> None:
    """Copy all lines. Raises OSError: a part may be copied."""
    lines = old.read()
    while chunk := b"".join(islice(lines, CHUNK_LINES)):
        new.append(chunk)
