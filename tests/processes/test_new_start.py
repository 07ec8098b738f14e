"""The whole system stopped and started again on its state directory: resource managers, partitions and what runs in
them go on.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, Up, free_ports, gone, up
from tests.processes.placing import ASKS, allocations, placing

pytestmark = pytest.mark.processes

PATIENCE_S = 40.0


def stops_in_order(system: Up) -> None:
    assert system.stop() == 0


def is_killed(system: Up) -> None:
    system.stop(signal.SIGKILL)


def is_killed_with_all_its_processes(system: Up) -> None:
    for number in system.children:
        os.kill(number, signal.SIGKILL)
    system.stop(signal.SIGKILL)


@pytest.mark.parametrize("ends", [stops_in_order, is_killed, is_killed_with_all_its_processes])
def test_after_a_new_start_everything_goes_on(tmp_path: Path, ends: Callable[[Up], None]) -> None:
    async def play(system: Up, start_again: Callable[[], Awaitable[dict[str, str]]]) -> None:
        async with asyncio.timeout(PATIENCE_S), placing(system.announced()["native"]) as asker:
            await asker.asks()
            await asker.has(ASKS // 2)
            endpoints = await start_again()
            await asker.asks()
            await asker.has(2 * ASKS)
            assert set(asker.placed.values()) == {1}
            assert await asyncio.to_thread(allocations, endpoints["rest"]) == 2 * ASKS

    state = ("--state", str(tmp_path / "state"))
    with ExitStack() as stack:
        (tmp_path / "second").mkdir()
        ports = (*FREE_PORTS, "--native", f"tcp://127.0.0.1:{free_ports(1)[0]}")
        first = stack.enter_context(up(*state, *ports, folder=tmp_path))

        async def start_again() -> dict[str, str]:
            children = first.children
            ends(first)
            second = stack.enter_context(up(*state, *ports, folder=tmp_path / "second"))
            endpoints = await asyncio.to_thread(second.announced)
            assert all(map(gone, children))
            stack.callback(second.stop)
            return endpoints

        asyncio.run(play(first, start_again))
