"""One call with a name that is no text costs nobody else anything."""

import asyncio
import logging
from contextlib import closing, suppress

import pytest

from rmproxy.grpc_server import OLD_MAX
from rmproxy.si import scheduler_pb2 as pb
from tests.rmproxy.world import BOUND, World, accepted, accepted_pb, nodes, play, running

HEAD = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
FIELDS = b"\x83\x86\x44\x04/\xae\xff\xfe\x41\x01h\x40\x02te\x08trailers"
"""Of a POST over http, in HPACK; the name of the call is not UTF-8."""

GOAWAY = 7
NAMELESS = HEAD + len(FIELDS).to_bytes(3, "big") + b"\x01\x05\0\0\0\1" + FIELDS


async def shoot(world: World) -> None:
    """Such a call, as soon as somebody listens, until its connection is told that the server goes."""
    host, _, port = world.address.rpartition(":")
    hit = False
    while not hit:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(host, int(port))
            with closing(writer):
                writer.write(NAMELESS)
                while not hit:
                    head = await reader.readexactly(9)
                    await reader.readexactly(int.from_bytes(head[:3], "big"))
                    hit = head[3] == GOAWAY
        await asyncio.sleep(0)


async def join(world: World) -> None:
    """Register, as soon as somebody listens."""
    request = pb.RegisterResourceManagerRequest(rmID="rm-2", config="partitions: []")
    await world.stub.RegisterResourceManager(request, wait_for_ready=True)


def test_the_port_opens_again_and_streams_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1"))
            await world.front.commands.get()
            for _ in range(3):
                await shoot(world)
            world.front.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")
            await join(world)

    play(scenario)
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == [logging.WARNING]


def test_many_of_them_leave_nothing_behind() -> None:
    async def scenario() -> None:
        async with running() as world:
            for _ in range(OLD_MAX + 3):
                await shoot(world)
            await join(world)

    play(scenario)
