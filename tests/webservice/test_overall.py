"""How full nodes are, and the questions about everything that the parameter `rm` narrows down."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from common.query_messages import Answer, Query
from tests.webservice.fakes import FakeLink, SilentLink, partition, people, request
from webservice import overall
from webservice.api import Api
from webservice.calls import Call, Respond, Startup
from webservice.errors import RequestError
from webservice.shelf import Shelf
from webservice.streams.streams import Streams

NODES = "/ws/v1/scheduler/node-utilizations"
TWO = FakeLink(partition("rm-1"), partition("rm-2"))

HEALTHY = {
    "scheduling_errors": 0,
    "negative": 0,
    "inconsistent": False,
    "nodes": 1,
    "reservations": 0,
    "negative_nodes": [],
    "inconsistent_nodes": [],
    "orphans_on_nodes": [],
    "orphans_of_applications": [],
    "drift": [],
}


def names(query: Query) -> Answer:
    return Answer(status=200, body=json.dumps({"partition": query.name}).encode() + b"\n")


class HalfSilent(FakeLink):
    async def ask(self, partition: str, query: Query) -> Answer:
        if partition == "rm-1_default":
            raise RequestError(503, "nothing")
        return await super().ask(partition, query)


def test_without_partitions_there_are_no_nodes_to_be_full() -> None:
    assert request(FakeLink(), NODES).content == b"null\n"


def test_every_partition_says_how_full_its_nodes_are() -> None:
    asked = FakeLink(partition("rm-1"), partition("rm-2", "gpu"), worker=names)
    assert request(asked, NODES).json() == [{"partition": "default"}, {"partition": "gpu"}]
    assert {query.what for _, query in asked.asked} == {"utilisation"}


def test_a_partition_that_does_not_answer_keeps_nobody_from_the_others() -> None:
    half = HalfSilent(partition("rm-1"), partition("rm-2", "gpu"), worker=names)
    silent = {"clusterId": "rm-1", "partition": "default", "utilizations": []}
    assert request(half, NODES).json() == [silent, {"partition": "gpu"}]
    assert request(SilentLink(partition()), NODES).status_code == 503


@pytest.mark.parametrize("path", ["/ws/v1/clusters", "/ws/v1/partitions", NODES])
def test_one_manager_is_asked_for_alone_and_its_plain_names_do(path: str) -> None:
    two = FakeLink(partition("rm-1"), partition("rm-2"), worker=names)
    (shown,) = request(two, f"{path}?rm=rm-2").json()
    assert shown["partition"] == "default"
    assert [to for to, _ in two.asked] in ([], ["rm-2_default"])


def test_a_cluster_of_one_manager_has_its_build_information_alone() -> None:
    (shown,) = request(TWO, "/ws/v1/clusters?rm=rm-2").json()
    assert shown["rmBuildInformation"] == [{"buildVersion": "1.0", "rmId": "rm-2"}]
    assert len(request(TWO, "/ws/v1/clusters").json()[0]["rmBuildInformation"]) == 2


@pytest.mark.parametrize(
    "path",
    [
        "/ws/v1/clusters",
        "/ws/v1/partitions",
        NODES,
        "/ws/v1/scheduler/healthcheck",
        "/ws/v1/metrics",
        "/ws/v1/events/batch",
        "/ws/v1/partition/default/queues",
        "/ws/v1/partition/default/usage/users",
    ],
)
def test_an_unknown_manager_is_refused_with_those_there_are(path: str) -> None:
    refused = request(TWO, f"{path}?rm=rm-3")
    text = "RM 'rm-3' is not registered, those that are: rm-1, rm-2"
    assert (refused.status_code, refused.json()["message"]) == (404, text)


def test_a_plain_name_is_looked_up_within_the_manager_that_is_named() -> None:
    two = FakeLink(partition("rm-1"), partition("rm-2"))
    assert request(two, "/ws/v1/partition/default/queues?rm=rm-2").json() == {"name": "default"}
    assert [to for to, _ in two.asked] == ["rm-2_default"]
    assert request(two, "/ws/v1/partition/rm-1_default/queues?rm=rm-2").status_code == 404


def test_an_empty_manager_narrows_nothing_down() -> None:
    assert len(request(TWO, "/ws/v1/clusters?rm=").json()) == 2


@pytest.mark.parametrize("path", ["/ws/v1/partitions", "/ws/v1/scheduler/node-utilizations"])
def test_a_list_of_all_partitions_is_compressed_once_while_it_stays_the_same(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    compressed = list[bytes]()
    compress = gzip.compress

    def counted(body: bytes, *args: int, **kwargs: int) -> bytes:
        compressed.append(body)
        return compress(body, *args, **kwargs)

    def worker(query: Query) -> Answer:
        return Answer(status=200, body=json.dumps({"name": query.name, "filler": "x" * size}).encode())

    async def run() -> list[bytes]:
        nonlocal size
        transport = httpx.ASGITransport(
            app=Api(FakeLink(partition("rm-1"), partition("rm-2"), worker=worker), people(), Startup())
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9080") as reader:
            replies = [await reader.get(path) for _ in "123"]
            replies += [await reader.get(path, params={"rm": "rm-2"}) for _ in "12"]
            size += 1
            replies += [await reader.get(path) for _ in "12"]
        return list(dict.fromkeys(reply.content for reply in replies))

    size = 2000
    monkeypatch.setattr("gzip.compress", counted)
    assert asyncio.run(run()) == compressed
    assert len(compressed) == 3


@pytest.mark.parametrize("asked", [overall.partitions, overall.node_utilisations, overall.healthcheck])
def test_an_answer_is_as_old_as_the_oldest_of_its_parts(asked: Respond) -> None:
    body = json.dumps(HEALTHY).encode()
    dear = FakeLink(partition(), worker=lambda _: Answer(status=200, body=body, took_micro_seconds=1_000_000))
    now = [100.0]

    async def nothing() -> bytes:
        return b""

    call = Call(dear, {}, {}, nothing, Streams(dear.ask), Shelf(dear.ask, clock=lambda: now[0]), "/")

    async def ages() -> AsyncIterator[str]:
        for _ in range(2):
            yield (await asked(call)).headers.get("Age", "none")
            now[0] += 5.5

    async def told() -> list[str]:
        return [age async for age in ages()]

    assert asyncio.run(told()) == ["none", "5"]
    assert len(dear.asked) == 1
