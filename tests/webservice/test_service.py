"""The whole service over real sockets, and access control from the settings."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import h11
import httpx
import pytest

from tests.webservice.fake_broker import Behaviour, broker, helpful, reply
from tests.webservice.fakes import QUEUES, change
from yunishard.common.messages.query_messages import ChangeConfig
from yunishard.common.messages.wire import BrokerAddress, Incoming, Outgoing, decode_body
from yunishard.common.process.main import Arguments
from yunishard.common.settings import Settings
from yunishard.common.transport.token_keys import write_secret
from yunishard.webservice.authn_authz import look_up_account
from yunishard.webservice.http1 import MALFORMED_LINE
from yunishard.webservice.service import LINES_MAX, ClientErrorFilter, listen, make_access_control, serve


class FakeLife:
    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.endpoints: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        self.stopping.set()

    def on_leader(self, move: Callable[[BrokerAddress], None]) -> None:
        pass  # the broker of this test is the only one

    def ready(self, **endpoints: str) -> None:
        self.endpoints.set_result(endpoints)


def visit(visiting: Callable[[str, FakeLife], Awaitable[None]], behaviour: Behaviour = helpful) -> None:
    """Run the service, and a visitor who gets its address."""

    async def run() -> None:
        life = FakeLife()
        async with broker(behaviour) as fake:
            arguments = Arguments(BrokerAddress(fake.address), Settings(rest="127.0.0.1:0"), "1")
            serving = asyncio.create_task(serve(arguments, life))
            await asyncio.wait([serving, life.endpoints], return_when=asyncio.FIRST_COMPLETED)
            try:
                assert not serving.done(), serving.exception()
                await visiting((await life.endpoints)["rest"], life)
            finally:
                life.stopping.set()
                await serving

    asyncio.run(run())


def test_a_question_goes_through_the_broker_and_back() -> None:
    async def visiting(address: str, _: FakeLife) -> None:
        async with httpx.AsyncClient(base_url=address) as client:
            response = await client.get("/ws/v1/partition/default/queues")
        assert (response.status_code, response.content) == (200, b'["rm-1_default"]\n')
        assert "server" not in response.headers

    visit(visiting)


def test_a_malformed_escape_in_the_request_line_is_a_bad_request() -> None:
    async def visiting(address: str, _: FakeLife) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(b"GET /ws/v1/partition/default/queue/root%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert received.startswith(b"HTTP/1.1 400 ")
        assert received.endswith(b"\r\n\r\n400 Bad Request")

    visit(visiting)


def test_a_request_that_is_running_at_the_stop_is_answered() -> None:
    lives: list[FakeLife] = []

    def stop_then_help(incoming: Incoming) -> list[Outgoing]:
        for life in lives:
            life.stopping.set()
        return helpful(incoming)

    async def visiting(address: str, life: FakeLife) -> None:
        lives.append(life)
        async with httpx.AsyncClient(base_url=address) as client:
            assert (await client.get("/ws/v1/partition/default/queues")).status_code == 200

    visit(visiting, stop_then_help)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")
def test_a_change_is_made_by_the_user_who_runs_the_client() -> None:
    asked: list[ChangeConfig] = []

    def changing(incoming: Incoming) -> list[Outgoing]:
        if incoming.header.kind != ChangeConfig.__name__:
            return helpful(incoming)
        asked.append(decode_body(ChangeConfig, incoming.body))
        return [reply(incoming, change(asked[-1]))]

    async def visiting(address: str, _: FakeLife) -> None:
        async with httpx.AsyncClient(base_url=address) as client:
            response = await client.put("/ws/v1/config?rm=rm-1", content=QUEUES)
            assert (response.status_code, response.json()["version"]) == (200, 4)
            refused = await client.put("/ws/v1/config?rm=rm-1", content=QUEUES, headers={"Host": "evil.example"})
            assert refused.status_code == 403
        assert [one.author for one in asked] == [look_up_account(os.getuid()).user]

    visit(visiting, changing)


def test_a_port_in_use_is_one_line() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(OSError, match=f"^cannot listen on 127.0.0.1:{port}: Address already in use$"):
            listen("127.0.0.1", port)


def test_an_unknown_host_is_one_line() -> None:
    with pytest.raises(OSError, match=r"^cannot listen on \[::zz\]:0: "):
        listen("::zz", 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_it_listens_on_ipv6_where_there_is_one() -> None:
    try:
        listener = listen("::1", 0)
    except OSError as error:
        pytest.skip(str(error))
    with listener:
        assert listener.family == socket.AF_INET6


def said(faults: ClientErrorFilter, text: str, at: float, error: Exception | None = None) -> str:
    """What comes into the log; empty for nothing."""
    info = (type(error), error, None) if error else None
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 1, text, (), info)
    record.created = at
    if not faults.filter(record):
        return ""
    return record.getMessage() + (" with a traceback" if record.exc_info else "")


def test_a_few_lines_a_minute_and_then_how_many_there_were() -> None:
    faults = ClientErrorFilter()
    lines = [said(faults, "100 % wrong", 1000.0) for _ in range(LINES_MAX + 7)]
    assert lines == [*["100 % wrong"] * LINES_MAX, *[""] * 7]
    assert said(faults, "100 % wrong", 1060.0) == "100 % wrong (and 7 more)"
    assert said(faults, "100 % wrong", 1060.0) == "100 % wrong"


def test_a_malformed_request_is_logged_by_the_protocol_only() -> None:
    assert said(ClientErrorFilter(), MALFORMED_LINE, 1.0) == ""


def test_a_client_that_breaks_the_protocol_costs_one_line() -> None:
    error = h11.LocalProtocolError("too late")
    assert (
        said(ClientErrorFilter(), "Exception in ASGI application\n", 1.0, error) == "the answer was aborted: too late"
    )


def test_a_defect_of_ours_is_always_logged_whole() -> None:
    faults = ClientErrorFilter()
    for _ in range(LINES_MAX + 1):
        assert said(faults, "Exception", 1.0, KeyError("x")) == "Exception with a traceback"


# Access control from settings -----------------------------------------------------------------------------------------


def test_by_default_authentication_and_audit_are_off() -> None:
    found = make_access_control(Settings())
    assert (found.is_off, found.cors.named_only, found.audit) == (True, False, None)


@pytest.mark.parametrize("method", ["token", "certificate", "proxy"])
def test_each_method_turns_authentication_on(tmp_path: Path, method: str) -> None:
    write_secret(tmp_path / "keys")
    networks = ("::1", "10.0.0.0/8")
    settings = Settings(auth=(method,), auth_keys=tmp_path / "keys", auth_proxy=networks, state=tmp_path)
    found = make_access_control(settings)
    assert (found.is_off, found.cors.named_only) == (False, True)
    assert found.cors.credentials is (method != "token")
    assert found.audit is not None


def test_keys_of_tokens_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(OSError, match=f"^{missing}: cannot be read: no such file or directory$"):
        make_access_control(Settings(auth=("token",), auth_keys=missing))
