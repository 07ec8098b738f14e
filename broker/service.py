"""The broker's shell: the socket that all our processes connect to, the record, and the watched file.

Not here: anything that is decided (`switch.py`).
"""

import argparse
import logging
from contextlib import ExitStack
from pathlib import Path

from broker.books import Policy
from broker.foresight import Foresight
from broker.reader import Reader
from broker.record import Record
from broker.switch import Switch
from broker.versions import Versions
from broker.watched_file import WatchedFile
from common.driver import Transport, clock, drive
from common.inspector import Inspected
from common.names import BROKER, FILE, READER, RECORD
from common.process import Life
from common.process_figures import ProcessFigures
from common.transport import BrokerPort

_log = logging.getLogger("core.broker")


async def serve(args: argparse.Namespace, life: Life) -> None:
    """Run the broker until told to stop. A record that cannot be used is an OSError."""
    wire = Transport()
    with ExitStack() as stack:
        record = Record(args.record, wake=wire.wake)
        stack.callback(record.close)
        wire.add(RECORD, record)
        file = _watched(args.default_config, wire, stack)
        reader = Reader(wake=wire.wake)
        stack.callback(reader.close)
        wire.add(READER, reader)
        links = BrokerPort(args.listen, wake=wire.arrived)
        stack.callback(links.close)
        wire.add("", links)
        switch = Switch(
            now=clock(),
            incarnation=record.begin(int(clock())),
            facts=record.facts(),
            record_problem=record.problem,
            default_config=file.text if file else "",
            watched=str(file.path) if file else "",
            versions=Versions(record.histories()),
            policy=Policy(
                allowed_rms=tuple(one.strip() for one in args.allowed_rms.split(",")),
                same_hierarchy=args.same_hierarchy,
                partitions_max=args.partitions_max,
                silence_s=args.silence,
                lease_s=args.lease_timeout,
                pause_s=args.pause_timeout,
            ),
        )
        process = ProcessFigures(BROKER, wire=wire)
        stack.callback(process.close)
        switch.figures.around = process.families
        life.ready()
        life.on_stop(wire.wake)
        machine = Inspected(Foresight(switch), wire.send)
        stack.callback(machine.close)
        await drive(machine, wire, life.stopping, write_notes=lambda: _write_notes(switch))


def _watched(path: str | None, wire: Transport, stack: ExitStack) -> WatchedFile | None:
    if not path:
        return None
    file = WatchedFile(Path(path), wake=wire.wake)
    stack.callback(file.close)
    wire.add(FILE, file)
    file.watch()
    return file


def _write_notes(switch: Switch) -> None:
    books = switch.books
    for level, lines in ((logging.INFO, books.notes), (logging.WARNING, books.warnings)):
        for line in lines:
            _log.log(level, "%s", line)
        lines.clear()
