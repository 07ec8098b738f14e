"""`yunishard backup` of a real system under load: everything is killed, the backup is put in the place of the state
directory, as docs/operating/backup.md has it, and the system continues from there. What the resource manager has
received since is missing: the partition begins anew, and the resource manager reports everything.
"""

import asyncio
import shutil
import subprocess
import urllib.error
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.system import FREE_PORTS, eventually, up
from tests.processes.placing import allocations
from tests.processes.system import run
from tests.processes.test_old_files import ASKS, PATIENCE_S, Manager, System

pytestmark = pytest.mark.processes

ROUNDS: Final = 3
"""Rounds of asks before the backup begins, and after it has ended."""


async def load(manager: Manager, rounds: int) -> None:
    for _ in range(rounds):
        await manager.asks()
        await manager.has(manager.asked)


async def load_until(manager: Manager, done: "asyncio.Task[subprocess.CompletedProcess[str]]") -> None:
    while not done.done():
        await load(manager, 1)


def restore(backup: Path, state: Path) -> None:
    shutil.rmtree(state)
    subprocess.run(["cp", "--archive", str(backup / "state"), str(state)], check=True)


def count_allocations(rest: str) -> int:
    """The allocations of the partition, once its worker has read the journal; 503 before."""
    found: list[int] = []

    def has_answered() -> bool:
        with suppress(urllib.error.HTTPError):
            found.append(allocations(rest))
        return bool(found)

    eventually(has_answered)
    return found[0]


async def play(folder: Path, stack: ExitStack) -> None:
    system, backup = System(folder, stack), folder / "copied"
    await system.starts()
    manager = Manager(system)
    await manager.registers()
    await manager.reports()
    await load(manager, ROUNDS)
    before = len(manager.running)
    words = ("backup", str(backup), "--state", str(system.state))
    copying = asyncio.create_task(asyncio.to_thread(run, system.endpoints["rest"], *words))
    await load_until(manager, copying)
    assert (copying.result().returncode, copying.result().stderr) == (0, "")
    await load(manager, ROUNDS)
    await system.is_killed()
    restore(backup, system.state)
    (folder / "alone").mkdir()
    with up("--state", str(system.state), *FREE_PORTS, folder=folder / "alone") as alone:  # the RM cannot reach it
        rest = (await asyncio.to_thread(alone.announced))["rest"]
        restored = await asyncio.to_thread(count_allocations, rest)
        assert before <= restored < len(manager.running)
        assert await asyncio.to_thread(alone.stop) == 0
    await system.starts()
    had = len(manager.running)
    await manager.asks()
    await manager.has(had + ASKS)
    assert manager.begun_anew == 1
    assert await asyncio.to_thread(allocations, system.endpoints["rest"]) == had + ASKS
    await manager.goes()


def test_a_backup_of_a_busy_system_is_restored_and_goes_on(tmp_path: Path) -> None:
    async def in_time(stack: ExitStack) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await play(tmp_path, stack)

    with ExitStack() as stack:
        asyncio.run(in_time(stack))
