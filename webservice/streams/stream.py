"""One reader of events: first which history it is, then line by line what happened and happens in it.

It is an asynchronous iterator of pieces that are sent as they are. A reader whose connection does not take them is cut
off: what it has not read is dropped, and its last line says so.

Not here: when a reader is cut off, and where the lines come from (`follower.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from webservice.views import ErrorView, encoded

CLOSED: Final = "Event stream was closed by the producer"
CLOSED_LINE: Final = encoded(ErrorView(status_code=200, message=CLOSED, description=CLOSED))

Clock = Callable[[], float]
"""Seconds that never go back."""


class History(Protocol):
    """Whoever has the lines (`follower.py`)."""

    def piece(self, stream: "Stream") -> Awaitable[bytes]:
        """Lines from the place of the stream on, which goes on to what follows them; none if there are none yet."""

    def leave(self, stream: "Stream") -> None:
        """The reader is gone, or told nothing more."""


class Stream:
    """A reader, and its place: the number of the event that it has not been given yet."""

    def __init__(self, history: History, *, first_line: bytes, place: int, host: str, began: datetime, clock: Clock):
        self.place = place
        self.host = host
        """The header of that name of the request."""
        self.began = began.astimezone(UTC)
        self.begun = False
        """Whether it was given an event."""
        self.writing_since: float | None = None
        """Since when the connection has been given a piece; None while it waits for one."""
        self._history = history
        self._first_line = first_line
        self._clock = clock
        self._over = False
        self._news = asyncio.Event()

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> bytes:
        self.writing_since = None
        piece, self._first_line = self._first_line or await self._piece(), b""
        if not piece:
            raise StopAsyncIteration
        self.writing_since = self._clock()
        return piece

    async def _piece(self) -> bytes:
        """What comes next; at last why nothing more comes, and then nothing."""
        while not self._over:
            self._news.clear()
            piece = await self._history.piece(self)
            if piece and not self._over:
                self.begun = True
                return piece
            if not self._over:
                await self._news.wait()
        return CLOSED_LINE if self._last() else b""

    def _last(self) -> bool:
        """Whether the last line is still to be said, which it is once."""
        unsaid, self._unsaid = self._unsaid, False
        return unsaid

    _unsaid = True

    def wake(self) -> None:
        """There is something new."""
        self._news.set()

    def cut(self) -> None:
        """Give it nothing more but the last line."""
        self._over = True
        self._news.set()
        self._history.leave(self)

    async def aclose(self) -> None:
        """The connection is gone, or everything was sent."""
        self._history.leave(self)
