"""The broker process: its listening socket, durable record, watched file, the child processes that analyse
configurations, and the loop around its machine.

Not here: decisions (`routing.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Sized
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from yunishard.broker.analysis_pool import AnalysisProcess
from yunishard.broker.config_validation import READERS
from yunishard.broker.config_versions import ConfigVersions, VersionHistory
from yunishard.broker.election import ElectedBroker
from yunishard.broker.hosts import HostRow
from yunishard.broker.registry import RmRecord
from yunishard.broker.routing import BrokerMachine
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.broker.state import BrokerState
from yunishard.broker.store import RECORD_NAME, RecordEndpoint, Store
from yunishard.broker.watched_file import WatchedFile
from yunishard.common.messages.query_messages import ProcessHealth
from yunishard.common.names import BROKER, FILE, OFF, RECORD
from yunishard.common.process.logs import log_lines
from yunishard.common.process.main import Arguments, Life
from yunishard.common.process.metrics import Family
from yunishard.common.process.process_metrics import ProcessMetrics, list_families
from yunishard.common.settings import Settings
from yunishard.common.sqlite_file import IN_MEMORY
from yunishard.common.transport.event_loop import BrokerPort, Transport, clock, drive

if TYPE_CHECKING:
    from yunishard.broker.candidacy import Candidacy

_log = logging.getLogger("core.broker")


async def serve(arguments: Arguments, life: Life) -> None:
    """Run the broker until it is stopped; with a store of several hosts, once it leads. Raises OSError if the record
    cannot be used.
    """
    wire = Transport()
    life.ready()
    if not arguments.settings.store:
        await lead(arguments, life, wire, None)
        return
    from yunishard.broker.candidacy import Candidacy  # needs a library that other systems do not have

    with closing(Candidacy(arguments, wire, life)) as candidacy:
        if await candidacy.win():
            await lead(arguments, life, wire, candidacy)


async def lead(arguments: Arguments, life: Life, wire: Transport, candidacy: "Candidacy | None") -> None:
    """Run the only broker of an embedded system, or the leader of several."""
    settings = arguments.settings
    with ExitStack() as stack:
        opening = asyncio.create_task(asyncio.to_thread(open_record, settings, candidacy))
        opened = await (opening if candidacy is None else candidacy.hold_lease(opening))
        store = opened.store
        stack.callback(store.close)
        record = RecordEndpoint(store, wake=partial(wire.wake, RECORD))
        stack.callback(record.close)
        wire.add(RECORD, record)
        file = WatchedFile(settings.config, wake=partial(wire.wake, FILE)) if settings.config else None
        if file is not None:
            stack.callback(file.close)
            wire.add(FILE, file)
            file.watch()
        for name in READERS:
            analysis = AnalysisProcess(name, wake=partial(wire.wake, name))
            stack.callback(analysis.close)
            wire.add(name, analysis)
        port = open_port(arguments, wake=partial(wire.arrived, ""))
        stack.callback(port.close)
        wire.add("", port)
        state = BrokerState(
            default_text=file.text if file else "",
            watched=str(file.path) if file else "",
            versions=ConfigVersions(opened.histories),
            settings=settings,
            incarnation=store.incarnation,
        )
        broker = BrokerMachine(
            state, now=clock(), records=opened.records, record_problem=opened.problem, hosts=opened.hosts
        )
        process = ProcessMetrics(BROKER, wire=wire)
        stack.callback(process.close)
        report_process(broker, process, record)
        life.on_stop(wire.wake)
        lines = {logging.INFO: state.notes, logging.WARNING: state.warnings}

        def write_notes() -> None:
            log_lines(_log, lines)
            if candidacy is not None:
                candidacy.write_notes()

        write_notes()
        if candidacy is None:
            life.leads(arguments.broker)
            await drive(broker, wire, life.stopping, notes=lines.values(), write_notes=write_notes)
        else:
            elected = ElectedBroker(broker, candidacy.election, state.hosts)
            notes: list[Sized] = [*lines.values(), *candidacy.notes]
            await drive(elected, wire, life.stopping, notes=notes, write_notes=write_notes)


def open_port(arguments: Arguments, *, wake: Callable[[], None]) -> BrokerPort:
    """Open the port; with the keys of a host also for other hosts. Raises OSError if an address cannot be bound."""
    address, settings = arguments.broker.address, arguments.settings
    if settings.cluster_keys is None:
        return BrokerPort(address, wake=wake)
    from yunishard.broker.cluster_port import ClusterPort  # most systems have one host

    return ClusterPort(address, wake=wake, cluster_address=settings.cluster_address, keys=settings.cluster_keys)


def report_process(broker: BrokerMachine, process: ProcessMetrics, record: RecordEndpoint) -> None:
    """Have the machine report the metrics and the problems of this process. Both requests check the record's files."""

    def collect_families() -> list[Family]:
        record.check_files()
        return list_families(process.registry)

    def report_health() -> ProcessHealth:
        record.check_files()
        return process.report_health(record.writes)

    process.watch_writes("record", record.writes)
    broker.metrics.process_families, broker.report_health = collect_families, report_health


class OpenedRecord(NamedTuple):
    """The record, and what a broker reads of it when it starts."""

    store: Store
    problem: str
    """Why it cannot be written at present; empty if it can."""
    histories: dict[str, VersionHistory]
    records: list[RmRecord]
    hosts: list[HostRow]


def open_record(settings: Settings, candidacy: "Candidacy | None") -> OpenedRecord:
    """Open and read the record, in a thread, as the process sends heartbeats meanwhile. Raises OSError if it fails."""
    store = open_store(settings)
    try:
        if candidacy is None:
            _, problem = store.begin(int(clock()))
        else:
            store.incarnation, problem = candidacy.election.epoch, ""
        hosts = [] if settings.cluster_address == OFF else store.read_hosts()
        return OpenedRecord(store, problem, store.read_histories(), store.read_records(), hosts)
    except BaseException:
        store.close()
        raise


def open_store(settings: Settings) -> Store:
    """Open the record that the settings name. Raises OSError if it cannot be used."""
    if settings.store:
        from yunishard.broker.postgres_store import PostgresStore  # needs a library that other systems do not have

        return PostgresStore(settings.store)
    return SqliteStore(settings.state / RECORD_NAME if settings.state else IN_MEMORY)
