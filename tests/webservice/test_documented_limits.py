"""The limits and orders that `docs/rest.md`, `docs/security.md` and `docs/compatibility.md` state are what happens, to
the byte. Numbers stand here as they stand there.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final

import httpx
import pytest
from starlette.types import ASGIApp

from tests.webservice.cluster import FILLED
from tests.webservice.cluster import api as cluster
from tests.webservice.fakes import FakeLink, loopback_users, partition, request
from tests.webservice.server import serving
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.http1 import BoundedHttpProtocol

KIB: Final = 1024
MIB: Final = 1024 * KIB
HEAD: Final = b"GET /ws/v1/clusters HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> ASGIApp:
    """The API of a cluster in which every list has entries."""
    return cluster(FILLED, tmp_path_factory.mktemp("filled") / "history.sqlite")


def sized_head(size: int) -> bytes:
    """A head of so many bytes, of which two headers make up most."""
    rest = size - len(HEAD) - len(b"X: \r\nY: \r\n\r\n")
    return HEAD + b"X: " + b"x" * (rest // 2) + b"\r\nY: " + b"y" * (rest - rest // 2) + b"\r\n\r\n"


async def status_of(address: tuple[str, int], *pieces: bytes) -> int:
    """The status of the answer to a request that is sent in these pieces."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return int((await reader.readline()).split()[1])
    finally:
        writer.close()


def served(story: Callable[[tuple[str, int]], Awaitable[None]]) -> None:
    """Play a story at the address of the API on a real port."""

    async def run() -> None:
        async with serving(Api(FakeLink(partition()), Settings(), AccessControl(loopback_users()))) as address:
            await story(address)

    asyncio.run(run())


@pytest.mark.parametrize(("size", "status"), [(60 * KIB, 200), (64 * KIB, 200), (64 * KIB + 1, 431), (200 * KIB, 431)])
@pytest.mark.parametrize("pieces", [1, 2, 40])
def test_a_head_has_64_kib(size: int, status: int, pieces: int) -> None:
    head = sized_head(size)
    assert len(head) == size
    step = -(-size // pieces)

    async def story(address: tuple[str, int]) -> None:
        assert await status_of(address, *(head[begin : begin + step] for begin in range(0, size, step))) == status

    served(story)


@pytest.mark.parametrize(("size", "status"), [(16 * MIB, 200), (16 * MIB + 1, 413)])
def test_a_body_has_16_mib(size: int, status: int) -> None:
    async def story(address: tuple[str, int]) -> None:
        host, port = address
        async with httpx.AsyncClient(timeout=60) as client:
            path = f"http://{host}:{port}/ws/v1/validate-conf"
            assert (await client.post(path, content=b"#" * size)).status_code == status

    served(story)


@pytest.mark.parametrize(("count", "status"), [(100, 200), (101, 431)])
def test_a_request_has_100_headers(count: int, status: int) -> None:
    head = HEAD + b"".join(b"X-%d: x\r\n" % number for number in range(count - 2)) + b"\r\n"

    async def story(address: tuple[str, int]) -> None:
        assert await status_of(address, head) == status

    served(story)


@pytest.mark.parametrize(("length", "status"), [(2_000, 200), (2_001, 400)])
def test_the_path_and_query_of_a_change_have_2000_bytes(length: int, status: int) -> None:
    path = "/ws/v1/partition/default/application/a/kill"
    response = request(FakeLink(partition()), f"{path}?{'x' * (length - len(path))}", "POST")
    assert response.status_code == status


@pytest.mark.parametrize(("size", "is_compressed"), [(1_399, False), (1_400, True)])
def test_answers_from_1400_bytes_on_are_compressed(size: int, *, is_compressed: bool) -> None:
    def worker(_: Query) -> Answer:
        return Answer(status=200, body=b"x" * size)

    path = "/ws/v1/partition/default/queues"
    response = request(FakeLink(partition(), worker=worker), path, headers={"Accept-Encoding": "gzip"})
    assert ("content-encoding" in response.headers) is is_compressed


@pytest.mark.parametrize(("limit", "status"), [("0", 400), ("1", 200), ("10000", 200), ("10001", 400)])
def test_a_page_has_1_to_10000_entries(limit: str, status: int) -> None:
    assert request(FakeLink(partition()), f"/ws/v1/partition/default/nodes?limit={limit}").status_code == status


class Narrow(BoundedHttpProtocol):
    connections_max = 3
    _is_idle = False  # idle ones would end for further ones


def test_as_many_connections_are_served_as_stated_and_only_further_ones_are_refused() -> None:
    assert (BoundedHttpProtocol.connections_max, BoundedHttpProtocol.connections_of_one_max) == (1000, 500)
    asking = HEAD.replace(b"Connection: close\r\n", b"\r\n")

    async def run() -> None:
        async with serving(Api(FakeLink(partition()), Settings(), AccessControl(loopback_users())), Narrow) as address:
            held = [await asyncio.open_connection(*address) for _ in range(4)]
            statuses = list[int]()
            for reader, writer in held:
                writer.write(asking)
                statuses.append(int((await reader.readline()).split()[1]))
            assert statuses == [200, 200, 200, 503]
            assert (await held[3][0].read()).endswith(b"Service Unavailable"), "it is closed"
            held.append(await asyncio.open_connection(*address))
            held[4][1].write(asking)
            assert int((await held[4][0].readline()).split()[1]) == 503
            for _, writer in held:
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("nodes", "nodeID"),
        ("applications/active", "applicationID"),
        ("applications/completed", "applicationID"),
        ("applications/rejected", "applicationID"),
        ("queue/root.production.services/applications", "applicationID"),
        ("queue/root.production.services/applications/active", "applicationID"),
        ("usage/users", "userName"),
        ("usage/groups", "groupName"),
    ],
)
def test_lists_are_sorted_by_key(filled: ASGIApp, path: str, key: str) -> None:
    async def run() -> list[str]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=filled), base_url="http://127.0.0.1") as client:
            reply = await client.get(f"/ws/v1/partition/default/{path}")
            return [one[key] for one in json.loads(reply.content)]

    keys = asyncio.run(run())
    assert len(keys) > 1
    assert keys == sorted(keys)
