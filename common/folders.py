"""Directories and files: a lock against other processes, durable names of files, and permissions of secrets."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lock_folder(folder: Path) -> Iterator[int]:
    """Exclude other processes that lock this directory; give its descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make file names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_exposed(found: os.stat_result) -> bool:
    """Whether other users can read a secret file with this status.

    The group of a file that belongs to root may read it, as with PostgreSQL's keys: so does Kubernetes pass a Secret to
    a process that is not root.
    """
    allowed = stat.S_IRGRP if found.st_uid == 0 and os.geteuid() != 0 else 0
    return bool(found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~allowed)
