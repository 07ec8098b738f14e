"""Which message a worker handles at the moment, and which ones have ended workers, beside the journal of the partition.

    <name>.attempts    a header, the message that is handled, and up to ENTRIES_MAX messages that have ended a worker

The file is mapped into memory. A worker marks each message before it handles it, which takes less than a microsecond
and no system call: what a process has written into a mapped file stays when the process dies. A power loss may lose it
and need not keep it. A worker that starts reads what its predecessor left and puts another file in its place, so that a
predecessor that still runs cannot write into it.

A worker that ends together with the supervisor has probably not been ended by the message: an operator has killed
everything, or the machine has lost its power. Two such ends count as one death.

Not here: what is done about it (`partition_worker/poison.py`).
"""

import logging
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

from common.wording import counted
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
_SUPERVISOR: Final = slice(32, 48)
_ENTRIES: Final = 64
_ENTRY: Final = struct.Struct(f"<{_IDENTITY}sIId")
"""The identity and what is in `_Ended`."""

_log = logging.getLogger("core.scheduler.journal")


class _Ended(NamedTuple):
    """How often a message ended a worker."""

    alone: int = 0
    together: int = 0
    """With the supervisor."""
    at: float = 0.0
    """Unix seconds of the last time."""


class AttemptsFile:
    """The file of one worker. `supervisor` identifies the process that started the worker, in 16 bytes.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, files: Files, supervisor: bytes = b"") -> None:
        now = time.time()
        self._supervisor = supervisor.ljust(_IDENTITY, b"\0")
        deaths = {key: one for key, one in _read(files, self._supervisor).items() if one.at > now - REMEMBERED_S}
        self._deaths = dict(sorted(deaths.items(), key=lambda item: -item[1].at)[:ENTRIES_MAX])
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
        ended = self._deaths.get(identity)
        return 0 if ended is None else ended.alone + ended.together // 2

    def _content(self) -> bytes:
        header = MAGIC.ljust(_SUPERVISOR.start, b"\0") + self._supervisor
        entries = b"".join(_ENTRY.pack(identity, *ended) for identity, ended in self._deaths.items())
        return (header.ljust(_ENTRIES, b"\0") + entries).ljust(SIZE, b"\0")


def parent_process() -> bytes:
    """What identifies the process that started this one: its number, and when it was started, as numbers are used
    again.
    """
    number = os.getppid()
    try:
        started = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:  # not Linux, or it has just ended
        started = 0
    return struct.pack("<QQ", number, started)


def _read(files: Files, supervisor: bytes) -> dict[bytes, _Ended]:
    """The messages that ended workers, with the one that ended the last worker. A file that is none counts nothing."""
    try:
        content = files.attempts.read_bytes()
    except FileNotFoundError:
        return {}
    if len(content) != SIZE or not content.startswith(MAGIC):
        _log.warning("%s: is no file of attempts, and is replaced", files.attempts)
        return {}
    found: dict[bytes, _Ended] = {}
    for number in range(ENTRIES_MAX):
        identity, *entry = _ENTRY.unpack_from(content, _ENTRIES + number * _ENTRY.size)
        ended = _Ended(*entry)
        if ended.alone or ended.together:
            found[identity] = ended
    if content[_BUSY]:
        identity = content[_CURRENT]
        ended = found.get(identity, _Ended())
        if content[_SUPERVISOR] == supervisor:
            ended = ended._replace(alone=ended.alone + 1, at=time.time())
        else:
            ended = ended._replace(together=ended.together + 1, at=time.time())
        found[identity] = ended
        _log.warning(
            "%s: the last worker ended while it handled message %s; so far this ended %s, and %s together with the "
            "supervisor",
            files.partition,
            identity.hex(),
            counted(ended.alone, "worker"),
            counted(ended.together, "worker"),
        )
    return found
