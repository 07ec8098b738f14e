"""A partition in which very many asks wait still answers, keeps its lease, and survives the death of its worker."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.rest import Rest
from tests.processes.placing import QUEUES
from tests.processes.system import System
from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

ASKS: Final = 60_000
APPLICATIONS: Final = 100
SILENT_MAX_S: Final = 5.0
"""No answer may cost more work while the asks come, whatever else the machine does: half of the time after which a
worker loses its lease.
"""


def worked_s(process: int) -> float:
    """Processor time that it has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def placed(rm: ResourceManager, name: str) -> None:
    """One more node, and what is placed on it."""
    await rm.update_nodes([node(name, {"vcore": "1"})])
    async for _, news in rm.results():
        if isinstance(news, AllocationResponse) and any(one.node_id == name for one in news.new):
            return


def test_a_partition_with_very_many_asks_stays_responsive(system: System) -> None:
    rest = Rest(f"http://{system.rest}")

    async def looked(until: asyncio.Event) -> float:
        """The longest that the partition worked until it said something of itself."""
        worker, worst = system.up.child("partition_worker"), 0.0
        while not until.is_set():
            begun = worked_s(worker)
            await asyncio.to_thread(rest.read, "/ws/v1/partition/default/queues")
            worst = max(worst, worked_s(worker) - begun)
        return worst

    async def story() -> None:
        async with await ResourceManager.connect(system.native, rm_id="rm-1", config=QUEUES) as rm:
            names = [f"app-{number}" for number in range(APPLICATIONS)]
            await rm.update_applications(new=[application(name, "root.batch", user="alice") for name in names])
            sent = asyncio.Event()
            looking = asyncio.create_task(looked(sent))
            await rm.update_allocations(
                allocations=[ask(f"a{n}", names[n % APPLICATIONS], {"vcore": "1"}) for n in range(ASKS)]
            )
            await placed(rm, "n1")
            sent.set()
            assert await looking < SILENT_MAX_S
            os.kill(system.up.child("partition_worker"), signal.SIGKILL)
            await placed(rm, "n2")
            found = await asyncio.to_thread(rest.read, "/ws/v1/partition/default/queue/root.batch")
            assert found["pendingResource"] == {"vcore": (ASKS - 2) * 1000}
            assert "another one takes over" not in system.up.errors

    asyncio.run(story())
