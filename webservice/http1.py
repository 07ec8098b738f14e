"""HTTP/1.1 with limits: on connections, on the time for a request to arrive, and on the time for a client to read an
answer.

uvicorn limits only the pause between requests: without these limits a client that never completes a request, or never
reads an answer, would keep its connection and the answer's memory for ever. Also contains the response that streams a
body in pieces.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import ClassVar, Final

import h11
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from webservice.calls import Pieces
from webservice.credentials import CERTIFICATE_EXTENSION, Certificate, parse_certificate

WRITE_MAX_S: Final = 10.0
"""Seconds for a client to accept one piece, usually 64 KiB. A client of an event stream is disconnected before that, so
it has some seconds to receive the closing line."""

ABORT: Final = "yunishard.abort"
"""Extension of an ASGI scope: its `now` aborts the connection and drops unsent data."""


class StreamResponse(Response):
    """A response that sends the pieces of a body one by one; each is written before the next one is requested.

    Unlike Starlette's, it ends the iteration as soon as the client disconnects, and aborts the connection of a client
    that does not accept a piece within WRITE_MAX_S.
    """

    def __init__(
        self, pieces: Pieces, status: int, headers: Mapping[str, str], *, write_max_s: float = WRITE_MAX_S
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces
        self._write_max_s = write_max_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all pieces, until the client disconnects."""
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
        """Send all pieces. Returns whether the client accepted them."""
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
    """The client accepts no data."""


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _abort(scope: Scope) -> None:
    now: Callable[[], None] = scope["extensions"][ABORT]["now"]
    now()


HEAD_MAX_S: Final = 10.0
BODY_MAX_S: Final = 30.0

TAKEN_WITHIN_S: Final = 10.0
TAKEN_BYTES_MIN: Final = 64 << 10
"""Bytes that a client must accept in that time, unless fewer are left; else its connection is aborted and the rest
dropped."""

CONNECTIONS_OF_ONE_MAX: Final = 500
"""Connections of one address, half of all: a further one is closed at once. Twice the bound on concurrent requests of
one address.
"""

CONNECTIONS_MAX: Final = 1000
"""Connections; requests on a further one are answered with 503, and it is closed."""

HEAD_BYTES_MAX: Final = 64 << 10
"""Bytes of the request line and headers, including the empty line. A longer head is answered with 431: here while it is
incomplete, in `api.py` once it is complete.
"""

TOO_LONG: Final = 431
"""The status of a request whose head is too long."""


class BoundedHttpProtocol(H11Protocol):
    """uvicorn's protocol with time limits for a request's head and body, and for reading the answer."""

    head_max_s: ClassVar[float] = HEAD_MAX_S
    body_max_s: ClassVar[float] = BODY_MAX_S
    taken_within_s: ClassVar[float] = TAKEN_WITHIN_S
    connections_max: ClassVar[int] = CONNECTIONS_MAX
    connections_of_one_max: ClassVar[int] = CONNECTIONS_OF_ONE_MAX

    _shown: Certificate | None = None
    """The client certificate, which TLS has verified; None without one."""
    _owed: object = None
    """What the client has to send next: IDLE for a head, SEND_BODY for a body."""
    _late: asyncio.TimerHandle | None = None
    """The timeout of that; set while the client has to send something."""
    _is_refused: bool = False
    """Whether further data of the client is ignored."""
    _stuck: asyncio.TimerHandle | None = None
    """The timeout of unsent data; set while there is some."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn narrows it, too
        super().connection_made(transport)
        if self._exceeds_connections():
            transport.abort()
            return
        self.conn = h11.Connection(h11.SERVER, HEAD_BYTES_MAX)  # uvicorn's own has a limit of 16 KiB
        if len(self.connections) > self.connections_max:
            self.limit_concurrency = 0  # uvicorn answers with 503
        transport.set_write_buffer_limits(high=1)  # pause at the first unsent byte; TLS treats 0 as no limit
        self._shown = parse_certificate(transport.get_extra_info("peercert"))
        self._restart_timeout()

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)
            self._restart_timeout()

    def handle_events(self) -> None:
        """Add the abort function and the client certificate to the scope."""
        super().handle_events()
        if self.scope is not None:
            self.scope["extensions"] = {
                ABORT: {"now": self.transport.abort},
                CERTIFICATE_EXTENSION: {"shown": self._shown},
            }

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._restart_timeout()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, unless another answer is being sent."""
        if self.cycle is None or self.cycle.response_complete:
            with suppress(h11.LocalProtocolError):  # an answer has begun
                if self._is_too_long():
                    self._refuse(HTTPStatus(TOO_LONG), "The head of the request is too long\n")
                else:
                    self._refuse(HTTPStatus.BAD_REQUEST, msg)
                return
        self.transport.close()

    def _exceeds_connections(self) -> bool:
        others = (one.client for one in self.connections if isinstance(one, BoundedHttpProtocol))
        host = self.client and self.client[0]
        return sum(other is not None and other[0] == host for other in others) > self.connections_of_one_max

    def _is_too_long(self) -> bool:
        """Whether the error being handled is that the head is too long."""
        error = sys.exc_info()[1]
        return isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == TOO_LONG

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Send an error, and close the connection once the client has received it: closing while data arrives would
        reset the connection and drop the error. With TLS, closing itself waits.
        """
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()),
            h11.Data(data=text.encode()),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        if self.transport.can_write_eof():
            self._is_refused = True
            self._stop_timeout()
            self.transport.write_eof()
            self._late = self.loop.call_later(self.head_max_s, self.transport.close)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unsent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching_unsent()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timeout()
        self._stop_watching_unsent()
        super().connection_lost(exc)

    def _watch_unsent(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(self.taken_within_s, self._check_progress, left)

    def _check_progress(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < TAKEN_BYTES_MIN:
            self.transport.abort()
        else:
            self._watch_unsent()

    def _stop_watching_unsent(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _restart_timeout(self) -> None:
        owed = self.conn.their_state
        if self.transport.is_closing() or owed not in (h11.IDLE, h11.SEND_BODY):
            self._stop_timeout()
        elif self._owed is not owed:
            self._stop_timeout()
            self._owed = owed
            self._late = self.loop.call_later(
                self.head_max_s if owed is h11.IDLE else self.body_max_s, self.transport.close
            )

    def _stop_timeout(self) -> None:
        self._owed = None
        if self._late is not None:
            self._late.cancel()
            self._late = None
