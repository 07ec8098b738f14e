"""A reply that is sent piece by piece, as the pieces come, to a client that must take them.

Starlette's own lets go of the pieces when they are collected as garbage, and waits for a client for ever. Here they are
let go of as soon as the client is gone; and a client that has not taken one within WRITE_MAX_S loses its connection.

Not here: the pieces.
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
"""How long a client may take for what is a piece as a rule, 64 KiB. A reader of events is cut off before, so it has
some seconds to hear of it."""

ABORT: Final = "yunishard.abort"
"""Extension of the scope: its `now` closes the connection without what is not sent yet (`http1.py`)."""


class StreamResponse(Response):
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


HEAD_MAX_S: Final = 10.0
BODY_MAX_S: Final = 30.0

TAKEN_WITHIN_S: Final = 10.0
TAKEN_BYTES_MIN: Final = 64 << 10
"""What a client must take of its answers in that time, or all there is: else its connection is cut, and what is left
for it let go of. That is as slow as a telephone line."""

CONNECTIONS_OF_ONE_MAX: Final = 500
"""Of one address, half of all that are served: a further one is closed at once, so that there is room for others. That
is twice the requests of one address that run at the same time.
"""

CONNECTIONS_MAX: Final = 1000
"""Connections that are served; requests on a further one are answered with 503, and it is closed then."""

HEAD_BYTES_MAX: Final = 64 << 10
"""Bytes of the head of a request: its line and headers, up to and with the empty line. A longer one is answered with
431. Here that is seen of a head that is not complete yet, in `api.py` of one that is.
"""

TOO_LONG: Final = 431
"""The status of a request whose head is too long."""


class BoundedHttpProtocol(H11Protocol):
    """Closes a connection whose next request's head is not complete in time, or its body, or that takes no answer."""

    head_max_s: ClassVar[float] = HEAD_MAX_S
    body_max_s: ClassVar[float] = BODY_MAX_S
    taken_within_s: ClassVar[float] = TAKEN_WITHIN_S
    connections_max: ClassVar[int] = CONNECTIONS_MAX
    connections_of_one_max: ClassVar[int] = CONNECTIONS_OF_ONE_MAX

    _shown: Certificate | None = None
    """The certificate with which the peer has come, if it has one; TLS has seen that it is right."""
    _owed: object = None
    """What the peer owes us: IDLE for the rest of a head or a first byte of it, SEND_BODY for that of a body."""
    _late: asyncio.TimerHandle | None = None
    """Runs all and only while it owes us something, the end of the connection at last."""
    _is_refused: bool = False
    """Whether nothing more is read of what it sends."""
    _stuck: asyncio.TimerHandle | None = None
    """Runs all and only while it has not taken everything that was sent."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn narrows it, too
        super().connection_made(transport)
        if self._is_one_too_many():
            transport.abort()
            return
        self.conn = h11.Connection(h11.SERVER, HEAD_BYTES_MAX)  # uvicorn's own has a limit of 16 KiB
        if len(self.connections) > self.connections_max:
            self.limit_concurrency = 0  # uvicorn answers with 503
        transport.set_write_buffer_limits(high=1)  # so that we hear of what it does not take; TLS counts nothing as 0
        self._shown = parse_certificate(transport.get_extra_info("peercert"))
        self._watch()

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)
            self._watch()

    def handle_events(self) -> None:
        """Give whoever answers a request a way to end the connection at once, and the certificate it came with."""
        super().handle_events()
        if self.scope is not None:
            self.scope["extensions"] = {
                ABORT: {"now": self.transport.abort},
                CERTIFICATE_EXTENSION: {"shown": self._shown},
            }

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, where that can be said: not in the middle of another answer."""
        if self.cycle is None or self.cycle.response_complete:
            with suppress(h11.LocalProtocolError):  # what it has begun leaves no room for that
                if self._is_too_long():
                    self._refuse(HTTPStatus(TOO_LONG), "The head of the request is too long\n")
                else:
                    self._refuse(HTTPStatus.BAD_REQUEST, msg)
                return
        self.transport.close()

    def _is_one_too_many(self) -> bool:
        others = (one.client for one in self.connections if isinstance(one, BoundedHttpProtocol))
        host = self.client and self.client[0]
        return sum(other is not None and other[0] == host for other in others) > self.connections_of_one_max

    def _is_too_long(self) -> bool:
        """Whether the head is what is wrong, for its length; said in the error that is being handled."""
        error = sys.exc_info()[1]
        return isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == TOO_LONG

    def _refuse(self, status: HTTPStatus, told: str) -> None:
        """Say so, and end the connection when the client has heard it: while more comes from it, closing resets the
        connection, and what we said is lost. With TLS, closing itself waits for that.
        """
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()),
            h11.Data(data=told.encode()),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        if self.transport.can_write_eof():
            self._is_refused = True
            self._forget()
            self.transport.write_eof()
            self._late = self.loop.call_later(self.head_max_s, self.transport.close)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._all_taken()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._all_taken()
        super().connection_lost(exc)

    def _expect_taken(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(self.taken_within_s, self._judge, left)

    def _judge(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < TAKEN_BYTES_MIN:
            self.transport.abort()
        else:
            self._expect_taken()

    def _all_taken(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _watch(self) -> None:
        owed = self.conn.their_state
        if self.transport.is_closing() or owed not in (h11.IDLE, h11.SEND_BODY):
            self._forget()
        elif self._owed is not owed:
            self._forget()
            self._owed = owed
            self._late = self.loop.call_later(
                self.head_max_s if owed is h11.IDLE else self.body_max_s, self.transport.close
            )

    def _forget(self) -> None:
        self._owed = None
        if self._late is not None:
            self._late.cancel()
            self._late = None
