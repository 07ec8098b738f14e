"""The broker process: its listening socket, durable record, watched file, and the loop around its machine.

Not here: decisions (`routing.py`).
"""

import argparse
import logging
from contextlib import ExitStack
from pathlib import Path

from broker.config_validation import ConfigPreloader
from broker.record_file import RecordFile
from broker.routing import BrokerMachine
from broker.state import BrokerPolicy, ConfigVersions
from broker.validation_process import ValidationProcess
from broker.watched_file import WatchedFile
from common.driver import Transport, clock, drive
from common.names import BROKER, FILE, READER, RECORD
from common.process import Life
from common.process_figures import ProcessFigures
from common.transport import BrokerPort

_log = logging.getLogger("core.broker")


async def serve(args: argparse.Namespace, life: Life) -> None:
    """Run the broker until it is stopped. Raises OSError if the record cannot be used."""
    wire = Transport()
    with ExitStack() as stack:
        record = RecordFile(args.record, wake=wire.wake)
        stack.callback(record.close)
        wire.add(RECORD, record)
        file = _watch(args.default_config, wire, stack)
        validation = ValidationProcess(wake=wire.wake)
        stack.callback(validation.close)
        wire.add(READER, validation)
        port = BrokerPort(args.listen, wake=wire.arrived)
        stack.callback(port.close)
        wire.add("", port)
        broker = BrokerMachine(
            now=clock(),
            incarnation=record.begin(int(clock())),
            records=record.read_records(),
            record_problem=record.problem,
            default_config=file.text if file else "",
            watched=str(file.path) if file else "",
            versions=ConfigVersions(record.read_histories()),
            policy=BrokerPolicy(
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
        broker.metrics.process_families = process.families
        life.ready()
        life.on_stop(wire.wake)
        await drive(ConfigPreloader(broker), wire, life.stopping, write_notes=lambda: _write_notes(broker))


def _watch(path: str | None, wire: Transport, stack: ExitStack) -> WatchedFile | None:
    if not path:
        return None
    file = WatchedFile(Path(path), wake=wire.wake)
    stack.callback(file.close)
    wire.add(FILE, file)
    file.watch()
    return file


def _write_notes(broker: BrokerMachine) -> None:
    for level, lines in ((logging.INFO, broker.state.notes), (logging.WARNING, broker.state.warnings)):
        for line in lines:
            _log.log(level, "%s", line)
        lines.clear()
