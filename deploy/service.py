"""The loop around the supervisor's machine: events in, instructions done, and the connection to the broker.

Not here: decisions (`supervisor.py`), what a child is (`processes.py`).
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from common.control_messages import Figures, Hello, WorkerEnded, WorkersWanted
from common.driver import clock
from common.messages import Header
from common.metrics import Family, encode_families
from common.names import BROKER, SUPERVISOR
from common.process_figures import ProcessFigures, Teller
from common.transport import BrokerConnection
from common.wire import NEVER, decode_body, make_outgoing
from deploy.instructions import (
    Announce,
    Assign,
    Connect,
    Disconnect,
    Event,
    Forget,
    Instruction,
    Kill,
    Leave,
    Note,
    Report,
    Start,
    Terminate,
)
from deploy.journals import forget
from deploy.processes import Commands, Processes
from deploy.supervisor import Plan, Supervisor

TERMINAL_CLOSED: Final = (
    "SIGHUP: the terminal was closed, so the system stops; start it with `nohup` or `setsid`, or as a service, if it "
    "is to go on without one"
)
NOTHING_TO_RELOAD: Final = (
    "SIGHUP: there is nothing to reload; the files of `config`, `native-allowed`, `auth-keys` and the gRPC certificate "
    "are read again whenever they change, all other settings and the REST certificate at the next start"
)

_log = logging.getLogger("core.supervisor")


class Link:
    """The connection to the broker, while there is one. It only ever hears which workers are wanted."""

    def __init__(
        self, address: str, report: Callable[[Event], None], families: Callable[[], Iterable[Family]] = tuple
    ) -> None:
        self._address = address
        self._report = report
        self._families = families
        self._link: BrokerConnection | None = None

    def open(self) -> None:
        """Connect and say Hello."""
        self.close()
        self._link = BrokerConnection(self._address, peer=BROKER, name=SUPERVISOR, wake=self._read)
        self._link.send(make_outgoing(BROKER, Hello(role=SUPERVISOR)))
        self.tell()

    def tell(self) -> None:
        """Tell our figures, if somebody is there to hear them."""
        if self._link is not None:
            self._link.send(
                make_outgoing(BROKER, Figures(process=SUPERVISOR, families=encode_families(self._families())))
            )

    def report(self, report: Report) -> None:
        """Tell the broker why a worker did not start. One that is not there hears of the next attempt."""
        if self._link is not None:
            header = Header(kind=WorkerEnded.__name__, partition=report.partition, epoch=report.epoch)
            message = WorkerEnded(reason=report.reason, cannot_start=report.cannot_start)
            self._link.send(make_outgoing(BROKER, message, header))

    def close(self) -> None:
        """Drop it, if it is there."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _read(self) -> None:
        while self._link is not None and (incoming := self._link.receive()) is not None:
            if incoming.header.kind == WorkersWanted.__name__:
                self._report(decode_body(WorkersWanted, incoming.body))
            else:
                _log.debug("the broker sent %s, which is not for us", incoming.header.kind)


async def supervise(
    plan: Plan, commands: Commands, *, inherited: int, journals: Path, compiled: Path | None
) -> Supervisor:
    """Run the whole system until it has stopped; the machine in its last state, with status and failure."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    _handle_signals(lambda: events.put_nowait(Leave()))
    supervisor = Supervisor(plan)
    own = ProcessFigures(SUPERVISOR)
    link = Link(plan.broker, events.put_nowait, lambda: [*own.families(), *supervisor.families()])
    teller = Teller(link.tell)
    async with asyncio.TaskGroup() as group:
        report = events.put_nowait
        processes = Processes(commands, inherited=inherited, group=group, report=report, compiled=compiled)
        while supervisor.status is None:
            event = await _next(events, supervisor.deadline - clock())
            now = clock()
            todo = supervisor.handle(event, now) if event else []
            if supervisor.deadline <= now:
                todo += supervisor.tick(now)
            for instruction in todo:
                await _do(instruction, processes, link, journals)
    for one in (teller, own, link):
        one.close()
    return supervisor


async def _next(events: asyncio.Queue[Event], timeout_s: float) -> Event | None:
    """The next event, or None after the timeout."""
    if not events.empty():
        return events.get_nowait()
    try:
        async with asyncio.timeout(None if timeout_s == NEVER else timeout_s):
            return await events.get()
    except TimeoutError:
        return None


async def _do(instruction: Instruction, processes: Processes, link: Link, journals: Path) -> None:
    match instruction:
        case Start():
            await processes.start(instruction)
        case Assign():
            processes.assign(instruction)
        case Terminate(name):
            processes.signal(name, signal.SIGTERM)
        case Kill(name):
            processes.signal(name, signal.SIGKILL)
        case Connect():
            link.open()
        case Disconnect():
            link.close()
        case Report():
            link.report(instruction)
        case Forget(partition):
            forget(journals, partition)
        case Note(level, text):
            _log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
        case Announce(line):
            _say(line)


def _say(line: str) -> None:
    if sys.stdout is None:  # closed by whoever started us
        return
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError:  # the reader has gone, as in `yunishard up | head -1`, or the disk is full: no reason to stop
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _handle_signals(leave: Callable[[], None]) -> None:
    """Stop in order on SIGINT, SIGTERM, and when the terminal is closed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as `nohup` wants it
        return
    if not _has_terminal():
        loop.add_signal_handler(signal.SIGHUP, lambda: _log.info(NOTHING_TO_RELOAD))
        return

    def hang_up() -> None:
        _log.warning(TERMINAL_CLOSED)
        leave()

    loop.add_signal_handler(signal.SIGHUP, hang_up)


def _has_terminal() -> bool:
    """Whether this process belongs to a terminal, whose end the system reports by SIGHUP."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
