"""Registrations that nobody waits for any more, RMs that nobody speaks for, and many RMs at once."""

import asyncio

import grpc
import pytest

from tests.rmproxy.world import (
    BOUND,
    RM,
    Code,
    accepted,
    accepted_pb,
    acknowledgements_are_due,
    end_of,
    nodes,
    play,
    running,
)
from yunishard.common.messages.control_messages import ManagerAway
from yunishard.common.messages.rm_messages import (
    Allocation,
    AllocationRequest,
    AllocationResponse,
    NodeResponse,
    PartitionRestarted,
    Refused,
    RejectedNode,
    Resume,
    SchedulingStateResponse,
    UpdateContainerSchedulingState,
)
from yunishard.common.messages.session import WINDOW_MESSAGES
from yunishard.rmproxy.grpc_manager import RESPONSES_QUEUED_MAX
from yunishard.rmproxy.grpc_streams import RETRY_METADATA
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

REGISTRATION = pb.RegisterResourceManagerRequest(rmID=RM)
IN_PROGRESS = "a registration of RM rm-1 is in progress"

# Callers that give up -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_a_registration_goes_on_when_its_caller_does_not_wait_any_more(how: str) -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.silent = True
            call = world.stub.RegisterResourceManager(REGISTRATION, timeout=0.2 if how == "deadline" else None)
            header, _ = await world.core.registrations.get()
            if how == "cancel":
                call.cancel()
            else:
                assert await call.code() == Code.DEADLINE_EXCEEDED
            assert await world.refused() == (Code.ABORTED, IN_PROGRESS)
            world.core.answer(header)
            stream = world.stub.UpdateNode(metadata=BOUND)
            world.core.say(accepted("n1"))
            assert await stream.read() == accepted_pb("n1")

    play(scenario)


def test_after_a_deadline_the_rm_may_register_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.silent = True
            with pytest.raises(grpc.aio.AioRpcError):
                await world.stub.RegisterResourceManager(REGISTRATION, timeout=0.05)
            world.core.answer((await world.core.registrations.get())[0])
            world.core.silent = False
            await asyncio.sleep(0)  # the registration settles
            await world.register()
            assert (await world.core.registrations.get())[0].session == "session-1"

    play(scenario)


def test_a_registration_that_is_in_progress_may_be_tried_again_soon() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.silent = True
            first = asyncio.create_task(world.register())
            header, _ = await world.core.registrations.get()
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await world.register()
            assert dict(error.value.trailing_metadata())[RETRY_METADATA] == "1000"
            world.core.answer(header)
            await first

    play(scenario)


def test_the_broker_is_told_that_nobody_speaks_for_a_registration_that_came_too_late() -> None:
    async def scenario() -> None:
        async with running(registration_s=0.01) as world:
            world.core.silent = True
            assert (await world.refused())[0] == Code.DEADLINE_EXCEEDED
            header, _ = await world.core.registrations.get()
            world.core.answer(header)
            told, message = await world.core.others.get()
            assert isinstance(message, ManagerAway)
            assert (told.rm, told.session) == (RM, header.session)

    play(scenario)


def test_a_broker_that_is_busy_is_worth_another_try() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.refusal, world.core.refusal_code = "another change is under way", "busy"
            assert await world.refused() == (Code.ABORTED, "another change is under way")

    play(scenario)


# Nobody speaks for it -----------------------------------------------------------------------------------------------


def test_an_rm_without_any_stream_counts_as_away_until_it_opens_one() -> None:
    async def scenario() -> None:
        async with running(streamless_s=0.02) as world:
            await world.register()
            header, message = await world.core.others.get()
            assert isinstance(message, ManagerAway)
            assert (header.rm, header.session) == (RM, "session-0")
            call = world.stub.UpdateNode(metadata=BOUND)
            assert isinstance((await world.core.others.get())[1], Resume)
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")
            call.cancel()
            assert isinstance((await world.core.others.get())[1], ManagerAway)

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
            assert world.core.others.empty()
            kept.cancel()
            assert isinstance((await world.core.others.get())[1], ManagerAway)

    play(scenario)


def test_who_has_to_register_again_counts_as_away_at_once() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.core.say(PartitionRestarted())
            assert isinstance((await world.core.others.get())[1], ManagerAway)

    play(scenario)


def test_a_core_that_forgot_that_an_rm_is_away_is_told_again() -> None:
    async def scenario() -> None:
        async with running(streamless_s=0.02) as world:
            await world.register()
            await world.core.others.get()
            world.core.want_resumption()
            assert isinstance((await world.core.others.get())[1], Resume)
            assert isinstance((await world.core.others.get())[1], ManagerAway)

    play(scenario)


# Many at once -------------------------------------------------------------------------------------------------------


def test_many_rms_do_not_meet() -> None:
    names = [f"rm-{number}" for number in range(50)]

    async def scenario() -> None:
        async with running() as world:
            await asyncio.gather(*(world.register(name) for name in names))
            calls = {name: world.stub.UpdateNode(metadata=(("yk-rm-id", name),)) for name in names}
            await asyncio.gather(*(call.initial_metadata() for call in calls.values()))
            sessions = dict([await world.core.session_of_next() for _ in names])
            for name in names:
                world.core.say_to(name, sessions[name], accepted(f"node-of-{name}"))
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
            world.core.say(accepted("n1"))
            assert await second.read() == accepted_pb("n1")
            taken = allocations.UpdateNode(metadata=BOUND)
            assert await end_of(second) == (Code.ABORTED, "another stream of RM rm-1 took over")
            world.core.say(accepted("n2"))
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
            world.core.say_to(RM, "session-0", accepted("old"))
            world.core.say_to(RM, "session-1", accepted("new"))
            assert await call.read() == accepted_pb("new")

    play(scenario)


# Streams: ending ----------------------------------------------------------------------------------------------------


def test_a_new_stream_takes_over() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            old = world.stub.UpdateNode(metadata=BOUND)
            await old.initial_metadata()
            new = world.stub.UpdateNode(metadata=BOUND)
            assert await end_of(old) == (Code.ABORTED, "another stream of RM rm-1 took over")
            world.core.say(accepted("n1"))
            assert await new.read() == accepted_pb("n1")

    play(scenario)


def test_a_half_close_flushes_what_waits_and_ends_well() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.core.say(*[accepted(f"n{number}") for number in range(50)])
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1"))
            await call.done_writing()
            assert len([response async for response in call]) == 50
            assert await call.code() == Code.OK
            assert world.core.commands.qsize() == 1

    play(scenario)


def test_a_half_close_of_a_stream_that_was_never_bound_ends_well() -> None:
    async def scenario() -> None:
        async with running() as world:
            call = world.stub.UpdateNode()
            await call.done_writing()
            assert await call.code() == Code.OK

    play(scenario)


def test_what_a_vanished_client_did_not_read_waits_for_its_next_stream() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            gone = world.stub.UpdateNode(metadata=BOUND)
            await gone.initial_metadata()
            gone.cancel()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")

    play(scenario)


def test_what_the_scheduler_interface_has_no_word_for_is_passed_over() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            waits = UpdateContainerSchedulingState(application_id="a", allocation_key="k")
            world.core.say(SchedulingStateResponse(updated=[waits]))
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")

    play(scenario)


def test_stopping_ends_streams_and_registrations_and_refuses_new_calls() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            bound, unbound = world.stub.UpdateNode(metadata=BOUND), world.stub.UpdateNode()
            for call in (bound, unbound):
                await call.initial_metadata()
            world.core.silent = True
            registration = asyncio.create_task(world.refused("rm-2"))
            await world.core.registrations.get()
            await world.core.registrations.get()
            await world.port.stop(5)
            stopping = (Code.UNAVAILABLE, "the scheduler is stopping")
            assert [await end_of(bound), await end_of(unbound), await registration] == [stopping] * 3
            assert (await world.refused())[0] == Code.UNAVAILABLE

    play(scenario)


@pytest.mark.parametrize("loss", ["restart", "refusal", "forgotten"])
def test_when_the_core_lost_track_the_rm_has_to_register_again(loss: str) -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            match loss:
                case "restart":
                    world.core.say(PartitionRestarted(reason="its journal is damaged"))
                    why = "partition rm-1_default was restarted and lost its state: its journal is damaged"
                case "refusal":
                    world.core.tell(Refused(code="malformed", reason="no such field", seq=3))
                    why = "the core refused an update: no such field"
                case _:
                    why = "RM 'rm-1' registered again elsewhere"
                    world.core.tell(Refused(code="superseded", reason=why))
            assert await end_of(call) == (Code.ABORTED, f"{why}: register again")
            assert await world.stub.UpdateNode(metadata=BOUND).code() == Code.FAILED_PRECONDITION

    play(scenario)


def test_a_poison_update_ends_no_stream_as_its_items_are_rejected() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            world.core.tell(Refused(code="poison", reason="it ended the worker twice", seq=3))
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")

    play(scenario)


def test_a_poison_update_that_releases_something_ends_the_session_as_nothing_rejects_that() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.core.acknowledges = False
            call = world.stub.UpdateAllocation(metadata=BOUND)
            await call.initial_metadata()
            release = pb.AllocationRelease(applicationID="a", allocationKey="k", partitionName="default")
            wanted = pb.AllocationReleasesRequest(allocationsToRelease=[release])
            await call.write(pb.AllocationRequest(rmID="rm-1", releases=wanted))
            header, _ = await world.core.commands.get()
            refused = Refused(code="poison", reason="it ended the worker twice", seq=header.seq)
            world.core.repeat(refused, seq=0)
            why = "the core quarantined an update that ends or changes something: it ended the worker twice"
            assert await end_of(call) == (Code.ABORTED, f"{why}: register again")

    play(scenario)


def test_a_poison_update_that_only_adds_ends_no_session() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.core.acknowledges = False
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1"))
            header, _ = await world.core.commands.get()
            world.core.repeat(Refused(code="poison", reason="it ended the worker twice", seq=header.seq), seq=0)
            world.core.say(accepted("n2"))
            assert await call.read() == accepted_pb("n2")

    play(scenario)


def test_what_a_stream_could_not_carry_any_more_goes_out_on_the_next_one() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            unread = world.stub.UpdateNode(metadata=BOUND)
            await unread.initial_metadata()
            reason = "x" * 1_000_000  # so that flow control stops the stream before the last one
            world.core.say(*[NodeResponse(rejected=[RejectedNode(node_id=str(n), reason=reason)]) for n in range(20)])
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.done_writing()
            numbers = [int(response.rejected[0].nodeID) async for response in call]
            assert numbers == list(range(numbers[0], 20))
            assert numbers

    play(scenario)


def test_a_loss_during_a_second_registration_ends_the_first_too() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            await world.core.registrations.get()
            world.core.silent = True
            second = asyncio.create_task(world.refused())
            await world.core.registrations.get()
            world.core.say(PartitionRestarted())
            assert (await second)[0] == Code.ABORTED
            assert await end_of(call) == (Code.ABORTED, "RM rm-1 registered again")

    play(scenario)


# Flow control -------------------------------------------------------------------------------------------------------


def test_commands_wait_when_the_core_does_not_acknowledge_them() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.acknowledges = False
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            for _ in range(WINDOW_MESSAGES + 2):
                await call.write(nodes("n1"))
            heard = [(await world.core.commands.get())[0].seq for _ in range(WINDOW_MESSAGES)]
            await world.register("rm-2")  # one more turn around, in which nothing may follow
            assert world.core.commands.empty()
            world.core.session = "session-0"
            world.core.take(heard[0])
            assert (await world.core.commands.get())[0].seq == WINDOW_MESSAGES + 1
            world.core.take(heard[-1])
            assert (await world.core.commands.get())[0].seq == WINDOW_MESSAGES + 2

    play(scenario)


def test_results_are_acknowledged_until_too_many_wait_and_again_when_they_were_read() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.core.say(*[accepted("n")] * (RESPONSES_QUEUED_MAX - 1))
            await world.core.is_told(RESPONSES_QUEUED_MAX - 1)
            world.core.say(*[accepted("n")] * 10)
            await acknowledgements_are_due()
            assert world.core.acknowledged == RESPONSES_QUEUED_MAX - 1
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.done_writing()
            assert len([response async for response in call]) == RESPONSES_QUEUED_MAX + 9
            await world.core.is_told(RESPONSES_QUEUED_MAX + 9)

    play(scenario)


def test_what_a_command_says_is_not_acknowledged_once_more() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.core.say(accepted("n"))
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1"))
            header, _ = await world.core.commands.get()
            assert (header.kind, header.ack) == ("NodeRequest", 1)
            await acknowledgements_are_due()
            assert world.core.acknowledgements == 0
            world.core.say(accepted("n"), accepted("n"))
            await world.core.is_told(3)
            assert world.core.acknowledgements == 1

    play(scenario)


def test_big_batches_pass_both_ways_under_uvloop() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateAllocation(metadata=BOUND)
            asks = [pb.Allocation(allocationKey=f"k{number}", applicationID="a") for number in range(5000)]
            await call.write(pb.AllocationRequest(allocations=asks))
            _, command = await world.core.commands.get()
            assert isinstance(command, AllocationRequest)
            assert len(command.allocations) == 5000
            new = [Allocation(allocation_key=ask.allocation_key, node_id="n1") for ask in command.allocations]
            world.core.say(AllocationResponse(new=new))
            assert [item.allocationKey for item in (await call.read()).new] == [ask.allocationKey for ask in asks]

    play(scenario, uv=True)
