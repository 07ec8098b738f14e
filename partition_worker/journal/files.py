"""Names and locations of a partition's journal files, and moving a damaged journal aside.

<name>.sqlite, -wal, -shm                     the steps (`database.py`)
<name>.snapshot-<number>                      the whole partition after that step (`snapshots.py`)
<name>.damaged/                               the files of a journal that could not be used
<name>.attempts, <name>.poison-<identity>     messages that ended workers (`poison_files.py`)
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9_.:~-]+")
"""Characters of a partition's full name: none has a meaning in a path."""

SUFFIX: Final = ".sqlite"
DAMAGED: Final = ".damaged"
PRIVATE: Final = 0o600
"""File mode; SQLite uses it for its own files too."""


class JournalDamaged(Exception):
    """A journal has lost data, or cannot be decoded; the text is the reason."""


class Fenced(OSError):
    """Another worker has the partition, under a later lease."""


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of a partition's journal files."""

    folder: Path
    partition: str

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.partition):
            raise ValueError(f"{self.partition!r} is not a full partition name, <rm-id>_<name>")

    @staticmethod
    def of(database: Path) -> "Files":
        """The files of the journal with this database.

        Raises:
            ValueError: the file name is not <partition>.sqlite.
        """
        if database.suffix != SUFFIX:
            raise ValueError(f"{database}: the name of a journal is <partition>{SUFFIX}")
        return Files(database.parent, database.name.removesuffix(SUFFIX))

    @property
    def database(self) -> Path:
        return self.folder / f"{self.partition}{SUFFIX}"

    @property
    def wal(self) -> Path:
        """SQLite's write-ahead log."""
        return self.folder / f"{self.partition}{SUFFIX}-wal"

    @property
    def wal_index(self) -> Path:
        """SQLite's index of the write-ahead log, which exists while a process has the database open."""
        return self.folder / f"{self.partition}{SUFFIX}-shm"

    @property
    def damaged(self) -> Path:
        """The directory for a journal that cannot be used; only the last one is kept."""
        return self.folder / f"{self.partition}{DAMAGED}"

    @property
    def attempts(self) -> Path:
        """The message in progress and those that ended workers; not moved aside with a damaged journal."""
        return self.folder / f"{self.partition}.attempts"

    def poison(self, identity: bytes) -> Path:
        """The file of a quarantined message."""
        return self.folder / f"{self.partition}.poison-{identity.hex()}"

    def poisons(self) -> list[Path]:
        """The files of all quarantined messages."""
        pattern = re.compile(rf"{re.escape(self.partition)}\.poison-[0-9a-f]+")
        return [path for path in sorted(self.folder.glob("*.poison-*")) if pattern.fullmatch(path.name)]

    def snapshot(self, number: int) -> Path:
        return self.folder / f"{self.partition}.snapshot-{number}"

    def snapshots(self) -> Iterator[tuple[int, Path]]:
        """Numbers and paths of all snapshots, unfinished ones too."""
        pattern = re.compile(rf"{re.escape(self.partition)}\.snapshot-(\d+)(?:\.tmp-\d+)?")
        for path in sorted(self.folder.glob("*.snapshot-*")):
            if found := pattern.fullmatch(path.name):
                yield int(found[1]), path

    def all(self) -> list[Path]:
        """All existing files, the database first."""
        snapshots = (path for _, path in self.snapshots())
        return [path for path in (self.database, self.wal, self.wal_index, *snapshots) if path.exists()]

    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(_size(path) for path in self.all())

    def put_aside(self) -> Path:
        """Move all files to `damaged`, and return that path.

        The database is moved first: if this is interrupted, `clear` removes the files that are left without one.
        """
        shutil.rmtree(self.damaged, ignore_errors=True)
        self.damaged.mkdir(mode=0o700, exist_ok=True)
        for path in self.all():
            path.replace(self.damaged / path.name)
        sync(self.folder)
        return self.damaged

    def clear(self) -> None:
        """Remove all files, the database first."""
        for path in self.all():
            path.unlink(missing_ok=True)
        sync(self.folder)

    def delete_snapshots(self, *, before: int, keep: int) -> None:
        """Remove snapshots before a step, except `keep`. A snapshot in progress has a later number."""
        for number, path in self.snapshots():
            if number < before and number != keep:
                path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def sync(folder: Path) -> None:
    """Make file names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
