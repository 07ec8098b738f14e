"""A client that does not finish its request's head loses its connection; one that does keeps it."""

import asyncio

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.webservice.fakes import FakeLink, people
from webservice.api import Api
from webservice.calls import Startup
from webservice.http1 import ImpatientHttp

REQUEST = b"GET /ws/v1/clusters HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"HEAD /ws/v1/clusters HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class VeryImpatientHttp(ImpatientHttp):
    head_max_s = 0.02
    body_max_s = 0.02


def converse(sent: bytes) -> bytes:
    """What comes back until the server ends the connection."""

    async def run() -> bytes:
        api = Api(FakeLink(), people(), Startup())
        config = uvicorn.Config(api, http=VeryImpatientHttp, lifespan="off", ws="none", log_config=None)
        config.load()
        server = await asyncio.get_running_loop().create_server(
            lambda: VeryImpatientHttp(config, ServerState(), app_state={}), "127.0.0.1", 0
        )
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(sent)
            received = await reader.read()
            writer.close()
            await writer.wait_closed()
            return received

    return asyncio.run(run())


def test_a_client_that_says_nothing_is_left() -> None:
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
def test_a_head_that_is_too_long_is_refused_and_said_so(head: bytes) -> None:
    received = converse(head + b"x" * 70_000)
    assert received.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert received.endswith(b"\r\n\r\nThe head of the request is too long\n")


@pytest.mark.parametrize("begun", [REQUEST, REQUEST.replace(b"GET", b"HEAD"), CHUNKED], ids=["get", "head", "chunked"])
def test_nonsense_in_the_middle_ends_the_connection_and_upsets_nobody(
    begun: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    converse(begun + b"\0\0\0\r\n\r\n")
    assert [record for record in caplog.records if record.exc_info] == []
