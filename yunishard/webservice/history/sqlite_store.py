"""The history of a single host: a SQLite file, which one web service writes."""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from yunishard.common.sqlite_file import open_file, transaction
from yunishard.webservice.history.store import HistoryDamaged, HistoryTaken
from yunishard.webservice.history.tables import Condition, HistoryTables, Value
from yunishard.webservice.history.writer import HistoryWriter

FORMATS: Final = Path(__file__).parent / "formats"
"""The statements that convert a file to each format, from the one before."""

FORMAT: Final = len([*FORMATS.glob("*.sql")])
"""The format of the file; a change of the tables needs another one."""

PRIVATE: Final = 0o600
"""Only the owner may read the file."""

LOG_BYTES: Final = 16 << 20
"""Bytes that SQLite's write-ahead log occupies on the disk once it is empty."""

FREE_PAGES_MAX: Final = 2_000
"""Pages of 4 KiB that are returned to the disk at a time."""

STEPS: Final = 10_000
"""Instructions of SQLite between two checks of the time limit of a query."""

DAMAGED: Final = ".damaged"
"""Suffix of a damaged file that was renamed; only the latest is preserved."""

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""Error codes of a damaged file, missing tables included. After any other error the file may be usable later."""


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Raise errors of SQLite as HistoryDamaged or OSError."""
    try:
        yield
    except sqlite3.Error as error:
        code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code & 0xFF in _DAMAGE:
            raise HistoryDamaged(str(error)) from error
        raise OSError(str(error)) from error


class SqliteHistory:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def open_writer(self) -> "SqliteWriter":
        """Open the file for writing."""
        return SqliteWriter(self.path)

    @contextmanager
    def open_rows(self, max_s: float) -> Iterator["SqliteTables"]:
        """Open the file for reading, for no longer than this. Queries do not wait for the writer, nor it for them."""
        try:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as file:
                deadline = time.monotonic() + max_s
                file.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
                version = file.execute("PRAGMA user_version").fetchone()[0]
                if version != FORMAT:
                    raise sqlite3.DatabaseError(f"it has format {version}, and this release reads {FORMAT}")
                yield SqliteTables(file)
        except sqlite3.Error as error:
            is_over = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
            raise (TimeoutError if is_over else OSError)(str(error)) from error

    def exists(self) -> bool:
        """Whether the file was created."""
        return self.path.exists()

    def size(self) -> int:
        """Bytes of the file, with SQLite's log beside it."""
        return sum(_measure(self._beside(suffix)) for suffix in ("", "-wal"))

    def describe(self, error: OSError) -> str:
        """The reason why the file cannot be used."""
        return f"{self.path} cannot be used: {error}"

    def put_aside(self, damage: HistoryDamaged) -> str:
        """Rename the damaged file."""
        renamed = self._beside(DAMAGED)
        for suffix in ("", "-wal", "-shm"):
            if (file := self._beside(suffix)).exists():
                file.replace(renamed.with_name(renamed.name + suffix))
        return f"the history in {self.path} is damaged ({damage}): it is now {renamed}, and a new one begins"

    def close(self) -> None:
        pass  # a query closes what it opens

    def _beside(self, suffix: str) -> Path:
        """A file that belongs to the history."""
        return self.path.with_name(self.path.name + suffix)


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # SQLite deletes its log when the file is closed
        return 0


# Tables ---------------------------------------------------------------------------------------------------------------


class SqliteTables(HistoryTables):
    """The tables of the file, which have no prefix."""

    join = "CROSS JOIN"  # SQLite does not change its order
    texts = "json_each(?)"
    reuses_numbers = True

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file
        self._functions = 0

    def rows(self, table: str, columns: Iterable[str]) -> str:
        selected = ", ".join(f"json_extract(value, '$.{name}') AS \"{name}\"" for name in columns)
        return f"(SELECT {selected} FROM json_each(?))"  # noqa: S608 - our own names

    def includes(self, beginnings: Mapping[int, frozenset[str]], queue: str) -> Condition:
        name, self._functions = f"includes_{self._functions}", self._functions + 1
        self._file.create_function(
            name, 2, lambda partition, path: _includes(beginnings[partition], path), deterministic=True
        )
        return f"{name}(entry.partition, {queue})", []

    def execute(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[object, ...]]:
        return self._file.execute(sql.replace("history_", ""), values).fetchall()

    def change(self, sql: str, values: Sequence[Value], sign: int = 1) -> int:
        return self._file.execute(sql.replace("history_", ""), values).rowcount


def _includes(beginnings: frozenset[str], queue: str) -> bool:
    if "root" in beginnings:
        return True
    path = queue.lower()  # the queue of a rejected application is as the RM wrote it
    while path and path not in beginnings:
        path = path.rpartition(".")[0]
    return bool(path)


# Writing --------------------------------------------------------------------------------------------------------------


class SqliteWriter(HistoryWriter):
    """The file, open for writing. Only the process that holds the lock file writes.

    Raises:
        HistoryDamaged: its content is damaged.
        HistoryTaken: another process writes it.
        LaterFormat: a later release wrote it.
        OSError: the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        with ExitStack() as opened:
            lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            opened.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HistoryTaken("another process writes it") from None
            pragmas = ("auto_vacuum=INCREMENTAL", "synchronous=NORMAL", f"journal_size_limit={LOG_BYTES}")
            with sqlite_errors():
                self.file: Final = open_file(path, FORMATS, pragmas)
            opened.callback(self.file.close)
            self._opened = opened.pop_all()
        self._tables = SqliteTables(self.file)

    def close(self) -> None:
        self._opened.close()

    def renew(self) -> None:
        pass  # the lock lasts as long as the process

    @contextmanager
    def _reading(self) -> Iterator[SqliteTables]:
        with sqlite_errors():
            yield self._tables

    @contextmanager
    def _transaction(self) -> Iterator[SqliteTables]:
        with sqlite_errors(), transaction(self.file):
            yield self._tables

    def used_bytes(self) -> int:
        """Bytes of all rows and indexes, without the free pages of the file."""
        return (self.pragma("page_count") - self.pragma("freelist_count")) * self.pragma("page_size")

    @sqlite_errors()
    def pragma(self, name: str) -> int:
        """The value of a PRAGMA of SQLite."""
        value: int = self.file.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    @sqlite_errors()
    def release_space(self, bytes_max: int) -> None:
        if self.pragma("page_count") * self.pragma("page_size") > bytes_max:
            self.file.executescript(f"PRAGMA incremental_vacuum({FREE_PAGES_MAX})")  # `execute` frees one page only
