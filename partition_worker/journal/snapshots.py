"""A snapshot's file: the whole partition after a step, checked when it is read, and there whole or not at all.

Not here: what is in it (`engine/memory`), when one is taken (`endpoint.py`), the process that writes it (`child.py`).
"""

import os
import struct
import zlib
from pathlib import Path
from typing import Final

from partition_worker.journal.files import PRIVATE, JournalDamaged, sync

MAGIC: Final = b"YSHSNAP1"
"""With the version of the format in its last byte."""

_HEAD: Final = struct.Struct(">8sQQI")
"""Magic, number of the step, length of what follows, checksum of all of it."""

WRITE_BYTES: Final = 1 << 20
"""Written at a time, so that a full disk is noticed early."""


def write(path: Path, number: int, content: bytes) -> None:
    """Write it under another name, make it durable, then give it its name.

    Raises:
        OSError: the disk is full or broken; then nothing is left.
    """
    unfinished = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE), "wb") as file:
            file.write(_HEAD.pack(MAGIC, number, len(content), _checksum(number, content)))
            for start in range(0, len(content), WRITE_BYTES):
                file.write(memoryview(content)[start : start + WRITE_BYTES])
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync(path.parent)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def read(path: Path, number: int) -> bytes:
    """What was written.

    Raises:
        JournalDamaged: it is not there, or not as it was written.
        OSError: it cannot be read.
    """
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        raise JournalDamaged(f"its snapshot {path.name} is missing") from None
    if len(found) < _HEAD.size:
        raise JournalDamaged(f"its snapshot {path.name} is cut off")
    magic, of, length, checksum = _HEAD.unpack_from(found)
    content = found[_HEAD.size :]
    if magic != MAGIC:
        raise JournalDamaged(f"its snapshot {path.name} is none, or of a release that this one does not know")
    if (of, length) != (number, len(content)) or checksum != _checksum(number, content):
        raise JournalDamaged(f"its snapshot {path.name} is not as it was written")
    return content


def _checksum(number: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack(">QQ", number, len(content))))
