"""HTTP/1.1 with limits: on connections, on the time for a request to arrive, and on the time for a client to read an
answer.

uvicorn limits only the pause between requests: without these limits a client that never completes a request, or never
reads an answer, would keep its connection and the answer's memory for ever.
"""

import asyncio
import logging
import sys
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from typing import ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from yunishard.webservice.credentials import CERTIFICATE_EXTENSION, Identity, certificate_owner

_log: Final = logging.getLogger(__name__)

MALFORMED_LINE: Final = "Invalid HTTP request received."
"""uvicorn's log line about a malformed request, which does not name the client."""

TAKEN_BYTES_MIN: Final = 64 << 10
"""Bytes that a client must accept within `taken_within_s`, unless fewer are left; else its connection is aborted and
the rest dropped.
"""

HEAD_BYTES_MAX: Final = 64 << 10
"""Bytes of the request line and headers, including the empty line. A longer head is answered with 431: here while it is
incomplete, in `api.py` once it is complete.
"""


class BoundedHttpProtocol(H11Protocol):
    """uvicorn's protocol with time limits for a request's head and body, and for reading the answer."""

    head_max_s: ClassVar = 10.0
    body_max_s: ClassVar = 30.0
    taken_within_s: ClassVar = 10.0
    """The connection of an event stream's client that is disconnected remains so long, to receive the closing line."""
    connections_max: ClassVar = 1000
    """Connections. For a further one the oldest idle one ends, of the address with the most; without an idle one, its
    requests are answered with 503, and it is closed.
    """
    connections_of_one_max: ClassVar = 500
    """Connections of one address, half of all: for a further one its oldest idle one ends, or else the new one at once.
    Twice the bound on concurrent requests of one address.
    """

    _owner: Identity | None = None
    """The owner of the client certificate, which TLS has verified; None without one."""
    _owed: object = None
    """The next part that the client has to send: IDLE for a head, SEND_BODY for a body."""
    _late: asyncio.TimerHandle | None = None
    """The timeout of that; set while the client has to send something."""
    _opened_at = 0.0
    """When the connection was made, in the loop's time."""
    _is_refused = False
    """Whether further data of the client is ignored."""
    _stuck: asyncio.TimerHandle | None = None
    """The timeout of unsent data; cancelled while there is none."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn narrows it, too
        super().connection_made(transport)
        self._opened_at = self.loop.time()
        others = self._count_by_host()
        host = self._host
        if others[host] > self.connections_of_one_max and not self._end_idle(host):
            transport.abort()
            return
        self.conn = h11.Connection(h11.SERVER, HEAD_BYTES_MAX)  # uvicorn's own has a limit of 16 KiB
        if len(self.connections) > self.connections_max and not self._end_idle(others.most_common(1)[0][0]):
            self.limit_concurrency = 0  # uvicorn answers with 503
        transport.set_write_buffer_limits(high=1)  # pause at the first unsent byte; TLS treats 0 as no limit
        self._owner = certificate_owner(transport.get_extra_info("peercert"))
        self._restart_timeout()

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)
            self._restart_timeout()

    def handle_events(self) -> None:
        """Add the client certificate to the scope."""
        super().handle_events()
        if self.scope is not None:
            self.scope["extensions"] = {CERTIFICATE_EXTENSION: {"owner": self._owner}}

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._restart_timeout()

    def send_400_response(self, msg: str) -> None:
        """Log and answer a malformed request, unless another answer is being sent."""
        _log.warning("invalid HTTP request from %s", self.client[0] if self.client else "a client")
        if self.cycle is None or self.cycle.response_complete:
            with suppress(h11.LocalProtocolError):  # part of an answer is sent
                error = sys.exc_info()[1]
                if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
                    self._refuse(HTTPStatus(431), "The head of the request is too long\n")
                else:
                    self._refuse(HTTPStatus.BAD_REQUEST, msg)
                return
        self.transport.close()

    @property
    def _host(self) -> str:
        """The address of the client; empty if it has gone."""
        return self.client[0] if self.client else ""

    def _list_others(self) -> list["BoundedHttpProtocol"]:
        return [one for one in self.connections if isinstance(one, BoundedHttpProtocol) and one is not self]

    def _count_by_host(self) -> Counter[str]:
        return Counter([self._host, *(one._host for one in self._list_others())])

    def _end_idle(self, host: str) -> bool:
        """End the oldest connection of an address that has no request in progress, so that connections that only wait
        keep no other client out; return whether there was one.
        """
        found = [one for one in self._list_others() if one._host == host and one._is_idle]
        if not found:
            return False
        oldest = min(found, key=lambda one: one._opened_at)
        self.connections.discard(oldest)  # it remains until its transport has ended
        oldest.transport.abort()
        return True

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Send an error, and close the connection once the client has received it: closing while data arrives would
        reset the connection and drop the error. With TLS, closing itself waits.
        """
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
        response = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
        for event in (response, h11.Data(data=text.encode()), h11.EndOfMessage()):
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
        if self._stuck is not None:
            self._stuck.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timeout()
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def _watch_unsent(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(self.taken_within_s, self._check_progress, left)

    def _check_progress(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < TAKEN_BYTES_MIN:
            self.transport.abort()
        else:
            self._watch_unsent()

    def _restart_timeout(self) -> None:
        owed = self.conn.their_state
        if self.transport.is_closing() or owed not in (h11.IDLE, h11.SEND_BODY):
            self._stop_timeout()
        elif self._owed is not owed:
            self._stop_timeout()
            self._owed = owed
            limit_s = self.head_max_s if owed is h11.IDLE else self.body_max_s
            self._late = self.loop.call_later(limit_s, self.transport.close)

    def _stop_timeout(self) -> None:
        self._owed = None
        if self._late is not None:
            self._late.cancel()
            self._late = None
