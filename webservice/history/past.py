"""The history for those who ask: whether there is one, and questions to it in a few threads.

Not here: the questions themselves (`reading.py`), keeping it (`keeping.py`).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, TypeVar

from webservice.errors import RequestError
from webservice.history import reading
from webservice.history.reading import BadCursor, NoSuchPartition, TooMuch, Unreadable

READERS_MAX: Final = 2
"""Questions that are answered at once."""

WAITING_MAX: Final = 32
"""Questions that wait for that; more are refused."""

_T = TypeVar("_T")


class Kept(Protocol):
    """Who keeps the history (`keeping.py`)."""

    @property
    def path(self) -> Path: ...

    @property
    def problem(self) -> str:
        """Why it is not kept at present; empty while it is."""


class Past:
    """The history in one file, for reading."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._readers = ThreadPoolExecutor(max_workers=READERS_MAX, thread_name_prefix="past")
        self._open = 0
        """Questions that are not answered yet."""

    async def read(self, question: Callable[[Path], _T]) -> _T:
        """The answer to a question of `reading.py`.

        Raises:
            RequestError: there is none.
        """
        if self._kept.problem:
            raise RequestError(503, f"There is no history: {self._kept.problem}")
        if self._open >= READERS_MAX + WAITING_MAX:
            raise RequestError(503, f"{self._open} questions about the history are waiting already, try again later")
        self._open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, question, self._kept.path)
        except NoSuchPartition:
            raise RequestError(404, "Partition not found") from None
        except BadCursor:
            raise RequestError(400, "after must be what an earlier answer gave as next") from None
        except TooMuch:
            text = f"This takes longer than {reading.SECONDS_MAX:g} s: ask for less time, with since and until"
            raise RequestError(503, text) from None
        except Unreadable as error:
            raise RequestError(503, f"The history cannot be read: {error}") from None
        finally:
            self._open -= 1

    def close(self) -> None:
        """Answer nothing more."""
        self._readers.shutdown(wait=False, cancel_futures=True)
