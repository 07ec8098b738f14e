"""The files of a journal: what they are called, which of them belong to a partition, and where a damaged one goes.

    <name>.sqlite (and what SQLite puts beside it)     the steps
    <name>.snapshot-<number>                           the whole partition after that step
    <name>.damaged/                                    the same files of a journal that could not be used
    <name>.attempts, <name>.poison-<identity>          which messages ended workers, and what they say

Not here: what is in them (`database.py`, `snapshots.py`, `attempts.py`, `poisons.py`).
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9_.:~-]+")
"""What a full name of a partition consists of: nothing that means something in a path."""

SUFFIX: Final = ".sqlite"
DAMAGED: Final = ".damaged"
PRIVATE: Final = 0o600
"""Nobody else is to read what runs where; what SQLite puts beside a file is as private."""


class JournalDamaged(Exception):
    """A journal that does not hold everything it once had, or cannot be understood; the text says why."""


class Fenced(OSError):
    """Another worker has the partition, under a later lease."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the journal of a partition is."""

    folder: Path
    partition: str

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.partition):
            raise ValueError(f"{self.partition!r} is no full name of a partition")

    @staticmethod
    def of(database: Path) -> "Files":
        """Those around a database.

        Raises:
            ValueError: it is not called like one.
        """
        if database.suffix != SUFFIX:
            raise ValueError(f"{database}: a journal is called <partition>{SUFFIX}")
        return Files(database.parent, database.name.removesuffix(SUFFIX))

    @property
    def database(self) -> Path:
        return self.folder / f"{self.partition}{SUFFIX}"

    @property
    def log(self) -> Path:
        """What SQLite has written and not yet moved into the database."""
        return self.folder / f"{self.partition}{SUFFIX}-wal"

    @property
    def log_index(self) -> Path:
        """What SQLite knows about its log while somebody has it open."""
        return self.folder / f"{self.partition}{SUFFIX}-shm"

    @property
    def damaged(self) -> Path:
        """The directory for those that cannot be used; the last one is kept."""
        return self.folder / f"{self.partition}{DAMAGED}"

    @property
    def attempts(self) -> Path:
        """Which message is being handled; it outlives a journal that cannot be used."""
        return self.folder / f"{self.partition}.attempts"

    def poison(self, identity: bytes) -> Path:
        """A message that was set aside."""
        return self.folder / f"{self.partition}.poison-{identity.hex()}"

    def poisons(self) -> list[Path]:
        """All messages that were set aside."""
        pattern = re.compile(rf"{re.escape(self.partition)}\.poison-[0-9a-f]+")
        return [path for path in sorted(self.folder.glob("*.poison-*")) if pattern.fullmatch(path.name)]

    def snapshot(self, number: int) -> Path:
        return self.folder / f"{self.partition}.snapshot-{number}"

    def snapshots(self) -> Iterator[tuple[int, Path]]:
        """All that are there, half-written ones too, with their numbers."""
        pattern = re.compile(rf"{re.escape(self.partition)}\.snapshot-(\d+)(?:\.tmp-\d+)?")
        for path in sorted(self.folder.glob("*.snapshot-*")):
            if found := pattern.fullmatch(path.name):
                yield int(found[1]), path

    def all(self) -> list[Path]:
        """Everything that is there, the database first."""
        snapshots = (path for _, path in self.snapshots())
        return [path for path in (self.database, self.log, self.log_index, *snapshots) if path.exists()]

    def size_bytes(self) -> int:
        """What everything takes on the disk now."""
        return sum(_size(path) for path in self.all())

    def put_aside(self) -> Path:
        """Move everything to where the next journal is not in its way; where that is.

        The database goes first: what is left without one, should this be interrupted, belongs to nothing (`clear`).
        """
        shutil.rmtree(self.damaged, ignore_errors=True)
        self.damaged.mkdir(mode=0o700, exist_ok=True)
        for path in self.all():
            path.replace(self.damaged / path.name)
        sync(self.folder)
        return self.damaged

    def clear(self) -> None:
        """Remove everything, the database first."""
        for path in self.all():
            path.unlink(missing_ok=True)
        sync(self.folder)

    def forget_snapshots(self, *, before: int, but: int) -> None:
        """Remove the older ones, but not this one; one that is being taken now is not older."""
        for number, path in self.snapshots():
            if number < before and number != but:
                path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def sync(folder: Path) -> None:
    """Make names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
