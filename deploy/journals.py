"""Removing the journal of a partition that has ended, once none of its workers is left that could write to it.

A worker that somebody started by hand leaves its journal, and who started it removes the files. What is left after a
death in between does no harm: a partition that gets the same name begins anew. Not here: when a partition has ended
(`supervisor.py`), and what is in a journal.
"""

import logging
import re
import shutil
from pathlib import Path
from typing import Final

_FILES: Final = r"\.(sqlite(-wal|-shm)?|snapshot-\d+(\.tmp-\d+)?|damaged|attempts(-new)?|poison-[0-9a-f]+)"
"""What the names of a journal's files have after that of the partition: no other partition's files have them there."""

_log = logging.getLogger("core.supervisor")


def forget(folder: Path, partition: str) -> None:
    """Remove everything that the partition has there. What cannot be removed stays, and the log says so.

    The database goes first: what is left without one, should this be interrupted, belongs to nothing.
    """
    names = re.compile(re.escape(partition) + _FILES)
    try:
        found = [path for path in folder.iterdir() if names.fullmatch(path.name)]
    except OSError as error:
        _log.warning("the journal of %s in %s cannot be removed: %s", partition, folder, error.strerror)
        return
    for path in sorted(found, key=lambda path: (path.suffix != ".sqlite", path.name)):
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s: cannot be removed: %s", path, error.strerror)
