"""Statuses are documented, invalid requests end calls, and no response is lost or goes out twice without a reason."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import grpc
import pytest

from tests.rmproxy.world import BOUND, RM, Code, end_of, nodes, play, running
from yunishard.common.messages.rm_messages import (
    SCHEDULING_FAILED_ON_RM,
    AllocationRelease,
    AllocationRequest,
    AllocationResponse,
    NodeRequest,
)
from yunishard.rmproxy.grpc_streams import REQUEST_BYTES_MAX, ResponseQueue, RmStream, StatusKind
from yunishard.rmproxy.si import scheduler_pb2 as pb

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
    "waiting": "N",
    "capability": "predicates",
    "calls": "registrations",
    "of_all": 1024,
    "of_one": 256,
    "within_s": 10,
    "unread_s": 30,
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


class Told:
    """What a queue says."""

    def __init__(self) -> None:
        self.drained = self.left = 0
        self.queue = ResponseQueue(on_written=self._drain, on_stream_end=self._leave)

    def _drain(self) -> None:
        self.drained += 1

    def _leave(self) -> None:
        self.left += 1


def bound(queue: ResponseQueue) -> RmStream:
    stream = RmStream()
    queue.bind(stream)
    return stream


def story(told: Callable[[Told], Coroutine[None, None, None]]) -> None:
    async def scenario() -> None:
        await told(Told())

    play(scenario)


def test_a_response_stays_queued_until_it_is_written() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one", b"two"])
        stream = bound(told.queue)
        assert await stream.next_response() == b"one"
        assert (len(told.queue), told.queue.size, told.drained) == (2, 6, 0)
        stream.confirm_written()
        assert (len(told.queue), told.queue.size, told.drained) == (1, 3, 1)
        assert await stream.next_response() == b"two"

    story(scenario)


def test_what_a_cancelled_stream_was_writing_goes_out_on_the_next() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one"])
        old = bound(told.queue)
        assert await old.next_response() == b"one"
        old.release()
        assert told.left == 1
        assert await bound(told.queue).next_response() == b"one"

    story(scenario)


def test_a_stream_that_takes_over_waits_until_the_old_one_has_written() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one", b"two"])
        old = bound(told.queue)
        await old.next_response()
        old.end(StatusKind.STOPPING.make())
        new = bound(told.queue)
        first = asyncio.create_task(new.next_response())
        await asyncio.sleep(0)
        assert not first.done()
        old.confirm_written()
        assert await first == b"two"
        assert await old.next_response() is None

    story(scenario)


def test_a_stream_that_takes_over_gets_what_the_old_one_could_not_write() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one", b"two"])
        old = bound(told.queue)
        await old.next_response()
        new = bound(told.queue)
        first = asyncio.create_task(new.next_response())
        await asyncio.sleep(0)
        old.release()
        assert await first == b"one"
        assert told.left == 0, "the queue has a stream still"

    story(scenario)


def test_a_client_that_does_not_read_holds_up_nobody_for_long() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one"])
        old = bound(told.queue)
        await old.next_response()
        new = bound(told.queue)
        assert await new.next_response() == b"one"
        old.confirm_written()  # it reads after all
        assert len(told.queue) == 1
        new.confirm_written()
        assert len(told.queue) == 0

    story(scenario)


def test_a_half_closed_stream_ends_when_nothing_is_queued() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one"])
        stream = bound(told.queue)
        stream.half_close()
        assert await stream.next_response() == b"one"
        stream.confirm_written()
        assert await stream.next_response() is None
        assert stream.status is None

    story(scenario)


def test_forgetting_everything_lets_a_late_write_mean_nothing() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one"])
        stream = bound(told.queue)
        await stream.next_response()
        told.queue.clear()
        told.queue.extend([b"new"])
        stream.confirm_written()
        assert (len(told.queue), told.queue.size) == (1, 3)

    story(scenario)


def test_the_first_ending_holds() -> None:
    stream = RmStream()
    stream.end(StatusKind.STOPPING.make())
    stream.end(StatusKind.LEFT.make(rm_id="R"))
    assert stream.status == StatusKind.STOPPING.make()
