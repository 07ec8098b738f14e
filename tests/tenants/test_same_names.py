"""Two resource managers that use the same names for everything, on one core: each sees and changes only its own."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.conformance.rest import Rest
from tests.processes.system import System
from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

ROOM: Final = {"prod": 3, "test": 5}
"""What the queue of each may use; both ask for more."""

ASKS: Final = 8
PATIENCE_S: Final = 20.0


def queues(most: int) -> str:
    batch = f"{{name: batch, adminacl: '*', resources: {{max: {{vcore: {most}}}}}}}"
    return f"partitions: [{{name: default, queues: [{{name: root, submitacl: '*', queues: [{batch}]}}]}}]"


class Tenant:
    """One of them: what it has is counted as it is told."""

    def __init__(self, rm: ResourceManager) -> None:
        self.rm = rm
        self.placed: list[str] = []
        self.gone: list[str] = []
        self.partitions: set[str] = set()
        self.arrived = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def partition(self) -> str:
        return f"{self.rm.rm_id}_default"

    async def furnish(self) -> None:
        await self.rm.update_nodes([node("n1", {"vcore": "100"})])
        await self.rm.update_applications(new=[application("app", "root.batch", user="alice")])
        await self.rm.update_allocations(allocations=[ask(f"a{n}", "app", {"vcore": "1"}) for n in range(ASKS)])

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self.arrived.clear()
                await self.arrived.wait()

    async def end(self) -> None:
        self._reading.cancel()
        await self.rm.close()

    async def _read(self) -> None:
        async for partition, news in self.rm.results():
            self.partitions.add(partition)
            if isinstance(news, AllocationResponse):
                self.placed += [one.allocation_key for one in news.new]
                self.gone += [one.allocation_key for one in news.released]
            self.arrived.set()


@asynccontextmanager
async def tenants(system: System) -> AsyncIterator[tuple[Tenant, Tenant]]:
    """Both, with everything that their queue has room for."""
    both = []
    for rm_id, most in ROOM.items():
        settings = {"event.trackingEnabled": "true" if rm_id == "prod" else "false"}
        rm = await ResourceManager.connect(system.native, rm_id=rm_id, config=queues(most), extra_config=settings)
        both.append(Tenant(rm))
        await both[-1].furnish()
    try:
        for one in both:
            await one.until(lambda one=one: len(one.placed) == ROOM[one.rm.rm_id])
        yield both[0], both[1]
    finally:
        for one in both:
            await one.end()


class Web:
    """The REST port, without holding up the resource managers."""

    def __init__(self, system: System) -> None:
        self._rest = Rest(f"http://{system.rest}")

    async def ask(self, path: str, *, post: str | None = None) -> tuple[int, str]:
        return await asyncio.to_thread(self._rest.ask, path, post=post)

    async def read(self, path: str) -> Any:
        return await asyncio.to_thread(self._rest.read, path)

    async def metrics(self) -> dict[str, float]:
        """Series to value."""
        _, text = await self.ask("/ws/v1/metrics")
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds():  # noqa: ASYNC110 - there is nothing to wait for: REST only answers
                await asyncio.sleep(0.05)


def play(system: System, story: Callable[[Tenant, Tenant, Web], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with tenants(system) as (prod, test):
            await story(prod, test, Web(system))

    asyncio.run(whole())


def test_quotas_usage_and_what_is_shown_are_those_of_each(system: System) -> None:
    async def story(prod: Tenant, test: Tenant, web: Web) -> None:
        for one in (prod, test):
            most, path = ROOM[one.rm.rm_id], f"/ws/v1/partition/{one.partition}"
            assert one.partitions == {one.partition}
            queue = await web.read(f"{path}/queue/root.batch")
            assert (queue["maxResource"], queue["allocatedResource"]) == ({"vcore": most * 1000}, queue["maxResource"])
            found = await web.read(f"{path}/application/app")
            assert (len(found["allocations"]), len(found["requests"])) == (most, ASKS - most)
            assert (await web.read(f"{path}/node/n1"))["allocated"] == {"vcore": most * 1000}
            user = await web.read(f"{path}/usage/user/alice")
            assert user["queues"]["resourceUsage"] == {"vcore": most * 1000}
            assert (await web.read(f"/ws/v1/partition/[{one.rm.rm_id}]default/application/app")) == found
            assert found["partition"] == {"prod": "default", "test": "test_default"}[one.rm.rm_id]
        assert (await web.read("/ws/v1/partition/default/node/n1"))["allocated"] == {"vcore": ROOM["prod"] * 1000}

    play(system, story)


def test_metrics_have_a_series_for_each_and_events_are_its_own(system: System) -> None:
    async def story(prod: Tenant, test: Tenant, web: Web) -> None:
        found = await web.metrics()
        for one in (prod, test):
            most = ROOM[one.rm.rm_id]
            used = f'yunikorn_queue_resource{{partition="{one.partition}",queue="root.batch",resource="vcore",'
            assert found[used + 'state="allocated"}'] == most * 1000
            allocated = f'allocation_attempt_total{{partition="{one.partition}",state="allocated"}}'
            assert found[f"yunikorn_scheduler_container_{allocated}"] == most
            assert found[f'yunishard_partition_up{{partition="{one.partition}",rm="{one.rm.rm_id}"}}'] == 1
        of_yunikorn = [name for name in found if name.startswith("yunikorn_")]
        assert of_yunikorn
        assert not [name for name in of_yunikorn if not re.search("partition=|rm=", name)]
        for one, tracked in ((prod, True), (test, False)):
            status, text = await web.ask(f"/ws/v1/events/batch?partition={one.partition}")
            assert (status == 200, '"objectID":"app"' in text) == (tracked, tracked)

    play(system, story)


def test_a_change_or_a_kill_concerns_one_of_them_only(system: System) -> None:
    async def story(prod: Tenant, test: Tenant, web: Web) -> None:
        status, text = await web.ask("/ws/v1/config?rm=prod", post=queues(4))
        assert status == 200, text
        await prod.until(lambda: len(prod.placed) == 4)
        versions = {rm: await web.read(f"/ws/v1/config/history?rm={rm}") for rm in ROOM}
        assert {rm: len(history) for rm, history in versions.items()} == {"prod": 2, "test": 1}
        status, text = await web.ask("/ws/v1/partition/prod_default/application/app/kill", post="")
        assert status == 200, text
        await prod.until(lambda: len(prod.gone) == 4)
        found = await web.read("/ws/v1/partition/test_default/application/app")
        assert (found["applicationState"], len(found["allocations"])) == ("Running", 5)
        assert (len(test.placed), test.gone) == (5, [])

    play(system, story)


def test_one_that_is_away_or_gone_is_shown_so_and_the_other_goes_on(system: System) -> None:
    async def story(prod: Tenant, test: Tenant, web: Web) -> None:
        async def away() -> bool:
            found = {one["rmId"]: one.get("awaySince", 0) for one in await web.read("/ws/v1/clusters")}
            assert not found["test"]
            return found["prod"] > 0

        await prod.end()
        await web.until(away)
        found = await web.metrics()
        assert found['yunishard_rm_away_seconds{rm="prod"}'] > 0
        assert found['yunishard_rm_away_seconds{rm="test"}'] == 0
        health = await web.read("/ws/v1/scheduler/healthcheck")
        assert health["Healthy"]
        [managers] = [one for one in health["HealthChecks"] if one["Name"] == "Resource managers"]
        assert managers["DiagnosisMessage"].startswith('Away: ["prod"]')
        async with await ResourceManager.connect(system.native, rm_id="prod", config=queues(3)) as again:
            await again.leave()
        assert [one["partition"] for one in await web.read("/ws/v1/clusters")] == ["default"]
        assert len((await web.read("/ws/v1/partition/default/application/app"))["allocations"]) == 5

        async def forgotten() -> bool:
            """The broker keeps for some seconds what the proxy told of an RM that has left."""
            return not [name for name in await web.metrics() if "prod" in name]

        await web.until(forgotten)
        found = await web.metrics()
        assert found['yunikorn_queue_resource{queue="root.batch",resource="vcore",state="allocated"}'] == 5000

    play(system, story)
