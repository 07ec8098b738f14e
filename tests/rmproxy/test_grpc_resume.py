"""Something behind the proxy began anew: the session resumes, streams stay open, and the RM notices none of it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import pytest

from tests.rmproxy.world import (
    BOUND,
    PARTITION,
    RM,
    Code,
    World,
    accepted,
    accepted_pb,
    acknowledgements_are_due,
    end_of,
    nodes,
    play,
    running,
)
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import AcceptedNode, Goodbye, NodeResponse, Refused, RejectedNode, Resume
from yunishard.common.messages.session import FAULTS_MAX
from yunishard.common.messages.wire import Outgoing
from yunishard.rmproxy.grpc_manager import RESPONSES_QUEUED_BYTES_MAX
from yunishard.rmproxy.grpc_streams import RETRY_METADATA
from yunishard.rmproxy.si import scheduler_pb2 as pb


async def resumed(world: World) -> Resume:
    """The next call to go on."""
    _, message = await world.core.others.get()
    assert isinstance(message, Resume)
    return message


def garble(world: World) -> None:
    """The next news is none, however often it is asked for."""
    header = Header(kind="NodeResponse", rm=RM, partition=PARTITION, session=world.core.session, seq=1)
    world.core.registry.receive(Outgoing(f"grpc:{RM}", header, b"\x91\x01"))


# Resumption ---------------------------------------------------------------------------------------------------------


def test_what_the_core_did_not_acknowledge_is_said_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.acknowledges = False
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            for name in ("n1", "n2"):
                await call.write(nodes(name))
            first = [await world.core.commands.get() for _ in range(2)]
            world.core.want_resumption()
            await resumed(world)
            again = [await world.core.commands.get() for _ in range(2)]
            assert [header.seq for header, _ in again] == [1, 2]
            assert [command for _, command in again] == [command for _, command in first]
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")

    play(scenario)


def test_a_restarted_worker_resumes_its_partition_only() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.acknowledges = False
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1"))
            first = await world.core.commands.get()
            world.core.want_resumption(PARTITION)
            header, message = await world.core.others.get()
            assert (header.partition, message) == (PARTITION, Resume(received={PARTITION: 0}))
            assert await world.core.commands.get() == first
            await call.write(nodes("n2"))
            header, _ = await world.core.commands.get()
            assert header.seq == 2

    play(scenario)


def test_the_core_hears_what_this_side_has() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            world.core.say(accepted("n1"), accepted("n2"))
            world.core.want_resumption()
            assert (await resumed(world)).received == {PARTITION: 2}

    play(scenario)


def test_what_the_core_repeats_reaches_the_rm_once() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            world.core.say(accepted("n1"))
            world.core.want_resumption()
            await resumed(world)
            world.core.repeat(accepted("n1"), 1)
            world.core.repeat(accepted("n2"), 2)
            await call.done_writing()
            assert [response async for response in call] == [accepted_pb("n1"), accepted_pb("n2")]

    play(scenario)


def test_a_gap_in_what_the_core_says_is_mended() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            world.core.lose_a_message()
            world.core.say(accepted("n2"))
            await resumed(world)
            world.core.repeat(accepted("n1"), 1)
            world.core.repeat(accepted("n2"), 2)
            assert [await call.read(), await call.read()] == [accepted_pb("n1"), accepted_pb("n2")]

    play(scenario)


@pytest.mark.parametrize("code", ["gap", "window", "unknown-session"])
def test_what_the_core_could_not_take_now_is_said_again(code: str) -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.acknowledges = False
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1"))
            await world.core.commands.get()
            world.core.tell(Refused(code=code, reason="not now", seq=1))
            await resumed(world)
            assert (await world.core.commands.get())[0].seq == 1

    play(scenario)


def test_while_it_resumes_updates_wait_and_keep_their_order() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            world.core.silent = True
            world.core.want_resumption()
            header, _ = await world.core.others.get()
            for name in ("n1", "n2"):
                await call.write(nodes(name))
            unknown = world.stub.UpdateNode(metadata=(("yk-rm-id", "x"),))
            assert await unknown.code() == Code.FAILED_PRECONDITION  # a turn around, in which nothing may come
            assert world.core.commands.empty()
            world.core.answer(header)
            assert [(await world.core.commands.get())[0].seq for _ in range(2)] == [1, 2]

    play(scenario)


def test_a_core_that_is_too_busy_to_resume_is_asked_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            world.core.refusal, world.core.refusal_code = "too many calls", "flood"
            world.core.want_resumption()
            await resumed(world)
            world.core.refusal = ""
            await resumed(world)
            world.core.say(accepted("n1"))
            assert await call.read() == accepted_pb("n1")

    play(scenario)


def test_a_core_that_does_not_know_the_session_makes_the_rm_register_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            world.core.refusal, world.core.refusal_code = "RM 'rm-1' has no such session", "unknown-session"
            world.core.want_resumption()
            assert await end_of(call) == (Code.ABORTED, "RM 'rm-1' has no such session: register again")

    play(scenario)


def test_a_broker_that_began_anew_during_a_registration_is_asked_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            world.core.silent = True
            first = asyncio.create_task(world.register())
            header, request = await world.core.registrations.get()
            world.core.want_resumption()
            again, repeated = await world.core.registrations.get()
            assert (again.session, repeated) == (header.session, request)
            world.core.answer(again)
            await first

    play(scenario)


def test_large_results_are_not_acknowledged_while_too_many_wait() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            large = NodeResponse(
                accepted=[AcceptedNode(node_id="n")], rejected=[RejectedNode(node_id="m", reason="x" * 2_000_000)]
            )
            most = RESPONSES_QUEUED_BYTES_MAX // 2_000_000
            world.core.say(*[large] * most)
            await world.core.is_told(most)
            world.core.say(*[large] * 5)
            await acknowledgements_are_due()
            assert world.core.acknowledged == most
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.done_writing()
            assert len([response async for response in call]) == most + 5
            await world.core.is_told(most + 5)

    play(scenario)


# The proxy goes, or the client --------------------------------------------------------------------------------------


def test_stopping_says_when_to_try_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.initial_metadata()
            world.core.tell(Goodbye(reason="the core is stopping", retry_after_milli_seconds=2500))
            assert await end_of(call) == (Code.UNAVAILABLE, "the scheduler is stopping")
            assert dict(await call.trailing_metadata())[RETRY_METADATA] == "2500"

    play(scenario)


def test_the_deadline_of_a_stream_is_the_clients_and_loses_nothing() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND, timeout=0.1)
            assert await call.code() == Code.DEADLINE_EXCEEDED
            after = world.stub.UpdateNode(metadata=BOUND)
            await after.initial_metadata()  # the port may not have noticed before that the other one is over
            world.core.say(accepted("n1"))
            assert await after.read() == accepted_pb("n1")

    play(scenario)


def test_nothing_that_was_not_written_is_lost_by_a_cancel_at_any_moment() -> None:
    """What a client has cancelled may be lost on its way. What comes after it was gone may not."""

    async def scenario() -> None:
        async with running() as world:
            await world.register()
            for round_ in range(40):
                gone = world.stub.UpdateNode(metadata=BOUND)
                await gone.initial_metadata()
                world.core.say(*[accepted(f"early-{round_}-{n}") for n in range(round_)])
                for _ in range(round_ // 2):
                    await gone.read()
                gone.cancel()
                call = world.stub.UpdateNode(metadata=BOUND)
                await call.initial_metadata()  # it has taken over, so the other one gets nothing more
                late = [f"late-{round_}-{n}" for n in range(5)]
                world.core.say(*[accepted(name) for name in late])
                await call.done_writing()
                heard = [response.accepted[0].nodeID async for response in call]
                assert heard[-5:] == late
                assert heard[:-5] == [f"early-{round_}-{n}" for n in range(round_)][round_ - (len(heard) - 5) :]

    play(scenario)


def test_a_client_that_vanishes_without_a_word_is_noticed() -> None:
    async def scenario() -> None:
        async with running(streamless_s=0.01, keepalive_s=0.2, keepalive_answer_s=0.2) as world:
            await world.register()
            await world.core.others.get()  # away, as it has no stream
            with tunnel(world.address) as (address, cut):
                async with grpc.aio.insecure_channel(address) as channel:
                    call = World(world.core, world.port, channel, address).stub.UpdateNode(metadata=BOUND)
                    await call.initial_metadata()
                    await resumed(world)
                    cut.set()
                    header, _ = await world.core.others.get()
                    assert (header.kind, header.rm) == ("ManagerAway", RM)

    play(scenario)


@contextmanager
def tunnel(address: str) -> Iterator[tuple[str, threading.Event]]:
    """A way to the port that is there and passes nothing on any more once it is cut."""
    host, port = address.split(":")
    cut, ends = threading.Event(), list[socket.socket]()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):  # one end has closed
            while data := source.recv(65536):
                if not cut.is_set():
                    sink.sendall(data)

    def serve(listener: socket.socket) -> None:
        inner, _ = listener.accept()
        outer = socket.create_connection((host, int(port)))
        ends.extend((inner, outer))
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", cut
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_news_that_can_never_be_read_are_asked_for_a_few_times_and_then_the_rm_has_to_register_again() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            call = world.stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1"))
            await world.core.commands.get()
            for _ in range(FAULTS_MAX):
                garble(world)
                await resumed(world)
            garble(world)
            code, text = await end_of(call)
            assert code is Code.ABORTED
            assert f"partition {PARTITION} sends messages that cannot be used" in text

    play(scenario)


# A session that was at another proxy ----------------------------------------------------------------------------------

KEEP = (("yk-session", "keep"),)
ELSEWHERE = (*BOUND, ("yk-session", "session-7"))


def test_an_rm_that_keeps_its_session_gets_its_key_and_others_get_none() -> None:
    async def scenario() -> None:
        async with running() as world:
            for metadata, key in ((KEEP, "session-0"), ((), None)):
                call = world.stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID=RM), metadata=metadata)
                await call
                assert dict(await call.initial_metadata()).get("yk-session") == key

    play(scenario)


def test_streams_with_the_key_of_a_session_continue_it_without_a_registration() -> None:
    async def scenario() -> None:
        async with running() as world:
            stub, world.core.session = world.stub, "session-7"
            streams = [stub.UpdateNode(metadata=ELSEWHERE), stub.UpdateAllocation(metadata=ELSEWHERE)]
            await streams[0].write(nodes("n2"))
            header, message = await world.core.others.get()
            assert (header.session, message) == ("session-7", Resume())
            for stream in streams:
                await stream.initial_metadata()
            world.core.take(12)  # commands that the other proxy sent
            header, _ = await world.core.commands.get()
            assert header.seq == 13
            world.core.say_to(RM, "session-7", accepted("n1"), seq=30)
            world.core.say_to(RM, "session-7", accepted("n2"), seq=31)
            assert [await streams[0].read() for _ in range(2)] == [accepted_pb("n1"), accepted_pb("n2")]
            assert world.core.others.empty(), "both streams needed one call"
            await world.core.is_told(31)
            assert world.core.registrations.empty()

    play(scenario)


def test_a_session_that_is_over_is_refused_and_a_registration_stays_as_it_is() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.register()
            present = world.stub.UpdateNode(metadata=BOUND)
            await present.initial_metadata()
            world.core.refusal_code = "unknown-session"
            world.core.refusal = "RM 'rm-1' has no such session, register again"
            stream = world.stub.UpdateNode(metadata=ELSEWHERE)
            assert await end_of(stream) == (Code.FAILED_PRECONDITION, world.core.refusal)
            world.core.say(accepted("n1"))
            assert await present.read() == accepted_pb("n1")

    play(scenario)


def test_a_kept_session_acknowledges_only_what_is_written() -> None:
    async def scenario() -> None:
        async with running() as world:
            await world.stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID=RM), metadata=KEEP)
            world.core.say(accepted("n1"))
            allocations = world.stub.UpdateAllocation(metadata=BOUND)
            await allocations.write(pb.AllocationRequest(allocations=[pb.Allocation(allocationKey="a1")]))
            header, _ = await world.core.commands.get()
            await acknowledgements_are_due()
            assert (header.ack, world.core.acknowledged) == (0, 0)
            stream = world.stub.UpdateNode(metadata=BOUND)
            assert await stream.read() == accepted_pb("n1")
            await world.core.is_told(1)

    play(scenario)
