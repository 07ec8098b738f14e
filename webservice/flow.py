"""A reply that is sent piece by piece, as the pieces come, to a client that must take them.

Starlette's own lets go of the pieces when they are collected as garbage, and waits for a client for ever. Here they are
let go of as soon as the client is gone; and a client that has not taken one within WRITE_MAX_S loses its connection.

Not here: the pieces.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from webservice.calls import Pieces

WRITE_MAX_S: Final = 10.0
"""How long a client may take for what is a piece as a rule, 64 KiB. A reader of events is cut off before, so it has
some seconds to hear of it."""

ABORT: Final = "yunishard.abort"
"""Extension of the scope: its `now` closes the connection without what is not sent yet (`http1.py`)."""


class Flow(Response):
    """The pieces, one after the other; each is sent before the next one is asked for."""

    def __init__(
        self, pieces: Pieces, status: int, headers: Mapping[str, str], *, write_max_s: float = WRITE_MAX_S
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces
        self._write_max_s = write_max_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, or as much as the client waits for."""
        sending = asyncio.create_task(self._sent(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not sending.result():
                _abort(scope)
                await leaving
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._pieces.aclose()

    async def _sent(self, send: Send) -> bool:
        """Whether the client has taken everything."""
        try:
            begin = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await self._write(send, begin)
            async for piece in self._pieces:
                await self._write(send, {"type": "http.response.body", "body": piece, "more_body": True})
            await self._write(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except _StuckError:
            return False
        return True

    async def _write(self, send: Send, message: dict[str, object]) -> None:
        try:
            async with asyncio.timeout(self._write_max_s):
                await send(message)
        except TimeoutError:
            raise _StuckError from None


class _StuckError(Exception):
    """The client takes nothing."""


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _abort(scope: Scope) -> None:
    now: Callable[[], None] = scope["extensions"][ABORT]["now"]
    now()
