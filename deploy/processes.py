"""Child processes: starts and signals them, reads their lifelines, and waits for their end.

Each child gets one end of a socket pair, its lifeline (`common/process/main.py`). The supervisor holds the other end:
when it is gone, however it ended, the kernel closes that end and the child stops. A child runs in a session of its own,
so that Ctrl-C in a terminal reaches only the supervisor, which then stops everything in order.

Not here: which processes should run (`supervisor.py`).
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from yunishard.common.messages.wire import BrokerAddress
from yunishard.common.names import FAKE_RM, WORKER
from yunishard.common.process.limits import REMEDY, is_shortage
from yunishard.common.process.main import Lease
from yunishard.deploy import children
from yunishard.deploy.children import STOP_ORDER, Event, Start

Commands = Mapping[str, Sequence[str]]
"""The command of each role, without arguments."""

_MODULES: Final = {FAKE_RM: "workloads.fake_rm"}
"""The modules below `yunishard` whose names are not their roles."""

COMMANDS: Final[Commands] = {
    role: (sys.executable, "-P", "-m", f"yunishard.{_MODULES.get(role, role)}") for role in STOP_ORDER
}
"""With `-P`, a stray `yunishard.py` in the working directory is not imported."""

LINE_BYTES_MAX: Final = 65536

READS_MAX: Final = 32
"""Reads of a lifeline in one turn of the event loop; together they exceed the kernel's buffer."""


class Line(msgspec.Struct):
    """A line of a lifeline; one of the fields is set."""

    ready: dict[str, str] | None = None
    granted: Lease | None = None
    leader: BrokerAddress | None = None
    failed: str | None = None
    refused: str | None = None
    alive: int | None = None


class Lifeline:
    """The supervisor's end of a lifeline. Calls `receive` with each line, or with the start of one that is too long."""

    def __init__(self, end: socket.socket, receive: Callable[[bytes], None]) -> None:
        self._end = end
        self._receive = receive
        self._partial = b""
        end.settimeout(0)
        asyncio.get_running_loop().add_reader(end, self.read)

    def read(self) -> None:
        """Read what the child has sent; the rest in the next turn if it does not cease. The end of the stream is not
        the end of the child, and a process that the child has forked may still hold the lifeline after that.
        """
        with suppress(BlockingIOError):
            for _ in range(READS_MAX):
                try:
                    piece = self._end.recv(LINE_BYTES_MAX)
                except ConnectionResetError:
                    piece = b""
                if not piece:
                    asyncio.get_running_loop().remove_reader(self._end)
                    return
                *lines, self._partial = (self._partial + piece).split(b"\n")
                if len(self._partial) > LINE_BYTES_MAX:
                    lines, self._partial = [*lines, self._partial], b""
                for line in lines:
                    self._receive(line)

    def write(self, leader: BrokerAddress) -> None:
        """Write a line to the child.

        Raises:
            BlockingIOError: it has not read earlier lines for so long that the kernel's buffer is full.
        """
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended
            self._end.send(msgspec.json.encode({"leader": leader}) + b"\n")

    def close(self) -> None:
        """Close it: if the child still runs, it stops."""
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()


@dataclass(frozen=True, slots=True)
class _Running:
    process: asyncio.subprocess.Process
    lifeline: Lifeline


@dataclass(slots=True)
class Processes:
    """All running children, by name. Reports their state changes as events of the supervisor."""

    commands: Commands
    inherited: int
    """A file descriptor that the children keep open."""
    group: asyncio.TaskGroup
    """The tasks that wait for the end of each child."""
    report: Callable[[Event], None]
    compiled: Path | None
    """A folder with compiled modules, which workers import first."""
    _running: dict[str, _Running] = field(default_factory=dict)

    async def start(self, start: Start) -> None:
        """Start a process. A refusal by the operating system is reported as its death."""
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        if start.role == WORKER and self.compiled is not None:
            folders = filter(None, (str(self.compiled), environment.get("PYTHONPATH")))
            environment["PYTHONPATH"] = os.pathsep.join(folders)
        try:
            ours, theirs = socket.socketpair()
            with theirs, ExitStack() as on_failure:
                on_failure.enter_context(ours)
                command = [*self.commands[start.role], *start.arguments, "--lifeline", str(theirs.fileno())]
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=subprocess.DEVNULL,
                    stdout=sys.stderr,  # the supervisor's stdout has the endpoints only
                    pass_fds=(theirs.fileno(), self.inherited),
                    start_new_session=True,
                    env=environment,
                )
                on_failure.pop_all()
        except OSError as error:
            reason = f"the operating system does not start it: {error}"
            self.report(children.Failed(start.name, f"{reason}; {REMEDY}" if is_shortage(error) else reason))
            self.report(children.Died(start.name, "never started"))
            return
        running = _Running(process, Lifeline(ours, partial(self._receive, start.name)))
        self._running[start.name] = running
        self.group.create_task(self._follow(start.name, running))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, unless the child has ended."""
        if name in self._running:
            with suppress(ProcessLookupError):
                self._running[name].process.send_signal(number)

    def tell(self, name: str, leader: BrokerAddress) -> None:
        """Write to a child where the leading broker is. A child that does not read its lifeline is killed."""
        if name in self._running:
            try:
                self._running[name].lifeline.write(leader)
            except BlockingIOError:
                self.report(children.Failed(name, "it does not read its lifeline"))
                self.signal(name, signal.SIGKILL)

    async def _follow(self, name: str, running: _Running) -> None:
        status = await running.process.wait()
        running.lifeline.read()
        running.lifeline.close()
        del self._running[name]
        self.report(children.Died(name, f"exit status {status}" if status >= 0 else signal.Signals(-status).name))

    def _receive(self, name: str, text: bytes) -> None:
        """Report a line. A child that sends an invalid line has a defect and is killed."""
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.report(children.Failed(name, f"it sent an invalid line: {text[:100]!r}"))
            self.signal(name, signal.SIGKILL)
            return
        if line.alive is not None:
            self.report(children.Alive(name))
        elif line.ready is not None:
            self.report(children.Ready(name, line.ready))
        elif line.granted is not None:
            self.report(children.Granted(name, line.granted.partition, line.granted.epoch))
        elif line.leader is not None:
            self.report(children.LeaderFound(line.leader))
        elif line.refused is not None:
            self.report(children.Refused(name, line.refused))
        elif line.failed is not None:
            self.report(children.Failed(name, line.failed))
