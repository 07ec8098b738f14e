"""Start a worker: wait for an assignment if it is a spare, load plug-ins, and recover from the journal.

If the journal has lost data, or its replay has another result than the first time, it is moved aside, and the worker
starts with an empty partition and reports the problem in its Hello.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import msgspec

from common import gc_tuning
from common.journal_messages import Step
from common.names import PREDICATE_PLUGINS
from common.process import Assignment, Life
from common.settings import Settings
from common.text_formats import format_count
from partition_worker.engine.predicates.evaluation import BUILT_IN
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.engine.state import RESERVATION_DELAY_S, Tuning
from partition_worker.journal.database import JournalReader
from partition_worker.journal.files import Files
from partition_worker.journal.writer import Journal
from partition_worker.partition_host import Attempts, PartitionHost, identify_message
from partition_worker.snapshot import JournalDamaged
from partition_worker.worker import Worker

REPLAYS_MAX: Final = 4
"""Times that the replay of a step, or of the snapshot, may end the worker; then the journal is moved aside. More than
for a message, as a large snapshot takes many seconds, during which other causes may end the worker.
"""

HEAD_BYTES: Final = 4096
"""Bytes of a snapshot that identify it, together with its number and size."""

_log = logging.getLogger("core.scheduler.journal")


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A worker with its journal."""

    worker: Worker
    journal: Journal | None
    """None if the system keeps no journal."""
    replayed: int = 0
    """Number of replayed steps."""
    took_s: float = 0.0
    """Duration of the recovery."""


def make_worker(settings: Settings, partition: str, epoch: int, attempts: Attempts | None = None) -> Worker:
    """Build an empty worker with its plug-ins.

    Raises:
        PluginError: a plug-in cannot be used.
    """
    tuning = Tuning(
        reservation_delay_s=math.inf if settings.disable_reservation else RESERVATION_DELAY_S,
        preemption_pause_s=settings.preemption_pause_s,
        preemption_threshold=settings.preemption_threshold_percent / 100,
        asks_max=settings.asks_max,
    )
    plugins = load_plugins(settings.predicates, entry_points(group=PREDICATE_PLUGINS))
    return Worker(
        PartitionHost(partition=partition, epoch=epoch, manual=settings.manual, plugins=plugins, tuning=tuning),
        journalled=settings.journals is not None,
        heartbeat_s=settings.heartbeat_s,
        attempts=attempts,
    )


async def recover_or_start_empty(
    new_worker: Callable[[], Worker], new_journal: Callable[[Worker], Journal], files: Files, attempts: Attempts
) -> StartedWorker:
    """Recover a worker from its journal; or start an empty one with a `problem`, if the journal cannot be used.

    Raises:
        OSError: the disk fails; a later start may succeed.
    """
    worker = new_worker()
    try:
        journal = new_journal(worker)
        try:  # in a thread, so that the process can send heartbeats
            return await asyncio.to_thread(_replay_journal, worker, journal, attempts)
        except BaseException:
            journal.close()
            raise
    except JournalDamaged as error:
        aside = files.put_aside()
        problem = f"its journal cannot be used: {error}"
        _log.error("%s: %s; it was moved to %s, and the partition starts empty", files.partition, problem, aside)
    attempts.end_attempt()
    worker = new_worker()
    worker.problem = problem
    return StartedWorker(worker, new_journal(worker))


def _replay_journal(worker: Worker, journal: Journal, attempts: Attempts) -> StartedWorker:
    started_s = time.monotonic()
    replayed = 0
    with closing(JournalReader(journal.files)) as reader:
        meta, snapshot = reader.read_snapshot()

        def count_steps() -> Iterator[Step]:
            nonlocal replayed
            for step in reader.read_steps(meta.begins):
                replayed += 1
                attempts.end_attempt()
                _begin_attempt(attempts, f"step {step.number}", f"{step.number} {step.at}".encode())
                yield step

        if snapshot is not None:
            what = f"the snapshot after step {meta.snapshot}"
            head = f"{what}, {len(snapshot)} bytes".encode() + snapshot[:HEAD_BYTES]
            _begin_attempt(attempts, what, head)
        try:
            with gc_tuning.pause_collector():  # the collector would take a tenth of the time
                worker.recover(snapshot, count_steps())
        except (JournalDamaged, OSError, MemoryError):
            raise
        except Exception as error:  # a defect, or a journal of another release: it would fail at each start
            _log.exception("%s: the replay failed, in step %d after the snapshot", worker.name, replayed)
            raise JournalDamaged(f"its replay failed: {type(error).__name__}: {error}") from error
        attempts.end_attempt()
    took_s = time.monotonic() - started_s
    if replayed or snapshot is not None:
        size = len(snapshot or b"")
        base = f"a snapshot of {format_count(size, 'byte')} at step {meta.snapshot}" if size else "no snapshot"
        _log.info("%s: recovered %s (%s) in %.2f s", worker.name, format_count(replayed, "journal step"), base, took_s)
    return StartedWorker(worker, journal, replayed, took_s)


def _begin_attempt(attempts: Attempts, what: str, content: bytes) -> None:
    """Mark what is replayed next. Raises JournalDamaged if its replay has ended the worker too often."""
    identity = identify_message("replay", content)
    if attempts.count_deaths(identity) >= REPLAYS_MAX:
        raise JournalDamaged(f"the replay of {what} ended the worker {REPLAYS_MAX} times")
    attempts.begin_attempt(identity)


# Plug-ins -------------------------------------------------------------------------------------------------------------


class PluginError(OSError):
    """A plug-in that cannot be used. The worker does not start, as it would place asks where they must not run."""


def load_plugins(names: Sequence[str], installed: Iterable[EntryPoint]) -> list[Predicate]:
    """Load the predicates of these names, in this order.

    Raises:
        PluginError: one line with the name and the reason.
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
    except Exception as error:  # the plug-in may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PluginError(f"predicates: {name} ({point.value}) cannot be loaded: {reason}") from error
    if not isinstance(predicate, Predicate) or not isinstance(predicate.name, str):
        raise PluginError(f"predicates: {name} ({point.value}) is no predicate: it needs `name`, `read` and `refuses`")
    return predicate


# Spare workers --------------------------------------------------------------------------------------------------------


async def wait_for_assignment(life: Life) -> Assignment | None:
    """Wait until the supervisor assigns a partition; None if the process has to stop first."""
    life.ready()
    line = await life.read_line()
    return msgspec.json.decode(line, type=Assignment) if line is not None else None
