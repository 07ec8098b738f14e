"""When a process behind the proxy is killed, an RM over gRPC notices nothing: its streams stay, and nothing is lost."""

import asyncio
import os
import signal

import grpc
import pytest

from tests.deploy.system import eventually, gone
from tests.processes.peer import CONFIG
from tests.processes.placing import allocations
from tests.processes.system import System
from tests.processes.test_hostile_grpc import BOUND, PARTITION, RM, Client, ask, play, registered
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("victim", [f"partition_worker {PARTITION}#", "-m broker"])
def test_streams_stay_and_nothing_is_lost(system: System, victim: str) -> None:
    async def story() -> None:
        async with registered(system) as client:
            keys = [f"k{number}" for number in range(6)]
            placed: list[str] = []
            for turn, key in enumerate(keys):
                if turn == 3:
                    os.kill(system.up.child(victim), signal.SIGKILL)
                await client.asks.write(pb.AllocationRequest(allocations=[ask(key)], rmID=RM))
            while len(placed) < len(keys):
                answer = await client.asks.read()
                assert answer is not grpc.aio.EOF
                placed += [one.allocationKey for one in answer.new]
            assert placed == keys, "each once, in order"

    play(story)


async def placed_after(key: str, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> list[str]:
    """Open a stream, as soon as the port is there again, and ask; what is placed until that has its node."""
    placed: list[str] = []
    while True:
        try:
            stream = SchedulerStub(channel).UpdateAllocation(metadata=metadata, wait_for_ready=True)
            await stream.write(pb.AllocationRequest(allocations=[ask(key)], rmID=RM))
            while key not in placed:
                answer = await stream.read()
                assert answer is not grpc.aio.EOF
                placed += [one.allocationKey for one in answer.new]
            return placed
        except grpc.aio.AioRpcError as error:  # on the connection that is breaking
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise


def test_an_rm_continues_its_session_when_the_proxy_is_killed(system: System) -> None:
    async def story() -> None:
        async with grpc.aio.insecure_channel(system.grpc) as channel:
            request = pb.RegisterResourceManagerRequest(rmID=RM, config=CONFIG)
            call = SchedulerStub(channel).RegisterResourceManager(request, metadata=(("yk-session", "keep"),))
            await call
            key = dict(await call.initial_metadata())["yk-session"]
            client = Client(channel)
            await client.furnish()
            await client.works()
        proxy = system.up.child(" rmproxy ")
        os.kill(proxy, signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: gone(proxy))
        async with grpc.aio.insecure_channel(system.grpc) as channel:
            placed = await placed_after("next", channel, (*BOUND, ("yk-session", str(key))))
            assert placed in (["next"], ["good", "next"]), "the earlier result may be repeated"
            running = await asyncio.to_thread(allocations, f"http://{system.rest}", PARTITION)
            assert running == 2, "the allocation from before is still there"

    play(story)
