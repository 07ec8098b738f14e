"""Full reports, and leaving, as programs see them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.yunishard.fake_core import PARTITION, FakeCore, Kept, play, taken
from yunishard.common.messages.rm_messages import (
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Refused,
    SyncBegin,
    SyncDone,
    SyncEnd,
)
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.exceptions import Closed, ResyncFailed, SessionLost
from yunishard.sdk.items import node


async def reports(rm: ResourceManager) -> SyncDone | None:
    async with rm.resync(reason="because") as sync:
        await rm.update_nodes([node("n1"), node("n2")])
    return sync.swept


async def hears_a_report(core: FakeCore) -> int:
    """The number of its end."""
    begin = await core.hears(SyncBegin)
    assert begin[1] == SyncBegin(reason="because")
    assert begin[0].partition == PARTITION
    await core.hears(NodeRequest)
    header, end = await core.hears(SyncEnd)
    assert end == SyncEnd(nodes=2)
    return header.seq


def test_a_report_ends_when_the_core_has_removed_what_was_not_in_it() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            reporting = asyncio.create_task(reports(rm))
            end = await hears_a_report(core)
            await core.says(NodeResponse(), seq=1, ack=end)
            await core.says(SyncDone(nodes=["n9"]), seq=2, ack=end)
            assert await reporting == SyncDone(nodes=["n9"])

    play(story)


def test_a_restart_that_is_read_can_be_answered_with_a_report_at_once() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            swept = asyncio.create_task(_answering(rm))
            await core.says(PartitionRestarted(reason="its journal is damaged"))
            end = await hears_a_report(core)
            await core.says(NodeResponse(), seq=1, ack=end)
            await core.says(SyncDone(), seq=2, ack=end)
            assert await swept == SyncDone()
            assert (await taken(rm.results())).news == NodeResponse()

    play(story)


async def _answering(rm: ResourceManager) -> SyncDone | None:
    async for partition, news in rm.results():
        assert (partition, news) == (PARTITION, PartitionRestarted(reason="its journal is damaged"))
        return await reports(rm)
    return None


def _problem(core: FakeCore) -> Awaitable[None]:
    return core.says(SyncDone(problem="1 node of 2 arrived"), seq=1)


def _restart(core: FakeCore) -> Awaitable[None]:
    return core.says(PartitionRestarted())


@pytest.mark.parametrize(
    ("happens", "why"),
    [(_problem, "1 node of 2 arrived"), (_restart, "the partition lost its state")],
    ids=["told", "restart"],
)
def test_a_report_that_is_not_taken_is_an_error_at_its_end(
    happens: Callable[[FakeCore], Awaitable[None]], why: str
) -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            reporting = asyncio.create_task(reports(rm))
            await hears_a_report(core)
            await happens(core)
            with pytest.raises(ResyncFailed, match=why):
                await reporting

    play(story)


def test_a_report_whose_block_raises_is_never_said_to_be_complete() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            with pytest.raises(LookupError):
                async with rm.resync():
                    raise LookupError
            await rm.update_nodes([node("n1")])
            await core.hears(SyncBegin)
            await core.hears(NodeRequest)

    play(story)


def test_the_end_of_the_session_ends_a_report() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers() as rm:
            reporting = asyncio.create_task(reports(rm))
            await hears_a_report(core)
            await core.says(Refused(code="superseded", reason="elsewhere"), partition="")
            with pytest.raises(SessionLost, match="elsewhere"):
                await reporting

    play(story)


# Leaving ------------------------------------------------------------------------------------------------------------


def test_who_leaves_is_closed_once_nothing_is_left_of_it() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            await asyncio.gather(rm.leave("done"), core.lets_go())
            with pytest.raises(Closed):
                await rm.update_nodes([node("n1")])
            assert [one async for one in rm.results()] == []

    play(story)


def test_a_core_that_does_not_let_go_is_named_and_left_all_the_same() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            with pytest.raises(TimeoutError, match=rf"{core.address}.*rm-1"):
                await rm.leave(timeout_s=0.01)
            with pytest.raises(Closed):
                await rm.update_nodes([node("n1")])

    play(story)


def test_a_block_that_ends_in_order_leaves() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(ResourceManager.connect(core.address, rm_id="rm-1"))
            await core.welcomes()
            letting_go = asyncio.create_task(core.lets_go())
            async with await connecting:
                pass
            await letting_go

    play(story)


@pytest.mark.parametrize("ends", ["raises", "closes"])
def test_a_block_that_raises_or_closes_only_goes_away(ends: str) -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(ResourceManager.connect(core.address, rm_id="rm-1"))
            await core.welcomes()
            try:
                async with await connecting as rm:
                    if ends == "raises":
                        raise LookupError
                    await rm.close()
            except LookupError:
                pass
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1"))
            await core.welcomes()  # the next that is heard: it did not leave
            await (await connecting).close()

    play(story)
