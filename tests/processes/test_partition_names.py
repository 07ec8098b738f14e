"""RMs `a` and `a_b`, whose partitions `b_default` and `default` both would be `a_b_default`, on one real system."""

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, free_ports, up
from yunishard.cli.main import main
from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node

pytestmark = pytest.mark.processes

PATIENCE_S = 90.0
PLAIN = {"a": "b_default", "a_b": "default"}


@asynccontextmanager
async def joined(native: str, rm_id: str) -> AsyncIterator[ResourceManager]:
    """An RM with a node and an application of its own."""
    queues = f"queues: [{{name: root, submitacl: '*', queues: [{{name: batch, adminacl: user-of-{rm_id}}}]}}]"
    config = f"partitions: [{{name: {PLAIN[rm_id]}, {queues}}}]"
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
        fixed = ("--state", str(tmp_path / "state"), "--native", f"tcp://127.0.0.1:{free_ports(1)[0]}")
        async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
            first = stack.enter_context(up(*FREE_PORTS, *fixed, folder=tmp_path))
            endpoints = await asyncio.to_thread(first.announced)
            rms = [await stack.enter_async_context(joined(endpoints["native"], rm_id)) for rm_id in order]
            for rm in rms:
                assert await asks(rm, "ask-1") == f"node-of-{rm.rm_id}"
            await look(endpoints["rest"])
            for number in first.children:
                os.kill(number, signal.SIGKILL)
            first.stop(signal.SIGKILL)
            (tmp_path / "second").mkdir()
            second = stack.enter_context(up(*FREE_PORTS, *fixed, folder=tmp_path / "second"))
            endpoints = await asyncio.to_thread(second.announced)
            for rm in rms:
                assert await asks(rm, "ask-2") == f"node-of-{rm.rm_id}"
            await look(endpoints["rest"])
            await rms[0].leave()
            assert await asks(rms[1], "ask-3") == f"node-of-{rms[1].rm_id}"

    asyncio.run(play())


def asked(url: str, token: str, *, method: str = "GET") -> tuple[int, bytes]:
    request = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_people_of_one_rm_see_and_kill_nothing_of_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = ("a", "a_b")
    names = {"a": "a_b_default", "a_b": "a_b_default~3"}
    keys = tmp_path / "keys"
    assert main(["token", "--new-key", "--keys", str(keys)]) == 0
    tokens = {}
    for rm_id in order:
        capsys.readouterr()
        assert main(["token", f"user-of-{rm_id}", "--keys", str(keys)]) == 0
        tokens[rm_id] = capsys.readouterr().out.strip()

    async def play(native: str, rest: str) -> None:
        async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
            for rm_id in order:
                rm = await stack.enter_async_context(joined(native, rm_id))
                await asks(rm, "ask")
            for mine, other in (order, order[::-1]):
                own, foreign = (f"{rest}/ws/v1/partition/{names[rm_id]}" for rm_id in (mine, other))
                status, body = await asyncio.to_thread(asked, f"{own}/application/app", tokens[mine])
                assert (status, json.loads(body)["user"]) == (200, f"user-of-{mine}")
                for url, method in ((f"{foreign}/application/app", "GET"), (f"{foreign}/application/app/kill", "POST")):
                    status, body = await asyncio.to_thread(asked, url, tokens[mine], method=method)
                    assert status in (403, 404), body
                    assert f"user-of-{other}".encode() not in body
            for rm_id in order:
                url = f"{rest}/ws/v1/partition/{names[rm_id]}/application/app/kill"
                status, body = await asyncio.to_thread(asked, url, tokens[rm_id], method="POST")
            assert status == 200, body

    options = ("--ephemeral", "--auth", "token", "--auth-keys", str(keys), "--scheduler-admins", "root")
    with up(*FREE_PORTS, *options, folder=tmp_path) as system:
        endpoints = system.announced()
        asyncio.run(play(endpoints["native"], endpoints["rest"]))
