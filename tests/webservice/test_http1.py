"""Limits on connections and on the time to send a request and to read an answer."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tests.webservice.fakes import FakeLink, loopback_users
from tests.webservice.server import serving
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api, StreamResponse
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.http1 import MALFORMED_LINE, BoundedHttpProtocol

REQUEST = b"GET /ws/v1/clusters HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"HEAD /ws/v1/clusters HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class VeryImpatientHttp(BoundedHttpProtocol):
    """What was sent before it is there comes in time all the same: reading goes before looking at the time."""

    head_max_s = 0.02
    body_max_s = 0.02


def converse(sent: bytes, protocol: type[BoundedHttpProtocol] = VeryImpatientHttp) -> bytes:
    """What comes back until the server ends the connection."""

    async def run() -> bytes:
        api = Api(FakeLink(), Settings(), AccessControl(loopback_users()))
        config = uvicorn.Config(api, http=protocol, lifespan="off", ws="none", log_config=None)
        config.load()
        state = ServerState()
        port = socket.create_server(("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection(*port.getsockname())
        writer.write(sent)
        server = await asyncio.get_running_loop().create_server(
            lambda: protocol(config, state, app_state={}), sock=port
        )
        async with server:
            received = await reader.read()
            writer.close()
            await writer.wait_closed()
            while state.connections:  # noqa: ASYNC110 - what happens in the same loop, and tells nobody
                await asyncio.sleep(0)
            return received

    return asyncio.run(run())


def test_a_malformed_request_is_logged_with_its_client(caplog: pytest.LogCaptureFixture) -> None:
    assert converse(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert caplog.messages == [MALFORMED_LINE, "invalid HTTP request from 127.0.0.1"]


def test_a_client_that_sends_nothing_is_disconnected() -> None:
    assert converse(b"") == b""


def test_a_client_that_stops_in_the_middle_of_a_head_is_left() -> None:
    assert converse(REQUEST[:-2]) == b""


def test_a_client_that_stops_in_the_middle_of_a_body_is_left() -> None:
    post = b"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    assert converse(post + b"part") == b""
    assert converse(post + b"allofit: ").count(b"HTTP/1.1 200 OK") == 1


def test_a_client_is_answered_first_and_left_when_its_next_head_is_late() -> None:
    assert converse(REQUEST + REQUEST[:-2]).count(b"HTTP/1.1 200 OK") == 1


def test_requests_may_follow_each_other() -> None:
    assert converse(REQUEST + REQUEST).count(b"HTTP/1.1 200 OK") == 2


def test_what_is_no_request_is_refused() -> None:
    assert converse(b"G\0T / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize("head", [b"GET /", REQUEST[:-2] + b"X: "], ids=["path", "header"])
@pytest.mark.parametrize("length", [70_000, 3_000_000], ids=["longer", "much longer"])
def test_a_head_that_is_too_long_is_answered_with_431(head: bytes, length: int) -> None:
    received = converse(head + b"x" * length, BoundedHttpProtocol)
    assert received.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert received.endswith(b"\r\n\r\nThe head of the request is too long\n")


@pytest.mark.parametrize("begun", [REQUEST, REQUEST.replace(b"GET", b"HEAD"), CHUNKED], ids=["get", "head", "chunked"])
def test_invalid_data_after_a_request_ends_the_connection_without_a_traceback(
    begun: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    converse(begun + b"\0\0\0\r\n\r\n")
    assert [record for record in caplog.records if record.exc_info] == []


async def lots(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with more than the operating system keeps for a client."""
    await Response(bytes(32 << 20))(scope, receive, send)


class Deaf(BoundedHttpProtocol):
    """Tells when a connection is over; waits for a client to take what it is sent for no time worth the name."""

    taken_within_s = 0.02
    over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.over.set()


@pytest.mark.parametrize("more", ["", "Connection: close\r\n"], ids=["kept", "closed"])
def test_a_client_that_does_not_take_its_answer_is_left_and_the_answer_let_go_of(more: str) -> None:
    async def run() -> None:
        Deaf.over = asyncio.Event()
        async with serving(lots, Deaf) as address:
            with socket.socket() as plain:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                plain.connect(address)
                plain.sendall(f"GET / HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
                await asyncio.wait_for(Deaf.over.wait(), 10)

    asyncio.run(run())


def test_a_client_that_takes_its_answer_slowly_gets_all_of_it() -> None:
    async def run() -> int:
        async with serving(lots) as address:
            reader, writer = await asyncio.open_connection(*address, limit=1 << 10)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            size = 0
            while piece := await reader.read(1 << 16):
                size += len(piece)
                await asyncio.sleep(0)
            writer.close()
            await writer.wait_closed()
            return size

    assert asyncio.run(run()) > 32 << 20


class Narrow(BoundedHttpProtocol):
    connections_of_one_max = 2


class Few(BoundedHttpProtocol):
    connections_max = 2


@pytest.mark.parametrize("protocol", [Narrow, Few], ids=["of one address", "of all"])
def test_idle_connections_keep_no_client_out(protocol: type[BoundedHttpProtocol]) -> None:
    async def run() -> list[bytes]:
        async with serving(lots, protocol) as address:
            idle = [await asyncio.open_connection(*address) for _ in range(2)]
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
            served = await reader.readline()
            with suppress(ConnectionResetError):
                assert await idle[0][0].read() == b""
            idle[1][1].write(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
            stays = await idle[1][0].readline()
            for _, one in (*idle, (reader, writer)):
                one.close()
            return [served, stays]

    assert asyncio.run(run()) == [b"HTTP/1.1 200 OK\r\n"] * 2


def test_one_address_does_not_get_all_connections() -> None:
    async def run() -> bytes:
        async with serving(lots, Narrow) as address:
            busy = [await asyncio.open_connection(*address) for _ in range(2)]
            for reader, writer in busy:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.readline()
            reader, writer = await asyncio.open_connection(*address)
            refused = await reader.read()
            for _, one in (*busy, (reader, writer)):
                one.close()
            return refused

    assert asyncio.run(run()) == b""


@pytest.mark.parametrize(
    "framing", ["Transfer-Encoding: chunked\r\nContent-Length: 4", "Content-Length: 4\r\nTransfer-Encoding: chunked"]
)
def test_a_request_that_may_be_two_is_refused_and_nothing_after_it_is_read(framing: str) -> None:
    head = f"POST /ws/v1/validate-conf HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n0\r\n\r\n".encode()
    received = converse(head + REQUEST)
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert received.count(b"HTTP/1.1") == 1


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Pieces:
    """Pieces that were given before they are asked for, or come later; `None` is the end."""

    def __init__(self, *pieces: bytes | None, again: bool = False) -> None:
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._pieces = itertools.cycle(pieces) if again else iter(pieces)
        self.left = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = next(self._pieces, b"")
        if piece == b"":
            piece = await self._waiting.get()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def give(self, piece: bytes | None) -> None:
        self._waiting.put_nowait(piece)

    async def aclose(self) -> None:
        self.left.set()


def flow(pieces: Pieces) -> StreamResponse:
    return StreamResponse(pieces, 200, {"Content-Type": "text/plain"})


def test_each_piece_arrives_before_the_next_one_is_there() -> None:
    async def run() -> None:
        pieces = Pieces(b"one")
        async with serving(flow(pieces)) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(GET)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"transfer-encoding: chunked" in head.lower()
            assert await reader.readuntil(b"one\r\n") == b"3\r\none\r\n"
            pieces.give(b"two")
            assert await reader.readuntil(b"two\r\n") == b"3\r\ntwo\r\n"
            pieces.give(None)
            assert await reader.readuntil(b"0\r\n\r\n") == b"0\r\n\r\n"
            await pieces.left.wait()
            writer.close()

    asyncio.run(run())


def test_the_pieces_are_let_go_of_when_the_client_leaves() -> None:
    async def run() -> None:
        pieces = Pieces(b"one")
        async with serving(flow(pieces)) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(GET)
            await reader.readuntil(b"one\r\n")
            writer.close()
            await pieces.left.wait()

    asyncio.run(run())


def test_a_client_that_takes_nothing_loses_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        Deaf.over = asyncio.Event()
        pieces = Pieces(b"x" * 65536, again=True)
        async with serving(flow(pieces), Deaf) as address:
            reader, writer = await asyncio.open_connection(*address, limit=1)
            writer.write(GET)
            await pieces.left.wait()
            with suppress(ConnectionResetError):
                while await reader.read(1 << 20):
                    pass
            writer.close()

    asyncio.run(run())
    assert caplog.records == []


def test_a_defect_of_the_pieces_is_one_of_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Pieces):
        async def __anext__(self) -> bytes:
            raise ValueError("broken")

    async def run() -> bytes:
        pieces = Broken()
        async with serving(flow(pieces)) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(GET)
            received = await reader.read()
            writer.close()
            assert pieces.left.is_set()
            return received

    assert not asyncio.run(run()).endswith(b"0\r\n\r\n")  # the client sees that something is missing
    assert "Exception in ASGI application" in caplog.text
