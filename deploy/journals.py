"""Removing the journal of a partition that has ended, when its worker could not do that itself any more.

Not here: when a partition has ended (`supervisor.py`), and what is in a journal.
"""

import logging
import re
import shutil
from pathlib import Path
from typing import Final

_FILES: Final = r"\.(sqlite(-wal|-shm)?|snapshot-\d+(\.tmp-\d+)?|damaged)"
"""What the names of a journal's files have after that of the partition: no other partition's files have them there."""

_log = logging.getLogger("core.supervisor")


def forget(folder: Path, partition: str) -> None:
    """Remove everything that the partition has there. What cannot be removed stays, and the log says so."""
    names = re.compile(re.escape(partition) + _FILES)
    for path in [path for path in folder.iterdir() if names.fullmatch(path.name)]:
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s: cannot be removed: %s", path, error.strerror)
