"""The audit log of several hosts: a row of the table `audit` for each line, in the order of their writing.

A line is durable as soon as its transaction is, on the synchronous standby too if there is one. The oldest rows are
deleted. Not here: the lines (`audit.py`).
"""

from typing import Final

import psycopg

from common.postgres import Database

LINES_MAX: Final = 400_000
"""Lines that are preserved: about 100 MiB, as much as the files of a single host."""

_APPEND: Final = (
    "WITH added AS (INSERT INTO audit (line) VALUES (%s) RETURNING id)"
    " DELETE FROM audit WHERE id <= (SELECT id FROM added) - %s"
)


class PostgresAudit:
    """The table."""

    name = "the store"

    def __init__(self, store: str) -> None:
        """Use the database of this connection string. Raises OSError if that is not valid."""
        self._database: Final = Database(store, "audit")

    def append(self, line: bytes) -> None:
        """Append a line, which is durable then.

        Raises:
            OSError: the line may be missing; the text is the reason, in one line.
        """
        with self._database.autocommit() as connection:
            connection.execute(_APPEND, (line.decode().removesuffix("\n"), LINES_MAX))

    def probe(self) -> None:
        """Insert a line and roll back. Raises OSError, as `append` does."""
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO audit (line) VALUES ('')")
            raise psycopg.Rollback

    def close(self) -> None:
        """Close the connection."""
        self._database.close()
