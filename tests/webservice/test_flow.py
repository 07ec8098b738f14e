"""Pieces go to a client as they come, and are let go of as soon as it is gone or takes nothing."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.webservice.server import serving
from webservice.flow import Flow

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


def flow(pieces: Pieces, write_max_s: float = 60) -> Flow:
    return Flow(pieces, 200, {"Content-Type": "text/plain"}, write_max_s=write_max_s)


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
        pieces = Pieces(b"x" * 65536, again=True)
        async with serving(flow(pieces, write_max_s=0.05)) as address:
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
