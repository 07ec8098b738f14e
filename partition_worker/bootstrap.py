"""Start a worker: wait for an assignment if it is a spare, load plug-ins, and recover from the journal.

If the journal has lost data, or its replay has another result than the first time, it is moved aside, and the worker
starts with an empty partition and reports the problem in its Hello.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Final

import msgspec

from common import garbage
from common.journal_messages import Step
from common.names import PREDICATE_PLUGINS
from common.process import Assignment, Life
from common.text_formats import format_count
from partition_worker import poison_messages
from partition_worker.engine.predicates.evaluation import BUILT_IN
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.journal.files import Files, JournalDamaged
from partition_worker.journal.writer import Journal
from partition_worker.outbox_barrier import ReplayDiverged
from partition_worker.snapshot import SnapshotInvalid
from partition_worker.worker import Worker

REPLAYS_MAX: Final = 4
"""Times that a step or the snapshot may end the worker while it is played again; then the journal is put aside. More
than for a message, as a large snapshot takes many seconds, in which others may end the worker.
"""

HEAD_BYTES: Final = 4096
"""Bytes of a snapshot by which it is recognised, besides its number and size."""

_log = logging.getLogger("core.scheduler.journal")


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A worker with its journal."""

    worker: Worker
    journal: Journal | None
    """None where nothing is kept."""
    replayed: int = 0
    """Steps that were played again."""
    took_s: float = 0.0
    """How long it took to go on from the journal."""


class _ReplayFailed(Exception):
    """Playing the steps again raised what it never should."""


async def recover_or_start_empty(
    new_worker: Callable[[], Worker],
    new_journal: Callable[[Worker], Journal],
    files: Files,
    attempts: poison_messages.Attempts = poison_messages.UNTRACKED,
) -> StartedWorker:
    """A worker that goes on where the last one was, or one with nothing and a `problem`.

    Raises:
        OSError: the disk does not let us; a later start may succeed.
    """
    worker = new_worker()
    try:
        return await _open_and_replay(worker, new_journal, attempts)
    except (JournalDamaged, ReplayDiverged, SnapshotInvalid, _ReplayFailed) as error:
        aside = files.put_aside()
        problem = f"its journal cannot be used: {error}"
        _log.error("%s: %s; it was moved to %s, and the partition starts empty", files.partition, problem, aside)
    attempts.end()
    worker = new_worker()
    worker.problem = problem
    return StartedWorker(worker, new_journal(worker))


async def _open_and_replay(
    worker: Worker, new_journal: Callable[[Worker], Journal], attempts: poison_messages.Attempts
) -> StartedWorker:
    journal = new_journal(worker)
    try:  # in a thread, so that the process can say that it is alive
        return await asyncio.to_thread(_replay_journal, worker, journal, attempts)
    except BaseException:
        journal.close()
        raise


def _replay_journal(worker: Worker, journal: Journal, attempts: poison_messages.Attempts) -> StartedWorker:
    started_s = time.monotonic()
    with journal.open_recovery() as found:
        steps = _CountedSteps(found.steps, attempts)
        if found.snapshot is not None:
            what = f"the snapshot after step {found.snapshot_number}"
            _begin_attempt(
                attempts, what, f"{what}, {len(found.snapshot)} bytes".encode() + found.snapshot[:HEAD_BYTES]
            )
        _recover(worker, found.snapshot, steps)
        attempts.end()
    took_s = time.monotonic() - started_s
    if steps.taken or found.snapshot is not None:
        size = len(found.snapshot or b"")
        base = f"a snapshot of {format_count(size, 'byte')} at step {found.snapshot_number}" if size else "no snapshot"
        _log.info(
            "%s: recovered %s (%s) in %.2f s", worker.name, format_count(steps.taken, "journal step"), base, took_s
        )
    return StartedWorker(worker, journal, steps.taken, took_s)


class _CountedSteps:
    """How many steps were taken."""

    def __init__(self, steps: Iterator[Step], attempts: poison_messages.Attempts) -> None:
        self._steps = steps
        self._attempts = attempts
        self.taken = 0

    def __iter__(self) -> Iterator[Step]:
        for step in self._steps:
            self.taken += 1
            self._attempts.end()
            _begin_attempt(self._attempts, f"step {step.number}", f"{step.number} {step.at}".encode())
            yield step


def _begin_attempt(attempts: poison_messages.Attempts, what: str, content: bytes) -> None:
    """Mark what is played next. Raises _ReplayFailed if that has ended the worker too often."""
    identity = poison_messages.identity("replay", content)
    if attempts.deaths(identity) >= REPLAYS_MAX:
        raise _ReplayFailed(f"{what} ended the worker {REPLAYS_MAX} times while it was played again")
    attempts.begin(identity)


def _recover(worker: Worker, snapshot: bytes | None, steps: _CountedSteps) -> None:
    try:
        with garbage.none_expected():  # to look for it takes a tenth of the time
            worker.recover(snapshot, steps)
    except (JournalDamaged, ReplayDiverged, SnapshotInvalid, OSError, MemoryError, _ReplayFailed):
        raise
    except Exception as error:  # the same would happen at each start: a defect, or a journal of another release
        _log.exception("%s: playing again broke, in step %d after the snapshot", worker.name, steps.taken)
        raise _ReplayFailed(f"playing it again broke: {type(error).__name__}: {error}") from error


# Plug-ins -------------------------------------------------------------------------------------------------------------


class PluginError(OSError):
    """A plug-in that cannot be used: the worker does not start, rather than place asks where they must not run."""


def load_plugins(names: Sequence[str], installed: Iterable[EntryPoint]) -> list[Predicate]:
    """The predicates of these names, in this order, loaded.

    Raises:
        PluginError: one line with the name, and what is wrong.
    """
    found = {point.name: point for point in installed if point.group == PREDICATE_PLUGINS}
    predicates = [_load_plugin(name, found) for name in dict.fromkeys(names)]
    own = [predicate.name for predicate in (*BUILT_IN, *predicates)]
    if len(set(own)) < len(own):
        twice = next(name for name in own if own.count(name) > 1)
        raise PluginError(f"predicates: two are called {twice!r}: choose one of them, or give one another name")
    return predicates


def _load_plugin(name: str, found: dict[str, EntryPoint]) -> Predicate:
    point = found.get(name)
    if point is None:
        there = ", ".join(sorted(found)) or "none"
        raise PluginError(
            f"predicates: no plug-in {name!r} is installed (entry point {PREDICATE_PLUGINS}); there are: {there}"
        )
    try:
        predicate = point.load()
        if isinstance(predicate, type):
            predicate = predicate()
    except Exception as error:  # of the plug-in, whatever it is
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PluginError(f"predicates: {name} ({point.value}) cannot be loaded: {reason}") from error
    if not isinstance(predicate, Predicate) or not isinstance(predicate.name, str):
        raise PluginError(f"predicates: {name} ({point.value}) is no predicate: it needs `name`, `read` and `refuses`")
    return predicate


# Spare workers --------------------------------------------------------------------------------------------------------


async def wait_for_assignment(life: Life) -> Assignment | None:
    """Wait until the supervisor assigns a partition; None when it is time to stop first."""
    life.ready()
    line = await life.read_line()
    return msgspec.json.decode(line, type=Assignment) if line is not None else None
