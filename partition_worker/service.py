"""Run a worker process: connection to the broker, journal, logging, and the event loop around the worker's machine."""

import asyncio
import logging
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from common.extra_config import base_level, logger_levels
from common.messages import Header
from common.metrics import Family, distribution
from common.names import BROKER, JOURNAL, WORKER, worker_name
from common.process import Arguments, Assignment, Life
from common.process_metrics import ProcessMetrics
from common.rm_messages import Heartbeat
from common.settings import Settings
from common.transport import BrokerConnection, Transport, clock, drive
from common.wire import make_outgoing
from partition_worker import metrics
from partition_worker.bootstrap import StartedWorker, make_worker, recover_or_start_empty
from partition_worker.group_lookup import GroupLookup
from partition_worker.journal import files as journal_files
from partition_worker.journal.files import Files, identify_parent_process, open_attempts
from partition_worker.journal.writer import Journal
from partition_worker.partition_host import GROUPS, Attempts
from partition_worker.worker import Worker

SWITCH_S: Final = 0.0005
"""Switch interval of Python's threads: the journal thread needs a turn a few times for each transaction, and outgoing
messages wait for it.
"""

_log = logging.getLogger("core.scheduler.partition")


async def serve(arguments: Arguments, lease: Assignment, life: Life) -> None:
    """Run the worker of one partition until the process has to stop."""
    sys.setswitchinterval(SWITCH_S)
    wire = Transport()
    name, settings = worker_name(lease.partition, lease.epoch), arguments.settings
    link = BrokerConnection(arguments.broker, peer=BROKER, name=name, wake=partial(wire.arrived, BROKER))
    heartbeats = asyncio.create_task(_send_heartbeats(lease, link, settings.heartbeat_s))
    try:
        start = await _start_worker(settings, lease, wire)
    except BaseException:
        link.close()
        raise
    finally:
        heartbeats.cancel()
    worker, journal = start.worker, start.journal
    wire.add(BROKER, link)
    wire.add(GROUPS, GroupLookup(wake=partial(wire.wake, GROUPS)))
    if journal is not None:
        wire.add(JOURNAL, journal)
    wire.send(worker.make_hello())
    life.ready()
    life.on_stop(wire.wake)
    process = ProcessMetrics(WORKER, lease.partition, wire=wire)
    worker.process_families = lambda: [*process.collect(), *collect_journal_families(start)]
    worker.timer, worker.cpu_timer = time.perf_counter, time.thread_time
    levels, host = LogLevels(), worker.host
    levels.apply(host.settings)  # a recovered partition has settings already

    def write_notes() -> None:
        if host.new_settings:
            levels.apply(host.settings)
            host.new_settings.clear()
        _write_log(worker)
        _write_poisons(worker, journal)
        if worker.fatal_error:
            life.stop()

    try:
        notes = (host.notes, host.announcements, host.warnings, host.new_settings, worker.poisons)
        write_notes()
        await drive(worker, wire, life.stopping, notes=notes, write_notes=write_notes)
        for message in worker.stop(clock()):
            wire.send(message)
    finally:
        process.close()
        link.close()
        if journal is not None:
            journal.close()
    if worker.fatal_error:
        raise OSError(worker.fatal_error)


async def _send_heartbeats(lease: Assignment, link: BrokerConnection, heartbeat_s: float) -> None:
    """Send heartbeats during the recovery, which may take longer than a lease."""
    while True:
        await asyncio.sleep(heartbeat_s)
        header = Header(kind="Heartbeat", partition=lease.partition, epoch=lease.epoch)
        link.send(make_outgoing(BROKER, Heartbeat(), header))


async def _start_worker(settings: Settings, lease: Assignment, wire: Transport) -> StartedWorker:
    attempts = Attempts()

    def new_worker() -> Worker:
        return make_worker(settings, lease.partition, lease.epoch, attempts)

    if settings.journals is None:
        return StartedWorker(new_worker(), None)
    settings.journals.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = Files(settings.journals, lease.partition)
    try:
        attempts = open_attempts(files, identify_parent_process())
    except OSError as error:
        _log.warning("%s: messages that end the worker are not counted: %s", files.partition, error)

    def new_journal(worker: Worker) -> Journal:
        wake, bytes_max = partial(wire.wake, JOURNAL), settings.journal_max_bytes
        return Journal(files, epoch=lease.epoch, snapshot=worker.snapshot, wake=wake, bytes_max=bytes_max)

    return await recover_or_start_empty(new_worker, new_journal, files, attempts)


def collect_journal_families(start: StartedWorker) -> list[Family]:
    """Return the metric families of the partition's journal; none if the system keeps no journal."""
    journal, partition = start.journal, start.worker.name
    if journal is None:
        return []
    values = {
        "journal_size_bytes": journal.files.size_bytes(),
        "journal_snapshot_age_seconds": round(time.monotonic() - journal.snapshot_at, 3),
        "journal_snapshot_seconds": round(journal.snapshot_took_s, 6),
        "recovery_steps": start.replayed,
        "recovery_seconds": round(start.took_s, 6),
    }
    commits = distribution(
        "yunishard_journal_commit_seconds",
        "Seconds until a transaction was durable; messages that depend on it are sent then. Investigate if most take "
        "more than 0.05: the disk is slow, and so is every message.",
        ("partition",),
        [((partition,), journal.commits)],
    )
    return [*metrics.build_single_families(partition, values), commits]


def _write_poisons(worker: Worker, journal: Journal | None) -> None:
    """Write quarantined messages to files for inspection."""
    while worker.poisons:
        poison = worker.poisons.pop()
        assert journal is not None, "without a journal no attempts are counted"
        try:
            path = journal_files.write_poison(journal.files, poison)
            _log.error("%s: %s; it is kept in %s", worker.name, poison.reason, path)
        except OSError as error:
            _log.error("%s: %s; it cannot be kept: %s", worker.name, poison.reason, error)


def _write_log(worker: Worker) -> None:
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
"""The parent of all loggers of the project."""

LOGGERS_MAX: Final = 100
"""Maximum of loggers that settings may name while a worker lives; there are about ten."""

NAME_LENGTH_MAX: Final = 100
"""Maximum length of such a name: Python keeps a placeholder for each part of it."""

_PYTHON_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""From level -1 on; higher levels are critical."""


class LogLevels:
    """The levels that the RM's settings have set; they are reset when the settings change."""

    def __init__(self) -> None:
        self._set: dict[str, int] = {}
        self._known: set[str] = set()
        """Every logger that was ever set; at most LOGGERS_MAX."""

    def apply(self, settings: Mapping[str, str]) -> None:
        """Apply the levels in these settings, and reset others that were set before."""
        base = base_level(settings)
        named = {name: level for name, level in logger_levels(settings).items() if self._may_set(name)}
        wanted = named if base is None else {CORE: base, **named}
        for name in self._set.keys() - wanted.keys():
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, level in wanted.items():
            python_level = _PYTHON_LEVELS[level + 1] if level + 1 < len(_PYTHON_LEVELS) else logging.CRITICAL
            logging.getLogger(name).setLevel(python_level)
        self._set = wanted

    def _may_set(self, name: str) -> bool:
        ours = f"{name}.".startswith(f"{CORE}.") and len(name) <= NAME_LENGTH_MAX
        if ours and len(self._known) < LOGGERS_MAX:
            self._known.add(name)
        return name in self._known
