"""A plain partition name goes on meaning the same partition when another RM registers one of the same name.

YuniKorn's web UI keeps the name of a partition and of a queue in the browser and never checks them, and one of its
pages always asks for `default`. Its requests are made here as its pages make them.
"""

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.rest import Rest
from tests.deploy.system import FREE_PORTS, Up, eventually, up
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

QUEUES: Final = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: %s}]}]}]"

STORED: Final = ("default", "root.prod")
"""What a browser keeps that has shown the only RM of a core, the partition and the queue."""

GENERAL: Final = (
    "/ws/v1/clusters",
    "/ws/v1/partitions",
    "/ws/v1/history/apps",
    "/ws/v1/history/containers",
    "/ws/v1/scheduler/node-utilizations",
    "/ws/v1/scheduler/healthcheck",
    "/ws/v1/events/batch",
    "/ws/v1/config",
)
"""What the pages of the UI, and scripts for one RM, ask without naming an RM or a partition."""


def paths(partition: str, queue: str) -> list[str]:
    """What the pages ask about a partition and a queue; `queues-v2` asks about `default` whatever is chosen."""
    return [
        f"/ws/v1/partition/{partition}/queues",
        "/ws/v1/partition/default/queues",
        f"/ws/v1/partition/{partition}/queue/{queue}/applications",
        f"/ws/v1/partition/{partition}/nodes",
    ]


def statuses(rest: Rest) -> dict[str, int]:
    return {path: rest.ask(path)[0] for path in (*GENERAL, *paths(*STORED))}


def shown(rest: Rest) -> list[str]:
    """The names in the order of the list, the same on both pages that list partitions; empty while they differ, or
    while all workers are starting.
    """
    names = [one["name"] for one in read_when_started(rest, "/ws/v1/partitions")]
    return names if [one["partition"] for one in read_when_started(rest, "/ws/v1/clusters")] == names else []


def nodes(rest: Rest, partition: str) -> list[str]:
    return [one["nodeID"] for one in read_when_started(rest, f"/ws/v1/partition/{partition}/nodes")]


def read_when_started(rest: Rest, path: str) -> list[dict[str, str]]:
    """The list at a path; empty while no worker answers."""
    status, text = rest.ask(path)
    assert status in (200, 503), text
    return json.loads(text) if status == 200 else []


async def register(address: str, rm_id: str) -> ResourceManager:
    rm = await ResourceManager.connect(address, rm_id=rm_id, config=QUEUES % rm_id)
    await rm.update_nodes([node(f"node-of-{rm_id}", {"vcore": "1"})])
    await rm.update_applications(new=[application(f"app-of-{rm_id}", f"root.{rm_id}", user="alice")])
    await rm.update_allocations(allocations=[ask("a1", f"app-of-{rm_id}", {"vcore": "1"})])
    return rm


def address_of(system: Up) -> tuple[str, Rest]:
    endpoints = system.announced()
    return endpoints["native"], Rest(endpoints["rest"])


async def two_register(system: Up) -> None:
    """`prod` registers before `aaa`, and then once more in a new session."""
    native, rest = address_of(system)
    prod = await register(native, "prod")
    await asyncio.to_thread(eventually, lambda: nodes(rest, "default") == ["node-of-prod"])
    before = statuses(rest)
    assert set(before.values()) == {200}, before
    other = await register(native, "aaa")
    await asyncio.to_thread(eventually, lambda: nodes(rest, "aaa_default") == ["node-of-aaa"])
    assert statuses(rest) == before
    assert shown(rest) == ["default", "aaa_default"]
    assert nodes(rest, "default") == nodes(rest, "prod_default") == ["node-of-prod"]
    assert [one["rmBuildInformation"][0]["rmId"] for one in rest.read("/ws/v1/clusters")] == ["prod", "aaa"]
    assert "prod" in rest.ask("/ws/v1/config")[1]
    assert "node-of-prod" in rest.ask("/ws/v1/events/batch")[1]
    await prod.close()
    prod = await register(native, "prod")
    assert shown(rest) == ["default", "aaa_default"]
    await prod.close()
    await other.close()


async def leave(address: str, rm_id: str) -> None:
    rm = await register(address, rm_id)
    await rm.leave()
    await rm.close()


async def close(address: str, rm_id: str) -> None:
    """The RM registers and is away."""
    rm = await register(address, rm_id)
    await rm.close()


def test_a_second_rm_with_the_same_partition_name_changes_nothing_for_the_first(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up("--state", str(state), *FREE_PORTS, folder=tmp_path) as system:
        asyncio.run(two_register(system))
        assert system.stop() == 0
    with up("--state", str(state), *FREE_PORTS, folder=tmp_path) as system:
        native, rest = address_of(system)
        eventually(lambda: shown(rest) == ["default", "aaa_default"] and set(statuses(rest).values()) == {200})
        eventually(lambda: nodes(rest, "aaa_default") == ["node-of-aaa"])  # its worker may start later
        asyncio.run(leave(native, "prod"))
        eventually(lambda: shown(rest) == ["default"])
        assert nodes(rest, "default") == ["node-of-aaa"]
        assert system.stop() == 0
    with up("--state", str(state), *FREE_PORTS, "--default-rm", "prod", folder=tmp_path) as system:
        native, rest = address_of(system)
        asyncio.run(close(native, "prod"))
        eventually(lambda: shown(rest) == ["aaa_default", "default"])
        eventually(lambda: nodes(rest, "default") == ["node-of-prod"])
        assert "prod" in rest.ask("/ws/v1/config")[1]
        assert system.stop() == 0
