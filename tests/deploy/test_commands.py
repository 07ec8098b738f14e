"""The commands of an operator against a system that runs, and what its resource manager hears of it."""

import asyncio
import getpass
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, up
from yunishard.cli.main import main
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.rm_messages import ApplicationResponse, ConfigurationUpdated, NodeResponse
from yunishard.rmproxy.rate_limit import CALLS_PER_S
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.exceptions import ConfigurationRefused
from yunishard.sdk.items import application, node

pytestmark = pytest.mark.processes

QUEUES = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
          - name: b
"""
WITH_C = QUEUES + "          - name: c\n"
GPU = "  - name: gpu\n    queues:\n      - name: root\n"
PATIENCE_S = 60.0


Endpoints = dict[str, str]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    with up("--ephemeral", *FREE_PORTS, "--allowed-rms", "rm-*", folder=tmp_path_factory.mktemp("system")) as system:
        yield system.announced()
        assert system.stop() == 0


def story(endpoints: Endpoints, play: Callable[[ResourceManager, str], Awaitable[None]]) -> None:
    """Play with a resource manager, which leaves nothing behind, and the address of REST."""

    async def whole() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            await ResourceManager.connect(endpoints["native"], rm_id="rm-1", config=QUEUES) as rm,
        ):
            await play(rm, endpoints["rest"])
            await rm.leave()

    asyncio.run(whole())


async def run(*words: str) -> int:
    return await asyncio.to_thread(main, words)


async def news_of(rm: ResourceManager, kind: type) -> object:
    async for result in rm.results():
        if isinstance(result.news, kind):
            return result.news
    raise AssertionError("closed")


def test_a_configuration_is_put_looked_at_and_rolled_back(
    endpoints: Endpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(WITH_C + GPU)

    async def play(rm: ResourceManager, rest: str) -> None:
        assert await run("config", "put", str(file), "--rest", rest) == 0
        changed = await news_of(rm, ConfigurationUpdated)
        assert isinstance(changed, ConfigurationUpdated)
        assert (changed.checksum, changed.author) == (compute_checksum(file.read_text()), getpass.getuser())
        assert rm.partitions == ("rm-1_default", "rm-1_gpu")
        capsys.readouterr()
        assert await run("config", "get", "--rest", rest) == 0
        assert capsys.readouterr().out == file.read_text()
        assert await run("config", "diff", "--rest", rest) == 1
        assert "+          - name: c" in capsys.readouterr().out
        assert await run("config", "rollback", "1", "--rest", rest) == 0
        await news_of(rm, ConfigurationUpdated)
        assert rm.partitions == ("rm-1_default",)
        capsys.readouterr()
        assert await run("config", "history", "--json", "--rest", rest) == 0
        history = json.loads(capsys.readouterr().out)
        assert [(one["version"], one["origin"]) for one in history] == [
            (3, "rollback to 1"),
            (2, "api"),
            (1, "registration"),
        ]

    story(endpoints, play)


def test_a_wrong_configuration_is_refused_with_the_lines_of_the_file(
    endpoints: Endpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES + "            shape: round\n")

    async def play(rm: ResourceManager, rest: str) -> None:
        assert await run("config", "put", str(file), "--rest", rest) == 1
        assert capsys.readouterr().err.startswith(f"{file}:9: partitions[0].queues[0].queues[1].shape: unknown key")

    story(endpoints, play)


def test_a_resource_manager_changes_its_own_configuration(endpoints: Endpoints) -> None:
    async def play(rm: ResourceManager, rest: str) -> None:
        done = await rm.update_configuration(WITH_C + GPU, extra_config={"event.maxStreams": "3"})
        assert (done.checksum, done.partitions) == (compute_checksum(WITH_C + GPU), ["rm-1_default", "rm-1_gpu"])
        await rm.update_nodes([node("n1", {"vcore": 1}, partition="gpu")])
        with pytest.raises(ConfigurationRefused, match="shape") as refused:
            await rm.update_configuration(QUEUES + "            shape: round\n")
        assert refused.value.code == "configuration"

    story(endpoints, play)


def test_an_application_is_moved_and_killed(endpoints: Endpoints, capsys: pytest.CaptureFixture[str]) -> None:
    async def play(rm: ResourceManager, rest: str) -> None:
        await rm.update_applications(new=[application("app-1", "root.a", user="alice")])
        await news_of(rm, ApplicationResponse)
        assert await run("app", "move", "app-1", "root.b", "--rest", rest) == 0
        assert capsys.readouterr().out == "app-1 in partition default is in root.b\n"
        assert await run("app", "move", "app-1", "root.nowhere", "--rest", rest) == 1
        assert await run("app", "kill", "app-1", "--rest", rest) == 0

    story(endpoints, play)


def test_settings_are_shown_with_their_sources(endpoints: Endpoints, capsys: pytest.CaptureFixture[str]) -> None:
    async def play(rm: ResourceManager, rest: str) -> None:
        await rm.update_configuration(QUEUES, extra_config={"event.maxStreams": "3", "health.checkInterval": "often"})
        assert await run("settings", "--json", "--rest", rest) == 0
        found = {one["name"]: (one["value"], one["source"]) for one in json.loads(capsys.readouterr().out)}
        assert found["allowed-rms"] == ("rm-*", "--allowed-rms")
        assert found["log-level"] == ("info", "default")
        assert found["rm/event.maxStreams"] == ("3", "RM rm-1")
        assert found["rm/health.checkInterval"][0] == "30s"

    story(endpoints, play)


def test_a_partition_that_went_and_came_back_is_spoken_to_anew(endpoints: Endpoints) -> None:
    async def play(rm: ResourceManager, rest: str) -> None:
        joins = [node("n1", {"vcore": 1}, partition="gpu")]
        await rm.update_configuration(QUEUES + GPU)
        await rm.update_nodes(joins)
        await news_of(rm, NodeResponse)
        reading = asyncio.create_task(news_of(rm, NodeResponse))  # what the partition says last wants to be read
        await rm.update_configuration(QUEUES)
        assert rm.partitions == ("rm-1_default",)
        while True:
            try:
                await rm.update_configuration(QUEUES + GPU)
                break
            except ConfigurationRefused as refused:
                if refused.code != "busy":  # as long as the partition is being taken down
                    raise
                await asyncio.sleep(1 / CALLS_PER_S)
        await rm.update_nodes(joins)
        answer = await reading
        assert isinstance(answer, NodeResponse)
        assert [one.node_id for one in answer.accepted] == ["n1"]

    story(endpoints, play)
