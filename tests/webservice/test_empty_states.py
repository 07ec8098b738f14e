"""Every route that reads, in every state with few or no objects.

YuniKorn's web UI takes the length of each list, and shows each number as it is: a `null`, or a key that is left out,
breaks its pages. Not here: what the answers say when there is something (`tests/captures`).
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from tests.captures.system import SystemLink
from tests.webservice.cluster import EMPTY, FILLED, UNREGISTERED, api
from yunishard.common.messages.query_messages import Answer, ManagerEntry, PartitionEntry, PartitionList, Query
from yunishard.webservice.api_document import routes
from yunishard.webservice.router import Access
from yunishard.webservice.views import RequestError

SILENT: Final = PartitionEntry(full_name="rm-2_default", name="default", rm_id="rm-2")


class HalfSilentLink(SystemLink):
    """A second RM has a partition whose worker does not answer."""

    def recent_partitions(self) -> PartitionList | None:
        return None

    async def partitions(self) -> PartitionList:
        known = await super().partitions()
        builds = {**known.build_information, "rm-2": {"rmId": "rm-2"}}
        return replace(known, partitions=[*known.partitions, SILENT], build_information=builds)

    async def ask(self, partition: str, query: Query) -> Answer:
        if partition == SILENT.full_name:
            raise RequestError(503, f"Partition {partition} did not answer within 10 s")
        return await super().ask(partition, query)


class AwayLink(SystemLink):
    """The RM is away."""

    async def partitions(self) -> PartitionList:
        known = await super().partitions()
        return replace(known, managers=[ManagerEntry("rm-golden", away_since_ns=5)])


class BareLink(SystemLink):
    """The RM has no partition."""

    async def partitions(self) -> PartitionList:
        return replace(await super().partitions(), partitions=[])


STATES: Final[dict[str, tuple[str, type[SystemLink]]]] = {
    "no RM": (UNREGISTERED, SystemLink),
    "an RM without partitions": (EMPTY, BareLink),
    "an RM without nodes": (EMPTY, SystemLink),
    "an RM without nodes that is away": (EMPTY, AwayLink),
    "a partition that does not answer": (FILLED, HalfSilentLink),
}

NAMES: Final = {
    "partition": "default",
    "queue": "root",
    "application": "app-none",
    "ask": "ask-none",
    "node": "node-none",
    "user": "nobody",
    "group": "nobody",
    "state": "active",
    "number": "1",
}
"""What stands in the named segments of paths."""

READ: Final = [
    route.path.format(**NAMES)
    for route in routes(debug=False)
    if route.method == "GET"
    and route.access is not Access.ANYBODY
    and not route.path.endswith("/events/stream")
    and "/table/" not in route.path  # a missing value of a table is null by its definition
]

EXCEPTIONS: Final = {
    ("no RM", "/ws/v1/scheduler/node-utilizations", ""),
    ("no RM", "/ws/v1/events/batch", "/EventRecords"),
    ("an RM without partitions", "/ws/v1/events/batch", "/EventRecords"),
}
"""Where `null` stands because YuniKorn's recorded answers have it; `docs/compatibility.md` lists them, too."""


def get(app: ASGIApp, path: str) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://here") as visitor:
            return await visitor.get(path)

    return asyncio.run(run())


def nulls(document: object, path: str = "") -> Iterator[str]:
    """Where `null` stands in a document."""
    match document:
        case None:
            yield path
        case dict():
            for key, value in document.items():
                yield from nulls(value, f"{path}/{key}")
        case list():
            for number, value in enumerate(document):
                yield from nulls(value, f"{path}/{number}")


@pytest.fixture(scope="module", params=STATES)
def state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ASGIApp]:
    moment, link = STATES[request.param]
    return request.param, api(moment, tmp_path_factory.mktemp("state") / "history.sqlite", link)


@pytest.mark.parametrize("path", READ)
def test_no_answer_has_a_null_that_yunikorn_does_not_have(state: tuple[str, ASGIApp], path: str) -> None:
    name, app = state
    response = get(app, path)
    assert response.status_code in (200, 404, 500, 503), response.text
    if response.headers["content-type"].startswith("application/json"):
        found = {(name, path, where) for where in nulls(json.loads(response.text))}
        assert found == {one for one in EXCEPTIONS if one[:2] == (name, path)}


def test_partitions_have_all_that_the_dashboard_reads(state: tuple[str, ASGIApp]) -> None:
    name, app = state
    found = get(app, "/ws/v1/partitions").json()
    assert len(found) == {"no RM": 0, "an RM without partitions": 0, "a partition that does not answer": 2}.get(name, 1)
    for one in found:
        if one["state"] == "Silent":
            assert one["totalNodes"] == one["totalContainers"] == 0
        else:
            assert (
                set(one) >= {"totalNodes", "totalContainers"} or "without nodes" in name
            )  # recorded so: left out at 0
        assert isinstance(one["applications"]["total"], int)
        assert isinstance(one["nodeSortingPolicy"]["type"], str)
        assert isinstance(one["capacity"], dict)


def test_utilizations_are_a_list_where_yunikorn_shows_one(state: tuple[str, ASGIApp]) -> None:
    name, app = state
    found = get(app, "/ws/v1/scheduler/node-utilizations").json()
    if name == "no RM":
        assert found is None
    else:
        without_nodes = "without nodes" in name  # recorded so: left out while no node has any resource
        assert all(isinstance(one["utilizations"], list) for one in found if not without_nodes)


def test_lists_about_everything_are_answered_whatever_there_is(state: tuple[str, ASGIApp]) -> None:
    """What the pages ask before somebody has chosen a partition: any other status shows the error page."""
    _, app = state
    for path in ("clusters", "partitions", "scheduler/node-utilizations", "scheduler/healthcheck"):
        assert get(app, f"/ws/v1/{path}").status_code == 200
