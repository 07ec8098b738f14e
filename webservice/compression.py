"""Gzip compression of response bodies: whether a client accepts it, and a cached body that is compressed once however
many clients read it.

Not here: which answers are cached, and the bound on their bytes (`shelf.py`).
"""

import asyncio
import gzip
from collections.abc import Callable
from typing import Final

GZIP_BYTES_MIN: Final = 1400
"""A smaller body is never compressed."""

THREAD_BYTES_MIN: Final = 256 << 10
"""From this size on a body is compressed in a thread, so that other requests go on."""

_GZIP_FASTEST: Final = 1


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a client takes gzip: the first mention decides, and only `q=0`, written so, refuses."""
    for offer in accept_encoding.split(","):
        coding, _, parameter = offer.partition(";")
        if coding.strip().lower() == "gzip":
            return parameter.strip() != "q=0"
    return False


async def compress(body: bytes) -> bytes:
    """The gzip form of a body."""
    if len(body) < THREAD_BYTES_MIN:
        return gzip.compress(body, _GZIP_FASTEST, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _GZIP_FASTEST, mtime=0)


class CachedBody:
    """A body in the response cache, with its gzip form once a client has asked for that.

    Args:
        plain: The body as it is.
        on_growth: Called when the gzip form is added, so that the cache can keep its bound on bytes.
    """

    __slots__ = ("_gzipped", "_lock", "_on_growth", "plain")

    def __init__(self, plain: bytes, on_growth: Callable[[], None]) -> None:
        self.plain = plain
        self._on_growth = on_growth
        self._gzipped = b""
        self._lock = asyncio.Lock()

    @property
    def size(self) -> int:
        """Bytes of both forms."""
        return len(self.plain) + len(self._gzipped)

    async def gzipped(self) -> bytes:
        """The gzip form. Concurrent callers share one compression."""
        async with self._lock:
            if not self._gzipped:
                self._gzipped = await compress(self.plain)
                self._on_growth()
        return self._gzipped
