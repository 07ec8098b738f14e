import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

import pytest
from msgspec.structs import replace

from tests.yunishard.fake_core import PARTITION, PATIENCE_S, FakeCore, play
from yunishard.common.messages.rm_messages import (
    Allocation,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ConfigurationUpdated,
    NodeRequest,
    PartitionRestarted,
    Refused,
    RegisterResourceManager,
    RemoveApplicationRequest,
    SyncBegin,
    SyncDone,
    SyncEnd,
    UpdateConfiguration,
)
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.exceptions import Closed, ConfigurationRefused, RegistrationRefused
from yunishard.sdk.items import Callbacks, application, ask, node, release

ALLOCATION = Allocation(allocation_key="k1", application_id="app", node_id="n1")


@contextmanager
def core_that(story: Callable[[FakeCore], Awaitable[None]]) -> Iterator[str]:
    """The address of a core that plays a story in a thread and stays; what fails there fails the test."""
    addresses: SimpleQueue[str] = SimpleQueue()
    over = threading.Event()

    async def whole() -> None:
        async with FakeCore() as core:
            addresses.put(core.address)
            await story(core)
            letting_go = asyncio.create_task(core.lets_go())
            await asyncio.to_thread(over.wait, PATIENCE_S)
            letting_go.cancel()

    with ThreadPoolExecutor(1) as thread:
        playing = thread.submit(play, whole)
        try:
            yield addresses.get(timeout=PATIENCE_S)
        finally:
            over.set()
        playing.result()


def test_updates_go_out_and_callbacks_come_in_without_asyncio() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()
        await core.hears(NodeRequest)
        await core.hears(ApplicationRequest)
        _, message = await core.hears(AllocationRequest)
        assert message == AllocationRequest(allocations=[ask("k1", "app", {"vcore": 1})])
        await core.says(AllocationResponse(new=[ALLOCATION]), seq=1)
        await core.hears(ApplicationRequest)

    allocated: SimpleQueue[Allocation] = SimpleQueue()
    with (
        core_that(story) as address,
        BlockingResourceManager(address, rm_id="rm-1", callbacks=Callbacks(allocated=allocated.put)) as rm,
    ):
        assert rm.rm_id == "rm-1"
        assert rm.partitions == ("rm-1_default",)
        rm.update_nodes([node("n1", {"vcore": 8})])
        rm.update_applications(new=[application("app", user="alice")])
        rm.update_allocations(allocations=[ask("k1", "app", {"vcore": 1})])
        assert allocated.get(timeout=PATIENCE_S) == replace(ALLOCATION, partition_name=PARTITION)
        rm.update_applications(remove=[RemoveApplicationRequest(application_id="app")])


def test_a_changed_configuration_is_waited_for() -> None:
    updated = ConfigurationUpdated(checksum="C", partitions=["rm-1_a"])

    async def story(core: FakeCore) -> None:
        await core.welcomes()
        header, _ = await core.hears(UpdateConfiguration)
        await core.says(updated, partition="", ref=header.ref)
        header, _ = await core.hears(UpdateConfiguration)
        await core.says(Refused(code="configuration", reason="no"), partition="", ref=header.ref)

    with core_that(story) as address, BlockingResourceManager(address, rm_id="rm-1") as rm:
        assert rm.update_configuration("partitions: []") == updated
        assert rm.partitions == ("rm-1_a",)
        with pytest.raises(ConfigurationRefused, match="no"):
            rm.update_configuration("nonsense")


def test_a_callback_may_send_updates() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()
        await core.hears(NodeRequest)
        await core.says(AllocationResponse(new=[ALLOCATION]), seq=1)
        await core.hears(AllocationRequest)

    done = threading.Event()

    def at_once(allocation: Allocation) -> None:
        rm.update_allocations(releases=[release("app", allocation.allocation_key)])
        done.set()

    with core_that(story) as address:
        rm = BlockingResourceManager(address, rm_id="rm-1", callbacks=Callbacks(allocated=at_once))
        with rm:
            rm.update_nodes([node("n1")])
            assert done.wait(PATIENCE_S)


def test_a_refused_registration_is_raised_and_leaves_no_thread() -> None:
    async def story(core: FakeCore) -> None:
        await core.hears(RegisterResourceManager)
        await core.says(Refused(code="config", reason="no such thing"), partition="")

    with core_that(story) as address:
        with pytest.raises(RegistrationRefused, match="no such thing"):
            BlockingResourceManager(address, rm_id="rm-1")
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rm-1")]


def test_what_a_callback_raises_comes_out_of_the_next_call_and_the_end() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()
        await core.hears(NodeRequest)
        await core.says(AllocationResponse(new=[ALLOCATION]), seq=1)

    def fail(allocation: Allocation) -> None:
        raise LookupError(allocation.allocation_key)

    with core_that(story) as address:
        rm = BlockingResourceManager(address, rm_id="rm-1", callbacks=Callbacks(allocated=fail))
        rm.update_nodes([node("n1")])
        with pytest.raises(LookupError, match="k1"):
            rm.wait(PATIENCE_S)
        with pytest.raises(LookupError, match="k1"):
            rm.update_nodes([node("n1")])
        with pytest.raises(LookupError, match="k1"):
            rm.close()


def test_a_callback_that_closes_its_own_manager_is_told_not_to() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()
        await core.hears(NodeRequest)
        await core.says(AllocationResponse(new=[ALLOCATION]), seq=1)

    with core_that(story) as address:
        rm = BlockingResourceManager(address, rm_id="rm-1", callbacks=Callbacks(allocated=lambda _: rm.close()))
        rm.update_nodes([node("n1")])
        with pytest.raises(RuntimeError, match="cannot close its own"):
            rm.wait(PATIENCE_S)
        with pytest.raises(RuntimeError, match="cannot close its own"):
            rm.close()


def test_async_callbacks_are_refused_here() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()
        await core.hears(NodeRequest)
        await core.says(AllocationResponse(new=[ALLOCATION]), seq=1)

    loop = asyncio.new_event_loop()
    with core_that(story) as address:
        rm = BlockingResourceManager(
            address, rm_id="rm-1", callbacks=Callbacks(allocated=lambda _: loop.create_future())
        )
        rm.update_nodes([node("n1")])
        with pytest.raises(TypeError, match="plain functions"):
            rm.wait(PATIENCE_S)
        with pytest.raises(TypeError, match="plain functions"):
            rm.close()
    loop.close()


def test_it_waits_for_the_end_or_no_longer_than_told_and_is_closed_once() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()

    with core_that(story) as address:
        rm = BlockingResourceManager(address, rm_id="rm-1")
        with pytest.raises(TimeoutError):
            rm.wait(0.001)
        closing = threading.Thread(target=rm.close)
        closing.start()
        rm.wait(PATIENCE_S)
        rm.close()
        closing.join()
        with pytest.raises(Closed):
            rm.update_nodes([node("n1")])


def test_a_block_that_ends_in_order_leaves() -> None:
    left = threading.Event()

    async def story(core: FakeCore) -> None:
        await core.welcomes()
        await core.lets_go()
        left.set()

    with core_that(story) as address:
        with BlockingResourceManager(address, rm_id="rm-1"):
            pass
        assert left.wait(PATIENCE_S)


def test_leaving_closes_it() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()

    with core_that(story) as address:
        rm = BlockingResourceManager(address, rm_id="rm-1")
        rm.leave("done")
        rm.wait(PATIENCE_S)
        with pytest.raises(Closed):
            rm.update_nodes([node("n1")])


def test_a_callback_may_report_everything_again() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()
        await core.says(PartitionRestarted())
        await core.hears(SyncBegin)
        await core.hears(NodeRequest)
        _, end = await core.hears(SyncEnd)
        assert end == SyncEnd(nodes=1)
        await core.says(SyncDone(nodes=["n9"]), seq=1, ack=3)

    swept: SimpleQueue[SyncDone | None] = SimpleQueue()
    made = threading.Event()

    def report(partition: str) -> None:
        assert made.wait(PATIENCE_S)
        with rm.resync(partition) as sync:
            rm.update_nodes([node("n1")])
        swept.put(sync.swept)

    with core_that(story) as address:
        rm = BlockingResourceManager(address, rm_id="rm-1", callbacks=Callbacks(partition_restarted=report))
        made.set()
        assert swept.get(timeout=PATIENCE_S) == SyncDone(nodes=["n9"])
        rm.close()


def test_a_report_whose_block_raises_is_not_complete() -> None:
    async def story(core: FakeCore) -> None:
        await core.welcomes()
        await core.hears(SyncBegin)
        await core.hears(NodeRequest)

    with core_that(story) as address:
        rm = BlockingResourceManager(address, rm_id="rm-1")
        with pytest.raises(LookupError), rm.resync():
            raise LookupError
        rm.update_nodes([node("n1")])
        rm.close()
