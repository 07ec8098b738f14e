"""A program on a terminal, for tests."""

import os
import pty
import select
import signal
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Self


class Terminal:
    """A program on a terminal."""

    def __init__(self, *command: str, folder: Path, width: int = 120, height: int = 30) -> None:
        self._pid, self._fd = pty.fork()
        if not self._pid:
            os.environ["TERM"] = "xterm"
            os.chdir(folder)
            os.execvp(command[0], command)
        termios.tcsetwinsize(self._fd, (height, width))
        self._seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def ends(self) -> int:
        """Its exit status, once it has ended."""
        with suppress(OSError):  # the other end is closed
            while data := os.read(self._fd, 4096):
                self._seen += data
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    @property
    def seen(self) -> str:
        """What it has written and no call has waited for."""
        return self._seen.decode(errors="surrogateescape")

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def waits_for(self, text: str, timeout_s: float = 30) -> None:
        """Read until the text appears after what was seen before."""
        until = time.monotonic() + timeout_s
        while text.encode() not in self._seen:
            ready, _, _ = select.select([self._fd], [], [], until - time.monotonic())
            assert ready, self._seen
            self._seen += os.read(self._fd, 4096)
        self._seen = self._seen.partition(text.encode())[2]
