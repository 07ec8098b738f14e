import asyncio

import pytest

from common.messages import Header
from common.outbox import WINDOW_MESSAGES
from common.rm_messages import AcceptedNode, NodeRequest, NodeResponse, PartitionRestarted, Refused, Registered, Resume
from common.wire import frames_of
from tests.yunishard.fake_core import PARTITION, FakeCore, allocated, is_waiting, play, taken
from yunishard.dialogue import FAULTS_MAX
from yunishard.manager import Result, SessionLost
from yunishard.parts import node


def test_after_a_break_the_session_is_resumed_and_nothing_is_lost_or_doubled() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            results = rm.results()
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            await core.says(allocated(1), seq=1)
            await taken(results)
            await core.says(allocated(2), seq=2)  # lost, or not yet taken
        await rm.update_nodes([node("n2")])  # nobody is there to hear it
        async with FakeCore(core.address) as again, rm:
            header, message = await again.hears(Resume)
            assert message == Resume(received={PARTITION: 1})
            await rm.update_nodes([node("n3")])  # must not overtake what is repeated
            await again.says(Registered(partitions=[PARTITION]), partition="")
            await again.says(allocated(2), seq=2)
            assert [(await again.hears(NodeRequest))[1] for _ in range(3)] == [
                NodeRequest(nodes=[node(name)]) for name in ("n1", "n2", "n3")
            ]
            assert (await taken(results)).news == allocated(2)
            assert header.session == again.session

    play(story)


def test_a_gap_is_mended_by_resuming() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            await core.says(allocated(2), seq=2)
            waiting = asyncio.create_task(taken(rm.results()))
            _, message = await core.hears(Resume)
            assert message == Resume(received={PARTITION: 0})
            await core.says(allocated(2), seq=2)  # still on its way: no reason to ask twice
            await core.says(Registered(partitions=[PARTITION]), partition="")
            await core.says(allocated(1), seq=1)
            assert (await waiting).news == allocated(1)

    play(story)


def test_a_gap_that_the_core_found_is_mended_by_resuming() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            await core.says(Refused(code="gap", reason="2 came after 0", seq=2))
            await core.welcomes()
            header, _ = await core.hears(NodeRequest)
            assert header.seq == 1

    play(story)


def test_what_can_never_be_read_ends_the_session_after_a_few_attempts() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            waiting = asyncio.create_task(taken(rm.results()))
            header = Header(kind="AllocationResponse", partition=PARTITION, session=core.session, seq=1)
            for _ in range(FAULTS_MAX):
                await core.sends(frames_of(header, b"\x81\xa3new\xa1x"))
                await core.welcomes()
            await core.sends(frames_of(header, b"\x81\xa3new\xa1x"))
            with pytest.raises(SessionLost, match=r"\$\.new"):
                await waiting

    play(story)


def test_a_session_that_the_core_forgot_is_lost_for_results_and_updates() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            waiting = asyncio.create_task(taken(rm.results()))
        async with FakeCore(core.address) as again, rm:
            await again.hears(Resume)
            await again.says(Refused(code="unknown-session", reason="no such session"), partition="")
            with pytest.raises(SessionLost, match=r"no such session.*connect again"):
                await waiting
            with pytest.raises(SessionLost):
                await rm.update_nodes([node("n1")])

    play(story)


def test_a_restarted_partition_is_told_and_numbered_anew() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            results = rm.results()
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            await core.says(NodeResponse(accepted=[AcceptedNode(node_id="n1")]), seq=1, ack=1)
            await taken(results)
            await core.says(PartitionRestarted())
            assert await taken(results) == Result(PARTITION, PartitionRestarted())
            await rm.update_nodes([node("n1")])
            header, _ = await core.hears(NodeRequest)
            assert header.seq == 1
            await core.says(allocated(1), seq=1, ack=1)
            assert await taken(results) == Result(PARTITION, allocated(1))

    play(story)


def test_a_full_window_of_a_partition_that_died_holds_nobody_up() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            for number in range(WINDOW_MESSAGES):
                await rm.update_nodes([node(f"n{number}")])
            late = asyncio.create_task(rm.update_nodes([node("late")]))
            assert await is_waiting(late)
            await core.says(PartitionRestarted())
            await late

    play(story)
