"""Handles every request that changes something: identify and authorize the caller, audit the request, make the change.

The outcome is a line in the log and in the audit log, if there is one. Nothing is changed before the audit log has it.
The changes themselves are handlers of routes; the file is in `audit.py`.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request

from webservice.audit import FAILED_A_MINUTE_MAX, AuditLog, Entry
from webservice.auth import PROXY, Authorizer, Caller, find_viewer
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


@dataclass(slots=True)
class _Attempt:
    """A request that changes something, and its outcome so far."""

    id: str
    request: Request
    headers: Mapping[str, str]
    caller: Caller | None = None
    outcome: str = ""
    """Empty until the change begins."""
    status: int = 0
    reason: str = ""
    new_config: _NewConfig = field(default_factory=_NewConfig)

    def entry(self, stamp: str, outcome: str) -> Entry:
        """The line for the audit log."""
        caller, request = self.caller, self.request
        forwarded = self.headers.get("x-forwarded-for", "")[-FORWARDED_LENGTH_MAX:]
        return Entry(
            time=stamp,
            id=self.id,
            outcome=outcome,
            user=caller.actor.user if caller else "",
            by=caller.method if caller else "",
            address=request.client.host if request.client else "",
            forwarded_for=escape_for_log(forwarded) if caller and caller.method == PROXY else "",
            method=request.method,
            path=escape_for_log(request.scope["raw_path"], length_max=_WRITTEN_LENGTH_MAX),
            query=escape_for_log(request.scope["query_string"], length_max=_WRITTEN_LENGTH_MAX),
            status=self.status,
            reason=self.reason,
            checksum=self.new_config.checksum,
            version=self.new_config.version,
        )


class ChangeHandler:
    """Makes changes. Without an audit log, only the process log records them."""

    def __init__(self, authorizer: Authorizer, audit: AuditLog | None) -> None:
        self._authorizer = authorizer
        self._audit = audit

    async def make_change(self, request: Request, call: Call, route: Route, request_id: str) -> Reply:
        """Make the change that a request asks for.

        Raises:
            RequestError: it was refused, or failed.
            ClientDisconnect: the client disconnected before the change began.
        """
        attempt = _Attempt(request_id, request, call.headers)
        try:
            attempt.caller = caller = await self._authorizer.identify(request, call.headers, route)
            assert caller is not None, f"{route.path} changes something and needs no caller"
            self._authorizer.authorize(request, call.headers, route, caller)
            self._check_rate(caller)
            _check_length(request)
            content = await call.body()
            if await request.is_disconnected():  # its port may belong to another process by now
                raise ClientDisconnect

            async def body() -> bytes:
                return content

            await self._begin(attempt)
            reply = await route.respond(replace(call, body=body, viewer=find_viewer(caller), requester=caller.actor))
            attempt.status, attempt.new_config = reply.status, _parse_new_config(reply)
        except RequestError as error:
            attempt.status, attempt.reason = (
                error.status,
                escape_for_log(" ".join(error.text.split()))[:OUTCOME_LENGTH_MAX],
            )
            raise
        finally:
            await self._end(attempt)
        return reply

    def _check_rate(self, caller: Caller) -> None:
        """Limit the rate of failed changes, which could otherwise fill the audit log; scheduler administrators are
        exempt.

        Raises:
            RequestError: 429.
        """
        actor = caller.actor
        if self._audit is not None and not actor.scheduler_admin and self._audit.is_over_limit(actor.user):
            raise RequestError(
                429, f"{FAILED_A_MINUTE_MAX} of your changes came to nothing in this minute: try again later"
            )

    async def _begin(self, attempt: _Attempt) -> None:
        if self._audit is not None:
            try:
                await self._audit.write(attempt.entry(self._audit.stamp(), "begun"))
            except OSError as error:
                _log.error("no change is made: %s", error)
                text = f"Nothing was changed, for the audit log cannot be written: {error}; make room, then try again"
                raise RequestError(503, text) from None
        attempt.outcome = "begun"

    async def _end(self, attempt: _Attempt) -> None:
        if attempt.caller is not None or self._authorizer.is_off:  # else the authorizer logs it, with a rate limit
            _log_outcome(attempt)
        if self._audit is None:
            return
        if attempt.outcome == "begun":
            outcome = "unknown" if not attempt.status else "failed" if attempt.reason else "done"
            await self._audit.ended(attempt.entry(self._audit.stamp(), outcome))
        elif attempt.status:
            await self._audit.refused(attempt.entry(self._audit.stamp(), "refused"))


def _check_length(request: Request) -> None:
    """Check that the audit log can have the whole address of a change.

    Raises:
        RequestError: 400.
    """
    if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > ADDRESS_LENGTH_MAX:
        raise RequestError(400, f"The path and query of a change have at most {ADDRESS_LENGTH_MAX} bytes")


def _log_outcome(attempt: _Attempt) -> None:
    request, user = attempt.request, attempt.caller.actor.user if attempt.caller else "an unknown user"
    request_line = f"{request.method} {escape_for_log(request.scope['raw_path'], request.scope['query_string'])}"
    outcome = f"{attempt.status} {attempt.reason}".rstrip() if attempt.status else "given up"
    _log.info("%s by %s from %s: %s", request_line, user, _address(request), outcome)


def _parse_new_config(reply: Reply) -> _NewConfig:
    if not isinstance(reply.body, bytes):
        return _NewConfig()
    try:
        return msgspec.json.decode(reply.body, type=_NewConfig)
    except msgspec.MsgspecError:  # the answer to another change
        return _NewConfig()


def _address(request: Request) -> str:
    client = request.client
    return "an unknown address" if client is None else f"{client.host} port {client.port}"
