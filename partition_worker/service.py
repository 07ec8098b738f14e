"""Run a worker process: connection to the broker, journal, logging, and the event loop around the worker's machine."""

import asyncio
import logging
import sys
import time
from collections.abc import Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from common.driver import Transport, clock, drive
from common.extra_config import base_level, logger_levels
from common.messages import Header
from common.metrics import Family
from common.names import BROKER, JOURNAL, PREDICATE_PLUGINS, WORKER, worker_name
from common.process import Arguments, Assignment, Life
from common.process_figures import ProcessFigures
from common.rm_messages import Heartbeat
from common.settings import Settings
from common.transport import BrokerConnection
from common.wire import Incoming, Outgoing, make_outgoing
from partition_worker import metrics, poison_messages
from partition_worker.bootstrap import StartedWorker, load_plugins, recover_or_start_empty
from partition_worker.engine.bounds import tuned
from partition_worker.group_lookup import GroupLookup
from partition_worker.journal import poison_files
from partition_worker.journal.files import Files
from partition_worker.journal.poison_files import AttemptsFile, identify_parent_process
from partition_worker.journal.writer import Journal
from partition_worker.partition_host import GROUPS
from partition_worker.worker import Worker

SWITCH_S: Final = 0.0005
"""How long a thread that works in Python may keep the others waiting: the one that writes the journal needs a turn a
few times for each transaction, and what is told waits for it.
"""

_log = logging.getLogger("core.scheduler.partition")


class _Timed:
    """A worker that is told how long its ticks take."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def deadline(self) -> float:
        return self._worker.deadline

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        return self._worker.handle(incoming, now)

    def tick(self, now: float) -> list[Outgoing]:
        started_s = time.perf_counter()
        sends = self._worker.tick(now)
        self._worker.took(time.perf_counter() - started_s)
        return sends


async def serve(arguments: Arguments, lease: Assignment, life: Life) -> None:
    """Run the worker of one partition until told to stop."""
    sys.setswitchinterval(SWITCH_S)
    wire = Transport()
    link = BrokerConnection(
        arguments.broker, peer=BROKER, name=worker_name(lease.partition, lease.epoch), wake=wire.arrived
    )
    signs = asyncio.create_task(_signs_of_life(lease, link, arguments.settings.heartbeat_s))
    try:
        start = await _begun(arguments.settings, lease, wire)
    except BaseException:
        link.close()
        raise
    finally:
        signs.cancel()
    worker, journal = start.worker, start.journal
    wire.add(BROKER, link)
    wire.add(GROUPS, GroupLookup(wake=wire.wake))
    if journal is not None:
        wire.add(JOURNAL, journal)
    wire.send(worker.make_hello())
    life.ready()
    life.on_stop(wire.wake)
    levels = LogLevels()
    process = ProcessFigures(WORKER, lease.partition, wire=wire)
    worker.around = partial(_around, start, process)
    worker.stopwatch = time.thread_time  # not that of the clock: a busy machine makes no answer expensive

    def write_notes() -> None:
        levels.follow(worker.host.settings)
        _write_notes(worker)
        _keep_poisons(worker, journal)
        if worker.fatal_error:
            life.stop()

    try:
        await drive(_Timed(worker), wire, life.stopping, write_notes=write_notes)
        for message in worker.stop(clock()):
            wire.send(message)
    finally:
        process.close()
        link.close()
        if journal is not None:
            journal.close()
    if worker.fatal_error:
        raise OSError(worker.fatal_error)


async def _signs_of_life(lease: Assignment, link: BrokerConnection, heartbeat_s: float) -> None:
    """To read a long journal takes longer than a lease lasts: say that somebody does."""
    while True:
        await asyncio.sleep(heartbeat_s)
        link.send(
            make_outgoing(BROKER, Heartbeat(), Header(kind="Heartbeat", partition=lease.partition, epoch=lease.epoch))
        )


async def _begun(settings: Settings, lease: Assignment, wire: Transport) -> StartedWorker:
    """From the journal, where one is kept."""
    plugins = load_plugins(settings.predicates, entry_points(group=PREDICATE_PLUGINS))

    files = _files(settings.journals, lease.partition) if settings.journals else None
    attempts = poison_messages.UNTRACKED if files is None else _attempts(files)

    def new_worker() -> Worker:
        return Worker(
            partition=lease.partition,
            epoch=lease.epoch,
            manual=settings.manual,
            plugins=plugins,
            tuning=tuned(
                disable_reservation=settings.disable_reservation,
                preemption_pause_s=settings.preemption_pause_s,
                preemption_threshold_percent=settings.preemption_threshold_percent,
                asks_max=settings.asks_max,
            ),
            journalled=files is not None,
            heartbeat_s=settings.heartbeat_s,
            attempts=attempts,
        )

    if files is None:
        return StartedWorker(new_worker(), None)

    def new_journal(worker: Worker) -> Journal:
        bytes_max = settings.journal_max_bytes
        return Journal(files, epoch=lease.epoch, snapshot=worker.snapshot, wake=wire.wake, bytes_max=bytes_max)

    return await recover_or_start_empty(new_worker, new_journal, files, attempts)


def _around(start: StartedWorker, process: ProcessFigures) -> list[Family]:
    """The figures of the process and its journal."""
    if start.journal is None:
        return process.families()
    journal = start.journal
    kept = metrics.journal_families(
        start.worker.name,
        size_bytes=journal.size_bytes(),
        commits=journal.commits,
        snapshot_age_s=time.monotonic() - journal.snapshot_at,
        snapshot_s=journal.snapshot_took_s,
        replayed_steps=start.replayed,
        recovery_s=start.took_s,
    )
    return [*process.families(), *kept]


def _attempts(files: Files) -> poison_messages.Attempts:
    """Where the messages that ended a worker are counted; nowhere if there is no room for that."""
    try:
        return AttemptsFile(files, identify_parent_process())
    except OSError as error:
        _log.warning("%s: messages that end the worker are not counted: %s", files.partition, error)
        return poison_messages.UNTRACKED


def _keep_poisons(worker: Worker, journal: Journal | None) -> None:
    """Write down what was set aside, for people to look at."""
    while worker.poisons:
        one = worker.poisons.pop()
        assert journal is not None, "nothing is counted where nothing is kept"
        try:
            path = poison_files.write_poison(journal.files, one)
            _log.error("%s: %s; it is kept in %s", worker.name, one.reason, path)
        except OSError as error:
            _log.error("%s: %s; it cannot be kept: %s", worker.name, one.reason, error)


def _files(folder: Path, partition: str) -> Files:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Files(folder, partition)


def _write_notes(worker: Worker) -> None:
    levels = (
        (logging.DEBUG, worker.host.notes),
        (logging.INFO, worker.host.announcements),
        (logging.WARNING, worker.host.warnings),
    )
    for level, lines in levels:
        for line in lines:
            _log.log(level, "%s: %s", worker.name, line)
        lines.clear()


# Log levels -----------------------------------------------------------------------------------------------------------

CORE: Final = "core"
"""The logger above all of ours."""

LOGGERS_MAX: Final = 100
"""Loggers that a worker knows by name from settings, for as long as it lives; there are about ten."""

NAME_LENGTH_MAX: Final = 100
"""Characters of such a name: Python keeps a placeholder for each part of it."""

_PYTHON_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""From -1 on; what is more severe comes last."""


class LogLevels:
    """What the settings have set, so that it can be taken back when they no longer say it."""

    def __init__(self) -> None:
        self._settings: Mapping[str, str] = {}
        self._set: dict[str, int] = {}
        self._known: set[str] = set()
        """Every logger that was ever set; at most LOGGERS_MAX."""

    def follow(self, settings: Mapping[str, str]) -> None:
        """Let these settings count; costs nothing while they are the same map."""
        if settings is self._settings:
            return
        self._settings = settings
        base = base_level(settings)
        named = {name: level for name, level in logger_levels(settings).items() if self._may_set(name)}
        wanted = named if base is None else {CORE: base, **named}
        for name in self._set.keys() - wanted.keys():
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, level in wanted.items():
            logging.getLogger(name).setLevel(_python_level(level))
        self._set = wanted

    def _may_set(self, name: str) -> bool:
        ours = f"{name}.".startswith(f"{CORE}.") and len(name) <= NAME_LENGTH_MAX
        if ours and len(self._known) < LOGGERS_MAX:
            self._known.add(name)
        return name in self._known


def _python_level(level: int) -> int:
    return _PYTHON_LEVELS[level + 1] if level + 1 < len(_PYTHON_LEVELS) else logging.CRITICAL
