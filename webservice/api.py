"""The API as an ASGI application: a request becomes a call of its route, the reply gets its headers and is compressed.

What the router answers (unknown path, other method, redirect) is plain text without the API's own headers.
Not here: the routes (`routes.py`), the port (`service.py`), who may use a route (`door/entrance.py`), what has to
happen around a change (`changing.py`), which other sites' pages may read an answer (`cors.py`).
"""

import asyncio
import html
import logging
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from webservice.authn import People
from webservice.authz import Entrance, Guard, viewer_of
from webservice.calls import JSON, ApiRoute, Call, Changing, Link, Reply, Respond, Startup, Turns
from webservice.changes import Changes
from webservice.config_routes import YAML
from webservice.cross_site import Cors
from webservice.event_streams import Streams
from webservice.health import StorageHealth
from webservice.history.queries import Past
from webservice.history.tables import LISTS
from webservice.http1 import HEAD_BYTES_MAX, TOO_LONG, Flow
from webservice.metrics import OwnFigures
from webservice.parameters import has_bad_escape, values, written
from webservice.response_cache import GZIP_BYTES_MIN, CachedBody, Shelf, accepts_gzip, compress
from webservice.router import Elsewhere, Match, OtherMethods, find
from webservice.routes import routes
from webservice.views import RequestError
from webservice.web_root import is_api, serve

BODY_BYTES_MAX: Final = 16 << 20
PRIVATE: Final = frozenset(
    {
        "/ws/v1/settings",
        "/ws/v1/config/default",
        "/ws/v1/config/history",
        "/ws/v1/config/version/{number}",
        *(f"/ws/v1/history/{name}" for name in LISTS),
    }
)
"""Paths that YuniKorn does not have, with answers that may be nobody else's business."""

_LENGTHS: Final = frozenset({"content-length", "transfer-encoding"})
"""Headers of which each says where a request ends. With both it ends elsewhere for some proxies than for us, and what
follows would come as if from whoever the proxy says."""

HEADERS_MAX: Final = 100
"""Of a request; one with more is answered with 431."""

REQUESTS_OF_ONE_MAX: Final = 250
"""Requests of one address that may run at the same time; more are answered with 429. Whoever is behind a proxy shares
its address, and so this bound.
"""

RETRY_AFTER_S: Final = 1

EVERYTHING: Final = "*"
"""The path of `OPTIONS` about the server as such, which tells nothing."""

UNKNOWN: Final = 401
"""The status that says that it is not known who asks."""

OWN_CACHE_ONLY: Final = "private, no-cache"
"""An answer that is for whoever asked: a proxy must not give it to others, nor a browser without asking again."""

_TEXT: Final = "text/plain; charset=utf-8"
_log = logging.getLogger("core.rest")


class Api:
    """Answers requests with what its link knows. `people` tells who asks for a change where nobody has to say who they
    are, as is so without a `guard` of its own.
    """

    def __init__(self, link: Link, people: People, startup: Startup, guard: Guard | None = None) -> None:
        guard = guard or Guard(Entrance(people), Cors(startup.cors))
        self._link = link
        self._entrance = guard.entrance
        self._changes = Changes(guard.entrance, guard.audit)
        self._cors = guard.cors
        self._startup = startup
        self._routes = routes(debug=startup.debug)
        self._turns = Turns()
        self._running: Counter[str] = Counter()
        """Requests that are being answered, by address; all and only addresses that have some."""
        self.streams = Streams(link.ask)
        self._shelf = Shelf(link.ask)
        self.past: Past | None = None
        self.storage = StorageHealth(startup.state, guard.audit)
        self.figures = OwnFigures()
        self.figures.around.append(self.streams.families)
        self.figures.around.append(self._shelf.families)

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
            response = self._too_much(request) or await self._respond(request)
        except ClientDisconnect:
            return  # nobody is left to answer
        passed_ms = (time.perf_counter() - began) * 1000
        _log.debug("%s %s: %d in %.1f ms", request.method, _asked_for(request), response.status_code, passed_ms)
        await response(request.scope, receive, send)

    def _too_much(self, request: Request) -> Response | None:
        """What is answered to a request without looking at what it wants: it is one too many, or perhaps two."""
        if _LENGTHS.issubset(request.headers.keys()):
            told = "Content-Length and Transfer-Encoding together: a proxy may take one for two requests\n"
            return _text(400, told, {"Connection": "close"})
        if len(request.scope["headers"]) > HEADERS_MAX:
            return _text(431, f"More than {HEADERS_MAX} headers\n")
        if _head_length(request) > HEAD_BYTES_MAX:
            return _text(TOO_LONG, "The head of the request is too long\n")
        if self._running[request.client.host if request.client else ""] > REQUESTS_OF_ONE_MAX:
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            return _text(429, f"More than {REQUESTS_OF_ONE_MAX} requests of this address at once\n", headers)
        return None

    async def _respond(self, request: Request) -> Response:
        if has_bad_escape(request.scope["raw_path"].decode("latin-1")):
            return _text(400, "400 Bad Request")
        path: str = request.scope["path"]
        if path == EVERYTHING and request.method == "OPTIONS":
            return Response(b"")
        match find(self._routes, request.method, path):
            case Match(route=route) as match:
                began = time.perf_counter()
                response = await self._call(request, match)
                took_s = time.perf_counter() - began
                self.figures.answered(route.method, route.path, response.status_code, took_s)
                return response
            case Elsewhere(path=mended):
                return _redirect(request, mended)
            case OtherMethods(allowed=allowed) if request.method == "OPTIONS":
                told = self._cors.preflight(request.headers.get("Origin"), allowed.split(", "))
                return Response(b"", headers={"Allow": allowed, **told})
            case OtherMethods(allowed=allowed):
                return _text(405, "Method Not Allowed\n", {"Allow": allowed, "X-Content-Type-Options": "nosniff"})
            case None if self._startup.web_root is not None and not is_api(path):
                return await _file(request, self._startup.web_root)
            case None:
                return _nothing()

    async def _call(self, request: Request, match: Match[Respond | Changing]) -> Response:
        route, call = match.route, self._asked(request, match.parameters)
        own: dict[str, str] = {}
        is_private = _is_private(route, request)
        try:
            if isinstance(route.answer, Changing):
                own["X-Request-Id"] = secrets.token_hex(8)
                reply = await self._changes.make(request, call, route, route.answer, own["X-Request-Id"])
            else:
                if is_private:
                    self._entrance.check_host(request, call.headers)
                caller = await self._entrance.caller(request, call.headers, route)
                self._entrance.admit(request, call.headers, route, caller)
                reply = await route.answer(replace(call, viewer=viewer_of(caller)))
        except RequestError as error:
            reply = Reply(error.body, error.status)
            if error.status == UNKNOWN:
                own["WWW-Authenticate"] = "Bearer"
        headers = {"Content-Type": reply.content_type, **reply.headers, **own}
        if self._cors.named_only or reply.content_type in (JSON, YAML):
            methods = sorted((route.method, "OPTIONS"))
            _add(headers, self._cors.headers(request.headers.get("Origin"), methods, private=is_private))
        if not self._entrance.is_open:
            headers.setdefault("Cache-Control", OWN_CACHE_ONLY)
        content = reply.body
        if not isinstance(content, bytes | CachedBody):
            return Flow(content, reply.status, headers)
        return await _whole(request, content, reply.status, headers)

    def _asked(self, request: Request, parameters: dict[str, str]) -> Call:
        async def body() -> bytes:
            return await _body(request)

        return Call(
            self._link,
            parameters,
            _values(request),
            body,
            self.streams,
            self._shelf,
            request.scope["raw_path"].decode("latin-1"),
            request.scope["query_string"].decode("latin-1"),
            _headers(request),
            self._startup,
            figures=self.figures,
            past=self.past,
            turns=self._turns,
            storage=self.storage,
        )


def _head_length(request: Request) -> int:
    """Bytes of the head as clients send it, `GET /path?query HTTP/1.1` and `Name: value` in each line."""
    scope = request.scope
    query = len(scope["query_string"]) + 1 if scope["query_string"] else 0
    line = len(request.method) + len(" ") + len(scope["raw_path"]) + query + len(" HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"]) + len("\r\n")


def _headers(request: Request) -> dict[str, str]:
    """By name in lower case; what comes in several lines is one list."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _values(request: Request) -> dict[str, str]:
    """The query by name.

    Not from `request.url`, which is put together from the header `Host` as well and fails when the query is no text.
    """
    query: bytes = request.scope["query_string"]
    return values(query.decode(errors="replace"))


def _is_private(route: ApiRoute, request: Request) -> bool:
    """Whether pages of other sites may not read the answer: that to a change, and what only we tell. Such an answer is
    also refused, where nobody has to say who they are, to a request for a host that is not known.
    """
    own_form = route.path == "/ws/v1/config" and "rm" in _values(request)
    return isinstance(route.answer, Changing) or route.path in PRIVATE or own_form


def _asked_for(request: Request) -> str:
    return written(request.scope["raw_path"], request.scope["query_string"])


def _add(headers: dict[str, str], more: Mapping[str, str]) -> None:
    """Add headers; of Vary, all that it names."""
    varies = [named for named in (headers.get("Vary"), more.get("Vary")) if named]
    headers.update(more)
    if varies:
        headers["Vary"] = ", ".join(varies)


async def _whole(request: Request, content: bytes | CachedBody, status: int, headers: dict[str, str]) -> Response:
    """A response with all of its body, compressed if that is worth while and the client takes it."""
    plain = content.plain if isinstance(content, CachedBody) else content
    if len(plain) < GZIP_BYTES_MIN or not accepts_gzip(request.headers.get("Accept-Encoding", "")):
        return Response(plain, status, headers)
    gzipped = await (content.gzipped() if isinstance(content, CachedBody) else compress(content))
    _add(headers, {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
    return Response(gzipped, status, headers)


async def _file(request: Request, root: Path) -> Response:
    """A file of the web UI."""
    if request.method not in ("GET", "HEAD"):
        return _text(405, "Method Not Allowed\n", {"Allow": "GET, HEAD", "X-Content-Type-Options": "nosniff"})
    found = await asyncio.to_thread(serve, root, request.scope["path"], _headers(request))
    if found is None:
        return _nothing()
    headers = dict(found.headers)
    if request.method == "HEAD":
        return Response(b"", found.status, {**headers, "Content-Length": str(len(found.body))})
    return await _whole(request, found.body, found.status, headers)


def _nothing() -> Response:
    return _text(404, "404 page not found\n", {"X-Content-Type-Options": "nosniff"})


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
