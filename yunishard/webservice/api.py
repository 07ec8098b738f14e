"""The REST API as an ASGI application: finds the route of a request, calls its handler, audits changes, adds headers
and compresses.

The router's own answers (unknown path, other method, redirect) are plain text without the API's headers. Routes are in
`*_routes.py`, the audit log in `audit.py`, the listening port in `service.py`, authorization in `authn_authz.py`, and
CORS in `cross_site.py`.
"""

import asyncio
import html
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from yunishard.common.retries import RepeatedFailure
from yunishard.common.settings import PROXY, Settings
from yunishard.webservice.api_document import routes
from yunishard.webservice.audit import FAILED_A_MINUTE_MAX, Entry
from yunishard.webservice.authn_authz import AccessControl, find_viewer
from yunishard.webservice.broker_client import BrokerClient
from yunishard.webservice.calls import JSON, Call, Pieces, Reply, Services
from yunishard.webservice.config_routes import YAML_TYPE
from yunishard.webservice.http1 import HEAD_BYTES_MAX
from yunishard.webservice.landing_page import serve_landing_page
from yunishard.webservice.parameters import escape_for_log, has_bad_escape, is_known, parse_query
from yunishard.webservice.response_cache import GZIP_BYTES_MIN, GzipCache, accepts_gzip
from yunishard.webservice.router import Elsewhere, Match, OtherMethods, Route, find
from yunishard.webservice.views import RequestError
from yunishard.webservice.web_root import is_api, is_dashboard, serve_dashboard, serve_file

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

_NO_SNIFF: Final = {"X-Content-Type-Options": "nosniff"}

OWN_CACHE_ONLY: Final = "private, no-cache"
"""The answer is for its caller only: a proxy must not share it, and a browser must revalidate it."""

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


class Api:
    """Answers requests by querying the broker and the workers."""

    def __init__(self, broker: BrokerClient, settings: Settings, control: AccessControl) -> None:
        self.services = Services(broker, settings, control.audit)
        self._control = control
        self._audit = control.audit
        self._audit_failure = RepeatedFailure()
        self._cors = control.cors
        self._routes = routes(debug=settings.debug)
        self._gzip = GzipCache()
        self._running: Counter[str] = Counter()
        """Running requests by client address; all and only addresses that have some."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", "only HTTP is served"
        request, began = Request(scope, receive), time.perf_counter()
        host = request.client.host if request.client else ""
        self._running[host] += 1
        try:
            response = self._refuse_unread(request) or await self._respond(request)
            passed_ms = (time.perf_counter() - began) * 1000
            address = escape_for_log(scope["raw_path"], scope["query_string"])
            _log.debug("%s %s: %d in %.1f ms", request.method, address, response.status_code, passed_ms)
            await response(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            self._running[host] -= 1
            if not self._running[host]:
                del self._running[host]

    def _refuse_unread(self, request: Request) -> Response | None:
        """The answer to a request that is refused before it is routed; None if it is not refused."""
        if _LENGTHS.issubset(request.headers.keys()):
            text = "Content-Length and Transfer-Encoding together: a proxy may take one for two requests\n"
            return PlainTextResponse(text, 400, {"Connection": "close"})
        if len(request.scope["headers"]) > HEADERS_MAX:
            return PlainTextResponse(f"More than {HEADERS_MAX} headers\n", 431)
        if _measure_head(request) > HEAD_BYTES_MAX:
            return PlainTextResponse("The head of the request is too long\n", 431)
        if self._running[request.client.host if request.client else ""] > REQUESTS_OF_ONE_MAX:
            text = f"More than {REQUESTS_OF_ONE_MAX} requests of this address at once\n"
            return PlainTextResponse(text, 429, {"Retry-After": "1"})
        return None

    async def _respond(self, request: Request) -> Response:
        if has_bad_escape(request.scope["raw_path"].decode("latin-1")):
            return PlainTextResponse("400 Bad Request", 400)
        path: str = request.scope["path"]
        if path == "*" and request.method == "OPTIONS":  # about the server itself
            return Response(b"")
        match find(self._routes, request.method, path):
            case Match(route=route) if route.redirect:
                return _make_redirect(request, route.redirect)
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
                return PlainTextResponse("Method Not Allowed\n", 405, {"Allow": allowed, **_NO_SNIFF})
            case None:
                return await self._serve_file(request)

    async def _call(self, request: Request, match: Match) -> Response:
        route, own = match.route, dict[str, str]()
        query = request.scope["query_string"].decode(errors="replace")  # `request.url` fails for invalid text
        raw_path, sent = request.scope["raw_path"].decode("latin-1"), _join_headers(request)
        call = Call(self.services, match.segments, parse_query(query), lambda: _read_body(request), raw_path, sent)
        is_private = route.changes or route.is_private or route.private_with in call.query
        try:
            if route.changes:
                own["X-Request-Id"] = secrets.token_hex(8)
                reply = await self._make_change(request, call, route, own["X-Request-Id"])
            else:
                if is_private:  # it must name a known host while authentication is off
                    self._control.check_host(request, call.headers)
                caller = await self._control.identify(request, call.headers, route)
                self._control.authorize(request, call.headers, route, caller)
                reply = await route.respond(replace(call, viewer=find_viewer(caller)))
                if is_known(call.headers.get("if-none-match"), reply.headers.get("ETag")):
                    reply = replace(reply, body=b"", status=HTTPStatus.NOT_MODIFIED)
        except RequestError as error:
            reply = Reply(error.body, error.status)
            if error.status == HTTPStatus.UNAUTHORIZED:
                own["WWW-Authenticate"] = "Bearer"
        headers = {"Content-Type": reply.content_type, **reply.headers, **own}
        if self._cors.named_only or reply.content_type in (JSON, YAML_TYPE):
            methods = sorted((route.method, "OPTIONS"))
            _add_headers(headers, self._cors.headers(request.headers.get("Origin"), methods, private=is_private))
        if not self._control.is_off:
            headers.setdefault("Cache-Control", OWN_CACHE_ONLY)
        if not isinstance(reply.body, bytes):
            return StreamResponse(reply.body, reply.status, headers)
        return await self._respond_whole(request, reply.body, reply.status, headers)

    async def _respond_whole(self, request: Request, body: bytes, status: int, headers: dict[str, str]) -> Response:
        """A response with its whole body, compressed if it is large enough and the client accepts it."""
        if len(body) >= GZIP_BYTES_MIN and accepts_gzip(request.headers.get("Accept-Encoding", "")):
            body = await self._gzip.compress(body)
            _add_headers(headers, {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
        return Response(body, status, headers)

    async def _serve_file(self, request: Request) -> Response:
        """The landing page, or a file of the dashboard or of the web UI, for a path that no route has."""
        root, path, found = self.services.settings.web_root, request.scope["path"], None
        is_landing = root is None and path == "/"
        if is_landing or is_dashboard(path) or (root is not None and not is_api(path)):
            if request.method not in ("GET", "HEAD"):
                return PlainTextResponse("Method Not Allowed\n", 405, {"Allow": "GET, HEAD", **_NO_SNIFF})
            headers = _join_headers(request)
            if is_landing:
                found = serve_landing_page(headers)
            elif is_dashboard(path):
                found = await asyncio.to_thread(serve_dashboard, path, headers)
            elif root is not None:
                found = await asyncio.to_thread(serve_file, root, path, headers)
        if found is None:
            return PlainTextResponse("404 page not found\n", 404, _NO_SNIFF)
        assert isinstance(found.body, bytes), "files are read as a whole"
        headers = {"Content-Type": found.content_type, **found.headers}
        if request.method == "HEAD":
            return Response(b"", found.status, {**headers, "Content-Length": str(len(found.body))})
        return await self._respond_whole(request, found.body, found.status, headers)

    async def _make_change(self, request: Request, call: Call, route: Route, request_id: str) -> Reply:
        """Identify and authorize the caller, audit the request, and make the change. The outcome is a line in the log
        and in the audit log, if there is one. Nothing is changed before the audit log has it.

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
            caller = await self._control.identify(request, call.headers, route)
            assert caller is not None, f"{route.path} changes something and needs no caller"
            entry.user, entry.by = caller.actor.user, caller.method
            if caller.method == PROXY:
                entry.forwarded_for = escape_for_log(call.headers.get("x-forwarded-for", "")[-FORWARDED_LENGTH_MAX:])
            self._control.authorize(request, call.headers, route, caller)
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

            await self._begin_change(entry)
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
            await self._end_change(entry, request)
        return reply

    async def _begin_change(self, entry: Entry) -> None:
        entry.outcome = "begun"
        if self._audit is not None:
            try:
                await self._audit.write(entry)
            except OSError as error:
                entry.outcome = ""
                if self._audit_failure.is_news(str(error), time.monotonic()):
                    _log.error("no change is made: %s", error)
                text = f"Nothing was changed, as the audit log cannot be written: {error}; solve that, then try again"
                raise RequestError(503, text) from None
            if self._audit_failure.is_over():
                _log.info("the audit log can be written again")

    async def _end_change(self, entry: Entry, request: Request) -> None:
        if entry.by or self._control.is_off:  # else the authorizer logs it, with a rate limit
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
        await self._audit.record_outcome(entry)


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
    path, query = request.scope["raw_path"], request.scope["query_string"]
    line = len(request.method) + len(path) + bool(query) + len(query) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in request.scope["headers"]) + len("\r\n")


def _join_headers(request: Request) -> dict[str, str]:
    """Headers by name in lower case; the values of a repeated header are joined."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _add_headers(headers: dict[str, str], more: Mapping[str, str]) -> None:
    """Add headers; the values of `Vary` are joined."""
    varies = [named for named in (headers.get("Vary"), more.get("Vary")) if named]
    headers.update(more)
    if varies:
        headers["Vary"] = ", ".join(varies)


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
