"""Event streams over real sockets: a client that reads gets every event, whatever other clients do."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from tests.webservice.event_worker import FakeClock, FakeWorker
from tests.webservice.fakes import FakeLink, loopback_users, partition
from tests.webservice.server import serving
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.event_streams import CLOSED_LINE, EventStreams, Pace

FIRST = '{"InstanceUUID":"history-1"}'
PACE = Pace(interval_min_s=0.01, interval_max_s=0.01)
BURST = 20_000
PADDING = {"message": "x" * 300}
"""So that what a connection takes on its way is little of all."""


@asynccontextmanager
async def api(worker: FakeWorker, clock: FakeClock | None = None) -> AsyncIterator[tuple[Api, tuple[str, int]]]:
    """The API with a clock that stands still, so that nobody is cut off because the machine is busy."""
    one = Api(FakeLink(partition(), worker=worker.answer), Settings(), AccessControl(loopback_users()))
    one.services.streams = EventStreams(worker.ask, pace=PACE, clock=clock or FakeClock())
    async with serving(one) as address:
        yield one, address
        one.services.streams.close()


def client(address: tuple[str, int]) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=60)


@asynccontextmanager
async def deaf(address: tuple[str, int]) -> AsyncIterator[asyncio.StreamReader]:
    """Somebody who asks for events and then reads nothing."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, address)
    reader, writer = await asyncio.open_connection(sock=plain, limit=1)
    writer.write(b"GET /ws/v1/events/stream HTTP/1.1\r\nHost: deaf\r\n\r\n")
    yield reader
    writer.close()
    with suppress(ConnectionResetError):
        await writer.wait_closed()


async def open_streams(one: Api, number: int) -> None:
    while len(one.services.streams.open) != number:  # noqa: ASYNC110 - what happens in the same loop, and tells nobody
        await asyncio.sleep(0)


async def at_most(one: Api, number: int) -> None:
    while len(one.services.streams.open) > number:  # noqa: ASYNC110 - the same
        await asyncio.sleep(0)


def test_a_burst_reaches_all_who_read_and_who_does_not_is_cut_off() -> None:
    async def run() -> None:
        worker, clock = FakeWorker(), FakeClock()
        worker.padding = PADDING

        async def read(visitor: httpx.AsyncClient) -> list[int]:
            found: list[int] = []
            async with visitor.stream("GET", "/ws/v1/events/stream") as response:
                async for line in response.aiter_lines():
                    found.append(json.loads(line).get("n", -1))
                    if len(found) > BURST:
                        break
            return found

        async with api(worker, clock) as (one, address), client(address) as visitor, deaf(address):
            readers = [asyncio.create_task(read(visitor)) for _ in range(3)]
            await open_streams(one, 4)
            worker.end += BURST
            for each in readers:
                assert await each == list(range(-1, BURST))
            await at_most(one, 1)  # none on a machine so busy that the deaf one has been aborted meanwhile
            clock.now += PACE.stalled_max_s + 1
            await at_most(one, 0)

    asyncio.run(run())


def test_a_client_that_reads_again_in_time_gets_the_closing_line() -> None:
    async def run() -> None:
        worker, clock = FakeWorker(), FakeClock()
        worker.padding = PADDING
        async with api(worker, clock) as (one, address), deaf(address) as reader:
            await open_streams(one, 1)
            worker.end += BURST
            while one.services.streams.open:
                clock.now += 1
                await asyncio.sleep(0)
            received = bytearray()
            while not received.endswith(b"0\r\n\r\n"):
                received += await reader.read(1 << 16)
            assert received.endswith(b"\r\n" + CLOSED_LINE + b"\r\n0\r\n\r\n")
            assert received.count(b'{"n":') < BURST

    asyncio.run(run())


def test_a_client_that_leaves_frees_its_place() -> None:
    async def run() -> None:
        async with api(FakeWorker(streams_max=1)) as (one, address), client(address) as visitor:
            for _ in range(3):
                async with visitor.stream("GET", "/ws/v1/events/stream") as response:
                    assert await anext(response.aiter_lines()) == FIRST
                    refused = await visitor.get("/ws/v1/events/stream")
                    assert (refused.status_code, refused.json()["message"]) == (503, "Too many streaming connections")
                await open_streams(one, 0)

    asyncio.run(run())


@pytest.mark.parametrize("coding", ["gzip", ""])
def test_lines_are_json_in_chunks_that_are_never_compressed(coding: str) -> None:
    async def run() -> None:
        worker = FakeWorker(5000)
        async with api(worker) as (_, address), client(address) as visitor:
            path, headers = "/ws/v1/events/stream?count=5000", {"Accept-Encoding": coding}
            async with visitor.stream("GET", path, headers=headers) as response:
                assert response.status_code == 200
                assert response.headers["Content-Type"] == "application/json; charset=UTF-8"
                assert response.headers["Access-Control-Allow-Methods"] == "GET, OPTIONS"
                assert response.headers["Transfer-Encoding"] == "chunked"
                assert "Content-Encoding" not in response.headers
                lines = response.aiter_lines()
                assert [await anext(lines) for _ in range(5001)][::5000] == [FIRST, '{"n":4999}']

    asyncio.run(run())


def test_streams_end_in_order_when_the_service_stops() -> None:
    async def run() -> None:
        async with (
            api(FakeWorker()) as (one, address),
            client(address) as visitor,
            visitor.stream("GET", "/ws/v1/events/stream") as response,
        ):
            lines = response.aiter_lines()
            assert await anext(lines) == FIRST
            one.services.streams.close()
            assert [line async for line in lines] == [CLOSED_LINE.decode().strip()]

    asyncio.run(run())
