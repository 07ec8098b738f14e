import asyncio
import re
import runpy
from pathlib import Path

import pytest

from tests.yunishard.fake_core import FakeCore, play
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.rm_messages import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    Leave,
    Left,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Registered,
    RegisterResourceManager,
    RejectedAllocation,
    SyncDone,
)

ROOT = Path(__file__).parents[2]
MINIMAL = ROOT / "examples" / "minimal_rm.py"
PLAIN = ROOT / "examples" / "plain_rm.py"


async def core_for(core: FakeCore, partition: str, *, refused: str = "") -> list[Message]:
    """Play a core that lets everything run at once but one task, until the resource manager leaves; what it heard."""
    heard = [(await core.hears(RegisterResourceManager))[1]]
    await core.says(Registered(partitions=[partition]), partition="")
    seq = 0
    while True:
        header, message = await core.hears()
        heard.append(message)
        news: list[Message] = []
        match message:
            case NodeRequest():
                news = [NodeResponse(accepted=[AcceptedNode(node_id=one.node_id) for one in message.nodes])]
            case Leave():
                await core.says(Left(), partition="", ref=header.ref)
                return heard
            case ApplicationRequest():
                accepted = [AcceptedApplication(application_id=one.application_id) for one in message.new]
                news = [ApplicationResponse(accepted=accepted)] if accepted else []
            case AllocationRequest():
                new = [
                    Allocation(allocation_key=one.allocation_key, application_id=one.application_id, node_id="node-1")
                    for one in message.allocations
                    if one.allocation_key != refused
                ]
                released = message.releases.allocations_to_release
                news = [AllocationResponse(new=new)] if new else [AllocationResponse(released=released)]
                if new and refused:
                    rejected = RejectedAllocation(allocation_key=refused, application_id="app-1", reason="too large")
                    news.append(AllocationResponse(rejected_allocations=[rejected]))
        for one in news:
            seq += 1
            await core.says(one, partition=partition, seq=seq)


def test_the_minimal_resource_manager_runs_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with FakeCore() as core:
            main = runpy.run_path(str(MINIMAL))["main"]
            await asyncio.gather(main(core.address), core_for(core, "minimal_default"))

    play(story)
    out = capsys.readouterr().out
    assert "nodes: node-1 node-2 accepted" in out
    assert "task-9 runs on node-1" in out
    assert out.endswith("done\n")


def test_the_minimal_resource_manager_tells_what_is_refused_and_does_not_wait_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def story() -> None:
        async with FakeCore() as core:
            main = runpy.run_path(str(MINIMAL))["main"]
            await asyncio.gather(main(core.address), core_for(core, "minimal_default", refused="task-9"))

    play(story)
    out = capsys.readouterr().out
    assert "task-9 is rejected: too large\n" in out
    assert "task-8 runs on node-1" in out
    assert out.endswith("done\n")


def test_the_minimal_resource_manager_reports_again_what_its_partition_lost(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with FakeCore() as core:
            running = asyncio.create_task(runpy.run_path(str(MINIMAL))["main"](core.address))
            await core.welcomes("minimal_default")
            for _ in range(3):
                await core.hears()
            await core.says(PartitionRestarted(), partition="minimal_default")
            kinds = [(await core.hears())[0].kind for _ in range(5)]
            assert kinds == ["SyncBegin", "NodeRequest", "ApplicationRequest", "AllocationRequest", "SyncEnd"]
            await core.says(SyncDone(nodes=["node-3"]), partition="minimal_default", seq=1)
            keys = [f"task-{number}" for number in range(10)]
            released = [AllocationRelease(allocation_key=key, application_id="app-1") for key in keys]
            await core.says(AllocationResponse(released=released), partition="minimal_default", seq=2)
            await core.lets_go()
            await running

    play(story)
    assert "reported again; removed by the core: SyncDone(nodes=['node-3']" in capsys.readouterr().out


def test_the_plain_resource_manager_speaks_the_protocol_without_our_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert not re.search(r"^\s*(from|import) (common|yunishard)", PLAIN.read_text(), re.MULTILINE)
    heard: list[Message] = []

    async def story() -> None:
        async with FakeCore() as core:
            main = runpy.run_path(str(PLAIN))["main"]
            running = asyncio.to_thread(main, core.address)
            _, messages = await asyncio.gather(running, core_for(core, "plain_default"))
            heard.extend(messages)

    play(story)
    kinds = [type(message).__name__ for message in heard]
    assert kinds[:4] == ["RegisterResourceManager", "NodeRequest", "ApplicationRequest", "AllocationRequest"]
    assert kinds[-2:] == ["ApplicationRequest", "Leave"]
    assert "task-3" in capsys.readouterr().out


def test_the_guide_shows_the_code_of_the_example() -> None:
    guide = (ROOT / "docs" / "writing-an-rm.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    shown = [block for block in blocks if block in MINIMAL.read_text()]
    assert len(shown) == 4, "the sections Connect, Tell, Listen and Report everything again"
