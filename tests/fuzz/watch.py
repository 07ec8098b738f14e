"""What must not grow while others are mad: memory, open files, the log; and what must not change: who runs.

Not here: who is mad (`senders.py`).
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.deploy.system import Up, eventually
from tests.processes.test_flood import memory_of

GROWTH_MAX_BYTES: Final = 96 << 20
"""What a process may use more, at any time, than when everything had just begun. A million messages of a kilobyte that
leave something behind are far more; what is usual is a third of it, which Python keeps for the next time."""

FILES_MAX: Final = 40
"""Files and connections that a process may have open more than then, once everybody has gone."""

LOG_LINES_MAX: Final = 500
"""Lines that the log may have, besides those about what somebody may do."""

TRACEBACK_LINES: Final = 60
"""Lines of the log that are shown from where it tells of a defect."""

_ORDINARY: Final = re.compile(r" (INFO|DEBUG) ")
"""Registrations, other configurations, changes that were refused over REST: each has a line by intention."""

_DEATH: Final = re.compile(r"WARNING .* ended after|killing it|Traceback|Exception|exception|it starts again")
CORE: Final = {"the broker": "-m broker", "the proxy": "-m rmproxy", "the web service": "-m webservice"}


class Watch:
    """What there was at the beginning, for comparison."""

    def __init__(self, up: Up, names: Mapping[str, str]) -> None:
        """Of the supervisor, and of those with these words in their command lines; by what we call them."""
        self._up = up
        self._names = {up.process.pid: "the supervisor", **{up.child(words): name for name, words in names.items()}}
        self._memory = {number: memory_of(number, "VmRSS") for number in self._names}
        self._files = {number: _files(number) for number in self._names}

    def problem(self) -> str:
        """What has gone wrong so far; empty as long as nothing has."""
        alive = {*self._up.children, self._up.process.pid} if self._up.process.poll() is None else set()
        for number, name in self._names.items():
            if number not in alive:
                return f"{name} died"
        for number, name in self._names.items():
            with suppress(FileNotFoundError, ProcessLookupError):
                grown = memory_of(number, "VmRSS") - self._memory[number]
                if grown > GROWTH_MAX_BYTES:
                    return f"{name} takes {grown >> 20} MiB more than at the beginning"
        lines = self._up.errors.splitlines()
        dead = next((at for at, line in enumerate(lines) if _DEATH.search(line)), None)
        if dead is not None:
            return "the log says: " + "\n".join(lines[dead : dead + TRACEBACK_LINES])
        loud = [line for line in lines if not _ORDINARY.search(line)]
        if len(loud) > LOG_LINES_MAX:
            return f"the log has {len(loud)} lines, {loud[-1]!r} the last"
        return ""

    def files_closed(self) -> None:
        """Whoever has gone has left nothing open."""
        eventually(lambda: all(_files(number) <= before + FILES_MAX for number, before in self._files.items()))

    def figures(self) -> str:
        """How much each has grown, in MiB."""
        grown = {name: memory_of(number, "VmRSS") - self._memory[number] for number, name in self._names.items()}
        return ", ".join(f"{name} {size / 2**20:+.0f} MiB" for name, size in grown.items())


def _files(number: int) -> int:
    return len(os.listdir(Path(f"/proc/{number}/fd")))
