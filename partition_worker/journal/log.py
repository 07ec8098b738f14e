"""A look at SQLite's log that SQLite itself does not take: where a byte of it is no longer what it was, SQLite takes
everything from there on for something that was never finished, and says nothing.

It writes a transaction only after the one before it is on the disk. So what it passes over can be the beginning of one
transaction; where there are the ends of two, something is missing that was durable. (Of the very last one nobody can
tell whether it was finished.)

The layout of both files is that of https://sqlite.org/walformat.html. Not here: what is in the log.
"""

import os
import sqlite3
import struct
from typing import Final

from partition_worker.journal.files import Files, JournalDamaged

LOOKS: Final = 3
"""How often to look before it counts: somebody may write meanwhile."""

_HEAD: Final = struct.Struct(">8I")
"""Magic number, format, size of a page, count, two salts, two checksums."""

_FRAME: Final = struct.Struct(">6I")
"""Number of the page, size of the database if a transaction ends here, two salts, two checksums; the page follows."""

_INDEX: Final = struct.Struct("=16xI12x8s")
"""How many frames SQLite takes, and the salts, as they stand in the log."""

_kept_open: Final[dict[tuple[int, int], int]] = {}
"""Descriptors of the indices that were looked at, by device and inode. They stay open while the file has a name: when a
process closes any descriptor of a file it loses all its POSIX locks on it, those of SQLite too, and whoever opens the
index next would take it for abandoned and begin it anew under our feet. A process looks at a journal or two.
"""


def check_log(file: sqlite3.Connection, files: Files) -> None:
    """Whether SQLite, which has the file open, takes everything in its log for what it is.

    Raises:
        JournalDamaged: it passes over a transaction that was finished.
    """
    page = file.execute("PRAGMA page_size").fetchone()[0]
    lost = 0
    for _ in range(LOOKS):
        lost = _passed_over(files, page)
        if lost < 2:
            return
    raise JournalDamaged(f"{lost} transactions of its log cannot be read any more")


def _passed_over(files: Files, page: int) -> int:
    """How many ends of transactions are in the part of the log that SQLite does not take."""
    try:
        content = files.log.read_bytes()
        taken, salts = _INDEX.unpack_from(_index_of(files))
    except (FileNotFoundError, struct.error):
        return 0  # nothing was written since the last one who had it open was done
    if len(content) < _HEAD.size + _FRAME.size:
        return 0
    if not _valid(_HEAD.unpack_from(content)):
        salts = content[_HEAD.size + 8 : _HEAD.size + 16]
    elif salts != content[16:24]:
        return 0  # all that is in there has been moved, and will be written over
    size = _FRAME.size + page
    frames = range(_HEAD.size + taken * size, len(content) - size + 1, size)
    return sum(1 for at in frames if _FRAME.unpack_from(content, at)[1] and content[at + 8 : at + 16] == salts)


def _index_of(files: Files) -> bytes:
    """The beginning of the index, without a lock of SQLite's being lost."""
    for which, descriptor in tuple(_kept_open.items()):
        if not os.fstat(descriptor).st_nlink:  # removed: nobody can open it, so no lock on it matters
            del _kept_open[which]
            os.close(descriptor)
    found = files.log_index.stat()
    which = (found.st_dev, found.st_ino)
    if which not in _kept_open:
        _kept_open[which] = os.open(files.log_index, os.O_RDONLY | os.O_CLOEXEC)
    return os.pread(_kept_open[which], _INDEX.size, 0)


def _valid(head: tuple[int, ...]) -> bool:
    """Whether the head's checksum is right, which is of 32-bit words in an order that the magic number says."""
    order = ">" if head[0] & 1 else "<"
    words = struct.unpack(f"{order}6I", struct.pack(">6I", *head[:6]))
    one = two = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return (one, two) == head[6:]
