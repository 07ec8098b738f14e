"""The REST API as an ASGI application: finds the route of a request, calls its handler, adds headers and compresses.

The router's own answers (unknown path, other method, redirect) are plain text without the API's headers. Routes are in
`routes.py`, the listening port in `service.py`, authorization in `auth.py`, CORS in `cross_site.py`.
"""

import asyncio
import html
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from common.settings import Settings
from webservice.api_document import routes
from webservice.auth import AccessControl, Authorizer, LoopbackUsers, find_viewer
from webservice.broker_client import BrokerClient
from webservice.calls import JSON, Call, Pieces, Reply, Services
from webservice.changes import ChangeHandler
from webservice.config_routes import YAML
from webservice.cross_site import Cors
from webservice.http1 import HEAD_BYTES_MAX
from webservice.parameters import escape_for_log, has_bad_escape, parse_query
from webservice.response_cache import GZIP_BYTES_MIN, CachedBody, accepts_gzip, compress
from webservice.router import Elsewhere, Match, OtherMethods, find
from webservice.views import RequestError
from webservice.web_root import is_api, serve_file

BODY_BYTES_MAX: Final = 16 << 20

_LENGTHS: Final = frozenset({"content-length", "transfer-encoding"})
"""Headers that delimit a request. With both of them, a proxy may see another end than this server (request smuggling).
"""

HEADERS_MAX: Final = 100
"""Headers of a request; a request with more is answered with 431."""

REQUESTS_OF_ONE_MAX: Final = 250
"""Concurrent requests of one address; more are answered with 429. Clients behind a proxy share its address, and so
this bound.
"""

OWN_CACHE_ONLY: Final = "private, no-cache"
"""The answer is for its caller only: a proxy must not share it, and a browser must revalidate it."""

_TEXT: Final = "text/plain; charset=utf-8"
_log = logging.getLogger("core.rest")


class Api:
    """Answers requests by querying the broker and the workers. Without `control`, authentication is off, and `users`
    identifies the callers who make changes.
    """

    def __init__(
        self, broker: BrokerClient, users: LoopbackUsers, settings: Settings, control: AccessControl | None = None
    ) -> None:
        control = control or AccessControl(Authorizer(users), Cors(settings.cors))
        self.services = Services(broker, settings, control.audit)
        self._authorizer = control.authorizer
        self._changes = ChangeHandler(control.authorizer, control.audit)
        self._cors = control.cors
        self._routes = routes(debug=settings.debug)
        self._running: Counter[str] = Counter()
        """Running requests by client address; all and only addresses that have some."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", "only HTTP is served"
        request = Request(scope, receive)
        host = request.client.host if request.client else ""
        self._running[host] += 1
        try:
            await self._answer(request, receive, send)
        finally:
            self._running[host] -= 1
            if not self._running[host]:
                del self._running[host]

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        try:
            response = self._refuse_unread(request) or await self._respond(request)
        except ClientDisconnect:
            return
        passed_ms = (time.perf_counter() - began) * 1000
        address = escape_for_log(request.scope["raw_path"], request.scope["query_string"])
        _log.debug("%s %s: %d in %.1f ms", request.method, address, response.status_code, passed_ms)
        await response(request.scope, receive, send)

    def _refuse_unread(self, request: Request) -> Response | None:
        """The answer to a request that is refused before it is routed; None if it is not refused."""
        if _LENGTHS.issubset(request.headers.keys()):
            text = "Content-Length and Transfer-Encoding together: a proxy may take one for two requests\n"
            return _make_text(400, text, {"Connection": "close"})
        if len(request.scope["headers"]) > HEADERS_MAX:
            return _make_text(431, f"More than {HEADERS_MAX} headers\n")
        if _measure_head(request) > HEAD_BYTES_MAX:
            return _make_text(431, "The head of the request is too long\n")
        if self._running[request.client.host if request.client else ""] > REQUESTS_OF_ONE_MAX:
            headers = {"Retry-After": "1"}
            return _make_text(429, f"More than {REQUESTS_OF_ONE_MAX} requests of this address at once\n", headers)
        return None

    async def _respond(self, request: Request) -> Response:
        if has_bad_escape(request.scope["raw_path"].decode("latin-1")):
            return _make_text(400, "400 Bad Request")
        path: str = request.scope["path"]
        if path == "*" and request.method == "OPTIONS":  # about the server itself
            return Response(b"")
        match find(self._routes, request.method, path):
            case Match(route=route) as match:
                began = time.perf_counter()
                response = await self._call(request, match)
                took_s = time.perf_counter() - began
                self.services.metrics.record(route.method, route.path, response.status_code, took_s)
                return response
            case Elsewhere(path=corrected):
                return _make_redirect(request, corrected)
            case OtherMethods(allowed=allowed) if request.method == "OPTIONS":
                preflight = self._cors.preflight(request.headers.get("Origin"), allowed.split(", "))
                return Response(b"", headers={"Allow": allowed, **preflight})
            case OtherMethods(allowed=allowed):
                return _make_text(405, "Method Not Allowed\n", {"Allow": allowed, "X-Content-Type-Options": "nosniff"})
            case None:
                root = self.services.settings.web_root
                return await _serve(request, root) if root is not None and not is_api(path) else _refuse_path()

    async def _call(self, request: Request, match: Match) -> Response:
        route, own = match.route, dict[str, str]()
        call = Call(
            self.services,
            match.segments,
            _parse_query(request),
            lambda: _read_body(request),
            request.scope["raw_path"].decode("latin-1"),
            request.scope["query_string"].decode("latin-1"),
            _join_headers(request),
        )
        is_private = (
            route.changes or route.is_private or (bool(route.private_with) and route.private_with in call.query)
        )
        try:
            if route.changes:
                own["X-Request-Id"] = secrets.token_hex(8)
                reply = await self._changes.make_change(request, call, route, own["X-Request-Id"])
            else:
                if is_private:  # it must name a known host while authentication is off
                    self._authorizer.check_host(request, call.headers)
                caller = await self._authorizer.identify(request, call.headers, route)
                self._authorizer.authorize(request, call.headers, route, caller)
                reply = await route.respond(replace(call, viewer=find_viewer(caller)))
        except RequestError as error:
            reply = Reply(error.body, error.status)
            if error.status == HTTPStatus.UNAUTHORIZED:
                own["WWW-Authenticate"] = "Bearer"
        headers = {"Content-Type": reply.content_type, **reply.headers, **own}
        if self._cors.named_only or reply.content_type in (JSON, YAML):
            methods = sorted((route.method, "OPTIONS"))
            _add_headers(headers, self._cors.headers(request.headers.get("Origin"), methods, private=is_private))
        if not self._authorizer.is_off:
            headers.setdefault("Cache-Control", OWN_CACHE_ONLY)
        content = reply.body
        if not isinstance(content, bytes | CachedBody):
            return StreamResponse(content, reply.status, headers)
        return await _respond_whole(request, content, reply.status, headers)


class StreamResponse(StreamingResponse):
    """A response that sends the pieces of a body one by one, and ends the iteration when the client disconnects.
    `http1.py` aborts the connection of a client that does not accept a piece.
    """

    def __init__(self, pieces: Pieces, status: int, headers: Mapping[str, str]) -> None:
        async def one_by_one() -> AsyncGenerator[bytes, None]:
            async for piece in pieces:
                yield piece
                await asyncio.sleep(0)  # lets a disconnect of the client end the iteration

        super().__init__(one_by_one(), status, headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all pieces, until the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._pieces.aclose()


def _measure_head(request: Request) -> int:
    """Bytes of the request line and the headers as the client sent them."""
    scope = request.scope
    query = len(scope["query_string"]) + 1 if scope["query_string"] else 0
    line = len(request.method) + len(" ") + len(scope["raw_path"]) + query + len(" HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"]) + len("\r\n")


def _join_headers(request: Request) -> dict[str, str]:
    """Headers by name in lower case; the values of a repeated header are joined."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _parse_query(request: Request) -> dict[str, str]:
    """The query by name. Not from `request.url`, which fails for a query that is not valid text."""
    query: bytes = request.scope["query_string"]
    return parse_query(query.decode(errors="replace"))


def _add_headers(headers: dict[str, str], more: Mapping[str, str]) -> None:
    """Add headers; the values of `Vary` are joined."""
    varies = [named for named in (headers.get("Vary"), more.get("Vary")) if named]
    headers.update(more)
    if varies:
        headers["Vary"] = ", ".join(varies)


async def _respond_whole(
    request: Request, content: bytes | CachedBody, status: int, headers: dict[str, str]
) -> Response:
    """A response with its whole body, compressed if it is large enough and the client accepts it."""
    plain = content.plain if isinstance(content, CachedBody) else content
    if len(plain) < GZIP_BYTES_MIN or not accepts_gzip(request.headers.get("Accept-Encoding", "")):
        return Response(plain, status, headers)
    gzipped = await (content.compress() if isinstance(content, CachedBody) else compress(content))
    _add_headers(headers, {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
    return Response(gzipped, status, headers)


async def _serve(request: Request, root: Path) -> Response:
    """A file of the web UI."""
    if request.method not in ("GET", "HEAD"):
        return _make_text(405, "Method Not Allowed\n", {"Allow": "GET, HEAD", "X-Content-Type-Options": "nosniff"})
    found = await asyncio.to_thread(serve_file, root, request.scope["path"], _join_headers(request))
    if found is None:
        return _refuse_path()
    assert isinstance(found.body, bytes), "files are read as a whole"
    headers = {"Content-Type": found.content_type, **found.headers}
    if request.method == "HEAD":
        return Response(b"", found.status, {**headers, "Content-Length": str(len(found.body))})
    return await _respond_whole(request, found.body, found.status, headers)


def _refuse_path() -> Response:
    return _make_text(404, "404 page not found\n", {"X-Content-Type-Options": "nosniff"})


async def _read_body(request: Request) -> bytes:
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > BODY_BYTES_MAX:
            raise RequestError(413, f"Request body is larger than {BODY_BYTES_MAX} bytes")
    return bytes(read)


def _make_redirect(request: Request, path: str) -> Response:
    location = quote(path, safe="/:@!$&'()*+,;=~")
    query: bytes = request.scope["query_string"]
    if query:
        location += "?" + query.decode("latin-1")
    if request.method != "GET":
        return Response(b"", 307, {"Location": location})
    body = f'<a href="{html.escape(location)}">{HTTPStatus(301).phrase}</a>.\n\n'
    return Response(body, 301, {"Location": location, "Content-Type": "text/html; charset=utf-8"})


def _make_text(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, {"Content-Type": _TEXT, **(headers or {})})
