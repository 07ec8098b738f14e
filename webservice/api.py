"""The API as an ASGI application: a request becomes a call of its route, the reply gets its headers and is compressed.

What the router answers (unknown path, other method, redirect) is plain text without the API's own headers.
Not here: the routes (`routes.py`), the port (`service.py`).
"""

import asyncio
import gzip
import html
import logging
import time
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from webservice.errors import RequestError
from webservice.parameters import has_bad_escape
from webservice.router import Elsewhere, Match, OtherMethods, find
from webservice.routes import JSON, ROUTES, Call, Link, Reply, Respond

BODY_BYTES_MAX: Final = 16 << 20
GZIP_BYTES_MIN: Final = 1400
THREAD_BYTES_MIN: Final = 256 << 10
"""From this size on a body is compressed in a thread, so that other requests go on."""

_GZIP_FASTEST: Final = 1
_TEXT: Final = "text/plain; charset=utf-8"
_log = logging.getLogger("core.rest")


class Api:
    """Answers requests with what its link knows."""

    def __init__(self, link: Link) -> None:
        self._link = link

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
        _log.debug("%s %s: %d in %.1f ms", request.method, request.url.path, response.status_code, passed_ms)
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

    async def _call(self, request: Request, match: Match[Respond]) -> Response:
        async def body() -> bytes:
            return await _body(request)

        pairs = parse_qsl(request.url.query, keep_blank_values=True)
        query = dict(reversed(pairs))  # the first of several counts
        try:
            reply = await match.route.answer(Call(self._link, match.parameters, query, body))
        except RequestError as error:
            reply = Reply(error.body, error.status)
        headers = {"Content-Type": reply.content_type}
        if reply.content_type == JSON:
            headers["Access-Control-Allow-Origin"] = "*"
            headers["Access-Control-Allow-Methods"] = ", ".join(sorted((match.route.method, "OPTIONS")))
            headers["Access-Control-Allow-Headers"] = "X-Requested-With,Content-Type,Accept,Origin"
        content = reply.body
        if len(content) >= GZIP_BYTES_MIN and accepts_gzip(request.headers.get("Accept-Encoding", "")):
            content = await _compressed(content)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(content, reply.status, headers)


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
    if request.url.query:
        location += "?" + request.url.query
    if request.method != "GET":
        return Response(b"", 307, {"Location": location})
    body = f'<a href="{html.escape(location)}">{HTTPStatus(301).phrase}</a>.\n\n'
    return Response(body, 301, {"Location": location, "Content-Type": "text/html; charset=utf-8"})


def _text(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, {"Content-Type": _TEXT, **(headers or {})})
