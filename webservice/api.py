"""The API as an ASGI application: a request becomes a call of its route, the reply gets its headers and is compressed.

What the router answers (unknown path, other method, redirect) is plain text without the API's own headers.
What changes something is done only for somebody who is known and is logged. No page of another site may read of that,
nor what YuniKorn does not tell.
Not here: the routes (`routes.py`), the port (`service.py`).
"""

import asyncio
import gzip
import html
import logging
import time
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from common.messages import Actor
from webservice.access import Access
from webservice.calls import JSON, ApiRoute, Call, Changing, Link, Reply, Respond, Startup
from webservice.config_routes import YAML
from webservice.errors import RequestError
from webservice.parameters import has_bad_escape
from webservice.people import Nobody, People
from webservice.router import Elsewhere, Match, OtherMethods, find
from webservice.routes import ROUTES
from webservice.same_site import objection

BODY_BYTES_MAX: Final = 16 << 20
GZIP_BYTES_MIN: Final = 1400
THREAD_BYTES_MIN: Final = 256 << 10
"""From this size on a body is compressed in a thread, so that other requests go on."""

PRIVATE: Final = frozenset({"/ws/v1/settings", "/ws/v1/config/history", "/ws/v1/config/version/{number}"})
"""Paths that YuniKorn does not have, with answers that may be nobody else's business."""

WRITTEN_LENGTH_MAX: Final = 500
"""Characters of path and query in a log line."""

OUTCOME_LENGTH_MAX: Final = 200
"""Characters of the reason in the log line of a change that was refused."""

_GZIP_FASTEST: Final = 1
_TEXT: Final = "text/plain; charset=utf-8"
_log = logging.getLogger("core.rest")


class Api:
    """Answers requests with what its link knows; `people` tells who asks for a change."""

    def __init__(self, link: Link, people: People, startup: Startup) -> None:
        self._link = link
        self._people = people
        self._startup = startup

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", "only HTTP is served"
        request = Request(scope, receive)
        began = time.perf_counter()
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return  # nobody is left to answer
        passed_ms = (time.perf_counter() - began) * 1000
        _log.debug("%s %s: %d in %.1f ms", request.method, _written(request), response.status_code, passed_ms)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if has_bad_escape(request.scope["raw_path"].decode("latin-1")):
            return _text(400, "400 Bad Request")
        path: str = request.scope["path"]
        match find(ROUTES, request.method, path):
            case Match() as match:
                return await self._call(request, match)
            case Elsewhere(path=mended):
                return _redirect(request, mended)
            case OtherMethods(allowed=allowed) if request.method == "OPTIONS":
                return Response(b"", headers={"Allow": allowed})
            case OtherMethods(allowed=allowed):
                return _text(405, "Method Not Allowed\n", {"Allow": allowed, "X-Content-Type-Options": "nosniff"})
            case None:
                return _text(404, "404 page not found\n", {"X-Content-Type-Options": "nosniff"})

    async def _call(self, request: Request, match: Match[Respond | Changing]) -> Response:
        route = match.route.answer
        try:
            if isinstance(route, Changing):
                reply = await self._changed(request, match, route)
            else:
                reply = await route(self._asked(request, match.parameters))
        except RequestError as error:
            reply = Reply(error.body, error.status)
        headers = {"Content-Type": reply.content_type, **reply.headers}
        if reply.content_type in (JSON, YAML) and not _is_private(match.route, request):
            headers["Access-Control-Allow-Origin"] = "*"
            headers["Access-Control-Allow-Methods"] = ", ".join(sorted((match.route.method, "OPTIONS")))
            headers["Access-Control-Allow-Headers"] = "X-Requested-With,Content-Type,Accept,Origin"
        content = reply.body
        if not isinstance(content, bytes):
            return StreamingResponse(content, reply.status, headers)
        if len(content) >= GZIP_BYTES_MIN and accepts_gzip(request.headers.get("Accept-Encoding", "")):
            content = await _compressed(content)
            headers["Content-Encoding"] = "gzip"
            headers["Vary"] = ", ".join([*filter(None, [headers.get("Vary")]), "Accept-Encoding"])
        return Response(content, reply.status, headers)

    def _asked(self, request: Request, parameters: dict[str, str]) -> Call:
        async def body() -> bytes:
            return await _body(request)

        return Call(self._link, parameters, _values(request), body, _headers(request), self._startup)

    async def _changed(self, request: Request, match: Match[Respond | Changing], route: Changing) -> Reply:
        """What came of a change, which is logged whatever that is."""
        who, outcome = "an unknown user", ""
        try:
            actor = await self._actor(request)
            who = actor.user
            _require_right(actor, match.route)
            call = self._asked(request, match.parameters)
            content = await call.body()
            if await request.is_disconnected():  # who asked has gone, and its address may be somebody else's by now
                raise ClientDisconnect

            async def body() -> bytes:
                return content

            reply = await route.respond(replace(call, body=body), actor)
            outcome = str(reply.status)
        except RequestError as error:
            outcome = f"{error.status} {' '.join(error.text.split())[:OUTCOME_LENGTH_MAX]}"
            raise
        finally:
            what = f"{request.method} {_written(request)}"
            _log.info("%s by %s from %s: %s", what, who, _address(request), outcome or "given up")
        return reply

    async def _actor(self, request: Request) -> Actor:
        client, server = request.scope.get("client"), request.scope.get("server")
        if client is None or server is None:
            raise RequestError(403, "Refused: it is not known where the request came from")
        reason = objection(_headers(request), scheme=request.scope["scheme"], server=server[0])
        if reason:
            raise RequestError(403, f"Refused: {reason}")
        try:
            return await self._people.actor((client[0], client[1]), (server[0], server[1]))
        except Nobody as nobody:
            raise RequestError(403, f"It is not known who asks: {nobody}") from None


def _require_right(actor: Actor, route: ApiRoute) -> None:
    if route.access is Access.ADMINS and not actor.scheduler_admin:
        raise RequestError(
            403,
            f"User {actor.user!r} is not a scheduler administrator, and only they may do this."
            " Ask one of them, or to be named by the setting scheduler-admins",
        )


def _headers(request: Request) -> dict[str, str]:
    """By name in lower case; what comes in several lines is one list."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _values(request: Request) -> dict[str, str]:
    """The query by name; of several values the first counts.

    Not from `request.url`, which is put together from the header `Host` as well and fails when the query is no text.
    """
    query: bytes = request.scope["query_string"]
    return dict(reversed(parse_qsl(query.decode(errors="replace"), keep_blank_values=True)))


def _is_private(route: ApiRoute, request: Request) -> bool:
    """Whether pages of other sites may not read the answer: that to a change, and what only we tell."""
    own_form = route.path == "/ws/v1/config" and "rm" in _values(request)
    return isinstance(route.answer, Changing) or route.path in PRIVATE or own_form


def _written(request: Request) -> str:
    """Path and query as they came, escapes and all, so that nobody can write lines into the log."""
    query = request.scope["query_string"]
    raw: bytes = request.scope["raw_path"] + (b"?" + query if query else b"")
    return ascii(raw.decode("latin-1"))[1:-1][:WRITTEN_LENGTH_MAX]


def _address(request: Request) -> str:
    client = request.client
    return "an unknown address" if client is None else f"{client.host} port {client.port}"


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a client takes gzip: the first mention decides, and only `q=0`, written so, refuses."""
    for offer in accept_encoding.split(","):
        coding, _, parameter = offer.partition(";")
        if coding.strip().lower() == "gzip":
            return parameter.strip() != "q=0"
    return False


async def _compressed(body: bytes) -> bytes:
    if len(body) < THREAD_BYTES_MIN:
        return gzip.compress(body, _GZIP_FASTEST, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _GZIP_FASTEST, mtime=0)


async def _body(request: Request) -> bytes:
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > BODY_BYTES_MAX:
            raise RequestError(413, f"Request body is larger than {BODY_BYTES_MAX} bytes")
    return bytes(read)


def _redirect(request: Request, path: str) -> Response:
    location = quote(path, safe="/:@!$&'()*+,;=~")
    query: bytes = request.scope["query_string"]
    if query:
        location += "?" + query.decode("latin-1")
    if request.method != "GET":
        return Response(b"", 307, {"Location": location})
    body = f'<a href="{html.escape(location)}">{HTTPStatus(301).phrase}</a>.\n\n'
    return Response(body, 301, {"Location": location, "Content-Type": "text/html; charset=utf-8"})


def _text(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, {"Content-Type": _TEXT, **(headers or {})})
