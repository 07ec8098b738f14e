"""The link over real sockets; the times are short, and whatever they are each story ends the same way."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from common.rm_messages import Goodbye, Heartbeat, NodeRequest, Refused, Registered, RegisterResourceManager, Resume
from tests.yunishard.fake_core import FakeCore, Kept, allocated, play, taken
from yunishard.dialogue import READ_AHEAD_MESSAGES, Dialogue
from yunishard.link import Link
from yunishard.manager import RegistrationRefused, Result
from yunishard.parts import node

HEARTBEAT_MS, SILENCE_MS = 10, 60


async def until(condition: Callable[[], bool]) -> None:
    """Give the event loop its turns until it has got there."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event, and a turn takes no time
        await asyncio.sleep(0)


def test_nothing_more_is_read_than_the_consumer_can_be_expected_to_take() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            dialogue = Dialogue(RegisterResourceManager(rm_id="rm-1"), session="s")
            link = Link(core.address, dialogue, None)
            await core.welcomes()
            for number in range(1, READ_AHEAD_MESSAGES + 101):
                await core.says(allocated(number), seq=number)
            await until(lambda: not link.hungry)
            assert dialogue.backlog() == READ_AHEAD_MESSAGES
            await link.close()

    play(story)


def test_signs_of_life_go_both_ways_while_nothing_happens() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers(heartbeat_ms=HEARTBEAT_MS, silence_ms=30_000) as rm:
            first = core.peer
            for _ in range(5):
                header, _ = await core.hears(Heartbeat)
                assert (header.rm, header.session) == ("rm-1", core.session)
                await core.says(Heartbeat(), partition="")
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            assert core.peer == first

    play(story)


def test_a_core_that_falls_silent_is_looked_for_on_a_new_connection_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers(heartbeat_ms=HEARTBEAT_MS, silence_ms=SILENCE_MS) as rm:
            first = core.peer
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            await core.hears(Resume)  # nothing was said to it
            assert core.peer != first
            await core.says(Registered(partitions=["rm-1_default"]), partition="")
            header, _ = await core.hears(NodeRequest)
            assert header.seq == 1

    with caplog.at_level(logging.WARNING):
        play(story)
    assert "says nothing, connecting again" in caplog.text


def test_a_resumption_that_is_not_answered_is_asked_for_on_another_connection() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers(heartbeat_ms=HEARTBEAT_MS, silence_ms=SILENCE_MS) as rm:
            await core.hears(Resume)
            second = core.peer
            await core.hears(Resume)
            assert core.peer != second
            await core.says(Registered(partitions=["rm-1_default"]), partition="")
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)

    play(story)


def test_after_a_goodbye_the_session_goes_on_at_the_next_core() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            goodbye = Goodbye(reason="stopping", retry_after_milli_seconds=1)
            await core.says(goodbye, partition="")
            assert await taken(rm.results()) == Result("", goodbye)
            await rm.update_nodes([node("n1")])
        async with FakeCore(core.address) as again, rm:
            await again.hears(Resume)
            await again.says(Registered(partitions=["rm-1_default"]), partition="")
            await again.hears(NodeRequest)

    play(story)


def test_a_registration_waits_for_a_change_that_is_under_way() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1"))
            header, _ = await core.hears(RegisterResourceManager)
            await core.says(Refused(code="busy", reason="a change is under way"), partition="", ref=header.ref)
            again = await core.welcomes()
            assert (again.kind, again.session) == (header.kind, header.session)
            await (await connecting).close()

    play(story)


def test_one_that_stays_under_way_for_too_long_is_the_reason_why_nobody_got_in() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1", timeout_s=0.5))
            header, _ = await core.hears(RegisterResourceManager)
            await core.says(Refused(code="busy", reason="a change is under way"), partition="", ref=header.ref)
            with pytest.raises(RegistrationRefused, match=r"a change is under way.*0\.5 s"):
                await connecting

    play(story)
