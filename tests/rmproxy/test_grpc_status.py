"""Every way in which a call ends stands in the documentation, with its code and its text."""

from pathlib import Path

import grpc
import pytest

from common.rm_messages import (
    SCHEDULING_FAILED_ON_RM,
    AllocationRelease,
    AllocationRequest,
    AllocationResponse,
    NodeRequest,
)
from rmproxy.grpc_status import REQUEST_BYTES_MAX, StatusKind
from rmproxy.si import scheduler_pb2 as pb
from tests.rmproxy.world import BOUND, RM, Code, end_of, nodes, play, running

DOCUMENT = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text()


VALUES = {
    "rm_id": "R",
    "permitted": '"A"',
    "waited_s": 60,
    "request": "NodeRequest",
    "reason": "...",
    "named": "X",
    "size": "N",
    "most": REQUEST_BYTES_MAX,
    "problem": "...",
}


@pytest.mark.parametrize("kind", [one for one in StatusKind if one is not StatusKind.KEY_REQUIRED])
def test_an_ending_is_documented(kind: StatusKind) -> None:
    status = kind.make(**VALUES)
    retry = " *" if status.retry_s else ""
    assert f"`{status.code.name}`{retry} `{status.text}`" in DOCUMENT


TOO_LARGE = f"at most {REQUEST_BYTES_MAX} are taken: send fewer items at once"


def test_a_request_that_is_too_large_is_told_how_large_it_may_be() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            request = nodes("n" * REQUEST_BYTES_MAX)
            await call.write(request)
            told = f"a message of {request.ByteSize()} bytes, {TOO_LARGE}"
            assert await end_of(call) == (Code.RESOURCE_EXHAUSTED, told)
            assert world.core.commands.empty()

    play(scenario)


def test_a_registration_that_is_too_large_is_told_so() -> None:
    async def scenario() -> None:
        async with running() as world:
            request = pb.RegisterResourceManagerRequest(rmID=RM, config="#" * REQUEST_BYTES_MAX)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await world.stub.RegisterResourceManager(request)
            assert error.value.code() == Code.RESOURCE_EXHAUSTED
            assert str(error.value.details()).endswith(TOO_LARGE)
            assert world.core.registrations.empty()

    play(scenario)


def test_even_what_grpc_itself_refuses_has_this_status() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n" * (3 * REQUEST_BYTES_MAX)))
            code, text = await end_of(call)
            assert code == Code.RESOURCE_EXHAUSTED
            assert str(2 * REQUEST_BYTES_MAX) in text

    play(scenario)


def test_a_request_with_very_many_items_reaches_the_partition_in_pieces() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            names = [str(number) for number in range(25_000)]
            await call.write(nodes(*names))
            heard: list[str] = []
            while len(heard) < len(names):
                header, command = await world.core.commands.get()
                assert isinstance(command, NodeRequest)
                heard += [node.node_id for node in command.nodes]
            assert (heard, header.seq) == (names, 3)

    play(scenario)


@pytest.mark.parametrize("rpc", ["UpdateNode", "UpdateApplication", "UpdateAllocation"])
def test_what_is_no_protobuf_ends_the_stream(rpc: str) -> None:
    async def scenario() -> None:
        async with running() as world, grpc.aio.insecure_channel(world.address) as channel:
            await world.register()
            call = channel.stream_stream(f"/si.v1.Scheduler/{rpc}")()
            await call.write(b"\xff\xff\xff")
            code, text = await end_of(call)
            assert code == Code.INVALID_ARGUMENT
            assert text.startswith(f"not a {rpc.removeprefix('Update')}Request: ")

    play(scenario)


def test_text_that_is_no_utf_8_is_no_protobuf() -> None:
    async def scenario() -> None:
        async with running() as world, grpc.aio.insecure_channel(world.address) as channel:
            register = channel.unary_unary("/si.v1.Scheduler/RegisterResourceManager")
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await register(b"\x0a\x02\xff\xfe")
            assert error.value.code() == Code.INVALID_ARGUMENT
            assert str(error.value.details()).startswith("not a RegisterResourceManagerRequest: ")

    play(scenario)


def test_fields_and_numbers_that_are_newer_than_the_interface_pass() -> None:
    async def scenario() -> None:
        async with running() as world, grpc.aio.insecure_channel(world.address) as channel:
            await world.register()
            call = channel.stream_stream("/si.v1.Scheduler/UpdateAllocation")(metadata=BOUND)
            release = pb.AllocationRelease(allocationKey="k", applicationID="a")
            release.terminationType = 99  # type: ignore[assignment]
            request = pb.AllocationRequest(releases=pb.AllocationReleasesRequest(allocationsToRelease=[release]))
            unknown = b"\xfa\x3e\x03abc"  # field 1007
            await call.write(request.SerializeToString() + unknown)
            _, command = await world.core.commands.get()
            assert isinstance(command, AllocationRequest)
            [one] = command.releases.allocations_to_release
            assert (one.allocation_key, one.termination_type) == ("k", 99)
            world.core.say(AllocationResponse(released=[AllocationRelease(allocation_key="k", termination_type=77)]))
            assert pb.AllocationResponse.FromString(await call.read()).released[0].terminationType == 77

    play(scenario)


def test_an_rm_may_say_that_it_could_not_run_what_was_placed() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateAllocation(metadata=BOUND)
            release = pb.AllocationRelease(allocationKey="k", terminationType=pb.SCHEDULING_FAILED_ON_RM)
            releases = pb.AllocationReleasesRequest(allocationsToRelease=[release])
            await call.write(pb.AllocationRequest(releases=releases))
            _, command = await world.core.commands.get()
            assert isinstance(command, AllocationRequest)
            assert command.releases.allocations_to_release[0].termination_type == SCHEDULING_FAILED_ON_RM

    play(scenario)
