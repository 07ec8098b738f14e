"""The sockets of the servers against plain pyzmq ones, over all transports that we use."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import zmq

from common import sockets as sockets_module
from common import wire as wire_module
from common.control_messages import Hello
from common.machine import MALFORMED, Delivery, Send
from common.messages import Header
from common.sockets import READ_BYTES_MAX, READ_MAX, Inbox, Router, Wire
from common.wire import body_of, frames_of

PATIENCE_S = 10
HEADER = Header(kind="Hello", rm="rm-1", seq=5)
BODY = body_of(Hello(role="worker"))
GOOD = frames_of(HEADER, BODY)
RAW = f"native:{b'raw'.hex()}"


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


@asynccontextmanager
async def listening(
    address: str = "tcp://127.0.0.1:0", *, prefix: str = "native:"
) -> AsyncIterator[tuple[Wire, Router]]:
    wire = Wire()
    router = Router(address, prefix=prefix, wake=wire.wake)
    wire.add(prefix, router)
    router.watch()
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


async def arrival(wire: Wire) -> Delivery:
    [delivery] = await arrivals(wire, 1)
    return delivery


async def arrivals(wire: Wire, count: int) -> list[Delivery]:
    got: list[Delivery] = []
    while len(got) < count:
        got += await wire.receive(float("inf"))
    return got


async def answer(socket: "zmq.Socket[bytes]") -> list[bytes]:
    assert await asyncio.to_thread(socket.poll, PATIENCE_S * 1000)
    return socket.recv_multipart()


# Addresses ----------------------------------------------------------------------------------------------------------


def test_peers_from_outside_are_called_by_their_routing_id_in_hex_after_a_prefix() -> None:
    async def story() -> None:
        async with listening() as (server, router):
            with plain(router.address, b"\x01\xff ") as rm:
                rm.send_multipart(GOOD)
                assert await arrival(server) == Delivery("native:01ff20", HEADER, BODY)
                server.send(Send("native:01ff20", HEADER, BODY))
                assert await answer(rm) == GOOD

    play(story)


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    async def story() -> None:
        async with listening() as (_, router):
            with pytest.raises(OSError, match=r"cannot listen on tcp://.*: Address already in use"):
                Router(router.address, prefix="native:", wake=lambda: None)

    play(story)


@pytest.mark.parametrize("address", ["nowhere", "tcp://:::", "carrier-pigeon://x"])
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    with pytest.raises(OSError, match="cannot listen on"):
        Router(address, prefix="native:", wake=lambda: None)


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
                assert (first.source, first.header.kind, first.body) == (RAW, MALFORMED, b"")
                assert first.header.ref.startswith(reason)
                assert second == Delivery(RAW, HEADER, BODY)

    play(story)


# Peers that come and go ---------------------------------------------------------------------------------------------


def test_a_message_for_a_peer_that_is_not_there_is_counted_and_dropped() -> None:
    async def story() -> None:
        async with listening() as (server, router):
            server.send(Send("native:00", HEADER, BODY))
            assert router.dropped == 1
            with plain(router.address) as peer:
                peer.send_multipart(GOOD)
                await arrival(server)
                server.send(Send(RAW, HEADER, BODY))
                assert await answer(peer) == GOOD
            while router.dropped == 1:  # until the break has been noticed
                server.send(Send(RAW, HEADER, BODY))
                await asyncio.sleep(0)
            assert router.dropped == 2

    play(story)


def test_a_stranger_that_does_not_listen_loses_what_is_too_much_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets_module, "SEND_QUEUE_MAX", 10)
    body = bytes(1 << 20)

    async def story() -> None:
        async with listening() as (server, router):
            with plain(router.address, b"deaf") as peer:
                peer.setsockopt(zmq.RCVHWM, 1)
                peer.send_multipart(GOOD)
                source = (await arrival(server)).source
                while router.dropped == 0:  # what the operating system keeps for it comes on top
                    server.send(Send(source, HEADER, body))
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
                    server.send(Send(peer, HEADER, BODY))
                    assert await answer(first) == GOOD
                    assert not thief.poll(0)

    play(story)


# Wire ---------------------------------------------------------------------------------------------------------------


def test_a_flood_is_read_a_part_at_a_time_and_in_order() -> None:
    async def story() -> None:
        async with listening() as (server, router):
            count = 3 * READ_MAX
            with plain(router.address) as peer:
                for number in range(count):
                    peer.send_multipart(frames_of(Header(kind="k", seq=number), b""))
                got: list[Delivery] = []
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
                    peer.send_multipart(frames_of(Header(kind="k", seq=number), body))
                got: list[Delivery] = []
                while len(got) < count:
                    part = await server.receive(float("inf"))
                    assert len(part) <= 2
                    got += part
                assert [one.header.seq for one in got] == list(range(count))

    play(story)


def test_a_wait_ends_at_its_time_or_when_it_is_woken() -> None:
    async def story() -> None:
        async with listening() as (wire, _):
            assert await wire.receive(0) == []
            assert await wire.receive(-1) == []
            assert await wire.receive(0.001) == []
            asyncio.get_running_loop().call_soon(wire.wake)
            assert await wire.receive(float("inf")) == []

    play(story)


def inbox_of(wire: Wire) -> Inbox:
    inbox = Inbox(wake=wire.wake)
    wire.add("@self", inbox)
    return inbox


async def waiting(wire: Wire) -> "asyncio.Task[list[Delivery]]":
    """Somebody who waits for something to arrive."""
    task = asyncio.create_task(wire.receive(float("inf")))
    await asyncio.sleep(0)
    return task


def test_who_follows_deals_with_what_arrives_before_the_wait_ends() -> None:
    async def story() -> None:
        wire, turns = Wire(), list[int]()
        inbox = inbox_of(wire)

        def turn(deliveries: list[Delivery]) -> float:
            turns.append(len(deliveries))
            if len(turns) == 1:  # what a turn brings about in the process itself gets one, too
                inbox.put(Delivery("@self", HEADER, BODY))
            return 1000.0 if len(turns) < 4 else 0.0

        wire.follow(turn)
        task = await waiting(wire)
        inbox._waiting.extend([Delivery("@self", HEADER, BODY)] * 2)
        wire.arrived()
        assert turns == [2, 1]
        wire.arrived()
        await asyncio.sleep(0)
        assert not task.done()
        wire.arrived()
        assert turns == [2, 1, 0, 0]
        assert await task == []  # as there is something to be done now

    play(story)


def test_what_arrives_while_nobody_waits_is_received() -> None:
    async def story() -> None:
        wire, turns = Wire(), list[int]()
        inbox = inbox_of(wire)
        wire.follow(lambda deliveries: turns.append(len(deliveries)) or 0.0)
        inbox._waiting.append(Delivery("@self", HEADER, BODY))
        wire.arrived()
        assert len(await wire.receive(float("inf"))) == 1
        assert turns == []

    play(story)


def test_what_goes_wrong_with_who_follows_is_raised_where_somebody_waits() -> None:
    async def story() -> None:
        wire = Wire()

        def turn(_: list[Delivery]) -> float:
            raise ValueError("a defect")

        wire.follow(turn)
        task = await waiting(wire)
        wire.arrived()
        with pytest.raises(ValueError, match="a defect"):
            await task

    play(story)


def test_however_much_arrives_the_loop_has_its_turns() -> None:
    async def story() -> None:
        wire, turns = Wire(), 0
        inbox = Inbox(wake=wire.wake)
        wire.add("@self", inbox)

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        for _ in range(20):
            inbox.put(Delivery("@self", HEADER, BODY))
            assert len(await wire.receive(float("inf"))) == 1
        beside.cancel()
        assert turns >= 9

    play(story)


def test_what_arises_inside_the_process_arrives_like_everything_else() -> None:
    async def story() -> None:
        wire = Wire()
        inbox = Inbox(wake=wire.wake)
        given: list[Send] = []
        inbox.receive = given.append
        wire.add("grpc:", inbox)
        waiting = asyncio.create_task(wire.receive(float("inf")))
        await asyncio.sleep(0)
        inbox.put(Delivery("grpc:rm-1", HEADER, BODY))
        assert await waiting == [Delivery("grpc:rm-1", HEADER, BODY)]
        wire.send(Send("grpc:rm-1", HEADER, BODY))
        assert given == [Send("grpc:rm-1", HEADER, BODY)]

    play(story)


def test_the_longest_prefix_says_where_a_message_goes() -> None:
    async def story() -> None:
        wire = Wire()
        given: dict[str, list[str]] = {"": [], "grpc:": []}
        for prefix, box in given.items():
            inbox = Inbox(wake=wire.wake)
            inbox.receive = lambda message, box=box: box.append(message.to)
            wire.add(prefix, inbox)
        for to in ("grpc:rm-1", "grp", "broker"):
            wire.send(Send(to, HEADER, BODY))
        assert given == {"": ["grp", "broker"], "grpc:": ["grpc:rm-1"]}

    play(story)


def test_a_message_that_no_endpoint_leads_to_is_a_defect() -> None:
    async def story() -> None:
        async with listening() as (wire, _):
            with pytest.raises(LookupError, match="no endpoint leads to 'elsewhere'"):
                wire.send(Send("elsewhere", HEADER, BODY))

    play(story)
