"""The servers' sockets against plain pyzmq sockets: RMs over tcp://, our own processes over ipc://."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import zmq

from yunishard.common.messages import wire as wire_module
from yunishard.common.messages.control_messages import Hello
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Refused
from yunishard.common.messages.wire import (
    MALFORMED,
    BrokerAddress,
    Incoming,
    Outgoing,
    encode_body,
    encode_frames,
    make_outgoing,
)
from yunishard.common.transport import event_loop as transport_module
from yunishard.common.transport.event_loop import (
    READ_BYTES_MAX,
    READ_MAX,
    BrokerConnection,
    BrokerPort,
    NativePort,
    Transport,
)

TEST_MAX_S = 10
HEADER = Header(kind="Hello", rm="rm-1", seq=5)
BODY = encode_body(Hello(role="worker"))
GOOD = encode_frames(HEADER, BODY)
RAW = f"native:{b'raw'.hex()}"


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_MAX_S):
            await story()

    asyncio.run(bounded())


@asynccontextmanager
async def listening(
    address: str = "tcp://127.0.0.1:0", *, prefix: str = "native:"
) -> AsyncIterator[tuple[Transport, NativePort]]:
    wire = Transport()
    router = NativePort(address, prefix=prefix, wake=wire.wake)
    wire.add(prefix, router)
    try:
        yield wire, router
    finally:
        router.close()


@contextmanager
def plain(address: str, identity: bytes = b"raw") -> Iterator["zmq.Socket[bytes]"]:
    """A socket of somebody who does not use our code."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.ROUTING_ID, identity)
    socket.connect(address)
    try:
        yield socket
    finally:
        socket.close()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/s"


@asynccontextmanager
async def broker_port(address: str) -> AsyncIterator[tuple[Transport, BrokerPort]]:
    wire = Transport()
    links = BrokerPort(address, wake=wire.wake)
    wire.add("", links)
    try:
        yield wire, links
    finally:
        links.close()


@asynccontextmanager
async def connected(address: str, *, name: str = "worker-1") -> AsyncIterator[Transport]:
    wire = Transport()
    link = BrokerConnection(BrokerAddress(address), name=name, wake=wire.wake, keys=None)
    wire.add("broker", link)
    try:
        yield wire
    finally:
        link.close()


@contextmanager
def plain_socket(kind: int, identity: bytes = b"") -> Iterator["zmq.Socket[bytes]"]:
    """A socket of ZeroMQ's library."""
    one: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    one.setsockopt(zmq.LINGER, 0)
    if identity:
        one.setsockopt(zmq.ROUTING_ID, identity)
    try:
        yield one
    finally:
        one.close()


async def arrival(wire: Transport) -> Incoming:
    [incoming] = await arrivals(wire, 1)
    return incoming


async def arrivals(wire: Transport, count: int) -> list[Incoming]:
    got: list[Incoming] = []
    while len(got) < count:
        got += await wire.receive(float("inf"))
    return got


async def answer(socket: "zmq.Socket[bytes]") -> list[bytes]:
    assert await asyncio.to_thread(socket.poll, TEST_MAX_S * 1000)
    return socket.recv_multipart()


# Addresses ----------------------------------------------------------------------------------------------------------


def test_peers_from_outside_are_called_by_their_routing_id_in_hex_after_a_prefix() -> None:
    async def story() -> None:
        async with listening() as (server, router):
            with plain(router.address, b"\x01\xff ") as rm:
                rm.send_multipart(GOOD)
                assert await arrival(server) == Incoming("native:01ff20", HEADER, BODY)
                server.send(Outgoing("native:01ff20", HEADER, BODY))
                assert await answer(rm) == GOOD

    play(story)


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    async def story() -> None:
        async with listening() as (_, router):
            with pytest.raises(OSError, match=r"cannot listen on tcp://.*: Address already in use"):
                NativePort(router.address, prefix="native:", wake=lambda: None)

    play(story)


@pytest.mark.parametrize("address", ["nowhere", "tcp://:::", "carrier-pigeon://x"])
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    with pytest.raises(OSError, match="cannot listen on"):
        NativePort(address, prefix="native:", wake=lambda: None)


# What cannot be read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b""], "expected 3 frames (protocol, header, body), got 1"),
        ([b"", *GOOD], "expected 3 frames (protocol, header, body), got 4"),
        ([b"x"] * 10_000, "expected 3 frames (protocol, header, body), got 10000"),
        ([b"HTTP", *GOOD[1:]], "expected protocol YSH1, got b'HTTP'"),
        ([GOOD[0], b"\xc1", BODY], "header: "),
        ([GOOD[0], b"\x91\xa1\xff", BODY], "header: "),
        ([GOOD[0], b"x" * 5000, BODY], "header of 5000 bytes, at most 4096 are allowed"),
        ([*GOOD[:2], b"x" * 101], "body of 101 bytes, at most 100 are allowed: send fewer items at once"),
    ],
)
def test_a_malformed_message_arrives_as_malformed_and_the_next_one_as_it_is(
    frames: list[bytes], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "BODY_BYTES_MAX", 100)

    async def story() -> None:
        async with listening() as (server, router):
            with plain(router.address) as peer:
                peer.send_multipart(frames)
                peer.send_multipart(GOOD)
                first, second = await arrivals(server, 2)
                assert (first.source, first.header) == (RAW, Header(kind=MALFORMED))
                assert first.body.decode().startswith(reason)
                assert second == Incoming(RAW, HEADER, BODY)

    play(story)


# Peers that come and go ---------------------------------------------------------------------------------------------


def test_a_message_for_a_peer_that_is_not_there_is_counted_and_dropped() -> None:
    async def story() -> None:
        async with listening() as (server, router):
            server.send(Outgoing("native:00", HEADER, BODY))
            assert router.dropped == 1
            with plain(router.address) as peer:
                peer.send_multipart(GOOD)
                await arrival(server)
                server.send(Outgoing(RAW, HEADER, BODY))
                assert await answer(peer) == GOOD
            while router.dropped == 1:  # until the break has been noticed
                server.send(Outgoing(RAW, HEADER, BODY))
                await asyncio.sleep(0)
            assert router.dropped == 2

    play(story)


def test_a_stranger_that_does_not_listen_loses_what_is_too_much_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "SEND_QUEUE_MAX", 10)
    body = bytes(1 << 20)

    async def story() -> None:
        async with listening() as (server, router):
            with plain(router.address, b"deaf") as peer:
                peer.setsockopt(zmq.RCVHWM, 1)
                peer.send_multipart(GOOD)
                source = (await arrival(server)).source
                while router.dropped == 0:  # what the operating system keeps for it comes on top
                    server.send(Outgoing(source, HEADER, body))
                    await asyncio.sleep(0)
                peer.send_multipart(GOOD)
                assert (await arrival(server)).source == source, "it is still there"

    play(story)


def test_a_stranger_cannot_take_over_the_name_of_another() -> None:
    async def story() -> None:
        async with listening() as (server, router):
            with plain(router.address, b"one") as first:
                first.send_multipart(GOOD)
                peer = (await arrival(server)).source
                with plain(router.address, b"one") as thief, plain(router.address, b"two") as witness:
                    thief.send_multipart(GOOD)
                    witness.send_multipart(GOOD)
                    assert (await arrival(server)).source == f"native:{b'two'.hex()}"
                    server.send(Outgoing(peer, HEADER, BODY))
                    assert await answer(first) == GOOD
                    assert not thief.poll(0)

    play(story)


def test_a_flood_is_read_a_part_at_a_time_and_in_order() -> None:
    async def story() -> None:
        async with listening() as (server, router):
            count = 3 * READ_MAX
            with plain(router.address) as peer:
                for number in range(count):
                    peer.send_multipart(encode_frames(Header(kind="k", seq=number), b""))
                got: list[Incoming] = []
                while len(got) < count:
                    part = await server.receive(float("inf"))
                    assert len(part) <= READ_MAX
                    got += part
                assert [one.header.seq for one in got] == list(range(count))

    play(story)


def test_large_messages_are_read_only_a_few_at_a_time() -> None:
    async def story() -> None:
        async with listening() as (server, router):
            body, count = b"\0" * (READ_BYTES_MAX // 2), 10
            with plain(router.address) as peer:
                for number in range(count):
                    peer.send_multipart(encode_frames(Header(kind="k", seq=number), body))
                got: list[Incoming] = []
                while len(got) < count:
                    part = await server.receive(float("inf"))
                    assert len(part) <= 2
                    got += part
                assert [one.header.seq for one in got] == list(range(count))

    play(story)


# Between our own processes ------------------------------------------------------------------------------------------


def test_messages_go_both_ways(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, _), connected(address) as client:
            client.send(Outgoing("broker", HEADER, BODY))
            assert await arrival(server) == Incoming("worker-1", HEADER, BODY)
            server.send(Outgoing("worker-1", HEADER, b""))
            assert await arrival(client) == Incoming("broker", HEADER, b"")

    play(story)


@pytest.mark.parametrize("size", [0, 3, 300, 10_000, 1_000_000])
def test_other_zeromq_programs_can_be_either_end(address: str, size: int) -> None:
    body = bytes(size)
    frames = encode_frames(HEADER, body)

    async def story() -> None:
        async with broker_port(address) as (server, _):
            with plain_socket(zmq.DEALER, b"raw") as client:
                client.connect(address)
                client.send_multipart(frames)
                assert await arrival(server) == Incoming("raw", HEADER, body)
                server.send(Outgoing("raw", HEADER, body))
                assert await answer(client) == frames
        with plain_socket(zmq.ROUTER) as router:
            router.bind(address)
            async with connected(address) as link:
                for _ in range(2):
                    link.send(Outgoing("broker", HEADER, body))
                waiting = asyncio.create_task(arrival(link))  # who receives writes, too
                assert await answer(router) == [b"worker-1", *frames]
                assert await answer(router) == [b"worker-1", *frames]
                router.send_multipart([b"worker-1", *frames])
                assert await waiting == Incoming("broker", HEADER, body)

    play(story)


def test_connections_without_a_name_get_one(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, _):
            with plain_socket(zmq.DEALER) as one, plain_socket(zmq.DEALER) as other:
                for client in (one, other):
                    client.connect(address)
                    client.send_multipart(GOOD)
                for incoming in await arrivals(server, 2):
                    server.send(Outgoing(incoming.source, HEADER, BODY))
                assert [await answer(one), await answer(other)] == [GOOD, GOOD]

    play(story)


def test_the_broker_refuses_an_address_that_is_not_ipc(tmp_path: Path) -> None:
    async def story() -> None:
        for address in ("tcp://127.0.0.1:0", "ipc://", "nowhere"):
            with pytest.raises(OSError, match="it must be an ipc:// address"):
                BrokerPort(address, wake=lambda: None)
            with pytest.raises(OSError, match="it must be an ipc:// address"):
                BrokerConnection(BrokerAddress(address), name="worker-1", wake=lambda: None, keys=None)
        with pytest.raises(OSError, match=r"cannot listen on ipc://.*: No such file"):
            BrokerPort(f"ipc://{tmp_path}/nowhere/s", wake=lambda: None)

    play(story)


def test_a_malformed_message_of_a_process_arrives_as_malformed(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, _):
            with plain_socket(zmq.DEALER, b"raw") as client:
                client.connect(address)
                client.send_multipart([b"x"] * 10_000)
                client.send_multipart(GOOD)
                first, second = await arrivals(server, 2)
                assert (first.source, first.header.kind) == ("raw", MALFORMED)
                assert first.body == b"expected 3 frames (protocol, header, body), got 10000"
                assert second == Incoming("raw", HEADER, BODY)

    play(story)


def test_a_client_of_another_protocol_is_disconnected(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, _), connected(address) as client:
            receiving = asyncio.create_task(arrival(server))
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.setblocking(False)
                await loop.sock_connect(stranger, address.removeprefix("ipc://"))
                await loop.sock_sendall(stranger, b"GET / HTTP/1.1\r\n" + bytes(64))
                while await loop.sock_recv(stranger, 1000):
                    pass
            client.send(Outgoing("broker", HEADER, BODY))
            assert await receiving == Incoming("worker-1", HEADER, BODY)

    play(story)


# Reconnection ---------------------------------------------------------------------------------------------


def test_a_message_for_a_process_that_is_not_connected_is_counted_and_dropped(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, port):
            server.send(Outgoing("worker-1", HEADER, BODY))
            assert (port.dropped, server.dropped) == (1, 1)
            async with connected(address) as client:
                client.send(Outgoing("broker", HEADER, BODY))
                await arrival(server)
                server.send(Outgoing("worker-1", HEADER, BODY))
                await arrival(client)
            while port.dropped == 1:  # until the end has been noticed
                assert await server.receive(0) == []
                server.send(Outgoing("worker-1", HEADER, BODY))

    play(story)


def test_a_restarted_process_takes_over_its_name(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, _), connected(address) as first:
            first.send(Outgoing("broker", HEADER, b"first"))
            assert (await arrival(server)).body == b"first"
            async with connected(address) as second:
                second.send(Outgoing("broker", HEADER, b"second"))
                assert (await arrival(server)).body == b"second"
                server.send(Outgoing("worker-1", HEADER, b"for the second"))
                assert (await arrival(second)).body == b"for the second"

    play(story)


def test_a_process_that_the_broker_does_not_accept_gets_an_error_with_the_reason(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, _), connected(address) as refused:
            refused.send(Outgoing("broker", HEADER, b"first"))
            await arrival(server)
            refusal = Refused(code="busy", reason="too many")
            server.send(make_outgoing("worker-1", refusal, Header(kind="Refused", ref="a call")))
            assert (await arrival(refused)).header.ref == "a call"
            server.send(make_outgoing("worker-1", refusal))
            with pytest.raises(OSError, match=r"^too many$"):
                await arrival(refused)

    play(story)


def test_messages_sent_before_the_broker_starts_arrive_and_a_connection_reconnects(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "RECONNECT_MIN_MS", 1)

    async def story() -> None:
        async with connected(address) as client:
            waiting = asyncio.create_task(client.receive(float("inf")))
            client.send(Outgoing("broker", HEADER, b"1"))
            async with broker_port(address) as (server, _):
                assert (await arrival(server)).body == b"1"
                server.send(Outgoing("worker-1", HEADER, b"2"))
                assert (await waiting)[0].body == b"2"
            async with broker_port(address) as (server, _):
                receiving = asyncio.create_task(arrivals(server, 1))
                while not receiving.done():  # a message sent before the disconnect is noticed may be lost
                    client.send(Outgoing("broker", HEADER, b"3"))
                    await asyncio.sleep(0.01)
                assert receiving.result()[0].body == b"3"

    play(story)


def test_a_socket_that_was_left_behind_is_replaced(address: str) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(address.removeprefix("ipc://"))
        async with broker_port(address) as (server, _), connected(address) as client:
            client.send(Outgoing("broker", HEADER, BODY))
            await arrival(server)

    play(story)
    assert not Path(address.removeprefix("ipc://")).exists()


def test_many_large_messages_arrive_in_order_without_blocking_the_sender(address: str) -> None:
    async def story() -> None:
        body = bytes(1 << 20)
        async with broker_port(address) as (server, _), connected(address) as client:
            receiving = asyncio.create_task(client.receive(float("inf")))
            for number in range(20):
                client.send(Outgoing("broker", Header(kind="k", seq=number), body))
            got = await arrivals(server, 20)
            assert [(one.header.seq, len(one.body)) for one in got] == [(number, 1 << 20) for number in range(20)]
            receiving.cancel()

    play(story)


def test_the_last_message_before_closing_arrives(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, _):
            async with connected(address) as client:
                client.send(Outgoing("broker", HEADER, BODY))
                await arrival(server)
                client.send(Outgoing("broker", HEADER, b"goodbye"))
            assert (await arrival(server)).body == b"goodbye"

    play(story)


def test_a_flood_of_two_processes_is_read_in_parts_and_in_turn(address: str) -> None:
    async def story() -> None:
        async with (
            broker_port(address) as (server, _),
            connected(address, name="a") as a,
            connected(address, name="b") as b,
        ):
            for client in (a, b):
                client.send(Outgoing("broker", HEADER, BODY))
            await arrivals(server, 2)
            for number in range(READ_MAX):
                for client in (a, b):
                    client.send(Outgoing("broker", Header(kind="k", seq=number), b""))
            got: list[Incoming] = []
            while len(got) < 2 * READ_MAX:
                part = await server.receive(float("inf"))
                assert len(part) <= READ_MAX
                got += part
            for name in ("a", "b"):
                assert [one.header.seq for one in got if one.source == name] == list(range(READ_MAX))
            assert {one.source for one in got[10:20]} == {"a", "b"}

    play(story)


def test_unread_messages_wake_once_and_stay_readable(address: str) -> None:
    async def story() -> None:
        woken = asyncio.Semaphore(0)
        async with broker_port(address) as (server, _):
            link = BrokerConnection(BrokerAddress(address), name="worker-1", wake=woken.release, keys=None)
            link.send(Outgoing("broker", HEADER, BODY))
            await arrival(server)
            for _ in range(100):
                server.send(Outgoing("worker-1", HEADER, BODY))
                await asyncio.sleep(0)
            await woken.acquire()
            assert woken.locked()
            got = 0
            while got < 100:
                got += link.receive() is not None
                await asyncio.sleep(0)  # the port may have kept some of them until its socket takes more
            assert link.receive() is None
            while not woken.locked():  # messages that arrived while others were read woke it again
                await woken.acquire()
            server.send(Outgoing("worker-1", HEADER, BODY))
            await woken.acquire()
            assert link.receive() is not None
            link.close()

    play(story)


def test_large_messages_of_processes_are_read_only_a_few_at_a_time(address: str) -> None:
    async def story() -> None:
        async with broker_port(address) as (server, _), connected(address) as client:
            receiving = asyncio.create_task(client.receive(float("inf")))
            for _ in range(10):
                client.send(Outgoing("broker", HEADER, bytes(READ_BYTES_MAX // 2)))
            count = 0
            while count < 10:
                part = await server.receive(float("inf"))
                assert len(part) <= 2
                count += len(part)
            receiving.cancel()

    play(story)
