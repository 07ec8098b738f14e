"""The options of `yunishard fake-rm`, and its address within a system."""

import argparse
import asyncio

import pytest

from tests.yunishard.fake_core import FakeCore
from tests.yunishard.fake_core import play as play_core
from yunishard.cli.main import NOT_DONE, CommandFailed
from yunishard.common.messages.rm_messages import Leave, Left, NodeRequest, Refused, Registered, RegisterResourceManager
from yunishard.workloads.fake_rm.run import add_fake_rm_arguments, build_fake_rm, connect_and_play
from yunishard.workloads.fake_rm.service import find_address


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_fake_rm_arguments(parser)
    return parser.parse_args(words)


def test_nothing_is_needed() -> None:
    args = parsed()
    assert (args.nodes, args.node_resources, args.load, args.rm_id) == (20, "vcore=16,memory=64Gi", 80, "fake")


@pytest.mark.parametrize(
    "words",
    [
        ("--nodes", "0"),
        ("--nodes", "10001"),
        ("--node-resources", "vcore"),
        ("--load", "1001"),
        ("--rate", "0"),
        ("--rate", "6001"),
        ("--rate", "nan"),
        ("--run-time", "0s"),
        ("--gangs", "101"),
        ("--seed", "-1"),
        ("--duration", "soon"),
        ("--rm-id", "a b"),
        ("--connect", "tcp://a:1,"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("native", "address"),
    [
        ("tcp://127.0.0.1:9090", "tcp://127.0.0.1:9090"),
        ("tcp://0.0.0.0:9090", "tcp://127.0.0.1:9090"),
        ("tcp://[::]:9090", "tcp://[::1]:9090"),
        ("tcp://[fe80::1]:9090", "tcp://[fe80::1]:9090"),
        ("tcp://core.example:9090", "tcp://core.example:9090"),
    ],
)
def test_a_system_is_reached_at_its_own_port(native: str, address: str) -> None:
    assert find_address(native) == address


def test_it_reports_its_nodes_and_leaves_after_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    nodes: list[str] = []

    async def story() -> None:
        async with FakeCore() as core:
            args = parsed("--connect", core.address, "--nodes=3", "--load=0", "--duration=1s")
            fake, config = build_fake_rm(args)
            running = asyncio.create_task(connect_and_play(args, config, fake))
            await core.hears(RegisterResourceManager)
            await core.says(Registered(partitions=["fake_default"]), partition="")
            while True:
                header, message = await core.hears()
                if isinstance(message, NodeRequest):
                    nodes.extend(one.node_id for one in message.nodes)
                if isinstance(message, Leave):
                    await core.says(Left(), partition="", ref=header.ref)
                    break
            assert await running == 0

    play_core(story)
    assert nodes == ["fake-1", "fake-2", "fake-3"]
    out = capsys.readouterr().out.splitlines()
    assert out[1].startswith("3 nodes of vcore=16,memory=64Gi, about 0 applications a minute.")
    assert out[2] == "0 applications: 0 tasks running, 0 waiting; 0 submitted, 0 completed"


async def lose_session(core: FakeCore, code: str) -> None:
    """Register the RM, then end its session."""
    await core.hears(RegisterResourceManager)
    await core.says(Registered(partitions=["fake_default"]), partition="")
    await core.hears(NodeRequest)
    await core.says(Refused(code=code, reason="so it is"), partition="")


def test_another_rm_with_its_id_ends_it() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            args = parsed("--connect", core.address, "--load=0")
            fake, config = build_fake_rm(args)
            running = asyncio.create_task(connect_and_play(args, config, fake))
            await lose_session(core, "superseded")
            with pytest.raises(CommandFailed, match="so it is") as failed:
                await running
            assert failed.value.status == NOT_DONE

    play_core(story)


def test_a_session_that_the_core_drops_is_followed_by_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with FakeCore() as core:
            args = parsed("--connect", core.address, "--nodes=3", "--load=0", "--duration=2s")
            fake, config = build_fake_rm(args)
            running = asyncio.create_task(connect_and_play(args, config, fake))
            await lose_session(core, "forbidden")
            await core.hears(RegisterResourceManager)
            await core.says(Registered(partitions=["fake_default"]), partition="")
            _, nodes = await core.hears(NodeRequest)
            assert isinstance(nodes, NodeRequest)
            assert [one.node_id for one in nodes.nodes] == ["fake-1", "fake-2", "fake-3"]
            running.cancel()
            header, _ = await core.hears(Leave)
            await core.says(Left(), partition="", ref=header.ref)
            assert await running == 0

    play_core(story)
    assert "session with the core lost (so it is)" in capsys.readouterr().out
