"""A client with more idle calls than may wait keeps no RM from registering, working and registering again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from unittest.mock import patch

import pytest

from tests.rmproxy.world import RM, World, end_of, nodes, play, running
from yunishard.rmproxy import grpc_streams, rate_limit
from yunishard.rmproxy.admin import admin_pb2
from yunishard.rmproxy.admin.admin_pb2_grpc import AdminStub
from yunishard.rmproxy.grpc_streams import ResponseQueue, RmStream, StatusKind
from yunishard.rmproxy.rate_limit import OpenCalls

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
STREAMS_OF_CONNECTION = 215
CONNECTIONS = 6
"""Their calls are more than may wait in all, and of one address."""


def open_call(number: int, path: str) -> bytes:
    """Return the frame of HTTP/2 with which a client opens a call, without its message."""
    name = path.encode()
    fields = b"\x83\x86\x04" + bytes([len(name)]) + name + b"\x01\x01h\x00\x02te\x08trailers"
    return len(fields).to_bytes(3, "big") + b"\x01\x04" + number.to_bytes(4, "big") + fields


@asynccontextmanager
async def idle_calls(world: World, path: str, address: str, count: int) -> AsyncIterator[None]:
    """Open idle calls on one connection from this address, until the port has received them."""
    host, _, port = world.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
    drain = asyncio.create_task(reader.read())
    writer.write(PREFACE + b"".join(open_call(2 * number + 1, path) for number in range(count)))
    await writer.drain()
    try:
        yield
    finally:
        drain.cancel()
        writer.close()


async def work(world: World) -> None:
    """Register, and use a stream that names its RM only in its first message."""
    await world.register()
    call = world.stub.UpdateNode()
    await call.write(nodes("n1"))
    await world.core.commands.get()


@pytest.mark.parametrize(
    ("path", "address"),
    [("/si.v1.Scheduler/UpdateNode", "127.0.0.{}"), ("/si.v1.Scheduler/RegisterResourceManager", "127.0.0.1")],
    ids=["many addresses", "one address"],
)
def test_idle_calls_keep_no_rm_from_registering(path: str, address: str) -> None:
    async def scenario() -> None:
        async with running() as world, AsyncExitStack() as attack:
            for number in range(CONNECTIONS):
                calls = idle_calls(world, path, address.format(number + 1), STREAMS_OF_CONNECTION)
                await attack.enter_async_context(calls)
                await work(world)
            assert 0 < len(world.core.registry.limits.waiting) <= rate_limit.WAITING_MAX

    play(scenario)


def test_a_call_without_a_first_message_ends() -> None:
    async def scenario() -> None:
        with patch.object(grpc_streams, "FIRST_MESSAGE_S", 0.01):
            async with running() as world:
                status = StatusKind.SILENT.make(within_s=0.01)
                for call in (world.stub.UpdateNode(), AdminStub(world.channel).Predicates()):
                    assert await end_of(call) == (status.code, status.text)
                assert len(world.core.registry.limits.waiting) == 0

    play(scenario)


def test_a_client_may_not_have_all_registrations_in_progress() -> None:
    async def scenario() -> None:
        async with running() as world:
            limits = world.core.registry.limits
            limits.registrations = OpenCalls(most=3, most_of_peer=2)
            world.core.silent = True
            pending = [asyncio.ensure_future(world.register(f"rm-{number}")) for number in (2, 3)]
            for _ in pending:
                await world.core.registrations.get()
            status = StatusKind.TOO_MANY.make(of_all=3, of_one=2, calls="registrations")
            assert await world.refused("rm-4") == (status.code, status.text)
            assert limits.registrations.enter("another client")
            world.core.registry.stop(StatusKind.STOPPING.make())
            await asyncio.gather(*pending, return_exceptions=True)

    play(scenario)


def test_a_client_may_not_have_all_calls_of_the_admin_service() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.registry.limits.streams = OpenCalls(most=3, most_of_peer=2)
            await world.register()
            admin = AdminStub(world.channel)
            for _ in range(2):
                await admin.SchedulingStates(admin_pb2.SchedulingStatesRequest(rm_id=RM)).initial_metadata()
            status = StatusKind.TOO_MANY.make(of_all=3, of_one=2, calls="calls of yunishard.v1.Admin")
            call = admin.SchedulingStates(admin_pb2.SchedulingStatesRequest(rm_id=RM))
            assert await end_of(call) == (status.code, status.text)

    play(scenario)


def test_a_replaced_stream_whose_client_reads_nothing_is_cut_off() -> None:
    async def scenario() -> None:
        stream = RmStream()
        queue = ResponseQueue(on_written=lambda: None, on_stream_end=lambda: None)
        queue.bind(stream)
        queue.extend([b"response"])
        assert await stream.next_response() == b"response"
        writing = asyncio.ensure_future(stream.write(asyncio.get_running_loop().create_future()))
        await asyncio.sleep(0)
        with patch.object(grpc_streams, "STALLED_MAX_S", 0.0):
            stream.end(StatusKind.TAKEN_OVER.make(rm_id=RM))
        with pytest.raises(TimeoutError):
            await writing
        assert len(queue) == 1

    play(scenario)
