"""Connections to the leading broker of several hosts, against plain sockets of ZeroMQ that can be cut."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import zmq

from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import LINK_LOST, BrokerAddress, Incoming, Outgoing, encode_frames
from yunishard.common.transport import cluster_connection
from yunishard.common.transport.curve_keys import HOST, KeyPair, host_file, read_pair, write_pair
from yunishard.common.transport.event_loop import BrokerConnection, Transport

TEST_MAX_S = 10
HEADER = Header(kind="Hello", seq=5)
LOST = Incoming("broker", Header(kind=LINK_LOST), b"")


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_MAX_S):
            await story()

    asyncio.run(bounded())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    write_pair(tmp_path, HOST)
    return tmp_path


@contextmanager
def listening(address: str = "tcp://127.0.0.1:0", pair: KeyPair | None = None) -> Iterator["Router"]:
    router = Router(address, pair)
    try:
        yield router
    finally:
        router.socket.close(linger=0)


class Router:
    """A broker's end."""

    def __init__(self, address: str, pair: KeyPair | None) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        if pair is not None:
            self.socket.curve_server = True
            self.socket.curve_secretkey = pair.secret.encode()
        self.socket.bind(address)
        bound = bytes(self.socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        self.address = BrokerAddress(bound, pair.public if pair else "")

    async def receive(self) -> bytes:
        assert await asyncio.to_thread(self.socket.poll, TEST_MAX_S * 1000)
        return self.socket.recv_multipart()[-1]

    def send(self, body: bytes) -> None:
        self.socket.send_multipart([b"worker/1", *encode_frames(HEADER, body)])


@asynccontextmanager
async def connected(broker: BrokerAddress, keys: Path) -> AsyncIterator[tuple[Transport, BrokerConnection]]:
    wire = Transport()
    link = BrokerConnection(broker, name="worker/1", wake=wire.wake, keys=keys)
    wire.add("broker", link)
    try:
        yield wire, link
    finally:
        link.close()


async def arrivals(wire: Transport, count: int) -> list[Incoming]:
    got: list[Incoming] = []
    while len(got) < count:
        got += await wire.receive(float("inf"))
    return got


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0.001)


def outgoing(body: bytes) -> Outgoing:
    return Outgoing("broker", HEADER, body)


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_each_connection_begins_with_link_lost_and_carries_nothing_that_was_sent_before(
    kind: str, keys: Path, tmp_path: Path
) -> None:
    async def story() -> None:
        pair = KeyPair.new() if kind == "tcp" else None
        address = "tcp://127.0.0.1:0" if kind == "tcp" else f"ipc://{tmp_path}/s"
        with listening(address, pair) as first:
            broker = first.address
            async with connected(broker, keys) as (wire, link):
                wire.send(outgoing(b"too early"))
                assert await arrivals(wire, 1) == [LOST]
                wire.send(outgoing(b"1"))
                assert await first.receive() == b"1"
                first.send(b"2")
                assert await arrivals(wire, 1) == [Incoming("broker", HEADER, b"2")]
                first.socket.close(linger=0)
                wire.send(outgoing(b"lost in the socket"))
                while not link.dropped > 1:
                    wire.send(outgoing(b"lost too"))
                    await asyncio.sleep(0)
                with listening(broker.address, pair) as second:
                    assert await arrivals(wire, 1) == [LOST]
                    wire.send(outgoing(b"3"))
                    assert await second.receive() == b"3"

    play(story)


def test_a_move_drops_what_is_queued_for_the_earlier_broker(keys: Path, tmp_path: Path) -> None:
    async def story() -> None:
        with listening(f"ipc://{tmp_path}/s") as local, listening(pair=KeyPair.new()) as remote:
            async with connected(local.address, keys) as (wire, link):
                assert await arrivals(wire, 1) == [LOST]
                wire.send(outgoing(b"0"))
                assert await local.receive() == b"0"
                local.send(b"unread")
                link.move(remote.address)
                wire.send(outgoing(b"dropped"))
                assert await arrivals(wire, 1) == [LOST]
                link.move(remote.address)  # no other broker: nothing happens
                wire.send(outgoing(b"1"))
                assert await remote.receive() == b"1"
                link.move(local.address)
                assert await arrivals(wire, 1) == [LOST]
                wire.send(outgoing(b"2"))
                assert await local.receive() == b"2"

    play(story)


def test_a_move_while_the_earlier_broker_does_not_answer(keys: Path) -> None:
    async def story() -> None:
        with listening(pair=KeyPair.new()) as broker:
            nowhere = BrokerAddress("tcp://127.0.0.1:1", broker.address.key)
            async with connected(nowhere, keys) as (wire, link):
                await asyncio.sleep(0)
                link.move(BrokerAddress("tcp://no-such-host.invalid:1", broker.address.key))
                await asyncio.sleep(0)
                link.move(broker.address)
                assert await arrivals(wire, 1) == [LOST]

    play(story)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("tcp://127.0.0.1:1", "nothing listens there"),
        ("tcp://no-such-host.invalid:1", "not known|resolution|No address"),
        ("tcp://127.0.0.1:none", "cannot connect"),
    ],
)
def test_a_broker_that_is_not_there_is_logged_once(
    address: str, problem: str, keys: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_connection, "PAUSE_MIN_S", 0.001)
    attempts: list[str] = []
    resolve = cluster_connection.resolve

    async def count(one: str) -> object:
        attempts.append(one)
        return await resolve(one)

    monkeypatch.setattr(cluster_connection, "resolve", count)

    async def story() -> None:
        async with connected(BrokerAddress(address, KeyPair.new().public), keys):
            await until(lambda: len(attempts) >= 4)

    play(story)
    [text] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert text.startswith(f"no connection to the broker at {address}: ")
    assert re.search(problem, text)


def test_a_host_that_expects_another_key_of_the_broker_does_not_connect(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        with listening(pair=KeyPair.new()) as broker:
            other = KeyPair.new().public
            async with connected(BrokerAddress(broker.address.address, other), keys) as (wire, link):
                await until(lambda: bool(caplog.records))
                link.move(broker.address)
                assert await arrivals(wire, 1) == [LOST]

    play(story)
    assert "the handshake failed: its key may not be" in caplog.text


def test_a_process_connects_again_when_its_host_has_a_new_pair(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_connection, "KEYS_CHECK_S", 0.01)

    async def story() -> None:
        with listening(pair=KeyPair.new()) as broker:
            async with connected(broker.address, keys) as (wire, _):
                assert await arrivals(wire, 1) == [LOST]
                before = read_pair(host_file(keys))
                host_file(keys).unlink()
                (keys / f"{HOST}.key").unlink()
                write_pair(keys, HOST)
                assert read_pair(host_file(keys)) != before
                assert await arrivals(wire, 1) == [LOST]

    play(story)


@asynccontextmanager
async def relayed(address: str, gate: asyncio.Event) -> AsyncIterator[str]:
    """An address that leads to this one. With a closed gate it is silent, and keeps its connections."""
    host, port = address.removeprefix("tcp://").split(":")
    writers: list[asyncio.StreamWriter] = []
    pumps = asyncio.TaskGroup()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await gate.wait()
                writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(host, int(port))
        writers.extend((writer, ours))
        pumps.create_task(pump(reader, ours))
        pumps.create_task(pump(theirs, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with pumps:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
        gate.set()
        for writer in writers:
            writer.close()
    for writer in writers:
        with suppress(ConnectionError):
            await writer.wait_closed()


def test_a_link_that_is_cut_is_found_by_heartbeats(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cluster_connection.HEARTBEATS, zmq.HEARTBEAT_IVL, 100)
    monkeypatch.setitem(cluster_connection.HEARTBEATS, zmq.HEARTBEAT_TIMEOUT, 200)

    async def story() -> None:
        with listening(pair=KeyPair.new()) as broker:
            gate = asyncio.Event()
            gate.set()
            async with (
                relayed(broker.address.address, gate) as address,
                connected(BrokerAddress(address, broker.address.key), keys) as (wire, link),
            ):
                assert await arrivals(wire, 1) == [LOST]
                gate.clear()
                while not link.dropped:
                    wire.send(outgoing(b"lost"))
                    await asyncio.sleep(0.01)
                gate.set()
                assert await arrivals(wire, 1) == [LOST]

    play(story)
