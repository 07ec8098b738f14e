"""An end to how much memory a process takes because of what others send it.

Most of what arrives is bounded where it arrives. What is left, ZeroMQ keeps out of our sight: a message of many frames
exists for us only when its last frame is here, and until then it may grow for as long as its sender likes. So the
process looks at itself, and when it has grown too large it ends in order and is started again, which everybody who
speaks to it is prepared for.

Not here: limits on single messages (`wire.py`, `sockets.py`).
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 0.25
"""How often a process looks at itself. What arrives meanwhile, up to a few hundred MiB, comes on top of the limit."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM_BYTES_MAX: Final = 256
"""`/proc/self/statm` is one line of seven numbers."""


class MemoryLimit:
    """Calls `exceeded` once, with what is used, when the process uses more than `most_bytes`; in a running loop."""

    def __init__(
        self,
        most_bytes: int,
        exceeded: Callable[[int], None],
        *,
        used_bytes: Callable[[], int] | None = None,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._most_bytes = most_bytes
        self._exceeded = exceeded
        self._used_bytes = used_bytes or resident_bytes
        self._look_every_s = look_every_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(look_every_s, self._look)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        used = self._used_bytes()
        if used > self._most_bytes:
            self._exceeded(used)
        else:
            self._timer = self._loop.call_later(self._look_every_s, self._look)


def _opened(file: str) -> int | None:
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


_statm: Final = _opened("/proc/self/statm")
"""Stays open: a process that has no free descriptors must see its memory, too. None where the system has no such file.
"""


def resident_bytes() -> int:
    """Memory of this process that is in use now; 0 where the system does not say."""
    if _statm is None:
        return 0
    return int(os.pread(_statm, _STATM_BYTES_MAX, 0).split()[1]) * _PAGE_BYTES
