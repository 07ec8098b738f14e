"""The files of a partition's journal: names, snapshot files, setting a journal aside.

<name>.sqlite, -wal, -shm             the steps (`database.py`)
<name>.snapshot-<number>              the whole partition after that step
<name>.snapshot-<number>.tmp-<pid>    one that is not recorded
<name>.damaged/                       the files of a journal that could not be used

A snapshot file holds the encoded state after a step, with a checksum.
"""

import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from yunishard.common.process.folders import find_obstacle, remove_any, sync_path
from yunishard.partition_worker.recovery import JournalDamaged

NAME: Final = re.compile(r"[A-Za-z0-9_.:~-]+")
"""Characters of a partition's full name: none has a meaning in a path."""

SUFFIX: Final = ".sqlite"
DAMAGED: Final = ".damaged"
PRIVATE: Final = 0o600
"""File mode; SQLite uses it for its own files too."""


class Files:
    """The paths of a partition's journal files."""

    def __init__(self, folder: Path, partition: str) -> None:
        if not NAME.fullmatch(partition):
            raise ValueError(f"{partition!r} is not a full partition name, <rm-id>_<name>")
        self.folder, self.partition = folder, partition
        self.database = folder / f"{partition}{SUFFIX}"
        self.wal = folder / f"{partition}{SUFFIX}-wal"
        """SQLite's write-ahead log."""
        self.wal_index = folder / f"{partition}{SUFFIX}-shm"
        """SQLite's index of the write-ahead log, which exists while a process has the database open."""
        self.damaged = folder / f"{partition}{DAMAGED}"
        """The directory for a journal that cannot be used; only the last one is kept."""

    def snapshot(self, number: int) -> Path:
        return self.folder / f"{self.partition}.snapshot-{number}"

    def unfinished_snapshot(self, number: int, process: int) -> Path:
        """The path of a snapshot that is not recorded, written for this process."""
        return self.folder / f"{self.partition}.snapshot-{number}.tmp-{process}"

    def snapshots(self) -> Iterator[tuple[int, Path]]:
        """Numbers and paths of all snapshots, unfinished ones too."""
        pattern = re.compile(rf"{re.escape(self.partition)}\.snapshot-(\d+)(?:\.tmp-\d+)?")
        for path in sorted(self.folder.glob("*.snapshot-*")):
            if found := pattern.fullmatch(path.name):
                yield int(found[1]), path

    def all(self) -> list[Path]:
        """All existing files, the database first."""
        snapshots = (path for _, path in self.snapshots())
        return [path for path in (self.database, self.wal, self.wal_index, *snapshots) if os.path.lexists(path)]

    def check(self, *, is_written: bool = True) -> None:
        """Check that the database is in files that this process can read, and write if `is_written`.

        Raises:
            JournalDamaged: one is something else, such as a directory or a fifo.
        """
        for path in (self.database, self.wal, self.wal_index):
            if obstacle := find_obstacle(path, is_written=is_written):
                raise JournalDamaged(f"{path.name} {obstacle}")

    def remove_unfinished_snapshots(self) -> None:
        """Remove the unfinished snapshots of processes that have ended, and of an earlier one with our number."""
        for _, path in self.snapshots():
            process = path.name.rpartition(".tmp-")[2]
            if path.suffix.startswith(".tmp-") and (int(process) == os.getpid() or not _is_running(int(process))):
                remove_any(path)

    def size_bytes(self) -> int:
        """Bytes of all files."""
        size = 0
        for path in self.all():
            with suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def put_aside(self) -> Path:
        """Move all files to `damaged`, and return that path.

        The database is moved first: if this is interrupted, `clear` removes the files that are left without one.
        """
        remove_any(self.damaged)
        self.damaged.mkdir(mode=0o700)
        for path in self.all():
            path.replace(self.damaged / path.name)
        sync_path(self.folder)
        return self.damaged

    def clear(self) -> None:
        """Remove all files, the database first."""
        for path in self.all():
            remove_any(path)
        sync_path(self.folder)


def _is_running(process: int) -> bool:
    """Whether there is a process with this number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return True


# Snapshots ------------------------------------------------------------------------------------------------------------

MAGIC: Final = b"YSHSNAP2"
"""The last byte is the version of the file format."""

_HEAD: Final = struct.Struct(">8sQQI")
"""Magic, number of the step, length of the content, checksum of both and the content."""

_PIECE_BYTES: Final = 1 << 20
"""Bytes that are read at a time."""


def write_snapshot(path: Path, number: int, content: Iterable[bytes]) -> None:
    """Write a snapshot and make it durable.

    Raises:
        OSError: the disk is full or fails; no file is left.
    """
    try:
        remove_any(path)
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE), "w+b") as file:
            file.seek(_HEAD.size)
            length = sum(map(file.write, content))
            checksum = _compute_checksum(file, number, length)
            file.seek(0)
            file.write(_HEAD.pack(MAGIC, number, length, checksum))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def read_snapshot(path: Path, number: int) -> Iterator[bytes]:
    """Verify a snapshot, and return its content in pieces.

    Raises:
        JournalDamaged: the file is missing or damaged.
        OSError: it cannot be read.
    """
    if obstacle := find_obstacle(path, is_written=False):
        raise JournalDamaged(f"its snapshot {path.name} {obstacle}")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise JournalDamaged(f"its snapshot {path.name} is missing") from None
    head = file.read(_HEAD.size)
    problem = ""
    if len(head) < _HEAD.size:
        problem = "is cut off"
    else:
        magic, of, length, checksum = _HEAD.unpack(head)
        if magic != MAGIC:
            problem = "has no valid header, or a format that this release cannot read"
        elif of != number or checksum != _compute_checksum(file, number, length) or file.tell() != _HEAD.size + length:
            problem = "does not match its checksum"
    if problem:
        file.close()
        raise JournalDamaged(f"its snapshot {path.name} {problem}")
    return _read_and_close(file)


def _compute_checksum(file: BinaryIO, number: int, length: int) -> int:
    checksum = zlib.crc32(struct.pack(">QQ", number, length))
    for piece in _read_content(file):
        checksum = zlib.crc32(piece, checksum)
    return checksum


def _read_content(file: BinaryIO) -> Iterator[bytes]:
    file.seek(_HEAD.size)
    while piece := file.read(_PIECE_BYTES):
        yield piece


def _read_and_close(file: BinaryIO) -> Iterator[bytes]:
    with file:
        yield from _read_content(file)
