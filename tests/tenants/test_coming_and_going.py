"""Resource managers that come and go leave nothing behind: no process, no file, no open descriptor."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.system import FREE_PORTS, Up, eventually, up
from tests.processes.placing import QUEUES
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import node

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

SESSIONS: Final = 12
"""Half of them take the place of another one that has not left."""


def descriptors(system: Up) -> dict[str, int]:
    """How many each of those that stay has open."""
    roles = ("broker", "rmproxy", "webservice")
    return {role: len(list(Path(f"/proc/{system.child(f'-m {role}')}/fd").iterdir())) for role in roles}


async def come_and_go(address: str, number: int) -> None:
    rm = await ResourceManager.connect(address, rm_id=f"rm-{number // 2}", config=QUEUES)
    await rm.update_nodes([node("n1", {"vcore": "1"})])
    if number % 2:
        await rm.leave()
    await rm.close()


def test_nothing_stays_of_those_that_left(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up("--state", str(state), *FREE_PORTS, folder=tmp_path) as system:
        address = system.announced()["native"]
        asyncio.run(come_and_go(address, 1))
        before = descriptors(system)
        for number in range(SESSIONS):
            asyncio.run(come_and_go(address, number))
        eventually(lambda: not [one for one in system.children.values() if "partition_worker" in one])
        eventually(lambda: list((state / "journals").iterdir()) == [])
        eventually(lambda: all(count <= before[role] for role, count in descriptors(system).items()))
        assert system.stop() == 0
