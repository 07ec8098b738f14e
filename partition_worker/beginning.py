"""How a worker begins: from its journal, or with nothing where that cannot be used.

A journal is of no use if it does not hold everything it once had, or if playing its steps again does not lead to the
words that were said the first time. Then it is put aside for people to look at, and the worker begins with nothing and
says so in its Hello.

Not here: reading (`journal/reading.py`), playing again (`worker.py`), what a broker does about it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from common import garbage
from common.machine import Send
from common.messages import Step
from partition_worker.journal.endpoint import Journal
from partition_worker.journal.files import Files, JournalDamaged
from partition_worker.recorder import Diverged
from partition_worker.remembered import RememberedWronglyError
from partition_worker.worker import Worker

_log = logging.getLogger("core.scheduler.journal")


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker with its journal, and what it says first."""

    worker: Worker
    journal: Journal | None
    """None where nothing is kept."""
    sends: list[Send]
    replayed: int = 0
    """Steps that were played again."""
    took_s: float = 0.0
    """How long it took to go on from the journal."""


class _Broken(Exception):
    """Playing the steps again raised what it never should."""


async def begun(new_worker: Callable[[], Worker], new_journal: Callable[[Worker], Journal], files: Files) -> Begun:
    """A worker that goes on where the last one was, or one with nothing and a `problem`.

    Raises:
        OSError: the disk does not let us; a later start may succeed.
    """
    worker = new_worker()
    try:
        return await _recovered(worker, new_journal)
    except (JournalDamaged, Diverged, RememberedWronglyError, _Broken) as error:
        aside = files.put_aside()
        problem = f"its journal cannot be used: {error}"
        _log.error("%s: %s; it lies in %s now, and the partition begins with nothing", files.partition, problem, aside)
    worker = new_worker()
    worker.problem = problem
    return Begun(worker, new_journal(worker), [])


async def _recovered(worker: Worker, new_journal: Callable[[Worker], Journal]) -> Begun:
    journal = new_journal(worker)
    try:  # in a thread, so that the process can say that it is alive
        return await asyncio.to_thread(_played, worker, journal)
    except BaseException:
        journal.close()
        raise


def _played(worker: Worker, journal: Journal) -> Begun:
    started_s = time.monotonic()
    with journal.recovered() as found:
        steps = _Counted(found.steps)
        sends = _recover(worker, found.snapshot, steps)
    took_s = time.monotonic() - started_s
    if steps.taken or found.snapshot is not None:
        size = len(found.snapshot or b"")
        base = f"a snapshot of {size} bytes after step {found.snapshot_number}" if size else "the beginning"
        _log.info("%s: goes on from %s with %d steps played again, in %.2f s", worker.name, base, steps.taken, took_s)
    return Begun(worker, journal, sends, steps.taken, took_s)


class _Counted:
    """How many steps were taken."""

    def __init__(self, steps: Iterator[Step]) -> None:
        self._steps = steps
        self.taken = 0

    def __iter__(self) -> Iterator[Step]:
        for step in self._steps:
            self.taken += 1
            yield step


def _recover(worker: Worker, snapshot: bytes | None, steps: _Counted) -> list[Send]:
    try:
        with garbage.none_expected():  # to look for it takes a tenth of the time
            return worker.recover(snapshot, steps)
    except (JournalDamaged, Diverged, RememberedWronglyError, OSError, MemoryError):
        raise
    except Exception as error:  # the same would happen at each start: a defect, or a journal of another release
        _log.exception("%s: playing again broke, in step %d after the snapshot", worker.name, steps.taken)
        raise _Broken(f"playing it again broke: {type(error).__name__}: {error}") from error
