"""A resource manager with two partitions: its callbacks get to know the partition from their argument."""

import asyncio

import pytest

from tests.processes.system import System
from yunishard.common.messages.rm_messages import Allocation, AllocationRelease, UpdatedApplication
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import Callbacks, application, ask, node, release

pytestmark = pytest.mark.processes

PATIENCE_S = 40.0
QUEUES = "queues: [{name: root, submitacl: '*', queues: [{name: a}]}]"
TWO = f"partitions: [{{name: default, {QUEUES}}}, {{name: gpu, {QUEUES}}}]"
PARTITIONS = ("two_default", "two_gpu")


async def furnish(rm: ResourceManager, partition: str) -> None:
    """A node, an application and an ask, with the same key in each partition."""
    await rm.update_nodes([node("n", {"vcore": 8}, partition=partition)])
    await rm.update_applications(new=[application("app", "root.a", user="alice", partition=partition)])
    await rm.update_allocations(allocations=[ask("k", "app", {"vcore": 1}, partition=partition)])


def test_callbacks_release_into_the_partition_of_their_argument(system: System) -> None:
    ended: list[str] = []
    states: set[str] = set()

    async def play() -> None:
        done = asyncio.Event()

        async def allocated(one: Allocation) -> None:
            await rm.update_allocations(
                releases=[release(one.application_id, one.allocation_key, partition=one.partition_name)]
            )

        def released(one: AllocationRelease) -> None:
            ended.append(one.partition_name)
            if len(ended) == len(PARTITIONS):
                done.set()

        def updated(one: UpdatedApplication) -> None:
            states.add(one.partition_name)

        async with asyncio.timeout(PATIENCE_S):
            async with await ResourceManager.connect(system.native, rm_id="two", config=TWO) as rm:
                callbacks = Callbacks(allocated=allocated, released=released, application_updated=updated)
                running = asyncio.create_task(rm.run(callbacks))
                for partition in PARTITIONS:
                    await furnish(rm, partition)
                await done.wait()
            await running

    asyncio.run(play())
    assert sorted(ended) == list(PARTITIONS)
    assert states == set(PARTITIONS)


def test_a_release_into_the_wrong_partition_is_noticed(system: System) -> None:
    wrong: list[AllocationRelease] = []

    async def play() -> None:
        done = asyncio.Event()

        async def allocated(one: Allocation) -> None:
            await rm.update_allocations(releases=[release("other", one.allocation_key, partition="default")])

        def ignored(one: AllocationRelease) -> None:
            wrong.append(one)
            done.set()

        async with asyncio.timeout(PATIENCE_S):
            async with await ResourceManager.connect(system.native, rm_id="two", config=TWO) as rm:
                running = asyncio.create_task(rm.run(Callbacks(allocated=allocated, release_ignored=ignored)))
                await furnish(rm, "gpu")
                await done.wait()
                await asyncio.to_thread(
                    system.up.until, lambda: system.up.says("had no effect: application other is unknown")
                )
            await running

    asyncio.run(play())
    (one,) = wrong
    assert (one.partition_name, one.allocation_key, one.message) == (
        "two_default",
        "k",
        "application other is unknown",
    )
