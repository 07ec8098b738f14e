"""The broker process: its listening socket, durable record, watched file, and the loop around its machine.

Not here: decisions (`routing.py`).
"""

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from broker.config_validation import ConfigPreloader
from broker.record_file import RecordFile
from broker.routing import BrokerMachine
from broker.state import BrokerPolicy, ConfigVersions
from broker.validation_process import ValidationProcess
from broker.watched_file import WatchedFile
from common.driver import Transport, clock, drive
from common.names import BROKER, FILE, READER, RECORD
from common.process import Arguments, Life
from common.process_metrics import ProcessMetrics
from common.transport import BrokerPort

RECORD_NAME: Final = "broker.sqlite"
"""The broker's durable record, in the state directory."""

_log = logging.getLogger("core.broker")


async def serve(arguments: Arguments, life: Life) -> None:
    """Run the broker until it is stopped. Raises OSError if the record cannot be used."""
    settings = arguments.settings
    wire = Transport()
    with ExitStack() as stack:
        record = RecordFile(str(settings.state / RECORD_NAME) if settings.state else ":memory:", wake=wire.wake)
        stack.callback(record.close)
        wire.add(RECORD, record)
        file = _watch(settings.config, wire, stack)
        validation = ValidationProcess(wake=wire.wake)
        stack.callback(validation.close)
        wire.add(READER, validation)
        port = BrokerPort(arguments.broker, wake=wire.arrived)
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
                allowed_rms=settings.allowed_rms,
                same_hierarchy=settings.same_hierarchy,
                partitions_max=settings.partitions_max,
                silence_s=settings.silence_s,
                lease_s=settings.lease_timeout_s,
                pause_s=settings.pause_timeout_s,
            ),
        )
        process = ProcessMetrics(BROKER, wire=wire)
        stack.callback(process.close)
        broker.metrics.process_families = process.collect
        life.ready()
        life.on_stop(wire.wake)
        await drive(ConfigPreloader(broker), wire, life.stopping, write_notes=lambda: _write_notes(broker))


def _watch(path: Path | None, wire: Transport, stack: ExitStack) -> WatchedFile | None:
    if path is None:
        return None
    file = WatchedFile(path, wake=wire.wake)
    stack.callback(file.close)
    wire.add(FILE, file)
    file.watch()
    return file


def _write_notes(broker: BrokerMachine) -> None:
    for level, lines in ((logging.INFO, broker.state.notes), (logging.WARNING, broker.state.warnings)):
        for line in lines:
            _log.log(level, "%s", line)
        lines.clear()
