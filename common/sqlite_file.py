"""SQLite files with a number of their format: opened privately, converted from earlier formats, refused if later.

The number is the file's `user_version`. Not here: the tables (`broker/sqlite_store.py`,
`yunishard/webservice/history/store.py`).
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from yunishard.common.process.folders import find_obstacle

IN_MEMORY: Final = Path(":memory:")
"""The path of a file that ends with the process."""

LOCK_MAX_S: Final = 5.0
"""Seconds to wait for another process that has locked the file, such as a backup or the `sqlite3` tool."""


CHECKED_BYTES_MAX: Final = 64 << 20
"""Size up to which a whole file is checked for damage when it is opened, which reads it. Of a larger one only some
tables are checked, if the caller names them, so that opening it takes no longer than opening a small one."""


class LaterFormat(OSError):
    """A later release wrote the file; it has not been changed."""


def open_file(path: Path, formats: Path, pragmas: Sequence[str], *, checked: Sequence[str] = ()) -> sqlite3.Connection:
    """Open a file that only its owner may read, for one thread at a time. In the folder `formats`, `<number>.sql`
    converts a file to each format from the one before it; the first one begins with an empty file. Of a file above
    CHECKED_BYTES_MAX only the tables `checked` are checked for damage, if there are any.

    Raises:
        LaterFormat, OSError, sqlite3.Error: it cannot be opened, or not be converted, and has not been changed.
        sqlite3.DatabaseError: it is damaged, or no file of this kind.
    """
    latest = len([*formats.glob("*.sql")])
    if path != IN_MEMORY:
        if obstacle := find_obstacle(path):
            raise OSError(f"it {obstacle}")
        # SQLite gives its other files the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # Closing a connection that may write would move the content of the log, also of a later format.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            _read_format(file, latest)
    with ExitStack() as opened:
        file = sqlite3.connect(path, isolation_level=None, timeout=LOCK_MAX_S, check_same_thread=False)
        opened.callback(file.close)
        is_large = path != IN_MEMORY and path.stat().st_size > CHECKED_BYTES_MAX
        for limit in checked if is_large and checked else ("1",):
            if (damage := file.execute(f"PRAGMA quick_check({limit})").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(str(damage).splitlines()[-1])  # the first line names the database
        for pragma in (*pragmas, "journal_mode=WAL"):
            file.execute(f"PRAGMA {pragma}")
        numbers = range(_read_format(file, latest) + 1, latest + 1)
        if script := "".join((formats / f"{number}.sql").read_text() for number in numbers):
            with file:  # rolls back what fails
                file.executescript(f"BEGIN IMMEDIATE;{script}PRAGMA user_version={latest};COMMIT")
        opened.pop_all()
    return file


def _read_format(file: sqlite3.Connection, latest: int) -> int:
    """The format of a file; 0 for an empty one."""
    found: int = file.execute("PRAGMA user_version").fetchone()[0]
    if found > latest:
        raise LaterFormat(f"a later release wrote it: it has format {found}, this release supports up to {latest}")
    if not found and file.execute("SELECT 1 FROM sqlite_schema").fetchone():
        raise sqlite3.DatabaseError("it has no format: another program wrote it")
    return found


def find_log(path: Path) -> Path:
    """The write-ahead log of a file."""
    return path.with_name(f"{path.name}-wal")


def remove_database(path: Path) -> None:
    """Remove a file with its log, if there is one."""
    for one in (path, find_log(path), path.with_name(f"{path.name}-shm")):
        one.unlink(missing_ok=True)


@contextmanager
def transaction(file: sqlite3.Connection) -> Iterator[None]:
    """All statements within take effect, or none."""
    with file:  # commits, or rolls back
        file.execute("BEGIN IMMEDIATE")
        yield


def decode_text(text: bytes) -> str:
    """A text of which bytes that are no UTF-8 are replaced: as the `text_factory` of a connection, so that they concern
    one row and not all that a query reads.
    """
    return text.decode(errors="replace")
