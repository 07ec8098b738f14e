"""Empty histories in each kind of store. Tests read tables by the names in `yunishard/webservice/history/tables.py`."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, Protocol

import psycopg

from tests import postgres
from yunishard.webservice.history.collector import RowBatch
from yunishard.webservice.history.postgres_store import PostgresHistory
from yunishard.webservice.history.sqlite_store import SqliteHistory
from yunishard.webservice.history.store import HistoryStore
from yunishard.webservice.history.tables import TIMED

Rows = list[tuple[object, ...]]

TABLES: Final = ("partitions", *TIMED)


class Backend(Protocol):
    """One history, which several web services can open."""

    history: HistoryStore
    place: str
    """The path of the file, or the connection string."""

    def another(self) -> HistoryStore:
        """The same, for another web service."""

    def read(self, sql: str) -> Rows:
        """The rows that a query selects."""

    def change(self, sql: str) -> None:
        """Change what is there."""

    def refusing(self, table: str) -> AbstractContextManager[None]:
        """While this is open, nothing can be inserted into a table."""

    def close(self) -> None:
        """Close what tests have opened."""


class SqliteBackend:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "history.sqlite"
        self.place = str(self.path)
        self.history: HistoryStore = SqliteHistory(self.path)

    def another(self) -> HistoryStore:
        return SqliteHistory(self.path)

    def read(self, sql: str) -> Rows:
        with closing(sqlite3.connect(self.path)) as file:
            return file.execute(sql).fetchall()

    def change(self, sql: str) -> None:
        with closing(sqlite3.connect(self.path)) as file, file:
            file.execute(sql)

    @contextmanager
    def refusing(self, table: str) -> Iterator[None]:
        self.change(f"CREATE TRIGGER no BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END")
        yield
        self.change("DROP TRIGGER no")

    def close(self) -> None:
        pass


class PostgresBackend:
    """A PostgreSQL server."""

    def __init__(self, folder: Path) -> None:
        self.place = postgres.new_store()
        self._opened: list[HistoryStore] = []
        self.history = self.another("a")

    def another(self, holder: str = "b") -> HistoryStore:
        self._opened.append(PostgresHistory(self.place, holder))
        return self._opened[-1]

    def read(self, sql: str) -> Rows:
        with psycopg.connect(self.place) as connection:
            return connection.execute(_translate(sql)).fetchall()

    def change(self, sql: str) -> None:
        with psycopg.connect(self.place) as connection:
            connection.execute(_translate(sql))

    def refusing(self, table: str) -> AbstractContextManager[None]:
        return postgres.full_disk(self.place, f"history_{table}")

    def close(self) -> None:
        for one in self._opened:
            one.close()


def _translate(sql: str) -> str:
    tables = re.sub(rf"\b(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\b", r"\1 history_\2 AS \2", sql)
    return re.sub(r"\buser\b", '"user"', tables)


BACKENDS: Final[dict[str, Callable[[Path], Backend]]] = {"sqlite": SqliteBackend, "postgresql": PostgresBackend}


def write(backend: Backend, *batches: RowBatch) -> None:
    """Write rows as a web service that begins and ends."""
    with closing(backend.another().open_writer()) as writer:
        writer.write(batches)
