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
from typing import Final

from common import garbage
from common.journal_messages import Step
from common.wording import counted
from partition_worker import poison
from partition_worker.journal.files import Files, JournalDamaged
from partition_worker.journal.writer import Journal
from partition_worker.recorder import Diverged
from partition_worker.remembered import RememberedWronglyError
from partition_worker.worker import Worker

REPLAYS_MAX: Final = 4
"""Times that a step or the snapshot may end the worker while it is played again; then the journal is put aside. More
than for a message, as a large snapshot takes many seconds, in which others may end the worker.
"""

HEAD_BYTES: Final = 4096
"""Bytes of a snapshot by which it is recognised, besides its number and size."""

_log = logging.getLogger("core.scheduler.journal")


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker with its journal."""

    worker: Worker
    journal: Journal | None
    """None where nothing is kept."""
    replayed: int = 0
    """Steps that were played again."""
    took_s: float = 0.0
    """How long it took to go on from the journal."""


class _Broken(Exception):
    """Playing the steps again raised what it never should."""


async def begun(
    new_worker: Callable[[], Worker],
    new_journal: Callable[[Worker], Journal],
    files: Files,
    attempts: poison.Attempts = poison.UNTRACKED,
) -> Begun:
    """A worker that goes on where the last one was, or one with nothing and a `problem`.

    Raises:
        OSError: the disk does not let us; a later start may succeed.
    """
    worker = new_worker()
    try:
        return await _recovered(worker, new_journal, attempts)
    except (JournalDamaged, Diverged, RememberedWronglyError, _Broken) as error:
        aside = files.put_aside()
        problem = f"its journal cannot be used: {error}"
        _log.error("%s: %s; it was moved to %s, and the partition starts empty", files.partition, problem, aside)
    attempts.end()
    worker = new_worker()
    worker.problem = problem
    return Begun(worker, new_journal(worker))


async def _recovered(worker: Worker, new_journal: Callable[[Worker], Journal], attempts: poison.Attempts) -> Begun:
    journal = new_journal(worker)
    try:  # in a thread, so that the process can say that it is alive
        return await asyncio.to_thread(_played, worker, journal, attempts)
    except BaseException:
        journal.close()
        raise


def _played(worker: Worker, journal: Journal, attempts: poison.Attempts) -> Begun:
    started_s = time.monotonic()
    with journal.open_recovery() as found:
        steps = _Counted(found.steps, attempts)
        if found.snapshot is not None:
            what = f"the snapshot after step {found.snapshot_number}"
            _try(attempts, what, f"{what}, {len(found.snapshot)} bytes".encode() + found.snapshot[:HEAD_BYTES])
        _recover(worker, found.snapshot, steps)
        attempts.end()
    took_s = time.monotonic() - started_s
    if steps.taken or found.snapshot is not None:
        size = len(found.snapshot or b"")
        base = f"a snapshot of {counted(size, 'byte')} at step {found.snapshot_number}" if size else "no snapshot"
        _log.info("%s: recovered %s (%s) in %.2f s", worker.name, counted(steps.taken, "journal step"), base, took_s)
    return Begun(worker, journal, steps.taken, took_s)


class _Counted:
    """How many steps were taken."""

    def __init__(self, steps: Iterator[Step], attempts: poison.Attempts) -> None:
        self._steps = steps
        self._attempts = attempts
        self.taken = 0

    def __iter__(self) -> Iterator[Step]:
        for step in self._steps:
            self.taken += 1
            self._attempts.end()
            _try(self._attempts, f"step {step.number}", f"{step.number} {step.at}".encode())
            yield step


def _try(attempts: poison.Attempts, what: str, content: bytes) -> None:
    """Mark what is played next. Raises _Broken if that has ended the worker too often."""
    identity = poison.identity("replay", content)
    if attempts.deaths(identity) >= REPLAYS_MAX:
        raise _Broken(f"{what} ended the worker {REPLAYS_MAX} times while it was played again")
    attempts.begin(identity)


def _recover(worker: Worker, snapshot: bytes | None, steps: _Counted) -> None:
    try:
        with garbage.none_expected():  # to look for it takes a tenth of the time
            worker.recover(snapshot, steps)
    except (JournalDamaged, Diverged, RememberedWronglyError, OSError, MemoryError, _Broken):
        raise
    except Exception as error:  # the same would happen at each start: a defect, or a journal of another release
        _log.exception("%s: playing again broke, in step %d after the snapshot", worker.name, steps.taken)
        raise _Broken(f"playing it again broke: {type(error).__name__}: {error}") from error
