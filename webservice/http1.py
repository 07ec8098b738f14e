"""HTTP/1.1 as uvicorn speaks it, with limits on how long the head and the body of a request may take.

uvicorn itself limits only the pause between requests, so a client that never sends a whole request would keep its
connection for ever; and it loses its composure over a client that loses its own in the middle of an answer. Everything
else is uvicorn's.
"""

import asyncio
import sys
from contextlib import suppress
from http import HTTPStatus
from typing import ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from webservice.door.certificates import EXTENSION as CERTIFICATE
from webservice.door.certificates import Certificate, certificate_of
from webservice.flow import ABORT

HEAD_MAX_S: Final = 10.0
BODY_MAX_S: Final = 30.0

TOO_LONG: Final = 431
"""The status of a request whose head is longer than is read at once, 64 KiB."""


class ImpatientHttp(H11Protocol):
    """Closes a connection whose next request's head is not complete in time, or its body."""

    head_max_s: ClassVar[float] = HEAD_MAX_S
    body_max_s: ClassVar[float] = BODY_MAX_S

    _shown: Certificate | None = None
    """The certificate with which the peer has come, if it has one; TLS has seen that it is right."""
    _owed: object = None
    """What the peer owes us: IDLE for the rest of a head or a first byte of it, SEND_BODY for that of a body."""
    _late: asyncio.TimerHandle | None = None
    """Runs all and only while it owes us something."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn narrows it, too
        super().connection_made(transport)
        self._shown = certificate_of(transport.get_extra_info("peercert"))
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        """Give whoever answers a request a way to end the connection at once, and the certificate it came with."""
        super().handle_events()
        if self.scope is not None:
            self.scope["extensions"] = {ABORT: {"now": self.transport.abort}, CERTIFICATE: {"shown": self._shown}}

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, where that can be said: not in the middle of another answer."""
        if self.cycle is None or self.cycle.response_complete:
            with suppress(h11.LocalProtocolError):  # what it has begun leaves no room for that
                if self._is_too_long():
                    self._refuse_head()
                else:
                    super().send_400_response(msg)
        self.transport.close()

    def _is_too_long(self) -> bool:
        """Whether the head is what is wrong, for its length; said in the error that is being handled."""
        error = sys.exc_info()[1]
        return isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == TOO_LONG

    def _refuse_head(self) -> None:
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
        for event in (
            h11.Response(status_code=TOO_LONG, headers=headers, reason=HTTPStatus(TOO_LONG).phrase.encode()),
            h11.Data(data=b"The head of the request is too long\n"),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

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
