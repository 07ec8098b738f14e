"""The children: starting them, listening on their lifelines, waiting for their end, signalling them.

Each child gets one end of a socket pair, its lifeline (`common/process.py`). We hold the other end and never write to
it: when we are gone, in whatever way, the kernel closes it and the child leaves. A child runs in a session of its
own, so that Ctrl-C in a terminal reaches only the supervisor, which then stops everything in order.

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
from typing import Final

import msgspec

from deploy.supervisor import BROKER, RMPROXY, STOP_ORDER, WEBSERVICE, WORKER, Died, Event, Failed, Ready, Start

Commands = Mapping[str, Sequence[str]]
"""How a process of each role is started; its arguments follow."""

COMMANDS: Final[Commands] = {role: (sys.executable, "-P", "-m", role) for role in STOP_ORDER}
"""The real ones. `-P`: a stray `common.py` in the working directory must not be taken for ours."""

LINE_BYTES_MAX: Final = 65536
DRAIN_MAX_S: Final = 1.0
"""How long the last words of a dead child may take to be read; they are already here."""

assert {BROKER, RMPROXY, WEBSERVICE, WORKER} == set(STOP_ORDER)


class Line(msgspec.Struct):
    """What a child says on its lifeline: one of the two."""

    ready: dict[str, str] | None = None
    failed: str | None = None


class Processes:
    """All children that run, by name. Reports what happens to them as events of the supervisor."""

    def __init__(
        self, commands: Commands, *, inherited: int, group: asyncio.TaskGroup, report: Callable[[Event], None]
    ) -> None:
        self._commands = commands
        self._inherited = inherited
        self._group = group
        self._report = report
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, start: Start) -> None:
        """Start one; if the system refuses, that is reported as its death."""
        ours, theirs = socket.socketpair()
        command = [*self._commands[start.role], *start.arguments, "--lifeline", str(theirs.fileno())]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,  # ours is for the lines that say what is ready
                pass_fds=(theirs.fileno(), self._inherited),
                start_new_session=True,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )
        except OSError as error:
            ours.close()
            self._report(Died(start.name, f"could not be started: {error}"))
            return
        finally:
            theirs.close()
        self._running[start.name] = process
        self._group.create_task(self._follow(start.name, process, ours))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, unless the child is already gone."""
        if name in self._running:
            with suppress(ProcessLookupError):
                self._running[name].send_signal(number)

    async def _follow(self, name: str, process: asyncio.subprocess.Process, lifeline: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=lifeline, limit=LINE_BYTES_MAX)
        listening = self._group.create_task(self._listen(name, reader))
        status = await process.wait()
        await asyncio.wait((listening,), timeout=DRAIN_MAX_S)
        listening.cancel()
        writer.close()
        del self._running[name]
        self._report(Died(name, ending(status)))

    async def _listen(self, name: str, reader: asyncio.StreamReader) -> None:
        """Report each line. What is not one of ours is a defect of the child and ends the supervisor."""
        while text := await reader.readline():
            line = msgspec.json.decode(text, type=Line)
            if line.ready is not None:
                self._report(Ready(name, line.ready))
            elif line.failed is not None:
                self._report(Failed(name, line.failed))


def ending(status: int) -> str:
    """How a process ended, for people."""
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name
