"""Files of a partition's journal: names and locations, moving a damaged journal aside, and messages that end workers.

<name>.sqlite, -wal, -shm       the steps (`database.py`)
<name>.snapshot-<number>        the whole partition after that step (`snapshots.py`)
<name>.damaged/                 the files of a journal that could not be used
<name>.attempts                 the message in progress, and up to ENTRIES_MAX messages that have ended a worker
<name>.poison-<identity>        a quarantined message, which was never applied, with the reason

The attempts file is mapped into memory. A worker marks each message before it handles it, which takes less than a
microsecond and no system call: writes to a mapped file survive the process. They may be lost with a power failure. A
worker that starts reads its predecessor's file and replaces it, so that a predecessor that still runs cannot write to
the new one.

If a worker ends together with the supervisor, the message is probably not the cause: an operator has stopped
everything, or the power failed. Two such ends count as one death. `partition_worker/partition_host.py` decides when a
message is quarantined.
"""

import logging
import mmap
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from common.text_formats import format_count
from partition_worker.partition_host import (
    PAGE_BYTES,
    Attempts,
    Deaths,
    QuarantinedMessage,
    identify_message,
    read_page,
)
from partition_worker.recovery import JournalDamaged

NAME: Final = re.compile(r"[A-Za-z0-9_.:~-]+")
"""Characters of a partition's full name: none has a meaning in a path."""

SUFFIX: Final = ".sqlite"
DAMAGED: Final = ".damaged"
PRIVATE: Final = 0o600
"""File mode; SQLite uses it for its own files too."""


class Fenced(OSError):
    """Another worker has the partition, under a later lease."""


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
        self.attempts = folder / f"{partition}.attempts"
        """The message in progress and those that ended workers; not moved aside with a damaged journal."""

    def poisons(self) -> list[Path]:
        """The files of all quarantined messages, oldest first."""
        pattern = re.compile(rf"{re.escape(self.partition)}\.poison-[0-9a-f]+")
        paths = (path for path in self.folder.glob("*.poison-*") if pattern.fullmatch(path.name))
        return sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name))

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
        size = 0
        for path in self.all():
            with suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

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


def sync(folder: Path) -> None:
    """Make file names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Quarantined messages -------------------------------------------------------------------------------------------------

KEPT_MAX: Final = 8
"""Quarantined messages kept for a partition; the oldest is removed first. One has at most 64 MiB, as a frame has."""


def write_poison(files: Files, message: QuarantinedMessage) -> Path:
    """Write a quarantined message, and remove the oldest files beyond KEPT_MAX.

    Raises:
        OSError: it cannot be written.
    """
    identity = identify_message(message.message.header.kind, message.message.body)
    path = files.folder / f"{files.partition}.poison-{identity.hex()}"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with open(descriptor, "wb") as file:
        file.write(msgspec.msgpack.encode(message))
    for old in files.poisons()[:-KEPT_MAX]:
        old.unlink(missing_ok=True)
    return path


def read_poisons(files: Files) -> Iterator[tuple[Path, QuarantinedMessage]]:
    """Read all quarantined messages, oldest first.

    Raises:
        JournalDamaged: a file cannot be decoded.
    """
    for path in files.poisons():
        try:
            yield path, msgspec.msgpack.decode(path.read_bytes(), type=QuarantinedMessage)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise JournalDamaged(f"{path.name} cannot be decoded: {error}") from None


REMEMBERED_S: Final = 86_400.0
"""Seconds after which a worker that starts drops an entry, so that the message is tried again."""

_log = logging.getLogger("core.scheduler.journal")


def open_attempts(files: Files, supervisor: bytes = b"") -> Attempts:
    """Read the attempts file of the former worker, and replace it by one of this worker, mapped into memory.

    `supervisor` identifies the process that started the worker, in up to 16 bytes.

    Raises:
        OSError: it cannot be written.
    """
    now = time.time()
    deaths: dict[bytes, Deaths] = {}
    try:
        deaths, ended = read_page(files.attempts.read_bytes(), supervisor, now)
    except FileNotFoundError:
        ended = b""
    except ValueError:
        ended = b""
        _log.warning("%s: is not an attempts file, and is replaced", files.attempts)
    if ended:
        alone, together = (format_count(count, "worker") for count in deaths[ended][:2])
        text = "%s: message %s ended the last worker; so far it ended %s, and %s together with the supervisor"
        _log.warning(text, files.partition, ended.hex(), alone, together)
    attempts = Attempts({key: one for key, one in deaths.items() if one.at > now - REMEMBERED_S}, supervisor)
    temporary = files.attempts.with_suffix(".attempts-new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
    try:
        os.write(descriptor, attempts.page)  # allocates the blocks: a mapped page without one raises SIGBUS
        attempts.page = mmap.mmap(descriptor, PAGE_BYTES)
    finally:
        os.close(descriptor)
    temporary.replace(files.attempts)
    return attempts


def identify_parent_process() -> bytes:
    """Identify the process that started this one by its number and start time, as numbers are reused.

    Raises:
        OSError: it has just ended.
    """
    number = os.getppid()
    started = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19])
    return struct.pack("<QQ", number, started)
