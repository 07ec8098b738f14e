"""When a process behind the proxy is killed, an RM over gRPC notices nothing: its streams stay, and nothing is lost."""

import os
import signal

import grpc
import pytest

from rmproxy.si import scheduler_pb2 as pb
from tests.processes.system import System
from tests.processes.test_hostile_grpc import PARTITION, RM, ask, play, registered

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
