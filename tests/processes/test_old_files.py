"""Files of the state directory that are older than what the resource manager has received: everything was killed, and
an operator lost SQLite's log or restored a backup of one part. The partition begins anew, the resource manager reports
everything, and new asks are placed.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.system import FREE_PORTS, Up, eventually, gone, up
from tests.processes.placing import QUEUES, allocations
from yunishard.common.messages.rm_messages import AllocationResponse, PartitionRestarted
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.exceptions import SessionLost
from yunishard.sdk.items import application, ask, node

pytestmark = pytest.mark.processes

PATIENCE_S: Final = 60.0
ASKS: Final = 20
NODE: Final = node("n1", {"vcore": 100_000})
APP: Final = application("app", "root.batch", user="alice")
QUICK: Final = ("--lease-timeout", "2s")
"""A worker that a lease of an older record keeps out is replaced so soon."""


class System:
    """`yunishard up`, killed and started again on the same state and the same native port."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.state = folder / "state"
        self.backup = folder / "backup"
        self.endpoints: dict[str, str] = {}
        self._folder, self._stack = folder, stack
        self._running: Up | None = None
        self._starts = 0

    async def starts(self) -> str:
        """The native endpoint, which stays the same."""
        self._starts += 1
        folder = self._folder / f"start-{self._starts}"
        folder.mkdir()
        port = ("--native", self.endpoints["native"]) if self.endpoints else ()
        arguments = ("--state", str(self.state), *QUICK, *FREE_PORTS, *port)
        self._running = self._stack.enter_context(up(*arguments, folder=folder))
        self.endpoints = await asyncio.to_thread(self._running.announced)
        return self.endpoints["native"]

    async def is_killed(self) -> None:
        """`kill -9` of everything."""
        assert self._running is not None
        children = self._running.children
        for number in children:
            os.kill(number, signal.SIGKILL)
        self._running.stop(signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: all(map(gone, children)))

    def is_backed_up(self) -> None:
        shutil.copytree(self.state, self.backup, ignore=shutil.ignore_patterns("*.sock", "run"))

    @property
    def journals(self) -> list[Path]:
        return sorted(path for path in self.state.rglob("rm-1_default.*") if path.is_file())


class Manager:
    """A resource manager that keeps what it was told, and reports it when its partition began anew or its session was
    lost.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self.running: dict[str, str] = {}
        """Allocation key to node."""
        self.begun_anew = 0
        """Partitions that began anew, and sessions that were lost."""
        self._rm: ResourceManager | None = None
        self.asked = 0

    async def registers(self) -> None:
        native = self.system.endpoints["native"]
        self._rm = await ResourceManager.connect(native, rm_id="rm-1", config=QUEUES)

    async def reports(self) -> None:
        """Everything that it has."""
        assert self._rm is not None
        await self._rm.update_nodes([NODE])
        await self._rm.update_applications(new=[APP])
        keys = [*self.running, *(f"ask-{number}" for number in range(self.asked))]
        asks = [ask(key, "app", {"vcore": 1}, node_id=self.running.get(key, "")) for key in dict.fromkeys(keys)]
        if asks:
            await self._rm.update_allocations(allocations=asks)

    async def asks(self) -> None:
        assert self._rm is not None
        keys = [f"ask-{self.asked + number}" for number in range(ASKS)]
        self.asked += ASKS
        try:
            await self._rm.update_allocations(allocations=[ask(key, "app", {"vcore": 1}) for key in keys])
        except SessionLost:
            await self._registers_again()

    async def has(self, count: int) -> None:
        """Reads until so many asks run, and does what has to be done meanwhile."""
        while len(self.running) < count:
            assert self._rm is not None
            try:
                await self._reads(count)
            except SessionLost:
                await self._registers_again()

    async def _registers_again(self) -> None:
        self.begun_anew += 1
        await self.goes()
        await self.registers()
        await self.reports()

    async def _reads(self, count: int) -> None:
        assert self._rm is not None
        async for _, news in self._rm.results():
            if isinstance(news, PartitionRestarted):
                self.begun_anew += 1
                async with self._rm.resync():
                    await self.reports()
            if isinstance(news, AllocationResponse):
                self.running.update((one.allocation_key, one.node_id) for one in news.new)
            if len(self.running) >= count:
                return

    async def goes(self) -> None:
        if self._rm is not None:
            await self._rm.close()


def log_deleted(system: System) -> None:
    [log] = [path for path in system.journals if path.name.endswith("-wal")]
    log.unlink()


def journals_restored(system: System) -> None:
    for path in system.journals:
        path.unlink()
    restore(system, "rm-1_default.*")


def record_restored(system: System) -> None:
    for path in system.state.rglob("broker.sqlite*"):
        path.unlink()
    restore(system, "broker.sqlite*")


def restore(system: System, pattern: str) -> None:
    found = sorted(system.backup.rglob(pattern))
    assert found, sorted(system.backup.rglob("*"))
    for path in found:
        shutil.copy2(path, system.state / path.relative_to(system.backup))


def play(tmp_path: Path, *, sessions: int, goes_back: Callable[[System], None]) -> None:
    """A resource manager registers so often (anew each time) and asks, everything is killed between these and at the
    end, files go back, and it asks again. The backup is from before the last 10 asks.
    """

    async def story(system: System) -> None:
        await system.starts()
        for number in range(sessions):
            manager = Manager(system)
            await manager.registers()
            await manager.reports()
            await manager.asks()
            await manager.has(ASKS)
            if number < sessions - 1:
                await system.is_killed()
                await manager.goes()
                shutil.rmtree(system.backup, ignore_errors=True)
                system.is_backed_up()
                await system.starts()
        if sessions == 1:
            await system.is_killed()
            system.is_backed_up()
            await system.starts()
            await manager.asks()
            await manager.has(2 * ASKS)
        await system.is_killed()
        goes_back(system)
        await system.starts()
        before = len(manager.running)
        await manager.asks()
        await manager.has(before + ASKS)
        rest = system.endpoints["rest"]
        await asyncio.to_thread(eventually, lambda: allocations(rest) == len(manager.running))
        assert manager.begun_anew
        await manager.goes()

    async def in_time(stack: ExitStack) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story(System(tmp_path, stack))

    with ExitStack() as stack:
        asyncio.run(in_time(stack))


@pytest.mark.parametrize(("sessions", "goes_back"), [(1, log_deleted), (2, journals_restored)])
def test_after_a_journal_went_back_its_partition_begins_anew(
    tmp_path: Path, sessions: int, goes_back: Callable[[System], None]
) -> None:
    play(tmp_path, sessions=sessions, goes_back=goes_back)


def test_after_the_record_went_back_to_an_earlier_session_its_resource_manager_registers_again(tmp_path: Path) -> None:
    play(tmp_path, sessions=2, goes_back=record_restored)
