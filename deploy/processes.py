"""The children: starting them, listening on their lifelines, waiting for their end, signalling them.

Each child gets one end of a socket pair, its lifeline (`common/process.py`). We hold the other end: when we are gone,
in whatever way, the kernel closes it and the child leaves. A child runs in a session of its own, so that Ctrl-C in a
terminal reaches only the supervisor, which then stops everything in order.

Not here: what should run (`supervisor.py`).
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from common.process import Assignment
from common.process_limits import REMEDY, is_shortage
from deploy.children import STOP_ORDER, WORKER
from deploy.instructions import Alive, Assign, Died, Event, Failed, Ready, Start

Commands = Mapping[str, Sequence[str]]
"""How a process of each role is started; its arguments follow."""

COMMANDS: Final[Commands] = {role: (sys.executable, "-P", "-m", role) for role in STOP_ORDER}
"""The real ones. `-P`: a stray `common.py` in the working directory must not be taken for ours."""

LINE_BYTES_MAX: Final = 65536
"""What a child may say in one line."""


PIECES_MAX: Final = 32
"""Reads of a lifeline before somebody else gets their turn; more than the system keeps of what a child has said."""


class Line(msgspec.Struct):
    """What a child says on its lifeline: one of the three."""

    ready: dict[str, str] | None = None
    failed: str | None = None
    alive: int | None = None


class Lifeline:
    """Our end of it. `hear` is called with each line, and with what is none."""

    def __init__(self, end: socket.socket, hear: Callable[[bytes], None]) -> None:
        self._end = end
        self._hear = hear
        self._begun = b""
        end.settimeout(0)
        asyncio.get_running_loop().add_reader(end, self.read)

    def read(self) -> None:
        """Take what is there, and leave the rest for later should there be no end to it. The end of the lifeline says
        nothing: what a child has forked may still hold it.
        """
        loop = asyncio.get_running_loop()
        with suppress(BlockingIOError):
            for _ in range(PIECES_MAX):
                if not (piece := self._piece()):
                    loop.remove_reader(self._end)
                    return
                *lines, self._begun = (self._begun + piece).split(b"\n")
                if len(self._begun) > LINE_BYTES_MAX:
                    lines, self._begun = [*lines, self._begun], b""
                for line in lines:
                    self._hear(line)

    def say(self, line: bytes) -> None:
        """Write a line. If the child is gone its end is reported anyway; if it does not read it is not the first."""
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self._end.send(line)

    def close(self) -> None:
        """Let the child go, if it is still there."""
        asyncio.get_running_loop().remove_reader(self._end)
        self._end.close()

    def _piece(self) -> bytes:
        try:
            return self._end.recv(LINE_BYTES_MAX)
        except ConnectionResetError:
            return b""


@dataclass(frozen=True, slots=True)
class _Running:
    process: asyncio.subprocess.Process
    lifeline: Lifeline


class Processes:
    """All children that run, by name. Reports what happens to them as events of the supervisor."""

    def __init__(
        self,
        commands: Commands,
        *,
        inherited: int,
        group: asyncio.TaskGroup,
        report: Callable[[Event], None],
        compiled: Path | None = None,
    ) -> None:
        """`compiled` is a folder from which workers are to run, instead of from where we do."""
        self._commands = commands
        self._compiled = compiled
        self._inherited = inherited
        self._group = group
        self._report = report
        self._running: dict[str, _Running] = {}

    async def start(self, start: Start) -> None:
        """Start one; if the system refuses, that is reported as its death."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._report_refusal(start.name, error)
            return
        command = [*self._commands[start.role], *start.arguments, "--lifeline", str(theirs.fileno())]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,  # ours is for the lines that say what is ready
                pass_fds=(theirs.fileno(), self._inherited),
                start_new_session=True,
                env=self._environment(start.role),
            )
        except OSError as error:
            ours.close()
            self._report_refusal(start.name, error)
            return
        finally:
            theirs.close()
        running = _Running(process, Lifeline(ours, partial(self._hear, start.name)))
        self._running[start.name] = running
        self._group.create_task(self._follow(start.name, running))

    def _report_refusal(self, name: str, error: OSError) -> None:
        reason = f"the operating system does not start it: {error}"
        self._report(Failed(name, f"{reason}; {REMEDY}" if is_shortage(error) else reason))
        self._report(Died(name, "never started"))

    def _environment(self, role: str) -> dict[str, str]:
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        if role == WORKER and self._compiled is not None:
            others = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = f"{self._compiled}{os.pathsep}{others}" if others else str(self._compiled)
        return environment

    def assign(self, assign: Assign) -> None:
        """Give a spare worker its partition, unless it is already gone."""
        if assign.name in self._running:
            line = msgspec.json.encode(Assignment(assign.partition, assign.epoch)) + b"\n"
            self._running[assign.name].lifeline.say(line)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, unless the child is already gone."""
        if name in self._running:
            with suppress(ProcessLookupError):
                self._running[name].process.send_signal(number)

    async def _follow(self, name: str, running: _Running) -> None:
        status = await running.process.wait()
        running.lifeline.read()  # its last words
        running.lifeline.close()
        del self._running[name]
        self._report(Died(name, ending(status)))

    def _hear(self, name: str, text: bytes) -> None:
        """Report a line. Who says what is none has a defect, and is ended before it does more."""
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._report(Failed(name, f"its lifeline says {text[:100]!r}"))
            self.signal(name, signal.SIGKILL)
            return
        if line.alive is not None:
            self._report(Alive(name))
        elif line.ready is not None:
            self._report(Ready(name, line.ready))
        elif line.failed is not None:
            self._report(Failed(name, line.failed))


def ending(status: int) -> str:
    """How a process ended, for people."""
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name
