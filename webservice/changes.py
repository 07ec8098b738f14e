"""Handles every request that changes something: identify and authorize the caller, audit the request, make the change.

The outcome is a line in the log and in the audit log, if there is one. Nothing is changed before the audit log has it.
The changes themselves are handlers of routes; the file is in `audit.py`.
"""

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request

from webservice.audit import FAILED_A_MINUTE_MAX, AuditLog, Entry
from webservice.auth import PROXY, Authorizer, find_viewer
from webservice.calls import Call, Reply
from webservice.parameters import escape_for_log
from webservice.router import Route
from webservice.views import RequestError

OUTCOME_LENGTH_MAX: Final = 200
"""Characters of the reason in a log line about a refused change."""

ADDRESS_LENGTH_MAX: Final = 2_000
"""Bytes of the path and query of a change: the audit log has them whole, so that no change can be hidden."""

_WRITTEN_LENGTH_MAX: Final = 2 * ADDRESS_LENGTH_MAX
"""Characters of them in the audit log, with escapes."""

FORWARDED_LENGTH_MAX: Final = 120
"""Characters of `X-Forwarded-For` in the audit log, the last ones: the proxy appends its own entry."""

_log = logging.getLogger("core.rest")


class _NewConfig(msgspec.Struct, frozen=True):
    """The configuration in force after a change, if the answer has it."""

    checksum: str = ""
    version: int = 0


class ChangeHandler:
    """Makes changes. Without an audit log, only the process log records them."""

    def __init__(self, authorizer: Authorizer, audit: AuditLog | None) -> None:
        self._authorizer = authorizer
        self._audit = audit

    async def make_change(self, request: Request, call: Call, route: Route, request_id: str) -> Reply:
        """Make the requested change.

        Raises:
            RequestError: it was refused, or failed.
            ClientDisconnect: the client disconnected before the change began.
        """
        path, query = request.scope["raw_path"], request.scope["query_string"]
        entry = Entry(
            id=request_id,
            address=request.client.host if request.client else "",
            method=request.method,
            path=escape_for_log(path, length_max=_WRITTEN_LENGTH_MAX),
            query=escape_for_log(query, length_max=_WRITTEN_LENGTH_MAX),
        )
        try:
            caller = await self._authorizer.identify(request, call.headers, route)
            assert caller is not None, f"{route.path} changes something and needs no caller"
            entry.user, entry.by = caller.actor.user, caller.method
            if caller.method == PROXY:
                entry.forwarded_for = escape_for_log(call.headers.get("x-forwarded-for", "")[-FORWARDED_LENGTH_MAX:])
            self._authorizer.authorize(request, call.headers, route, caller)
            if self._audit is not None and not caller.actor.scheduler_admin and self._audit.is_over_limit(entry.user):
                text = f"{FAILED_A_MINUTE_MAX} of your changes failed in this minute: try again later"
                raise RequestError(429, text)  # failed changes could otherwise fill the audit log
            if len(path) + len(query) > ADDRESS_LENGTH_MAX:
                raise RequestError(400, f"The path and query of a change have at most {ADDRESS_LENGTH_MAX} bytes")
            content = await call.body()
            if await request.is_disconnected():  # its port may belong to another process by now
                raise ClientDisconnect

            async def body() -> bytes:
                return content

            await self._begin(entry)
            reply = await route.respond(replace(call, body=body, viewer=find_viewer(caller), requester=caller.actor))
            entry.status = reply.status
            with suppress(msgspec.MsgspecError):  # the answer to another change
                changed = msgspec.json.decode(reply.body if isinstance(reply.body, bytes) else b"", type=_NewConfig)
                entry.checksum, entry.version = changed.checksum, changed.version
        except RequestError as error:
            entry.status = error.status
            entry.reason = escape_for_log(" ".join(error.text.split()))[:OUTCOME_LENGTH_MAX]
            raise
        finally:
            await self._end(entry, request)
        return reply

    async def _begin(self, entry: Entry) -> None:
        entry.outcome = "begun"
        if self._audit is not None:
            entry.time = self._audit.stamp()
            try:
                await self._audit.write(entry)
            except OSError as error:
                entry.outcome = ""
                _log.error("no change is made: %s", error)
                text = f"Nothing was changed, for the audit log cannot be written: {error}; make room, then try again"
                raise RequestError(503, text) from None

    async def _end(self, entry: Entry, request: Request) -> None:
        if entry.by or self._authorizer.is_off:  # else the authorizer logs it, with a rate limit
            address = escape_for_log(request.scope["raw_path"], request.scope["query_string"])
            client = f"{request.client.host} port {request.client.port}" if request.client else "an unknown address"
            outcome = f"{entry.status} {entry.reason}".rstrip() if entry.status else "given up"
            user = entry.user or "an unknown user"
            _log.info("%s %s by %s from %s: %s", request.method, address, user, client, outcome)
        if self._audit is None or not (entry.outcome or entry.status):
            return
        if entry.outcome == "begun":
            entry.outcome = "unknown" if not entry.status else "failed" if entry.reason else "done"
        else:
            entry.outcome = "refused"
        entry.time = self._audit.stamp()
        await self._audit.record_outcome(entry)
