"""Events as they happen, from real processes: nobody misses any, whoever does not read, and whoever dies."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.processes.system import System
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

ASKS: Final = 7_000
"""Each is asked for, placed and counted: some events for each, 20,000 and more in all."""

PATIENCE_S: Final = 60.0
QUEUES: Final = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
CLOSED: Final = "Event stream was closed by the producer"


@pytest.fixture
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with up("--debug", *FREE_PORTS, folder=tmp_path_factory.mktemp("system")) as running:
        yield System(running, running.announced())
        assert running.stop() == 0


@asynccontextmanager
async def client(system: System) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{system.rest}", timeout=PATIENCE_S) as visitor:
        yield visitor


@asynccontextmanager
async def registered(system: System) -> AsyncIterator[ResourceManager]:
    settings = {"event.ringBufferCapacity": "1000000"}
    rm = await ResourceManager.connect(system.native, rm_id="rm", config=QUEUES, extra_config=settings)
    reading = asyncio.create_task(_ignore(rm))
    try:
        yield rm
    finally:
        reading.cancel()
        await rm.close()


async def _ignore(rm: ResourceManager) -> None:
    async for _ in rm.results():
        pass


async def burst(rm: ResourceManager, first: int = 0) -> None:
    """Many events in little time."""
    if not first:
        await rm.update_nodes([node("n1", {"vcore": "1000000"})])
        await rm.update_applications(new=[application("app", "root.a", user="alice")])
    asks = [ask(f"a{number}", "app", {"vcore": "1"}) for number in range(first, first + ASKS)]
    await rm.update_allocations(allocations=asks)


def is_last(event: object) -> bool:
    """Whether the last ask was placed with this event."""
    return isinstance(event, dict) and event.get("referenceID") == f"a{ASKS - 1}" and event.get("type") == 3


async def history(visitor: httpx.AsyncClient) -> list[object]:
    found: list[object] = []
    while records := (await visitor.get(f"/ws/v1/events/batch?start={len(found)}")).json()["EventRecords"]:
        found += records
    return found


def test_everybody_who_reads_gets_everything_and_who_does_not_is_cut_off(system: System) -> None:
    async def follow(visitor: httpx.AsyncClient, begun: asyncio.Event) -> list[object]:
        found: list[object] = []
        async with visitor.stream("GET", "/ws/v1/events/stream?count=1000000") as response:
            async for line in response.aiter_lines():
                begun.set()
                found.append(json.loads(line))
                if is_last(found[-1]):
                    break
        return found

    async def run() -> None:
        async with registered(system) as rm, client(system) as visitor:
            deaf = socket.create_connection(system.rest.split(":"))
            deaf.sendall(b"GET /ws/v1/events/stream HTTP/1.1\r\nHost: deaf\r\n\r\n")
            begun = [asyncio.Event() for _ in range(3)]
            readers = [asyncio.create_task(follow(visitor, each)) for each in begun]
            for each in begun:
                await each.wait()
            with system.unharmed():
                await burst(rm)
                async with asyncio.timeout(PATIENCE_S):
                    read = [await each for each in readers]
                known = await history(visitor)
                assert len(known) > 2 * ASKS
                for events in read:
                    assert events[1:] == known[: len(events) - 1]
                await burst(rm, ASKS)
                async with asyncio.timeout(PATIENCE_S):
                    while await is_told(visitor, "deaf"):  # noqa: ASYNC110 - REST only answers
                        await asyncio.sleep(0.05)
            deaf.close()

    asyncio.run(run())


async def is_told(visitor: httpx.AsyncClient, host: str) -> bool:
    """Whether a stream of this host is open."""
    found = (await visitor.get("/debug/fullstatedump")).json().get("eventStreams", [])
    return any(one["Name"] == host for one in found)


def test_a_stream_outlives_its_worker_or_says_that_it_is_over(system: System) -> None:
    async def run() -> None:
        async with registered(system) as rm, client(system) as visitor:
            await burst(rm)
            async with visitor.stream("GET", "/ws/v1/events/stream?count=1000000") as response:
                lines = response.aiter_lines()
                found = [json.loads(await anext(lines))]
                while not is_last(found[-1]):
                    found.append(json.loads(await anext(lines)))
                os.kill(system.up.child(" partition_worker "), signal.SIGKILL)
                await rm.update_nodes([node("n2", {"vcore": "1"})])
                async with asyncio.timeout(PATIENCE_S):
                    async for line in lines:
                        found.append(json.loads(line))
                        if found[-1].get("objectID") == "n2" or found[-1].get("message") == CLOSED:
                            break
            if found[-1].get("message") != CLOSED:
                assert found[1:] == (await history(visitor))[: len(found) - 1]

    asyncio.run(run())


def test_a_stop_ends_streams_in_time(system: System) -> None:
    async def run() -> None:
        async with registered(system), client(system) as visitor, visitor.stream("GET", "/ws/v1/events/stream") as one:
            lines = one.aiter_lines()
            assert "InstanceUUID" in await anext(lines)
            os.kill(system.up.child("-m webservice"), signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                rest = [json.loads(line) async for line in lines]
            assert rest[-1]["message"] == CLOSED

    asyncio.run(run())


def test_the_web_service_shows_its_stacks_its_memory_and_the_state_dump(system: System) -> None:
    async def run() -> None:
        async with registered(system), client(system) as visitor:
            assert "thread MainThread:" in (await visitor.get("/debug/stack")).text
            assert "VmRSS" in (await visitor.get("/debug/pprof/heap?debug=1")).text
            (one,) = (await visitor.get("/debug/fullstatedump")).json()["partitions"]
            assert one["name"] == "default"

    asyncio.run(run())


def test_a_process_that_is_sent_a_signal_says_in_the_log_where_it_is_and_goes_on(system: System) -> None:
    async def run() -> None:
        async with registered(system):
            with system.unharmed():
                for process in ("partition_worker", "broker", "rmproxy", "webservice"):
                    written = len(system.up.errors)
                    os.kill(system.up.child(f" {process} "), signal.SIGUSR1)
                    await asyncio.to_thread(
                        system.up.until,
                        lambda written=written: "(most recent call first)" in system.up.errors[written:],
                    )

    asyncio.run(run())
