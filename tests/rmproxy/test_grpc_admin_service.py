"""The service for what the scheduler interface has no call for: told to a real server by a real client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc
import msgspec
import pytest

from tests.rmproxy.world import BOUND, PARTITION, RM, Code, World, accepted, accepted_pb, end_of, play, running
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import (
    SCHEDULING_FAILED,
    ConfigurationUpdated,
    Leave,
    Left,
    PredicatesAnswered,
    PredicatesArgs,
    PredicatesAsked,
    PreemptionPredicatesArgs,
    PreemptionVerdict,
    Refused,
    RegisterResourceManager,
    Resume,
    SchedulingStateResponse,
    UpdateConfiguration,
    UpdateContainerSchedulingState,
    Verdict,
)
from yunishard.rmproxy.admin import admin_pb2 as admin
from yunishard.rmproxy.admin.admin_pb2_grpc import AdminStub
from yunishard.rmproxy.grpc_admin_service import ASK_PAUSE_S, EVENT_STREAMS_MAX, QUESTION_MAX_S
from yunishard.rmproxy.grpc_streams import Feed, StatusError
from yunishard.rmproxy.si import scheduler_pb2 as si

CHANGE = si.UpdateConfigurationRequest(rmID=RM, config="partitions: []", extraConfig={"log.level": "debug"})
EVENTS = admin.EventsRequest(rm_id=RM)


async def refusal_of(call: "grpc.aio.UnaryUnaryCall[object, object]") -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details()


# Configuration ------------------------------------------------------------------------------------------------------


def test_a_configuration_is_passed_on_and_answered() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.UpdateConfiguration(CHANGE)
            header, message = await world.core.others.get()
            assert message == UpdateConfiguration(
                rm_id=RM, config="partitions: []", extra_config={"log.level": "debug"}
            )
            world.core.reply(header, ConfigurationUpdated(checksum="abc", partitions=[PARTITION, "rm-1_gpu"]))
            answer = await call
            assert (answer.checksum, list(answer.partitions)) == ("abc", [PARTITION, "rm-1_gpu"])

    play(scenario)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        ("configuration", Code.INVALID_ARGUMENT),
        ("busy", Code.ABORTED),
        ("unknown-session", Code.FAILED_PRECONDITION),
    ],
)
def test_a_configuration_that_is_refused_says_why_and_the_rm_goes_on(refused: str, code: grpc.StatusCode) -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            stream = world.stub.UpdateNode(metadata=BOUND)
            call = stub.UpdateConfiguration(CHANGE)
            header, _ = await world.core.others.get()
            world.core.reply(header, Refused(code=refused, reason="update of configuration failed: no"))
            assert await refusal_of(call) == (code, "update of configuration failed: no")
            world.core.say(accepted("n1"))
            assert await stream.read() == accepted_pb("n1")

    play(scenario)


def test_calls_of_an_rm_that_is_not_registered_are_refused() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            for call, name in (
                (stub.UpdateConfiguration(CHANGE), "UpdateConfigurationRequest"),
                (stub.Leave(admin.LeaveRequest(rm_id=RM)), "LeaveRequest"),
            ):
                told = f'received {name}, but RmID="rm-1" not registered'
                assert await refusal_of(call) == (Code.FAILED_PRECONDITION, told)
            assert await stub.Events(EVENTS).code() == Code.FAILED_PRECONDITION

    play(scenario)


def test_the_metadata_may_name_the_rm() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.UpdateConfiguration(si.UpdateConfigurationRequest(config="x"), metadata=BOUND)
            header, message = await world.core.others.get()
            assert isinstance(message, UpdateConfiguration)
            assert (header.rm, message.rm_id) == (RM, RM)
            world.core.reply(header, ConfigurationUpdated(checksum="abc", partitions=[]))
            await call

    play(scenario)


# Leaving ------------------------------------------------------------------------------------------------------------


def test_an_rm_that_leaves_hears_everything_first() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            events = stub.Events(EVENTS)
            stream = world.stub.UpdateNode(metadata=BOUND)
            await stream.initial_metadata()
            call = stub.Leave(admin.LeaveRequest(rm_id=RM, reason="moved"))
            header, message = await told(world, Leave)
            assert message == Leave(reason="moved")
            world.core.say(accepted("n1"))
            world.core.reply(header, Left())
            await call
            assert await stream.read() == accepted_pb("n1")
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() == Code.OK
            assert (await events.code(), await events.details()) == (Code.ABORTED, "RM rm-1 left")
            assert await world.stub.UpdateNode(metadata=BOUND).code() == Code.FAILED_PRECONDITION
            assert all(kind != "ManagerAway" for kind in heard(world))

    play(scenario)


def test_an_rm_that_may_not_leave_now_goes_on() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            stream = world.stub.UpdateNode(metadata=BOUND)
            call = stub.Leave(admin.LeaveRequest(rm_id=RM))
            header, _ = await told(world, Leave)
            world.core.reply(header, Refused(code="busy", reason="a change is under way"))
            assert await refusal_of(call) == (Code.ABORTED, "a change is under way")
            await told(world, Resume)
            world.core.say(accepted("n1"))
            assert await stream.read() == accepted_pb("n1")

    play(scenario)


def test_an_rm_that_gave_up_waiting_has_left_all_the_same() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.Leave(admin.LeaveRequest(rm_id=RM))
            header, _ = await told(world, Leave)
            call.cancel()
            stream = world.stub.UpdateNode(metadata=BOUND)
            await stream.initial_metadata()
            world.core.reply(header, Left())
            assert await stream.code() == Code.OK

    play(scenario)


# Events -------------------------------------------------------------------------------------------------------------


def test_events_are_told_from_now_on() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.Events(EVENTS)
            await answered(world, lowest=0, highest=6, records=1)
            first = await call.read()
            assert (first.partition, first.history, first.next, list(first.events)) == (PARTITION, "h", 7, [])
            assert await answered(world, lowest=0, highest=8, first=7, records=2) == {"start": "7", "count": "500"}
            second = await call.read()
            assert [(one.number, one.record.objectID) for one in second.events] == [(7, "e7"), (8, "e8")]
            assert second.next == 9
            call.cancel()

    play(scenario)


def test_events_of_some_types_are_told_from_a_number_on() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            wanted = admin.EventsRequest(rm_id=RM, partition="default", begin=3, types=[si.EventRecord.NODE])
            call = stub.Events(wanted)
            await answered(world, lowest=0, highest=6, records=1)
            assert (await call.read()).next == 3
            await answered(world, lowest=0, highest=6, first=3, records=4)
            response = await call.read()
            assert [one.number for one in response.events] == [3, 5], "those of odd numbers are about nodes"
            assert response.next == 7
            call.cancel()

    play(scenario)


def test_a_reader_that_is_too_slow_is_cut_off_and_told_what_it_missed() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.Events(EVENTS)
            await answered(world, lowest=0, highest=6, records=1)
            await answered(world, lowest=50, highest=60)
            await call.read()
            code, text = await end_of(call)
            assert code == Code.RESOURCE_EXHAUSTED
            assert text.startswith(
                f"events 7 to 49 of partition {PARTITION} were overwritten before they were read: read faster"
            )

    play(scenario)


def test_a_reader_that_does_not_read_is_cut_off() -> None:
    async def scenario() -> None:
        async with running(write_max_s=0.1) as world, admin_of(world) as stub:
            await world.register()
            call = stub.Events(EVENTS)
            await answered(world, lowest=0, highest=0)
            first = 0
            while not call.done():
                try:
                    async with asyncio.timeout(0.5):
                        await answered(world, lowest=0, highest=first + 500, first=first, records=500, size=2000)
                except TimeoutError:  # nobody asks any more
                    break
                first += 500
            with suppress(grpc.aio.AioRpcError):
                while await call.read() is not grpc.aio.EOF:
                    continue
            text = "no events were read for 0.1 s; read on at the last `next`"
            assert await end_of(call) == (Code.RESOURCE_EXHAUSTED, text)

    play(scenario)


def test_a_history_that_began_anew_is_read_from_its_beginning() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.Events(EVENTS)
            await answered(world, lowest=0, highest=6, records=1)
            assert (await call.read()).history == "h"
            await answered(world, history="new", lowest=0, highest=1)
            response = await call.read()
            assert (response.history, response.next, len(response.events)) == ("new", 0, 0)
            await answered(world, history="new", lowest=0, highest=1, records=2)
            assert [one.number for one in (await call.read()).events] == [0, 1]
            call.cancel()

    play(scenario)


def test_a_partition_that_cannot_answer_now_is_asked_again() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.Events(EVENTS)
            header, _ = await told(world, Query)
            world.core.reply(header, Answer(status=404, body=b"Partition not found"))
            await answered(world, lowest=0, highest=0)
            assert (await call.read()).next == 0
            call.cancel()

    play(scenario)


def test_events_that_are_not_recorded_cannot_be_told() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.Events(EVENTS)
            header, _ = await told(world, Query)
            world.core.reply(header, Answer(status=500, body=b"Event tracking is disabled"))
            assert await end_of(call) == (Code.FAILED_PRECONDITION, "Event tracking is disabled")

    play(scenario)


def test_what_cannot_be_asked_for_is_refused() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            foreign = stub.Events(admin.EventsRequest(rm_id=RM, partition="rm-2_default"))
            told = "RM rm-1 has no partition rm-1_rm-2_default; it has: rm-1_default"
            assert await end_of(foreign) == (Code.NOT_FOUND, told)
            assert await stub.Events(admin.EventsRequest(rm_id=RM, begin=1)).code() == Code.INVALID_ARGUMENT

    play(scenario)


def test_an_rm_has_so_many_streams_of_events_and_no_more() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            calls = [stub.Events(EVENTS) for _ in range(EVENT_STREAMS_MAX)]
            for _ in calls:
                await told(world, Query)
            code, text = await end_of(stub.Events(EVENTS))
            assert code == Code.RESOURCE_EXHAUSTED
            assert text.startswith(f"RM rm-1 has {EVENT_STREAMS_MAX} streams of events open")

    play(scenario)


def test_all_streams_of_an_rm_together_ask_once_in_a_while() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            calls = [stub.Events(EVENTS) for _ in range(5)]
            asked_at = []
            for _ in calls:
                await told(world, Query)
                asked_at.append(asyncio.get_running_loop().time())
            assert asked_at[-1] - asked_at[0] >= (len(calls) - 1.5) * ASK_PAUSE_S

    play(scenario)


def test_registering_again_ends_streams_of_events() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            call = stub.Events(EVENTS)
            await answered(world, lowest=0, highest=0)
            await call.read()
            await world.register()
            async with asyncio.timeout(QUESTION_MAX_S / 2):  # it does not wait for an answer that cannot come
                assert await end_of(call) == (Code.ABORTED, "RM rm-1 registered again")

    play(scenario)


# What the core says -------------------------------------------------------------------------------------------------


async def answered(
    world: World, *, lowest: int, highest: int, first: int = 0, records: int = 0, history: str = "h", size: int = 0
) -> dict[str, str]:
    """Answer the next question for events; what was asked. Events of odd numbers are about nodes."""
    header, message = await told(world, Query)
    assert isinstance(message, Query)
    assert (header.partition, message.what) == (PARTITION, "events")
    found = [
        {
            "type": 3 if number % 2 else 2,
            "objectID": f"e{number}",
            "message": "x" * size,
            "resource": {"resources": {"vcore": {"value": 1}}},
        }
        for number in range(first, first + records)
    ]
    batch = {"InstanceUUID": history, "LowestID": lowest, "HighestID": highest, "EventRecords": found or None}
    world.core.reply(header, Answer(status=200, body=msgspec.json.encode(batch)))
    return message.args


async def told(world: World, kind: type) -> tuple[Header, object]:
    """The next thing of this kind that the port says."""
    while True:
        header, message = await world.core.others.get()
        if isinstance(message, kind):
            return header, message


def heard(world: World) -> list[str]:
    """Everything else that it said."""
    kinds = []
    while not world.core.others.empty():
        kinds.append(world.core.others.get_nowait()[0].kind)
    return kinds


@asynccontextmanager
async def admin_of(world: World) -> AsyncIterator[AdminStub]:
    """A client of the service."""
    async with grpc.aio.insecure_channel(world.address) as channel:
        yield AdminStub(channel)


# Predicates and scheduling states -------------------------------------------------------------------------------------

CAPABLE = (("yk-capabilities", "predicates, preemption-predicates,flight"),)
QUESTION = PredicatesAsked(
    question=7,
    deadline_milli_seconds=200,
    asked=[PredicatesArgs(allocation_key="a1", node_id="n1", allocate=True)],
    preemptions=[
        PreemptionPredicatesArgs(allocation_key="a2", node_id="n2", preempt_allocation_keys=["b1", "b2"], start_index=1)
    ],
)
ANSWER = admin.PredicatesAnswer(
    partition=PARTITION,
    question=7,
    verdicts=[admin.PredicatesVerdict(allocation_key="a1", node_id="n1", allocate=True, refusal="no disk")],
    preemptions=[admin.PreemptionVerdict(allocation_key="a2", node_id="n2", index=1)],
)
ANSWERED = PredicatesAnswered(
    question=7,
    verdicts=[Verdict(allocation_key="a1", node_id="n1", allocate=True, refusal="no disk")],
    preemptions=[PreemptionVerdict(allocation_key="a2", node_id="n2", index=1)],
)


async def register_capable(world: World, metadata: tuple[tuple[str, str], ...] = CAPABLE) -> RegisterResourceManager:
    await world.stub.RegisterResourceManager(si.RegisterResourceManagerRequest(rmID=RM), metadata=metadata)
    _, request = await world.core.registrations.get()
    return request


def test_questions_about_predicates_reach_the_rm_and_its_answers_the_core() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            request = await register_capable(world)
            assert request.capabilities == ["predicates", "preemption-predicates"], "unknown ones are left out"
            stream = stub.Predicates()
            await stream.write(admin.PredicatesAnswer(rm_id=RM))
            await stream.initial_metadata()
            world.core.tell(QUESTION, partition=PARTITION)
            assert await stream.read() == admin.PredicatesQuestion(
                partition=PARTITION,
                question=7,
                deadline_ms=200,
                asked=[si.PredicatesArgs(allocationKey="a1", nodeID="n1", allocate=True)],
                preemptions=[
                    si.PreemptionPredicatesArgs(
                        allocationKey="a2", nodeID="n2", preemptAllocationKeys=["b1", "b2"], startIndex=1
                    )
                ],
            )
            await stream.write(ANSWER)
            header, answered = await world.core.answers.get()
            assert (header.partition, header.seq, answered) == (PARTITION, 0, ANSWERED)
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() == Code.OK

    play(scenario)


def test_only_the_newest_stream_has_the_questions_and_without_one_they_are_dropped() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await register_capable(world)
            world.core.tell(QUESTION, partition=PARTITION)  # nobody reads it, so it is a refusal in time
            first = stub.Predicates(metadata=BOUND)
            await first.initial_metadata()
            second = stub.Predicates(metadata=BOUND)
            await second.initial_metadata()
            assert await end_of(first) == (Code.ABORTED, "another stream of RM rm-1 took over")
            world.core.tell(QUESTION, partition=PARTITION)
            assert (await second.read()).question == 7
            await second.write(admin.PredicatesAnswer(rm_id="rm-2"))
            assert await second.code() == Code.INVALID_ARGUMENT

    play(scenario)


def test_an_rm_without_the_capability_has_no_questions() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            assert (await register_capable(world, ())).capabilities == []
            stream = stub.Predicates(metadata=BOUND)
            text = "RM rm-1 registered without this capability: register with the metadata yk-capabilities: predicates"
            assert await end_of(stream) == (Code.FAILED_PRECONDITION, text)

    play(scenario)


def test_asks_that_wait_for_a_larger_cluster_are_told_to_all_streams() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            streams = [stub.SchedulingStates(admin.SchedulingStatesRequest(rm_id=RM)) for _ in range(2)]
            for stream in streams:
                await stream.initial_metadata()
            state = UpdateContainerSchedulingState(
                application_id="app", allocation_key="a1", state=SCHEDULING_FAILED, reason="larger"
            )
            world.core.say(SchedulingStateResponse(updated=[state]))
            for stream in streams:
                [one] = (await stream.read()).updated
                assert (one.applicationID, one.allocationKey, one.reason) == ("app", "a1", "larger")
                assert one.state == si.UpdateContainerSchedulingStateRequest.FAILED
            await world.core.is_told(1)
            await world.register()
            assert await end_of(streams[0]) == (Code.ABORTED, "RM rm-1 registered again")

    play(scenario)


def test_streams_of_scheduling_states_are_bounded() -> None:
    async def scenario() -> None:
        async with running() as world, admin_of(world) as stub:
            await world.register()
            request = admin.SchedulingStatesRequest(rm_id=RM)
            streams = [stub.SchedulingStates(request) for _ in range(EVENT_STREAMS_MAX)]
            for stream in streams:
                await stream.initial_metadata()
            code, text = await end_of(stub.SchedulingStates(request))
            assert (code, text) == (
                Code.RESOURCE_EXHAUSTED,
                f"RM rm-1 has {EVENT_STREAMS_MAX} streams of scheduling states open, the maximum",
            )
            streams[0].cancel()

    play(scenario)


def test_a_feed_that_is_not_read_ends() -> None:
    async def scenario() -> None:
        feed = Feed(most=2)
        for message in (b"1", b"2", b"3"):
            feed.put(message)
        with pytest.raises(StatusError, match="2 messages wait to be read"):
            await feed.next()

    play(scenario)
