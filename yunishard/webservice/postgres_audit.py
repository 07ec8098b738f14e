"""The audit log of several hosts: a row of the table `audit` for each line, in the order of their writing.

A line is durable as soon as its transaction is, on the synchronous standby too if there is one. The oldest rows are
deleted. Not here: the lines (`audit.py`).
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import psycopg

from yunishard.common.postgres.connection import Database

LINES_MAX: Final = 400_000
"""Lines that are preserved: about 100 MiB, as much as the files of a single host."""

PAGE_LINES: Final = 5_000
"""Lines that are read at a time."""

_APPEND: Final = (
    "WITH added AS (INSERT INTO audit (line) SELECT unnest(%s::text[]) RETURNING id)"
    " DELETE FROM audit WHERE id <= (SELECT max(id) FROM added) - %s"
)


class PostgresAudit:
    """The table."""

    name = "the store"

    def __init__(self, store: str) -> None:
        """Use the database of this connection string. Raises OSError if that is not valid."""
        self._database: Final = Database(store, "audit")

    def append(self, lines: bytes) -> None:
        """Append lines, which are durable then.

        Raises:
            OSError: lines may be missing; the text is the reason, in one line.
        """
        texts = lines.decode(errors="replace").replace("\0", "\ufffd").removesuffix("\n").split("\n")
        with self._database.autocommit() as connection:
            connection.execute(_APPEND, (texts, LINES_MAX))

    def read(self) -> Iterator[bytes]:
        """All lines, the oldest first."""
        last = 0
        while True:
            with self._database.autocommit() as connection:
                query = "SELECT id, line FROM audit WHERE id > %s ORDER BY id LIMIT %s"
                rows = msgspec.convert(connection.execute(query, (last, PAGE_LINES)).fetchall(), list[tuple[int, str]])
            if not rows:
                return
            yield from (f"{line}\n".encode() for _, line in rows)
            last = rows[-1][0]

    def probe(self) -> None:
        """Insert a line and roll back. Raises OSError, as `append` does."""
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO audit (line) VALUES ('')")
            raise psycopg.Rollback

    def close(self) -> None:
        """Close the connection."""
        self._database.close()
