"""One process after the other dies or stops under a resource manager that asks: each ask is placed once, and the others
live on.
"""

import asyncio
import os
import re
import signal
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, Up, gone, up
from tests.processes.placing import ASKS, allocations, placing

pytestmark = pytest.mark.processes

PATIENCE_S = 60.0
ROUNDS = 2
SHORT = ("--heartbeat", "200ms", "--silence", "600ms", "--lease-timeout", "1s")
PROCESSES = {
    "broker": " broker ",
    "rmproxy": " rmproxy ",
    "webservice": " webservice ",
    "partition_worker rm-1_default#": "partition_worker rm-1_default#",
}
"""As the supervisor calls them, and words of their command lines."""


def is_replaced(system: Up, number: int) -> bool:
    """Whether the supervisor has seen the end of a child, which is a zombie until then, and has four children again."""
    children = system.children
    return gone(number) and number not in children and len(children) == 4


async def story(system: Up, blow: signal.Signals) -> None:
    def ready(name: str, times: int) -> bool:
        return len(re.findall(rf" {name}[0-9]* is ready\n", system.errors)) == times

    endpoints = system.announced()
    async with asyncio.timeout(PATIENCE_S), placing(endpoints["native"]) as asker:
        for count, (times, name) in enumerate(product(range(1, ROUNDS + 1), PROCESSES)):
            await asker.asks()
            await asker.has(2 * count * ASKS + 1)
            await asyncio.to_thread(system.until, partial(ready, name, times))
            before, number = system.children, system.child(PROCESSES[name])
            os.kill(number, blow)
            await asker.asks()
            await asyncio.to_thread(system.until, partial(is_replaced, system, number))
            assert before.keys() - system.children.keys() == {number}, "nobody else"
            await asker.has(2 * (count + 1) * ASKS)
        for name in PROCESSES:
            await asyncio.to_thread(system.until, partial(ready, name, ROUNDS + 1))
        assert set(asker.placed.values()) == {1}
        assert await asyncio.to_thread(allocations, endpoints["rest"]) == len(asker.placed)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_whoever_dies_or_hangs_each_ask_is_placed_once(tmp_path: Path, blow: signal.Signals) -> None:
    with up("--ephemeral", *SHORT, "--log-level", "debug", *FREE_PORTS, folder=tmp_path) as system:
        asyncio.run(story(system, blow))
        assert system.stop() == 0
