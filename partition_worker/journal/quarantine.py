"""Messages that end workers: the attempts to handle a message, and quarantined messages, in files of the worker's host.

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
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from yunishard.common.process.folders import find_obstacle, remove_any
from yunishard.common.text_formats import format_count
from yunishard.partition_worker.journal.files import PRIVATE
from yunishard.partition_worker.partition_host import (
    PAGE_BYTES,
    Attempts,
    Deaths,
    QuarantinedMessage,
    identify_message,
    read_page,
)
from yunishard.partition_worker.recovery import JournalDamaged

KEPT_MAX: Final = 8
"""Quarantined messages kept for a partition; the oldest is removed first. One has at most 64 MiB, as a frame has."""

REMEMBERED_S: Final = 86_400.0
"""Seconds after which a worker that starts drops an entry, so that the message is tried again."""

_log = logging.getLogger("core.scheduler.journal")


class Quarantine:
    """The attempts and quarantined messages of one partition."""

    def __init__(self, folder: Path, partition: str) -> None:
        self._folder, self._partition = folder, partition
        self.attempts = folder / f"{partition}.attempts"
        """The message in progress and those that ended workers; not set aside with a damaged journal."""

    def list_paths(self) -> list[Path]:
        """The files of all quarantined messages, oldest first."""
        pattern = re.compile(rf"{re.escape(self._partition)}\.poison-[0-9a-f]+")
        paths = (path for path in self._folder.glob("*.poison-*") if pattern.fullmatch(path.name))
        return sorted(paths, key=lambda path: (path.lstat().st_mtime_ns, path.name))

    def write(self, message: QuarantinedMessage) -> Path:
        """Write a quarantined message, and remove the oldest files beyond KEPT_MAX.

        Raises:
            OSError: it cannot be written.
        """
        identity = identify_message(message.message.header.kind, message.message.body)
        path = self._folder / f"{self._partition}.poison-{identity.hex()}"
        remove_any(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with open(descriptor, "wb") as file:
            file.write(msgspec.msgpack.encode(message))
        for old in self.list_paths()[:-KEPT_MAX]:
            remove_any(old)
        return path

    def read(self) -> Iterator[tuple[Path, QuarantinedMessage]]:
        """Read all quarantined messages, oldest first.

        Raises:
            JournalDamaged: a file cannot be decoded.
        """
        for path in self.list_paths():
            if obstacle := find_obstacle(path, is_written=False):
                raise JournalDamaged(f"{path.name} {obstacle}")
            try:
                yield path, msgspec.msgpack.decode(path.read_bytes(), type=QuarantinedMessage)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise JournalDamaged(f"{path.name} cannot be decoded: {error}") from None

    def delete(self) -> None:
        """Remove all files, as the partition has ended.

        Raises:
            OSError: one cannot be removed.
        """
        for path in (*self.list_paths(), self.attempts):
            remove_any(path)

    def open_attempts(self, supervisor: bytes = b"") -> Attempts:
        """Read the attempts file of the former worker, and replace it by one of this worker, mapped into memory.

        `supervisor` identifies the process that started the worker, in up to 16 bytes.

        Raises:
            OSError: it cannot be written.
        """
        now = time.time()
        deaths: dict[bytes, Deaths] = {}
        ended = b""
        obstacle = find_obstacle(self.attempts)
        try:
            if not obstacle:
                deaths, ended = read_page(self.attempts.read_bytes(), supervisor, now)
        except FileNotFoundError:
            pass
        except ValueError:
            obstacle = "is not an attempts file"
        if obstacle:
            _log.warning("%s: %s, and is replaced", self.attempts, obstacle)
            remove_any(self.attempts)
        if ended:
            alone, together = (format_count(count, "worker") for count in deaths[ended][:2])
            text = "%s: message %s ended the last worker; so far it ended %s, and %s together with the supervisor"
            _log.warning(text, self._partition, ended.hex(), alone, together)
        attempts = Attempts({key: one for key, one in deaths.items() if one.at > now - REMEMBERED_S}, supervisor)
        temporary = self.attempts.with_suffix(".attempts-new")
        remove_any(temporary)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
        try:
            os.write(descriptor, attempts.page)  # allocates the blocks: a mapped page without one raises SIGBUS
            attempts.page = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        temporary.replace(self.attempts)
        return attempts


def identify_parent_process() -> bytes:
    """Identify the process that started this one by its number and start time, as numbers are reused.

    Raises:
        OSError: it has just ended.
    """
    number = os.getppid()
    started = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19])
    return struct.pack("<QQ", number, started)
