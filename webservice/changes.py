"""What has to happen around every change: who asks is known and may, it is written down, and then it is made.

Whatever comes of it is a line in the log, and in the audit log, if there is one. Nothing is changed that the audit log
does not have first.
Not here: the changes themselves (the routes), who may (`door/entrance.py`), the file (`audit.py`).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request

from webservice.audit import VAIN_A_MINUTE_MAX, AuditLog, Entry
from webservice.authn import PROXY, Caller
from webservice.authz import Entrance, viewer_of
from webservice.calls import ApiRoute, Call, Changing, Reply
from webservice.parameters import written
from webservice.views import RequestError

OUTCOME_LENGTH_MAX: Final = 200
"""Characters of the reason in the log lines about a change that was refused."""

ADDRESS_LENGTH_MAX: Final = 2_000
"""Bytes of the path and query of a change: all of it has to be in the audit log, or what changed could be hidden."""

_WRITTEN_LENGTH_MAX: Final = 2 * ADDRESS_LENGTH_MAX
"""Characters of it there: an escape is twice as long."""

FORWARDED_LENGTH_MAX: Final = 120
"""Characters of `X-Forwarded-For` in the audit log, the last ones: what the proxy itself has said is at the end."""

_log = logging.getLogger("core.rest")


class _Made(msgspec.Struct, frozen=True):
    """What an answer to a change may say of the configuration that holds now."""

    checksum: str = ""
    version: int = 0


@dataclass(slots=True)
class _Attempt:
    """What is known so far of an attempt to change something."""

    id: str
    request: Request
    headers: Mapping[str, str]
    caller: Caller | None = None
    outcome: str = ""
    """Empty until it begins, or is refused."""
    status: int = 0
    reason: str = ""
    made: _Made = field(default_factory=_Made)

    def entry(self, stamp: str, outcome: str) -> Entry:
        """Its line for the audit log."""
        caller, request = self.caller, self.request
        forwarded = self.headers.get("x-forwarded-for", "")[-FORWARDED_LENGTH_MAX:]
        return Entry(
            time=stamp,
            id=self.id,
            outcome=outcome,
            user=caller.actor.user if caller else "",
            by=caller.way if caller else "",
            address=request.client.host if request.client else "",
            forwarded_for=written(forwarded) if caller and caller.way == PROXY else "",
            method=request.method,
            path=written(request.scope["raw_path"], length_max=_WRITTEN_LENGTH_MAX),
            query=written(request.scope["query_string"], length_max=_WRITTEN_LENGTH_MAX),
            status=self.status,
            reason=self.reason,
            checksum=self.made.checksum,
            version=self.made.version,
        )


class Changes:
    """Lets those change something who may. Without an audit log only the other log tells of it."""

    def __init__(self, entrance: Entrance, audit: AuditLog | None) -> None:
        self._entrance = entrance
        self._audit = audit

    async def make(self, request: Request, call: Call, route: ApiRoute, changing: Changing, request_id: str) -> Reply:
        """What came of it.

        Raises:
            RequestError: it was refused, or failed.
            ClientDisconnect: whoever asked has gone before it began.
        """
        attempt = _Attempt(request_id, request, call.headers)
        try:
            attempt.caller = caller = await self._entrance.caller(request, call.headers, route)
            assert caller is not None, f"{route.path} changes something for people without a name"
            self._entrance.admit(request, call.headers, route, caller)
            self._check_patience(caller)
            _check_length(request)
            content = await call.body()
            if await request.is_disconnected():  # who asked has gone, and its address may be somebody else's by now
                raise ClientDisconnect

            async def body() -> bytes:
                return content

            await self._begin(attempt)
            reply = await changing.respond(replace(call, body=body, viewer=viewer_of(caller)), caller.actor)
            attempt.status, attempt.made = reply.status, _made(reply)
        except RequestError as error:
            attempt.status, attempt.reason = error.status, written(" ".join(error.text.split()))[:OUTCOME_LENGTH_MAX]
            raise
        finally:
            await self._end(attempt)
        return reply

    def _check_patience(self, caller: Caller) -> None:
        """See that nobody but a scheduler administrator fills the audit log with what comes to nothing.

        Raises:
            RequestError: 429.
        """
        actor = caller.actor
        if self._audit is not None and not actor.scheduler_admin and self._audit.is_weary_of(actor.user):
            raise RequestError(
                429, f"{VAIN_A_MINUTE_MAX} of your changes came to nothing in this minute: try again later"
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
        if attempt.caller is not None or self._entrance.is_open:  # else the entrance has said so, but not without end
            _tell(attempt)
        if self._audit is None:
            return
        if attempt.outcome == "begun":
            outcome = "unknown" if not attempt.status else "failed" if attempt.reason else "done"
            await self._audit.ended(attempt.entry(self._audit.stamp(), outcome))
        elif attempt.status:
            await self._audit.refused(attempt.entry(self._audit.stamp(), "refused"))


def _check_length(request: Request) -> None:
    """See that all of a change can be written down.

    Raises:
        RequestError: 400.
    """
    if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > ADDRESS_LENGTH_MAX:
        raise RequestError(400, f"The path and query of a change have at most {ADDRESS_LENGTH_MAX} bytes")


def _tell(attempt: _Attempt) -> None:
    request, user = attempt.request, attempt.caller.actor.user if attempt.caller else "an unknown user"
    what = f"{request.method} {written(request.scope['raw_path'], request.scope['query_string'])}"
    came = f"{attempt.status} {attempt.reason}".rstrip() if attempt.status else "given up"
    _log.info("%s by %s from %s: %s", what, user, _address(request), came)


def _made(reply: Reply) -> _Made:
    if not isinstance(reply.body, bytes):
        return _Made()
    try:
        return msgspec.json.decode(reply.body, type=_Made)
    except msgspec.MsgspecError:  # the answer is about something else
        return _Made()


def _address(request: Request) -> str:
    client = request.client
    return "an unknown address" if client is None else f"{client.host} port {client.port}"
