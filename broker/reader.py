"""A process that reads one text and ends, so that the broker goes on routing meanwhile.

An endpoint of the broker's wire: the machine sends a text and hears the judgement on it, or an empty answer where the
process could not say it. As a program (`python -m broker.reader`) it is that process: a text comes in, a judgement goes
out.

Rejected: a process that stays, which keeps the memory that a large text takes and has to be looked after; a thread,
which takes turns with the loop all the time. Not here: who waits for it (`foresight.py`), what a judgement is
(`judgement.py`).
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from broker.judgement import encoded, judged
from common import signals
from common.machine import Delivery, Send
from common.messages import Header
from common.names import READER

READING_MAX_S: Final = 30.0
"""How long a text may take. The largest that is taken needs about ten seconds."""

_PROGRAM: Final = (sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "broker.reader")

_log = logging.getLogger("core.config")


class Reader:
    """The endpoint. One text is read at a time, as the machine asks for one at a time."""

    def __init__(
        self, *, wake: Callable[[], None], program: Sequence[str] = _PROGRAM, limit_s: float = READING_MAX_S
    ) -> None:
        self._wake = wake
        self._program = program
        self._limit_s = limit_s
        self._answers: deque[Delivery] = deque()
        self._reading: set[asyncio.Task[None]] = set()

    def receive(self) -> Delivery | None:
        return self._answers.popleft() if self._answers else None

    def send(self, message: Send) -> None:
        """Have it read; needs a running loop."""
        task = asyncio.get_running_loop().create_task(self._read(message))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    def close(self) -> None:
        """Wait for nothing any more."""
        for task in self._reading:
            task.cancel()

    async def _read(self, message: Send) -> None:
        try:
            judgement = await self._judged(message.body)
        except (OSError, TimeoutError) as error:
            _log.warning("the broker parses a configuration itself, as its process failed: %s", error or "timeout")
            judgement = b""
        self._answers.append(Delivery(READER, Header(kind="TextRead", ref=message.header.ref), judgement))
        self._wake()

    async def _judged(self, text: bytes) -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._program, stdin=pipe, stdout=pipe)
        try:
            async with asyncio.timeout(self._limit_s):
                found, _ = await process.communicate(text)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()  # or its pipes stay open
        if process.returncode != 0:
            raise OSError(f"it ended with status {process.returncode}")
        return found


def main() -> None:
    """Judge the text that comes in."""
    signals.install()
    sys.stdout.buffer.write(encoded(judged(sys.stdin.buffer.read().decode())))


if __name__ == "__main__":
    main()
