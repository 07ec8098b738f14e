"""Registrations that nobody waits for any more, RMs that nobody speaks for, and many RMs at once."""

import asyncio

import grpc
import pytest

from common.control_messages import ManagerAway
from common.rm_messages import PartitionRestarted, Resume
from rmproxy.grpc_endings import RETRY_METADATA
from rmproxy.si import scheduler_pb2 as pb
from rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from tests.rmproxy.world import BOUND, RM, Code, accepted, accepted_pb, end_of, play, running

REGISTRATION = pb.RegisterResourceManagerRequest(rmID=RM)
IN_PROGRESS = "a registration of RM rm-1 is in progress"

# Callers that give up -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_a_registration_goes_on_when_its_caller_does_not_wait_any_more(how: str) -> None:
    async def scenario() -> None:
        async with running() as world:
            world.front.silent = True
            call = world.stub.RegisterResourceManager(REGISTRATION, timeout=0.2 if how == "deadline" else None)
            header, _ = await world.front.registrations.get()
            if how == "cancel":
                call.cancel()
            else:
                assert await call.code() == Code.DEADLINE_EXCEEDED
            assert await world.refused() == (Code.ABORTED, IN_PROGRESS)
            world.front.answer(header)
            stream = world.stub.UpdateNode(metadata=BOUND)
            world.front.say(accepted("n1"))
            assert await stream.read() == accepted_pb("n1")

    play(scenario)


def test_after_a_deadline_the_rm_may_register_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.front.silent = True
            with pytest.raises(grpc.aio.AioRpcError):
                await world.stub.RegisterResourceManager(REGISTRATION, timeout=0.05)
            world.front.answer((await world.front.registrations.get())[0])
            world.front.silent = False
            await asyncio.sleep(0)  # the registration settles
            await world.register()
            assert (await world.front.registrations.get())[0].session == "session-1"

    play(scenario)


def test_a_registration_that_is_in_progress_may_be_tried_again_soon() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.front.silent = True
            first = asyncio.create_task(world.register())
            header, _ = await world.front.registrations.get()
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await world.register()
            assert dict(error.value.trailing_metadata())[RETRY_METADATA] == "1000"
            world.front.answer(header)
            await first

    play(scenario)


def test_the_broker_is_told_that_nobody_speaks_for_a_registration_that_came_too_late() -> None:
    async def scenario() -> None:
        async with running(registration_s=0.01) as world:
            world.front.silent = True
            assert (await world.refused())[0] == Code.DEADLINE_EXCEEDED
            header, _ = await world.front.registrations.get()
            world.front.answer(header)
            told, message = await world.front.others.get()
            assert isinstance(message, ManagerAway)
            assert (told.rm, told.session) == (RM, header.session)

    play(scenario)


def test_a_broker_that_is_busy_is_worth_another_try() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.front.refusal, world.front.refusal_code = "another change is under way", "busy"
            assert await world.refused() == (Code.ABORTED, "another change is under way")

    play(scenario)


# Nobody speaks for it -----------------------------------------------------------------------------------------------


def test_an_rm_without_any_stream_counts_as_away_until_it_opens_one() -> None:
    async def scenario() -> None:
        async with running(streamless_s=0.02) as world:
            await world.register()
            header, message = await world.front.others.get()
            assert isinstance(message, ManagerAway)
            assert (header.rm, header.session) == (RM, "session-0")
            call = world.stub.UpdateNode(metadata=BOUND)
            assert isinstance((await world.front.others.get())[1], Resume)
            world.front.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")
            call.cancel()
            assert isinstance((await world.front.others.get())[1], ManagerAway)

    play(scenario)


def test_one_stream_of_any_sort_is_enough_to_be_there() -> None:
    async def scenario() -> None:
        async with running(streamless_s=0.05) as world:
            await world.register()
            kept = world.stub.UpdateAllocation(metadata=BOUND)
            await kept.initial_metadata()
            for _ in range(3):
                other = world.stub.UpdateNode(metadata=BOUND)
                await other.initial_metadata()
                other.cancel()
            await asyncio.sleep(0.1)  # twice as long as an RM may have none
            assert world.front.others.empty()
            kept.cancel()
            assert isinstance((await world.front.others.get())[1], ManagerAway)

    play(scenario)


def test_who_has_to_register_again_counts_as_away_at_once() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.front.say(PartitionRestarted())
            assert isinstance((await world.front.others.get())[1], ManagerAway)

    play(scenario)


def test_a_core_that_forgot_that_an_rm_is_away_is_told_again() -> None:
    async def scenario() -> None:
        async with running(streamless_s=0.02) as world:
            await world.register()
            await world.front.others.get()
            world.front.want_resumption()
            assert isinstance((await world.front.others.get())[1], Resume)
            assert isinstance((await world.front.others.get())[1], ManagerAway)

    play(scenario)


# Many at once -------------------------------------------------------------------------------------------------------


def test_many_rms_do_not_meet() -> None:
    names = [f"rm-{number}" for number in range(50)]

    async def scenario() -> None:
        async with running() as world:
            await asyncio.gather(*(world.register(name) for name in names))
            calls = {name: world.stub.UpdateNode(metadata=(("yk-rm-id", name),)) for name in names}
            await asyncio.gather(*(call.initial_metadata() for call in calls.values()))
            sessions = dict([await world.front.session_of_next() for _ in names])
            for name in names:
                world.front.say_to(name, sessions[name], accepted(f"node-of-{name}"))
            for name, call in calls.items():
                assert await call.read() == accepted_pb(f"node-of-{name}")

    play(scenario)


def test_the_streams_of_an_rm_may_come_over_different_connections() -> None:
    async def scenario() -> None:
        async with running() as world:
            options = (("grpc.use_local_subchannel_pool", 1),)
            channels = [grpc.aio.insecure_channel(world.address, options=options) for _ in range(3)]
            allocations, applications, node = (SchedulerStub(channel) for channel in channels)
            await applications.RegisterResourceManager(REGISTRATION)
            first = allocations.UpdateAllocation(metadata=BOUND)
            second = node.UpdateNode(metadata=BOUND)
            third = applications.UpdateApplication(metadata=BOUND)
            for call in (first, second, third):
                await call.initial_metadata()
            world.front.say(accepted("n1"))
            assert await second.read() == accepted_pb("n1")
            taken = allocations.UpdateNode(metadata=BOUND)
            assert await end_of(second) == (Code.ABORTED, "another stream of RM rm-1 took over")
            world.front.say(accepted("n2"))
            assert await taken.read() == accepted_pb("n2")
            for channel in channels:
                await channel.close()

    play(scenario)


def test_a_stream_that_comes_before_the_registration_is_told_to_wait_for_it() -> None:
    async def scenario() -> None:
        async with running() as world:
            early = world.stub.UpdateAllocation()
            await early.write(pb.AllocationRequest(rmID=RM))
            text = f'received AllocationRequest, but RmID="{RM}" not registered'
            assert await end_of(early) == (Code.FAILED_PRECONDITION, text)
            unbound = world.stub.UpdateAllocation()  # says nothing yet, which is no mistake
            await unbound.initial_metadata()
            await world.register()
            await unbound.write(pb.AllocationRequest(rmID=RM))
            await unbound.done_writing()
            assert await unbound.read() is grpc.aio.EOF
            assert await unbound.code() == Code.OK

    play(scenario)


def test_the_word_of_an_earlier_session_means_nothing() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            world.front.say_to(RM, "session-0", accepted("old"))
            world.front.say_to(RM, "session-1", accepted("new"))
            assert await call.read() == accepted_pb("new")

    play(scenario)
