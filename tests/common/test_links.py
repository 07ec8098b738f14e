"""The connections between our own processes, with each other and with ZeroMQ's library at the other end."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import zmq

from common import links as links_module
from common.control_messages import Hello
from common.links import Link, Links
from common.machine import MALFORMED, Delivery, Send
from common.messages import Header
from common.sockets import READ_BYTES_MAX, READ_MAX, Wire
from common.wire import body_of, frames_of

PATIENCE_S = 10
HEADER = Header(kind="Hello", rm="rm-1", seq=5)
BODY = body_of(Hello(role="worker"))
GOOD = frames_of(HEADER, BODY)


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/s"


@asynccontextmanager
async def listening(address: str) -> AsyncIterator[tuple[Wire, Links]]:
    wire = Wire()
    links = Links(address, wake=wire.wake)
    wire.add("", links)
    try:
        yield wire, links
    finally:
        links.close()


@asynccontextmanager
async def connected(address: str, *, name: str = "worker-1") -> AsyncIterator[Wire]:
    wire = Wire()
    link = Link(address, peer="broker", name=name, wake=wire.wake)
    wire.add("broker", link)
    try:
        yield wire
    finally:
        link.close()


@contextmanager
def plain(kind: int, identity: bytes = b"") -> Iterator["zmq.Socket[bytes]"]:
    """A socket of ZeroMQ's library."""
    one: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    one.setsockopt(zmq.LINGER, 0)
    if identity:
        one.setsockopt(zmq.ROUTING_ID, identity)
    try:
        yield one
    finally:
        one.close()


async def arrivals(wire: Wire, count: int) -> list[Delivery]:
    got: list[Delivery] = []
    while len(got) < count:
        got += await wire.receive(float("inf"))
    return got


async def arrival(wire: Wire) -> Delivery:
    [delivery] = await arrivals(wire, 1)
    return delivery


async def answer(one: "zmq.Socket[bytes]") -> list[bytes]:
    assert await asyncio.to_thread(one.poll, PATIENCE_S * 1000)
    return one.recv_multipart()


def test_messages_go_both_ways(address: str) -> None:
    async def story() -> None:
        async with listening(address) as (server, _), connected(address) as client:
            client.send(Send("broker", HEADER, BODY))
            assert await arrival(server) == Delivery("worker-1", HEADER, BODY)
            server.send(Send("worker-1", HEADER, b""))
            assert await arrival(client) == Delivery("broker", HEADER, b"")

    play(story)


@pytest.mark.parametrize("size", [0, 3, 300, 10_000, 1_000_000])
def test_whoever_has_zeromqs_library_can_be_either_end(address: str, size: int) -> None:
    body = bytes(size)
    frames = frames_of(HEADER, body)

    async def story() -> None:
        async with listening(address) as (server, _):
            with plain(zmq.DEALER, b"raw") as client:
                client.connect(address)
                client.send_multipart(frames)
                assert await arrival(server) == Delivery("raw", HEADER, body)
                server.send(Send("raw", HEADER, body))
                assert await answer(client) == frames
        with plain(zmq.ROUTER) as router:
            router.bind(address)
            async with connected(address) as link:
                for _ in range(2):
                    link.send(Send("broker", HEADER, body))
                waiting = asyncio.create_task(arrival(link))  # who receives writes, too
                assert await answer(router) == [b"worker-1", *frames]
                assert await answer(router) == [b"worker-1", *frames]
                router.send_multipart([b"worker-1", *frames])
                assert await waiting == Delivery("broker", HEADER, body)

    play(story)


def test_those_without_a_name_are_told_apart(address: str) -> None:
    async def story() -> None:
        async with listening(address) as (server, _):
            with plain(zmq.DEALER) as one, plain(zmq.DEALER) as other:
                for client in (one, other):
                    client.connect(address)
                    client.send_multipart(GOOD)
                for delivery in await arrivals(server, 2):
                    server.send(Send(delivery.source, HEADER, BODY))
                assert [await answer(one), await answer(other)] == [GOOD, GOOD]

    play(story)


def test_an_address_that_is_none_is_an_error(tmp_path: Path) -> None:
    async def story() -> None:
        for address in ("tcp://127.0.0.1:0", "ipc://", "nowhere"):
            with pytest.raises(OSError, match="they meet at ipc:// only"):
                Links(address, wake=lambda: None)
            with pytest.raises(OSError, match="they meet at ipc:// only"):
                Link(address, peer="broker", name="worker-1", wake=lambda: None)
        with pytest.raises(OSError, match=r"cannot listen on ipc://.*: No such file"):
            Links(f"ipc://{tmp_path}/nowhere/s", wake=lambda: None)

    play(story)


def test_a_malformed_message_arrives_as_malformed_and_the_next_one_as_it_is(address: str) -> None:
    async def story() -> None:
        async with listening(address) as (server, _):
            with plain(zmq.DEALER, b"raw") as client:
                client.connect(address)
                client.send_multipart([b"x"] * 10_000)
                client.send_multipart(GOOD)
                first, second = await arrivals(server, 2)
                assert (first.source, first.header.kind) == ("raw", MALFORMED)
                assert first.header.ref == "expected 3 frames (protocol, header, body), got 10000"
                assert second == Delivery("raw", HEADER, BODY)

    play(story)


def test_who_speaks_something_else_is_disconnected_and_the_others_stay(address: str) -> None:
    async def story() -> None:
        async with listening(address) as (server, _), connected(address) as client:
            receiving = asyncio.create_task(arrival(server))
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.setblocking(False)
                await loop.sock_connect(stranger, address.removeprefix("ipc://"))
                await loop.sock_sendall(stranger, b"GET / HTTP/1.1\r\n" + bytes(64))
                while await loop.sock_recv(stranger, 1000):
                    pass
            client.send(Send("broker", HEADER, BODY))
            assert await receiving == Delivery("worker-1", HEADER, BODY)

    play(story)


# Peers that come and go ---------------------------------------------------------------------------------------------


def test_a_message_for_a_peer_that_is_not_there_is_counted_and_dropped(address: str) -> None:
    async def story() -> None:
        async with listening(address) as (server, links):
            server.send(Send("worker-1", HEADER, BODY))
            assert (links.dropped, server.dropped) == (1, 1)
            async with connected(address) as client:
                client.send(Send("broker", HEADER, BODY))
                await arrival(server)
                server.send(Send("worker-1", HEADER, BODY))
                await arrival(client)
            while links.dropped == 1:  # until the end has been noticed
                assert await server.receive(0) == []
                server.send(Send("worker-1", HEADER, BODY))

    play(story)


def test_a_process_that_was_restarted_takes_over_the_name_of_its_dead_self(address: str) -> None:
    async def story() -> None:
        async with listening(address) as (server, _), connected(address) as first:
            first.send(Send("broker", HEADER, b"first"))
            assert (await arrival(server)).body == b"first"
            async with connected(address) as second:
                second.send(Send("broker", HEADER, b"second"))
                assert (await arrival(server)).body == b"second"
                server.send(Send("worker-1", HEADER, b"for the second"))
                assert (await arrival(second)).body == b"for the second"

    play(story)


def test_what_is_sent_while_nobody_listens_arrives_in_order_once_somebody_does(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "AGAIN_MIN_S", 0.001)

    async def story() -> None:
        async with connected(address) as client:
            waiting = asyncio.create_task(client.receive(float("inf")))
            client.send(Send("broker", HEADER, b"1"))
            async with listening(address) as (server, _):
                assert (await arrival(server)).body == b"1"
                server.send(Send("worker-1", HEADER, b"2"))
                assert (await waiting)[0].body == b"2"
            assert await client.receive(PATIENCE_S) == []  # the end is noticed
            client.send(Send("broker", HEADER, b"3"))
            client.send(Send("broker", HEADER, b"4"))
            async with listening(address) as (server, _):
                waiting = asyncio.create_task(client.receive(float("inf")))
                assert [one.body for one in await arrivals(server, 2)] == [b"3", b"4"]
                waiting.cancel()

    play(story)


def test_a_socket_that_was_left_behind_is_replaced(address: str) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(address.removeprefix("ipc://"))
        async with listening(address) as (server, _), connected(address) as client:
            client.send(Send("broker", HEADER, BODY))
            await arrival(server)

    play(story)
    assert not Path(address.removeprefix("ipc://")).exists()


def test_a_link_that_finds_no_descriptor_connects_once_there_is_one(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter((True, True))

    class Refused(socket.socket):
        def __init__(self, *what: int, fileno: int | None = None) -> None:
            if fileno is None and next(refusals, False):
                raise OSError(errno.EMFILE, "Too many open files")
            super().__init__(*what, fileno=fileno)

    async def story() -> None:
        async with listening(address) as (server, _):
            monkeypatch.setattr(links_module, "AGAIN_MIN_S", 0.001)
            monkeypatch.setattr(socket, "socket", Refused)
            async with connected(address) as client:
                client.send(Send("broker", HEADER, BODY))
                assert await arrival(server) == Delivery("worker-1", HEADER, BODY)

    play(story)
    assert next(refusals, None) is None


# Much ---------------------------------------------------------------------------------------------------------------


def test_what_the_other_side_has_no_time_for_waits_in_order_and_nobody_for_it(address: str) -> None:
    async def story() -> None:
        body = bytes(1 << 20)
        async with listening(address) as (server, _), connected(address) as client:
            receiving = asyncio.create_task(client.receive(float("inf")))
            for number in range(20):
                client.send(Send("broker", Header(kind="k", seq=number), body))
            got = await arrivals(server, 20)
            assert [(one.header.seq, len(one.body)) for one in got] == [(number, 1 << 20) for number in range(20)]
            receiving.cancel()

    play(story)


def test_what_was_said_last_arrives_although_the_process_ends(address: str) -> None:
    async def story() -> None:
        async with listening(address) as (server, _):
            async with connected(address) as client:
                client.send(Send("broker", HEADER, BODY))
                await arrival(server)
                client.send(Send("broker", HEADER, b"goodbye"))
            assert (await arrival(server)).body == b"goodbye"

    play(story)


def test_a_flood_is_read_a_part_at_a_time_and_each_in_turn(address: str) -> None:
    async def story() -> None:
        async with (
            listening(address) as (server, _),
            connected(address, name="a") as a,
            connected(address, name="b") as b,
        ):
            for client in (a, b):
                client.send(Send("broker", HEADER, BODY))
            await arrivals(server, 2)
            for number in range(READ_MAX):
                for client in (a, b):
                    client.send(Send("broker", Header(kind="k", seq=number), b""))
            got: list[Delivery] = []
            while len(got) < 2 * READ_MAX:
                part = await server.receive(float("inf"))
                assert len(part) <= READ_MAX
                got += part
            for name in ("a", "b"):
                assert [one.header.seq for one in got if one.source == name] == list(range(READ_MAX))
            assert {one.source for one in got[10:20]} == {"a", "b"}

    play(story)


def test_what_nobody_takes_wakes_once_and_is_there_later(address: str) -> None:
    async def story() -> None:
        woken = asyncio.Semaphore(0)
        async with listening(address) as (server, _):
            link = Link(address, peer="broker", name="worker-1", wake=woken.release)
            link.give(Send("broker", HEADER, BODY))
            await arrival(server)
            for _ in range(100):
                server.send(Send("worker-1", HEADER, BODY))
                await asyncio.sleep(0)
            await woken.acquire()
            assert woken.locked()
            got = 0
            while got < 100:
                got += link.take() is not None
            assert link.take() is None
            server.send(Send("worker-1", HEADER, BODY))
            await woken.acquire()
            assert link.take() is not None
            link.close()

    play(story)


def test_large_messages_are_read_only_a_few_at_a_time(address: str) -> None:
    async def story() -> None:
        async with listening(address) as (server, _), connected(address) as client:
            receiving = asyncio.create_task(client.receive(float("inf")))
            for _ in range(10):
                client.send(Send("broker", HEADER, bytes(READ_BYTES_MAX // 2)))
            count = 0
            while count < 10:
                part = await server.receive(float("inf"))
                assert len(part) <= 2
                count += len(part)
            receiving.cancel()

    play(story)
