"""YuniKorn's own web UI finds every field that it reads, and an empty cluster gives it nothing to fail on.

The fields are those that its pages use, route by route. A shape says of what type a field is; one whose name ends with
an exclamation mark is in every object, others in at least one of a cluster in which there is some of everything.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from starlette.types import ASGIApp

from tests.webservice.cluster import EMPTY, FILLED, UNREGISTERED, api

Shape = type | dict[str, "Shape"] | list["Shape"]

AMOUNTS: Final[Shape] = {"memory": int, "vcore": int}
ALLOCATION: Final[Shape] = {
    "allocationKey!": str,
    "allocationTags": {"kubernetes.io/meta/namespace": str, "kubernetes.io/meta/podName": str},
    "resource": AMOUNTS,
    "priority!": str,
    "nodeId": str,
    "applicationId": str,
}
QUEUE: Final[Shape] = {
    "queuename!": str,
    "status!": str,
    "isLeaf!": bool,
    "isManaged!": bool,
    "partition!": str,
    "maxResource": AMOUNTS,
    "guaranteedResource": AMOUNTS,
    "allocatedResource": AMOUNTS,
    "pendingResource": AMOUNTS,
    "absUsedCapacity": AMOUNTS,
    "properties": dict,
    "template": dict,
}

QUEUES: Final = "/ws/v1/partition/default/queues"
APPLICATIONS: Final = "/ws/v1/partition/default/queue/{}/applications"

FIELDS: Final[dict[str, Shape]] = {
    "/ws/v1/clusters": [
        {"clusterName!": str, "rmBuildInformation!": [{"buildDate!": str, "buildVersion!": str, "rmId!": str}]}
    ],
    "/ws/v1/partitions": [
        {
            "name!": str,
            "totalNodes!": int,
            "totalContainers!": int,
            "nodeSortingPolicy!": {"type!": str},
            "applications!": {"total!": int, "Running": int, "Accepted": int},
        }
    ],
    "/ws/v1/history/apps": [{"timestamp": int, "totalApplications!": str}],
    "/ws/v1/history/containers": [{"timestamp": int, "totalContainers!": str}],
    "/ws/v1/scheduler/node-utilizations": [
        {
            "partition!": str,
            "utilizations!": [
                {"type!": str, "utilization!": [{"bucketName!": str, "numOfNodes": int, "nodeNames": [str]}]}
            ],
        }
    ],
    "/ws/v1/partition/default/nodes": [
        {
            "nodeID!": str,
            "hostName": str,
            "rackName": str,
            "capacity": AMOUNTS,
            "allocated": AMOUNTS,
            "occupied": AMOUNTS,
            "available": AMOUNTS,
            "utilized": AMOUNTS,
            "attributes!": dict,
            "allocations": [ALLOCATION],
            "foreignAllocations": [dict],
        }
    ],
    "/ws/v1/scheduler/healthcheck": {
        "Healthy!": bool,
        "HealthChecks!": [{"Name!": str, "Succeeded!": bool, "Description!": str, "DiagnosisMessage!": str}],
    },
}
APPLICATION: Final[Shape] = {
    "applicationID!": str,
    "usedResource": AMOUNTS,
    "pendingResource": AMOUNTS,
    "maxUsedResource": AMOUNTS,
    "submissionTime": int,
    "stateLog": [{"time!": int, "applicationState!": str}],
    "finishedTime": int,
    "applicationState!": str,
    "allocations": [ALLOCATION],
}


def problems(shape: Shape, values: list[object], where: str) -> Iterator[str]:
    """What is not as the shape says in all the values that are at this place."""
    match shape:
        case dict():
            yield from _in_objects(shape, values, where)
        case [below]:
            entries = [entry for value in values if isinstance(value, list) for entry in value]
            if not all(isinstance(value, list) for value in values) or not entries:
                yield f"{where} is no list, or always empty"
            yield from problems(below, entries, f"{where}[]")
        case kind if not all(type(value) is kind for value in values):
            yield f"{where} is no {kind}"


def _in_objects(shape: dict[str, Shape], values: list[object], where: str) -> Iterator[str]:
    objects = [value for value in values if isinstance(value, dict)]
    if len(objects) < len(values):
        yield f"{where} is no object"
    for name, below in shape.items():
        key = name.removesuffix("!")
        found = [one[key] for one in objects if key in one]
        if not found:
            yield f"{where}.{key} is nowhere"
        if name.endswith("!") and len(found) < len(objects):
            yield f"{where}.{key} is not everywhere"
        yield from problems(below, found, f"{where}.{key}")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> ASGIApp:
    return api(FILLED, tmp_path_factory.mktemp("history") / "history.sqlite")


def get(app: ASGIApp, path: str) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:9080") as client:
            return await client.get(path, headers={"Accept": "application/json, text/plain, */*"})

    return asyncio.run(run())


def leaves(app: ASGIApp) -> list[str]:
    """The leaf queues, as the UI finds them."""

    def below(queue: dict[str, object]) -> Iterator[str]:
        children = queue.get("children", [])
        assert isinstance(children, list)
        if queue["isLeaf"]:
            yield str(queue["queuename"])
        for child in children:
            yield from below(child)

    return list(below(get(app, QUEUES).json()))


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_that_the_ui_reads_is_there(filled: ASGIApp, path: str) -> None:
    assert list(problems(FIELDS[path], [get(filled, path).json()], path)) == []


def test_every_field_of_queues_is_there_on_every_level(filled: ASGIApp) -> None:
    def flat(queue: dict[str, object]) -> Iterator[object]:
        yield queue
        children = queue.get("children", [])
        assert isinstance(children, list)
        for child in children:
            yield from flat(child)

    root = get(filled, QUEUES).json()
    assert root["partition"] == "default"
    assert list(problems(QUEUE, list(flat(root)), "queue")) == []


def test_every_field_of_applications_is_there(filled: ASGIApp) -> None:
    applications = [one for queue in leaves(filled) for one in get(filled, APPLICATIONS.format(queue)).json()]
    ended = get(filled, "/ws/v1/partition/default/applications/completed").json()
    assert list(problems(APPLICATION, [*applications, *ended], "application")) == []


@pytest.mark.parametrize("path", [*FIELDS, QUEUES])
def test_an_empty_cluster_is_no_error(path: str, tmp_path: Path) -> None:
    response = get(api(EMPTY, tmp_path / "history.sqlite"), path)
    assert response.status_code == 200
    assert isinstance(response.json(), list | dict)


def test_nor_are_its_queues(tmp_path: Path) -> None:
    empty = api(EMPTY, tmp_path / "history.sqlite")
    found = leaves(empty)
    assert len(found) > 3
    assert [get(empty, APPLICATIONS.format(queue)).json() for queue in found] == [[]] * len(found)


@pytest.mark.parametrize("path", [path for path in FIELDS if "/partition/" not in path])
def test_nor_is_one_without_a_resource_manager(path: str, tmp_path: Path) -> None:
    assert get(api(UNREGISTERED, tmp_path / "history.sqlite"), path).status_code == 200


def test_a_shape_finds_what_is_missing_and_what_is_of_another_type() -> None:
    shape: Shape = {"a!": int, "b": [str], "c": bool}
    found = list(problems(shape, [{"a": 1, "b": ["x", 2]}, {"b": [], "c": 1}], "it"))
    assert found == ["it.a is not everywhere", "it.b[] is no <class 'str'>", "it.c is no <class 'bool'>"]
    assert list(problems(shape, [{"a": 1, "b": ["x"], "c": True}], "it")) == []
