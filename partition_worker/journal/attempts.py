"""Which message a worker handles at the moment, and which ones have ended workers, beside the journal of the partition.

    <name>.attempts    a header, the message that is handled, and up to ENTRIES_MAX messages that have ended a worker

The file is mapped into memory. A worker marks each message before it handles it, which takes less than a microsecond
and no system call: what a process has written into a mapped file stays when the process dies. A power loss may lose it
and need not keep it. A worker that starts reads what its predecessor left and puts another file in its place, so that a
predecessor that still runs cannot write into it.

Not here: what is done about it (`partition_worker/poison.py`).
"""

import logging
import mmap
import os
import struct
import time
from typing import Final

from partition_worker.journal.files import PRIVATE, Files

MAGIC: Final = b"YSHATT01"
ENTRIES_MAX: Final = 16
"""Messages that are remembered; the one that ended a worker longest ago is forgotten first."""

REMEMBERED_S: Final = 86_400.0
"""Seconds for which a message is remembered. After that, and after a start of the worker, it is tried again."""

SIZE: Final = 4096
"""Bytes of the file."""

_IDENTITY: Final = 16
_BUSY: Final = len(MAGIC)
_CURRENT: Final = slice(16, 16 + _IDENTITY)
_ENTRIES: Final = 64
_ENTRY: Final = struct.Struct(f"<{_IDENTITY}sQd")
"""Identity, how often it ended a worker, and when the last time, in Unix seconds."""

_log = logging.getLogger("core.scheduler.journal")


class AttemptsFile:
    """The file of one worker.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, files: Files) -> None:
        now = time.time()
        deaths = {key: entry for key, entry in _read(files).items() if entry[1] > now - REMEMBERED_S}
        self._deaths = dict(sorted(deaths.items(), key=lambda item: -item[1][1])[:ENTRIES_MAX])
        self._current = b""
        temporary = files.attempts.with_suffix(".attempts-new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
        try:
            os.write(descriptor, self._content())  # all of it: a mapped page without room on the disk is a SIGBUS
            self._map = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        temporary.replace(files.attempts)

    def begin(self, identity: bytes) -> None:
        self._map[_CURRENT] = self._current = identity
        self._map[_BUSY] = 1

    def end(self) -> None:
        self._map[_BUSY] = 0
        if self._deaths and self._deaths.pop(self._current, None) is not None:
            self._map[:] = self._content()  # it can be handled after all

    def deaths(self, identity: bytes) -> int:
        entry = self._deaths.get(identity)
        return 0 if entry is None else entry[0]

    def _content(self) -> bytes:
        entries = b"".join(_ENTRY.pack(identity, count, at) for identity, (count, at) in self._deaths.items())
        return (MAGIC.ljust(_ENTRIES, b"\0") + entries).ljust(SIZE, b"\0")


def _read(files: Files) -> dict[bytes, tuple[int, float]]:
    """The messages that ended workers, with the one that ended the last worker. A file that is none counts nothing."""
    try:
        content = files.attempts.read_bytes()
    except FileNotFoundError:
        return {}
    if len(content) != SIZE or not content.startswith(MAGIC):
        _log.warning("%s: is no file of attempts, and is replaced", files.attempts)
        return {}
    found: dict[bytes, tuple[int, float]] = {}
    for number in range(ENTRIES_MAX):
        identity, count, when = _ENTRY.unpack_from(content, _ENTRIES + number * _ENTRY.size)
        if count:
            found[identity] = (count, when)
    if content[_BUSY]:
        identity = content[_CURRENT]
        count, _ = found.get(identity, (0, 0.0))
        found[identity] = (count + 1, time.time())
        _log.warning(
            "%s: the last worker ended while it handled message %s, for the %s time",
            files.partition,
            identity.hex(),
            {1: "first", 2: "second"}.get(count + 1, f"{count + 1}th"),
        )
    return found
