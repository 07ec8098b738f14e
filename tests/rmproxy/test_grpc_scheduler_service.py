"""One call with a name that is no text costs nobody else anything."""

import asyncio
import logging
import socket
from contextlib import closing, suppress

import grpc
import pytest

from tests.rmproxy.world import (
    BOUND,
    PARTITION,
    RM,
    Code,
    FakeCore,
    World,
    accepted,
    accepted_pb,
    end_of,
    nodes,
    play,
    port_of,
    running,
)
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import (
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    NodeRequest,
    RegisterResourceManager,
    UpdatedApplication,
)
from yunishard.rmproxy.grpc_scheduler_service import REPLACED_MAX, _is_other_problem
from yunishard.rmproxy.grpc_streams import STATUS_TEXT_BYTES_MAX
from yunishard.rmproxy.si import scheduler_pb2 as pb

HEAD = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
FIELDS = b"\x83\x86\x44\x04/\xae\xff\xfe\x41\x01h\x40\x02te\x08trailers"
"""Of a POST over http, in HPACK; the name of the call is not UTF-8."""

GOAWAY = 7
NAMELESS = HEAD + len(FIELDS).to_bytes(3, "big") + b"\x01\x05\0\0\0\1" + FIELDS


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), False),
        (asyncio.CancelledError(), False),
        (KeyError("a defect"), True),
    ],
)
def test_only_defects_are_logged_with_a_traceback(error: BaseException, is_logged: bool) -> None:
    record = logging.LogRecord("asyncio", logging.ERROR, "", 1, "unhandled", (), (type(error), error, None))
    assert _is_other_problem(record) is is_logged


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
            await world.core.commands.get()
            for _ in range(3):
                await shoot(world)
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")
            await join(world)

    play(scenario)
    assert [record.levelno for record in caplog.records if record.levelno > logging.INFO] == [logging.WARNING]


def test_many_of_them_leave_nothing_behind() -> None:
    async def scenario() -> None:
        async with running() as world:
            for _ in range(REPLACED_MAX + 3):
                await shoot(world)
            await join(world)

    play(scenario)


# Address ------------------------------------------------------------------------------------------------------------


def test_the_address_has_the_port_that_was_bound() -> None:
    async def scenario() -> None:
        async with running() as world:
            host, port = world.address.split(":")
            assert host == "127.0.0.1"
            assert int(port) > 0

    play(scenario)


def test_a_port_in_use_is_an_error_that_says_so() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            address = f"127.0.0.1:{other.getsockname()[1]}"
            with pytest.raises(OSError, match=f"cannot listen for gRPC on {address}: it is in use"):
                await port_of(FakeCore()).start(address)

    play(scenario)


def test_two_ports_do_not_share_an_address() -> None:
    async def scenario() -> None:
        async with running() as world:
            with pytest.raises(OSError, match="cannot listen"):
                await port_of(FakeCore()).start(world.address)

    play(scenario)


# Registration -------------------------------------------------------------------------------------------------------


def test_a_registration_is_a_native_one_with_a_session_of_its_own() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            header, message = await world.core.registrations.get()
            assert header == Header(kind="RegisterResourceManager", rm=RM, session="session-0", ref="register")
            assert message == RegisterResourceManager(rm_id=RM, config="partitions: []")

    play(scenario)


def test_a_refused_registration_says_why_and_may_be_tried_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.refusal = "registration of RM failed: no queues"
            assert await world.refused() == (Code.INVALID_ARGUMENT, "registration of RM failed: no queues")
            call = world.stub.UpdateNode(metadata=BOUND)
            assert await call.code() == Code.FAILED_PRECONDITION
            world.core.refusal = ""
            await world.register()

    play(scenario)


def test_a_long_reason_is_cut_to_what_clients_can_read() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.refusal = "ä" * 20_000
            assert await world.refused() == (Code.INVALID_ARGUMENT, "ä" * (STATUS_TEXT_BYTES_MAX // 2))

    play(scenario)


def test_a_registration_without_an_answer_ends_in_time() -> None:
    async def scenario() -> None:
        async with running(registration_s=0.01) as world:
            world.core.silent = True
            assert await world.refused() == (Code.DEADLINE_EXCEEDED, "the core did not answer within 0.01 s")
            world.core.silent = False
            world.core.answer((await world.core.registrations.get())[0])  # too late to mean anything
            call = world.stub.UpdateNode(metadata=BOUND)
            assert await call.code() == Code.FAILED_PRECONDITION

    play(scenario)


def test_while_a_registration_is_in_progress_others_and_streams_are_aborted() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.silent = True
            first = asyncio.create_task(world.register())
            header, _ = await world.core.registrations.get()
            in_progress = (Code.ABORTED, "a registration of RM rm-1 is in progress")
            assert await world.refused() == in_progress
            assert await end_of(world.stub.UpdateNode(metadata=BOUND)) == in_progress
            world.core.answer(header)
            await first

    play(scenario)


def test_registering_again_ends_the_streams_and_forgets_what_waited_for_them() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            bound = world.stub.UpdateApplication(metadata=BOUND)
            await bound.initial_metadata()
            world.core.say(accepted("old"))
            await world.register()
            assert await end_of(bound) == (Code.ABORTED, "RM rm-1 registered again")
            world.core.say(accepted("new"))
            assert await world.stub.UpdateNode(metadata=BOUND).read() == accepted_pb("new")

    play(scenario)


def test_a_refused_second_registration_leaves_the_first_as_it_was() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            session = world.core.session
            world.core.refusal = "no"
            await world.refused()
            world.core.session = session
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")

    play(scenario)


def test_a_second_registration_of_unknown_outcome_ends_the_first() -> None:
    async def scenario() -> None:
        async with running(registration_s=0.01) as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            world.core.silent = True
            assert (await world.refused())[0] == Code.DEADLINE_EXCEEDED
            assert await call.code() == Code.ABORTED

    play(scenario)


# Streams: binding ---------------------------------------------------------------------------------------------------


def test_a_request_binds_the_stream_and_reaches_the_partition() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode()
            await call.write(nodes("n1"))
            header, command = await world.core.commands.get()
            assert (header.kind, header.rm, header.partition, header.seq) == ("NodeRequest", RM, PARTITION, 1)
            assert isinstance(command, NodeRequest)
            assert [node.node_id for node in command.nodes] == ["n1"]
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")

    play(scenario)


def test_an_empty_request_only_binds() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode()
            await call.write(pb.NodeRequest(rmID=RM))
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")
            assert world.core.commands.empty()

    play(scenario)


def test_responses_wait_for_their_stream_and_keep_their_order() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.core.say(accepted("n1"), accepted("n2"))
            call = world.stub.UpdateNode(metadata=BOUND)
            assert [await call.read(), await call.read()] == [accepted_pb("n1"), accepted_pb("n2")]

    play(scenario)


def test_each_sort_of_response_goes_out_on_its_own_stream() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            silent = [world.stub.UpdateAllocation(), world.stub.UpdateApplication(), world.stub.UpdateNode()]
            world.core.say(
                AllocationResponse(released=[AllocationRelease(allocation_key="k1")]),
                ApplicationResponse(updated=[UpdatedApplication(application_id="a", state="Running")]),
                accepted("n1"),
            )
            requests = (pb.AllocationRequest, pb.ApplicationRequest, pb.NodeRequest)
            for call, request in zip(silent, requests, strict=True):
                await call.write(request(rmID=RM))
            allocations, applications, response = [await call.read() for call in silent]
            assert allocations.released[0].allocationKey == "k1"
            assert applications.updated[0].state == "Running"
            assert response == accepted_pb("n1")

    play(scenario)


@pytest.mark.parametrize(
    ("stream", "request_type"),
    [
        ("UpdateNode", pb.NodeRequest),
        ("UpdateApplication", pb.ApplicationRequest),
        ("UpdateAllocation", pb.AllocationRequest),
    ],
)
def test_an_unregistered_rm_is_told_so(stream: str, request_type: type[pb.NodeRequest]) -> None:
    async def scenario() -> None:
        async with running() as world:
            call = getattr(world.stub, stream)()
            await call.write(request_type(rmID="x"))
            text = f'received {request_type.DESCRIPTOR.name}, but RmID="x" not registered'
            assert await end_of(call) == (Code.FAILED_PRECONDITION, text)

    play(scenario)


def test_a_request_of_another_rm_ends_the_stream() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            await world.register("rm-2")
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1", rm="rm-2"))
            assert await end_of(call) == (Code.INVALID_ARGUMENT, 'this stream is of RM "rm-1", not of "rm-2"')
            assert world.core.commands.empty()

    play(scenario)


def test_on_a_bound_stream_a_request_need_not_name_its_rm() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1", rm=""))
            assert (await world.core.commands.get())[0].rm == RM

    play(scenario)


def test_what_is_no_protobuf_ends_the_stream() -> None:
    async def scenario() -> None:
        async with running() as world, grpc.aio.insecure_channel(world.address) as channel:
            await world.register()
            call = channel.stream_stream("/si.v1.Scheduler/UpdateNode")()
            await call.write(b"\xff\xff\xff")
            assert await call.code() == Code.INVALID_ARGUMENT

    play(scenario)
