"""Run a worker process: plug-ins, recovery from the journal, the event loop around the worker's machine, logging.

If the journal has lost data, it is moved aside, and the worker starts with an empty partition and reports the problem
in its Hello.
"""

import asyncio
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from typing import Final

from msgspec.structs import replace

from yunishard.common.messages.control_messages import Hello
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import make_outgoing
from yunishard.common.names import BROKER, JOURNAL, PLANNER, PREDICATE_PLUGINS, WORKER, WORKER_PREFIX
from yunishard.common.process import gc_tuning
from yunishard.common.process.compiled import LIBRARY
from yunishard.common.process.logs import LogLevels, log_lines
from yunishard.common.process.main import Arguments, Lease, Life
from yunishard.common.process.metrics import Family
from yunishard.common.process.process_metrics import ProcessMetrics, list_families
from yunishard.common.settings import Settings
from yunishard.common.simulated_nodes import build_simulated_nodes, name_simulated_nodes, parse_node_resources
from yunishard.common.text_formats import format_count
from yunishard.common.transport.event_loop import BrokerConnection, Transport, clock, drive
from yunishard.partition_worker import metrics
from yunishard.partition_worker.engine.predicates.evaluation import BUILT_IN
from yunishard.partition_worker.engine.predicates.predicate import Predicate
from yunishard.partition_worker.engine.state import RESERVATION_DELAY_S, Tuning
from yunishard.partition_worker.group_lookup import GroupLookup
from yunishard.partition_worker.journal.protocol import Journal, Journals
from yunishard.partition_worker.journal.quarantine import Quarantine, identify_parent_process
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals
from yunishard.partition_worker.journal.writer import BYTES_MAX, JournalWriter
from yunishard.partition_worker.partition_host import GROUPS, Attempts, PartitionHost
from yunishard.partition_worker.plan_process import Planner
from yunishard.partition_worker.recovery import JournalDamaged
from yunishard.partition_worker.worker import IdleWorker, Worker

SWITCH_S: Final = 0.0005
"""Switch interval of Python's threads: the journal thread needs a turn a few times for each transaction, and outgoing
messages wait for it.
"""

CORE: Final = "core"
"""The parent of all loggers that settings of an RM may change."""

_log = logging.getLogger("core.scheduler.partition")


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A worker with its journal."""

    worker: Worker
    journal: JournalWriter | None
    """None if the system keeps no journal."""
    steps: int = 0
    """Number of steps after the snapshot."""
    took_s: float = 0.0
    """Duration of the recovery."""


async def serve(arguments: Arguments, life: Life) -> None:
    """Register with the broker, wait for a partition, and serve it until the process has to stop."""
    load_plugins(arguments.settings.predicates, entry_points(group=PREDICATE_PLUGINS))  # without them it gets none
    journals = open_journals(arguments.settings)
    wire, name = Transport(), f"{WORKER_PREFIX}{arguments.instance}"
    wake, keys = partial(wire.arrived, BROKER), arguments.settings.cluster_keys
    link = BrokerConnection(arguments.broker, name=name, wake=wake, keys=keys)
    wire.add(BROKER, link)
    life.on_leader(link.move)
    try:
        lease = await wait_for_grant(wire, arguments.settings, life)
        if lease is not None:
            await serve_partition(arguments.settings, journals, lease, link, wire, life)
    finally:
        link.close()


async def wait_for_grant(wire: Transport, settings: Settings, life: Life) -> Lease | None:
    """Wait until the broker grants a partition; None if the process has to stop first."""
    hello = Hello(
        role="worker",
        host=settings.host_name,
        pid=os.getpid(),
        release=version("yunishard"),
        compiled=find_spec(LIBRARY) is not None,
    )
    idle, settled = IdleWorker(hello, heartbeat_s=settings.heartbeat_s), asyncio.Event()

    def settle() -> None:
        settled.set()
        wire.wake()

    life.on_stop(settle)
    life.ready()
    await drive(idle, wire, settled, notes=(idle.granted,), write_notes=settle)
    return next((Lease(one.partition, one.epoch) for one in idle.granted), None)


async def serve_partition(
    settings: Settings, journals: Journals | None, lease: Lease, link: BrokerConnection, wire: Transport, life: Life
) -> None:
    """Run the worker of one partition until the process has to stop."""
    sys.setswitchinterval(SWITCH_S)
    life.granted(lease)
    heartbeats = asyncio.create_task(_send_heartbeats(lease, link, settings.heartbeat_s))
    try:
        start = await _start_worker(settings, journals, lease, wire)
    finally:
        heartbeats.cancel()
    gc_tuning.freeze_survivors()  # only now, as the next collection would visit all that the recovery has built
    worker, journal = start.worker, start.journal
    wire.add(GROUPS, GroupLookup(wake=partial(wire.wake, GROUPS)))
    planner = Planner(wake=partial(wire.wake, PLANNER), find_partition=lambda: worker.partition)
    wire.add(PLANNER, planner)
    if journal is not None:
        wire.add(JOURNAL, journal)
    wire.send(worker.make_hello())
    life.ready()
    process = ProcessMetrics(WORKER, lease.partition, wire=wire)
    if journal is not None:
        process.watch_writes("journal", journal.writes)
    worker.process_families = lambda: [*list_families(process.registry), *collect_journal_families(start)]
    worker.report_health = partial(process.report_health, journal.writes if journal is not None else None)
    worker.timer, worker.cpu_timer = time.perf_counter, time.thread_time
    levels, host = LogLevels(CORE), worker.host
    levels.apply(host.session.settings)  # a recovered partition has settings already
    quarantine = None if settings.journals is None else Quarantine(settings.journals, lease.partition)
    write_notes = partial(_write_notes, worker, quarantine, levels, life)

    try:
        notes = (host.notes, host.announcements, host.warnings, host.new_settings, worker.poisons)
        write_notes()
        await drive(worker, wire, life.stopping, notes=notes, write_notes=write_notes)
        for message in worker.stop(clock()):
            wire.send(message)
    finally:
        process.close()
        planner.close()
        if journal is not None:
            journal.close(delete=worker.is_removed)
        if quarantine is not None and worker.is_removed:
            quarantine.delete()
    if worker.fatal_error:
        raise OSError(worker.fatal_error)


async def _send_heartbeats(lease: Lease, link: BrokerConnection, heartbeat_s: float) -> None:
    """Send heartbeats during the recovery, which may take longer than a lease."""
    while True:
        await asyncio.sleep(heartbeat_s)
        header = Header(kind="Heartbeat", partition=lease.partition, epoch=lease.epoch)
        link.send(make_outgoing(BROKER, Heartbeat(), header))


async def _start_worker(settings: Settings, journals: Journals | None, lease: Lease, wire: Transport) -> StartedWorker:
    attempts = Attempts()

    def new_worker() -> Worker:
        return make_worker(settings, lease.partition, lease.epoch, attempts)

    if settings.journals is None or journals is None:
        return StartedWorker(new_worker(), None)
    try:
        attempts = Quarantine(settings.journals, lease.partition).open_attempts(identify_parent_process())
    except OSError as error:
        _log.warning("%s: messages that end the worker are not counted: %s", lease.partition, error)
    wake = partial(wire.wake, JOURNAL)
    return await recover_or_start_empty(new_worker, journals, lease, wake, settings.journal_max_bytes)


def open_journals(settings: Settings) -> Journals | None:
    """Return the place where journals are stored, a database or a directory; None if there are none. Idle workers do
    this ahead of the grant: the library of the database takes a tenth of a second of a processor to load, in which a
    partition that moves would pause.
    """
    if settings.journals is None:
        return None
    if settings.store:
        from yunishard.partition_worker.journal.postgres_journal import PostgresJournals

        return PostgresJournals(settings.store)
    return SqliteJournals(settings.journals, settings.journal_history_bytes)


def collect_journal_families(start: StartedWorker) -> list[Family]:
    """Return the metric families of the partition's journal; none if the system keeps no journal."""
    journal, partition = start.journal, start.worker.name
    if journal is None:
        return []
    values = {
        "journal_size_bytes": journal.journal.statistics().stored_bytes,
        "journal_snapshot_age_seconds": round(time.monotonic() - journal.snapshot_at, 3),
        "journal_snapshot_seconds": round(journal.snapshot_took_s, 6),
        "recovery_steps": start.steps,
        "recovery_seconds": round(start.took_s, 6),
    }
    [commits] = list_families(journal.commits)
    found = [((partition,), counts, total_s) for _, counts, total_s in commits.distributions]
    labelled = replace(commits, labels=("partition",), distributions=found)
    return [*metrics.build_single_families(partition, values), labelled]


def _write_notes(worker: Worker, quarantine: Quarantine | None, levels: LogLevels, life: Life) -> None:
    """Set log levels, write the machine's log lines, and store quarantined messages for inspection."""
    host = worker.host
    if host.new_settings:
        levels.apply(host.session.settings)
        host.new_settings.clear()
    lines = {logging.DEBUG: host.notes, logging.INFO: host.announcements, logging.WARNING: host.warnings}
    log_lines(_log, lines, f"{worker.name}: ")
    while worker.poisons:
        poison = worker.poisons.pop()
        assert quarantine is not None, "without a journal no attempts are counted"
        try:
            path = quarantine.write(poison)
            _log.error("%s: %s; it is kept in %s", worker.name, poison.reason, path)
        except OSError as error:
            _log.error("%s: %s; it cannot be kept: %s", worker.name, poison.reason, error)
    if worker.fatal_error:
        life.stop()


# Recovery -------------------------------------------------------------------------------------------------------------


def make_worker(settings: Settings, partition: str, epoch: int, attempts: Attempts | None = None) -> Worker:
    """Build an empty worker with its plug-ins.

    Raises:
        PluginError: a plug-in cannot be used.
    """
    names = name_simulated_nodes(settings.simulated_nodes)
    tuning = Tuning(
        reservation_delay_s=math.inf if settings.disable_reservation else RESERVATION_DELAY_S,
        reservation_share_percent=settings.reservation_share_percent,
        reservation_max_s=settings.reservation_timeout_s,
        preemption_pause_s=settings.preemption_pause_s,
        preemption_threshold=settings.preemption_threshold_percent / 100,
        asks_max=settings.asks_max,
        simulated_nodes=frozenset(names),
    )
    plugins = load_plugins(settings.predicates, entry_points(group=PREDICATE_PLUGINS))
    host = PartitionHost(
        partition=partition,
        epoch=epoch,
        manual=settings.manual,
        plugins=plugins,
        tuning=tuning,
        simulated_nodes=build_simulated_nodes(names, parse_node_resources(settings.node_resources)),
    )
    return Worker(
        host,
        host_name=settings.host_name,
        journalled=settings.journals is not None,
        heartbeat_s=settings.heartbeat_s,
        attempts=attempts,
    )


async def recover_or_start_empty(
    new_worker: Callable[[], Worker],
    journals: Journals,
    lease: Lease,
    wake: Callable[[], None],
    bytes_max: int = BYTES_MAX,
) -> StartedWorker:
    """Recover a worker from its journal; or start an empty one with a `problem`, if the journal cannot be used.

    `wake` and `bytes_max` are for its `JournalWriter`.

    Raises:
        OSError: the disk fails; a later start may succeed.
    """
    worker, problem = new_worker(), ""

    def open_and_recover() -> tuple[Journal, int, float]:
        journal = journals.open(lease.partition, lease.epoch)
        try:
            return journal, *_recover(worker, journal)
        except BaseException:
            journal.close()
            raise

    try:  # in a thread, so that the process can send heartbeats
        journal, steps, took_s = await asyncio.to_thread(open_and_recover)
    except JournalDamaged as error:
        problem = f"its journal cannot be used: {error}"
        aside = journals.set_aside(lease.partition, lease.epoch)
        _log.error("%s: %s; it was moved to %s, and the partition starts empty", lease.partition, problem, aside)
        worker = new_worker()
        worker.problem = problem
        journal, steps, took_s = journals.open(lease.partition, lease.epoch), 0, 0.0
    writer = JournalWriter(journal, snapshot=worker.snapshot, wake=wake, bytes_max=bytes_max)
    return StartedWorker(worker, writer, steps, took_s)


def _recover(worker: Worker, journal: Journal) -> tuple[int, float]:
    """Recover the worker; return the number of steps after the snapshot, and the duration."""
    started_s, found = time.monotonic(), journal.statistics()
    with gc_tuning.pause_collector():  # the collector would take a tenth of the time
        last = worker.recover(journal.read_snapshot(), journal.read_steps(found.begins))
    if last != found.last:
        raise JournalDamaged(f"its latest step is {found.last}, and the steps from {found.begins} on end at {last}")
    took_s, steps = time.monotonic() - started_s, max(0, last + 1 - found.begins)
    if last:
        base = f"a snapshot at step {found.snapshot}" if found.snapshot else "no snapshot"
        _log.info("%s: recovered %s (%s) in %.2f s", worker.name, format_count(steps, "journal step"), base, took_s)
    return steps, took_s


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
