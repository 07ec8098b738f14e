"""RMs `a` and `a_b`, whose partitions `b_default` and `default` both would be `a_b_default`, on one real system."""

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from common.messages import AllocationResponse
from shim.manager import ResourceManager
from shim.parts import application, ask, node
from tests.deploy.system import FREE_PORTS, up

pytestmark = pytest.mark.processes

PATIENCE_S = 90.0
PLAIN = {"a": "b_default", "a_b": "default"}


@asynccontextmanager
async def joined(native: str, rm_id: str) -> AsyncIterator[ResourceManager]:
    """An RM with a node and an application of its own."""
    config = (
        f"partitions: [{{name: {PLAIN[rm_id]}, queues: [{{name: root, submitacl: '*', queues: [{{name: batch}}]}}]}}]"
    )
    async with await ResourceManager.connect(native, rm_id=rm_id, config=config) as rm:
        assert rm.partitions == ("a_b_default",)
        own = PLAIN[rm_id]
        await rm.update_nodes([node(f"node-of-{rm_id}", {"vcore": 100}, partition=own)])
        await rm.update_applications(new=[application("app", "root.batch", user=f"user-of-{rm_id}", partition=own)])
        yield rm


async def asks(rm: ResourceManager, key: str) -> str:
    """Ask for one allocation, and the node on which it is placed."""
    own = PLAIN[rm.rm_id]
    await rm.update_allocations(allocations=[ask(key, "app", {"vcore": 1}, partition=own)])
    async for partition, news in rm.results():
        assert partition == "a_b_default"
        if isinstance(news, AllocationResponse):
            for one in news.new:
                if one.allocation_key == key:
                    return one.node_id
    raise AssertionError("the results ended")


def nodes(rest: str, partition: str) -> list[str]:
    with urllib.request.urlopen(f"{rest}/ws/v1/partition/{partition}/nodes", timeout=30) as answer:
        return [str(one["nodeID"]) for one in json.load(answer)]


@pytest.mark.parametrize("order", [("a", "a_b"), ("a_b", "a")], ids=["a first", "a_b first"])
def test_each_has_its_own_partition_also_after_everything_was_killed(tmp_path: Path, order: tuple[str, str]) -> None:
    names = {order[0]: "a_b_default", order[1]: f"a_b_default~{len(order[1])}"}

    async def look(rest: str) -> None:
        for rm_id, full_name in names.items():
            for name in (full_name, f"%5B{rm_id}%5D{PLAIN[rm_id]}"):
                assert await asyncio.to_thread(nodes, rest, name) == [f"node-of-{rm_id}"]

    async def play() -> None:
        state = ("--state", str(tmp_path / "state"))
        async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
            first = stack.enter_context(up(*state, *FREE_PORTS, folder=tmp_path))
            endpoints = await asyncio.to_thread(first.announced)
            rms = [await stack.enter_async_context(joined(endpoints["native"], rm_id)) for rm_id in order]
            for rm in rms:
                assert await asks(rm, "ask-1") == f"node-of-{rm.rm_id}"
            await look(endpoints["rest"])
            for number in first.children:
                os.kill(number, signal.SIGKILL)
            first.stop(signal.SIGKILL)
            (tmp_path / "second").mkdir()
            again = (*state, *FREE_PORTS, "--native", endpoints["native"])
            second = stack.enter_context(up(*again, folder=tmp_path / "second"))
            endpoints = await asyncio.to_thread(second.announced)
            for rm in rms:
                assert await asks(rm, "ask-2") == f"node-of-{rm.rm_id}"
            await look(endpoints["rest"])
            await rms[0].leave()
            assert await asks(rms[1], "ask-3") == f"node-of-{rms[1].rm_id}"

    asyncio.run(play())
