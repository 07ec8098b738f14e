"""What this process can find out about the disk: free space, and whether the audit log and the history are kept.

Not here: the journals and the broker's record, whose processes report their own problems (`health.py` has them all).
"""

import os
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from webservice.audit import AuditLog

SPACE_BYTES_MIN: Final = 64 << 20
"""Free bytes below which the health check `Disk space` fails: two new partitions need about as much for their journals.
Nothing else happens at this bound; what happens once the disk is full is described in `docs/operating/failures.md`.
"""

FILES_MIN: Final = 256
"""Files that can still be created (inodes), below which the check fails. File systems without a bound report none."""


class KeepsHistory(Protocol):
    """Who keeps the history (`history/keeping.py`)."""

    @property
    def failure(self) -> str:
        """Why it is not kept at present; empty while it is."""


class StorageProblems(NamedTuple):
    """What is wrong with the disk, in words for people; empty where nothing is."""

    space: tuple[str, ...] = ()
    """Directories that have too little room."""
    audit: str = ""
    history: str = ""


class StorageHealth:
    """Looks at the disk when it is asked to. What is not given is not kept, and is no problem."""

    def __init__(self, state: Path | None = None, audit: AuditLog | None = None) -> None:
        self._state = state
        self._audit = audit
        self.keeper: KeepsHistory | None = None

    async def problems(self) -> StorageProblems:
        """Everything that is wrong at this moment."""
        return StorageProblems(
            space=tuple(_short_of_space(self._state)) if self._state is not None else (),
            audit=await self._audit.problem() if self._audit is not None else "",
            history=self.keeper.failure if self.keeper is not None else "",
        )


def _short_of_space(state: Path) -> list[str]:
    """The file systems of the state directory, and of the directories in it, that have too little room."""
    try:
        folders = [state, *sorted(path for path in state.iterdir() if path.is_dir())]
        by_device = {folder.stat().st_dev: folder for folder in reversed(folders)}
        return [problem for folder in reversed(by_device.values()) if (problem := _shortage(folder))]
    except OSError as error:
        return [f"{state}: {error.strerror or error}"]


def _shortage(folder: Path) -> str:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < SPACE_BYTES_MIN:
        return f"{folder}: {free / (1 << 20):.1f} MiB free, {SPACE_BYTES_MIN >> 20} MiB are needed"
    if found.f_files and found.f_favail < FILES_MIN:
        return f"{folder}: {found.f_favail} more files can be created, {FILES_MIN} are needed"
    return ""
