"""The broker process: its listening socket, durable record, watched file, the child process that validates
configurations, and the loop around its machine.

Not here: decisions (`routing.py`).
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

from broker.record_file import IN_MEMORY, RecordFile
from broker.routing import BrokerMachine
from broker.state import BrokerState, ConfigVersions
from broker.watched_file import WatchedFile
from common.messages import Header
from common.names import BROKER, FILE, READER, RECORD
from common.process import Arguments, Life, log_lines
from common.process_metrics import ProcessMetrics
from common.transport import BrokerPort, Inbox, Transport, clock, drive
from common.wire import Incoming, Outgoing

RECORD_NAME: Final = "broker.sqlite"
"""The broker's durable record, in the state directory."""

VALIDATION_MAX_S: Final = 30.0
"""How long the analysis of one text may take. The largest text that is accepted needs about ten seconds."""

VALIDATION: Final = (sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "broker.config_validation")

_log = logging.getLogger("core.broker")


async def serve(arguments: Arguments, life: Life) -> None:
    """Run the broker until it is stopped. Raises OSError if the record cannot be used."""
    settings = arguments.settings
    wire = Transport()
    with ExitStack() as stack:
        path = settings.state / RECORD_NAME if settings.state else IN_MEMORY
        record = RecordFile(path, wake=partial(wire.wake, RECORD))
        stack.callback(record.close)
        wire.add(RECORD, record)
        file = WatchedFile(settings.config, wake=partial(wire.wake, FILE)) if settings.config else None
        if file is not None:
            stack.callback(file.close)
            wire.add(FILE, file)
            file.watch()
        validation = ValidationProcess(wake=partial(wire.wake, READER))
        stack.callback(validation.close)
        wire.add(READER, validation)
        port = BrokerPort(arguments.broker, wake=partial(wire.arrived, ""))
        stack.callback(port.close)
        wire.add("", port)
        state = BrokerState(
            default_text=file.text if file else "",
            watched=str(file.path) if file else "",
            versions=ConfigVersions(record.read_histories()),
            settings=settings,
            incarnation=record.begin(int(clock())),
        )
        broker = BrokerMachine(state, now=clock(), records=record.read_records(), record_problem=record.problem)
        process = ProcessMetrics(BROKER, wire=wire)
        stack.callback(process.close)
        broker.metrics.process_families = process.collect
        life.ready()
        life.on_stop(wire.wake)
        lines = {logging.INFO: state.notes, logging.WARNING: state.warnings}
        write_notes = partial(log_lines, _log, lines)
        write_notes()
        await drive(broker, wire, life.stopping, notes=lines.values(), write_notes=write_notes)


class ValidationProcess(Inbox):
    """Child process that analyses one configuration text and exits, so that the broker continues to route meanwhile.

    An endpoint of the broker's wire: the machine sends one text at a time and receives the encoded analysis, or an
    empty body if the process failed. Rejected: a process that stays, which keeps the memory that a large text takes; a
    thread, which competes with the event loop for the interpreter.
    """

    def __init__(self, *, wake: Callable[[], None]) -> None:
        super().__init__(wake=wake)
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, message: Outgoing) -> None:
        """Start the analysis of a text; needs a running loop."""
        task = asyncio.create_task(self._process(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _process(self, message: Outgoing) -> None:
        try:
            analysis = await self._run_child(message.body)
        except (OSError, TimeoutError) as error:
            _log.warning("the broker parses a configuration itself, as its process failed: %s", error or "timeout")
            analysis = b""
        self.put(Incoming(READER, Header(kind="TextRead", ref=message.header.ref), analysis))

    async def _run_child(self, text: bytes) -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*VALIDATION, stdin=pipe, stdout=pipe)
        try:
            async with asyncio.timeout(VALIDATION_MAX_S):
                found, _ = await process.communicate(text)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()  # closes the pipes
        if process.returncode != 0:
            raise OSError(f"it ended with status {process.returncode}")
        return found
