"""A system with simulated nodes, and the fake RM, as a writer of an RM uses them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.deploy.system import FREE_PORTS, Up, eventually, up
from tests.processes.system import System
from tests.processes.test_hostile_grpc import CONFIG, RM, Client, app, play
from tests.processes.test_hostile_grpc import ask as grpc_ask
from yunishard import AllocationResponse, ResourceManager, application, ask, connect
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

pytestmark = pytest.mark.processes

QUEUES = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system with five simulated nodes, half of which the fake RM keeps busy."""
    words = ("--simulated-nodes", "5", "--node-resources", "vcore=4,memory=8Gi", "--simulated-load", "50")
    with up(*words, *FREE_PORTS, folder=tmp_path_factory.mktemp("simulated")) as running:
        yield System(running, running.announced())
        assert running.stop() == 0


def read(system: System, path: str) -> list[dict[str, object]]:
    with urllib.request.urlopen(f"http://{system.rest}/ws/v1/{path}") as answer:
        found: list[dict[str, object]] = json.load(answer)
        return found


def test_there_are_nodes_and_applications_as_soon_as_the_system_is_ready(simulated: System) -> None:
    nodes = read(simulated, "partition/default/nodes")
    assert sorted(str(one["nodeID"]) for one in nodes) == [f"simulated-{number}" for number in range(1, 6)]
    assert {str(one["capacity"]) for one in nodes} == {str({"memory": 8 << 30, "vcore": 4000})}
    eventually(lambda: bool(read(simulated, "partition/default/applications/active")))


async def run_task(rm: ResourceManager, key: str) -> str:
    """Ask for an allocation; return its node."""
    await rm.update_allocations(allocations=[ask(key, "app-1", {"vcore": "1"})])
    async for _, news in rm.results():
        if isinstance(news, AllocationResponse):
            return news.new[0].node_id
    raise AssertionError("closed")


def test_an_rm_without_nodes_gets_its_own_and_the_fake_rm_leaves_until_it_has_gone(simulated: System) -> None:
    async def story() -> None:
        async with connect(simulated.native, rm_id="mine", config=QUEUES) as rm:
            await rm.update_applications(new=[application("app-1", "root.batch", user="alice")])
            assert (await run_task(rm, "task-1")).startswith("simulated-")
            simulated.up.until(lambda: not fakes(simulated.up))
            os.kill(simulated.up.child("partition_worker mine_default"), signal.SIGKILL)
            assert (await run_task(rm, "task-2")).startswith("simulated-")
            (own,) = [one for one in read(simulated, "partitions") if one["name"] == "default"]
            assert own["totalNodes"] == 5

    asyncio.run(story())
    simulated.up.until(lambda: bool(fakes(simulated.up)))
    simulated.up.until(lambda: simulated.up.errors.count("RM simulated registered") == 2)


def test_an_rm_over_grpc_needs_no_nodes_either(simulated: System) -> None:
    async def story() -> None:
        async with grpc.aio.insecure_channel(simulated.grpc) as channel:
            await SchedulerStub(channel).RegisterResourceManager(
                pb.RegisterResourceManagerRequest(rmID=RM, config=CONFIG)
            )
            client = Client(channel)
            await client.apps.write(pb.ApplicationRequest(new=[app("app")], rmID=RM))
            await client.apps.read()
            await client.asks.write(pb.AllocationRequest(allocations=[grpc_ask("k")], rmID=RM))
            (placed,) = (await client.asks.read()).new
            assert placed.nodeID.startswith("simulated-")

    play(story)


def fakes(running: Up) -> list[str]:
    return [command for command in running.children.values() if "-m workloads.fake_rm" in command]


def test_a_fake_rm_plays_applications_through_a_failure_and_leaves_at_ctrl_c(system: System, tmp_path: Path) -> None:
    words = ("fake-rm", "--connect", system.native, "--nodes=4", "--run-time=300ms", "--rate=600", "--seed=3")
    output = tmp_path / "output"
    with output.open("w") as file:
        playing = subprocess.Popen([sys.executable, "-P", "-c", MAIN, *words], stdout=file, stderr=subprocess.STDOUT)
        try:
            eventually(lambda: "4 nodes of vcore=16,memory=64Gi" in output.read_text())
            eventually(lambda: over(system) > 3)
            os.kill(system.up.child("partition_worker fake_default"), signal.SIGKILL)
            eventually(lambda: over(system) > 20)
        finally:
            playing.send_signal(signal.SIGINT)
            status = playing.wait(timeout=30)
    lines = output.read_text().splitlines()
    assert (status, lines[0].startswith("connected to tcp://127.0.0.1:")) == (0, True), lines
    assert " completed" in lines[-1]
    assert "rejected" not in lines[-1]
    eventually(lambda: read(system, "partitions") == [])


MAIN = "import sys; from yunishard.cli.main import main; sys.exit(main())"


def over(system: System) -> int:
    """How many applications have no tasks any more; 0 while the partition has no worker."""
    try:
        active = read(system, "partition/default/applications/active")
        return sum(one["applicationState"] == "Completing" for one in active)
    except urllib.error.HTTPError:
        return 0
