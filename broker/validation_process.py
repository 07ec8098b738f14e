"""Child process that analyses one configuration text and exits, so that the broker goes on routing meanwhile.

The broker's machine sends a text to this endpoint of the wire and receives the encoded analysis, or an empty body if
the process failed. As a program (`python -m broker.validation_process`) this module is the child: it reads a text from
stdin and writes the analysis to stdout.

Rejected: a process that stays, which keeps the memory that a large text takes; a thread, which competes with the event
loop for the interpreter.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from broker.config_validation import analyze, encode_analysis
from common.messages import Header
from common.names import READER
from common.process import install_signal_handlers
from common.wire import Incoming, Outgoing

VALIDATION_MAX_S: Final = 30.0
"""How long the analysis of one text may take. The largest text that is accepted needs about ten seconds."""

_PROGRAM: Final = (sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "broker.validation_process")

_log = logging.getLogger("core.config")


class ValidationProcess:
    """The endpoint. The machine requests one analysis at a time."""

    def __init__(
        self, *, wake: Callable[[], None], program: Sequence[str] = _PROGRAM, limit_s: float = VALIDATION_MAX_S
    ) -> None:
        self._wake = wake
        self._program = program
        self._limit_s = limit_s
        self._answers: deque[Incoming] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def receive(self) -> Incoming | None:
        return self._answers.popleft() if self._answers else None

    def send(self, message: Outgoing) -> None:
        """Start the analysis of a text; needs a running loop."""
        task = asyncio.get_running_loop().create_task(self._process(message))
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
        self._answers.append(Incoming(READER, Header(kind="TextRead", ref=message.header.ref), analysis))
        self._wake()

    async def _run_child(self, text: bytes) -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._program, stdin=pipe, stdout=pipe)
        try:
            async with asyncio.timeout(self._limit_s):
                found, _ = await process.communicate(text)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()  # closes the pipes
        if process.returncode != 0:
            raise OSError(f"it ended with status {process.returncode}")
        return found


def main() -> None:
    """Analyse the text on stdin."""
    install_signal_handlers()
    sys.stdout.buffer.write(encode_analysis(analyze(sys.stdin.buffer.read().decode())))


if __name__ == "__main__":
    main()
