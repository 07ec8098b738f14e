"""The wrong port is named early: what listens there, and which port was meant."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.yunishard.fake_core import FakeCore, Kept, play
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.port_probe import describe_peer, probe

HTTP2 = b"\0\0\x12\x04\0\0\0\0\0\0\x03"
HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@asynccontextmanager
async def listening(greeting: bytes, *, after: bytes = b"", hangs_up: bool = False) -> AsyncIterator[str]:
    """A port that answers this, at once or once it has read so much; or that hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if after:
                await reader.readuntil(after)
            writer.write(greeting)
            if not hangs_up:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Warned(logging.Handler):
    """Notices the first line of a log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


@pytest.mark.parametrize(
    ("start", "protocol"),
    [
        (HTTP, "the protocol is HTTP, as at yunishard's port for REST (9080 unless configured otherwise)"),
        (HTTP2, "the protocol is HTTP/2, as at yunishard's port for gRPC (3333 unless configured otherwise)"),
        (b"\xff\0\0\0", "the protocol is ZeroMQ, as at yunishard's native port (9090 unless configured otherwise)"),
        (b"\x15\x03\x01", "the protocol is TLS, as at yunishard's ports for REST and gRPC with certificates"),
        (b"SSH-2.0", "it answers with b'SSH-2.0'"),
    ],
)
def test_a_protocol_is_known_by_its_first_bytes(start: bytes, protocol: str) -> None:
    assert describe_peer(start) == protocol


@pytest.mark.parametrize(
    ("greeting", "after", "words"),
    [
        (HTTP2, b"", "protocol is HTTP/2, as at yunishard's port for gRPC (3333 unless configured otherwise)"),
        (HTTP, b"\r\n\r\n", "protocol is HTTP, as at yunishard's port for REST (9080 unless configured otherwise)"),
        (b"SSH-2.0-OpenSSH", b"", "answers with b'SSH-2.0-OpenSSH'"),
    ],
)
def test_connecting_to_a_port_of_another_protocol_fails_early_and_says_which(
    greeting: bytes, after: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yunishard.sdk.client.DIAGNOSE_AFTER_S", 0.1)

    async def story() -> None:
        async with listening(greeting, after=after) as address:
            with pytest.raises(ConnectionError, match="not yunishard's native port") as caught:
                await ResourceManager.connect(address, rm_id="rm-1", timeout_s=1000)
        assert words in str(caught.value)
        assert "Give the native port (9090 unless configured otherwise)" in str(caught.value)

    play(story)


def test_where_nothing_listens_it_is_said_early_and_a_core_that_starts_late_is_still_met(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("yunishard.sdk.client.DIAGNOSE_AFTER_S", 0.1)
    warned = Warned()
    monkeypatch.setattr(logging.getLogger("yunishard.sdk.client"), "handlers", [warned])

    async def story() -> None:
        async with FakeCore() as core:
            address = core.address
        connecting = asyncio.create_task(Kept.connect(address, rm_id="rm-1", timeout_s=1000))
        await warned.event.wait()
        assert f"no answer from {address} within 0.1 s: nothing listens there" in caplog.messages[0]
        async with FakeCore(address) as core:
            await core.welcomes()
            async with await connecting:
                pass

    play(story)


def test_a_proxy_that_hangs_up_as_its_core_is_away_ends_no_attempt() -> None:
    async def story() -> None:
        async with listening(b"", hangs_up=True) as address:
            finding = await probe(address)
        assert finding is not None
        assert not finding.is_foreign

    play(story)


def test_the_final_error_says_what_was_found() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            address = core.address
        with pytest.raises(ConnectionError, match=r"within 1 s \(nothing listens there \(.*refused.*\)\): is the core"):
            await ResourceManager.connect(address, rm_id="rm-1", timeout_s=1)

    play(story)


def test_an_address_that_is_not_for_tcp_is_not_probed() -> None:
    assert asyncio.run(probe("ipc:///tmp/x")) is None


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "a\0b"])
def test_a_host_that_cannot_be_a_name_is_said_to_be_none(host: str) -> None:
    finding = asyncio.run(probe(f"tcp://{host}:9090"))
    assert finding is not None
    assert finding.text.startswith(f"{host!r} is no host name: ")
    assert not finding.is_foreign


def test_a_host_that_is_not_found_is_said_in_words() -> None:
    finding = asyncio.run(probe("tcp://core.invalid:9090"))
    assert finding is not None
    assert finding.text.startswith("the host 'core.invalid' is not found: ")
    assert "unknown error" not in finding.text
