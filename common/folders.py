"""Directories and files: a lock against other processes, durable names of files, temporary directories, and
permissions of secrets.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def make_temporary_folder(purpose: str) -> Iterator[Path]:
    """Make a directory that only this user can enter, and remove it at the end. First remove those of the same purpose
    that processes of this user left behind when they were killed: a lock shows which ones are in use.

    Raises:
        OSError: no directory can be made.
    """
    prefix = f"yunishard-{purpose}-"
    for one in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it is in use, belongs to another user, or is no directory
            _remove_unlocked(one)
    folder, descriptor = _make_locked(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # an error at the very end has no remedy
        os.close(descriptor)


def _make_locked(prefix: str) -> tuple[Path, int]:
    """Make a temporary directory and lock it. Another process that starts at this moment may take it for abandoned and
    remove it before it is locked; then the next one is made.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return folder, descriptor
            os.close(descriptor)


def _remove_unlocked(folder: Path) -> None:
    """Remove a directory of this user that no process has locked. Raises OSError if that is not possible."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.geteuid():
            shutil.rmtree(folder)
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
