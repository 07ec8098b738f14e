"""Somebody who visits the API without a socket: requests as they are written in the scenario, escapes and all, and
streams of which only the beginning is read.

Not here: what is asked for.
"""

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.types import Message, Scope

from tests.captures.scenario import Request
from tests.webservice.fakes import CLIENT, SERVER
from yunishard.webservice.api import Api

ENOUGH_S: Final = 20.0
"""For an answer, or the lines of a stream that are read."""


@dataclass(slots=True)
class Answered:
    """What came back; the body is that of the first lines, if not more were wanted."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body, unpacked."""
        packed = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if packed else self.body).decode()


async def visit(api: Api, request: Request) -> Answered:
    """Ask, and read the answer, or its first lines."""
    async with asyncio.timeout(ENOUGH_S), _visiting(api, request) as answered:
        return answered


@asynccontextmanager
async def streaming(api: Api) -> AsyncGenerator[Answered]:
    """While somebody reads the stream of events."""
    async with _visiting(api, Request(name="stream", path="/ws/v1/events/stream", max_lines=1)) as answered:
        yield answered


@asynccontextmanager
async def _visiting(api: Api, request: Request) -> AsyncGenerator[Answered]:
    """Yields once everything is there that is wanted; the visitor stays until the end of the block."""
    answered, enough, gone = Answered(), asyncio.Event(), asyncio.Event()
    body = [request.body.encode()]

    async def receive() -> Message:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answered.status = message["status"]
            answered.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
            return
        answered.body += b"" if request.method == "HEAD" else message.get("body", b"")  # as a server does
        if request.max_lines and answered.body.count(b"\n") >= request.max_lines:
            answered.body = b"".join(answered.body.splitlines(keepends=True)[: request.max_lines])
            enough.set()

    running = asyncio.ensure_future(api(_scope(request), receive, send))
    waiting = asyncio.ensure_future(enough.wait())
    try:
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        yield answered
    finally:
        gone.set()
        waiting.cancel()
        await running


def _scope(request: Request) -> Scope:
    raw, _, query = request.path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote_to_bytes(raw).decode(),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in request.headers.items()],
        "client": CLIENT,
        "server": SERVER,
    }
