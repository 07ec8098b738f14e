"""Node utilization, the parameter `rm`, and the answers of all partitions together."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from msgspec.structs import replace
from prometheus_client.core import Metric

from tests.webservice.fakes import CLIENT, FakeLink, SilentLink, loopback_users, partition, request
from yunishard.common.messages.query_messages import Answer, ManagerEntry, PartitionList, Query
from yunishard.common.process.metrics import Family, encode_families, gauge, report_process_up
from yunishard.common.settings import Settings
from yunishard.webservice import cluster_routes
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.calls import Call, Respond, Services
from yunishard.webservice.event_streams import EventStreams
from yunishard.webservice.response_cache import ResponseCache
from yunishard.webservice.views import RequestError

NODES = "/ws/v1/scheduler/node-utilizations"
TWO = FakeLink(partition("rm-1"), partition("rm-2"))

HEALTHY = {
    "rm_errors": {},
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


def test_every_partition_reports_its_node_utilization() -> None:
    asked = FakeLink(partition("rm-1"), partition("rm-2", "gpu"), worker=names)
    assert request(asked, NODES).json() == [{"partition": "default"}, {"partition": "gpu"}]
    assert {query.what for _, query in asked.asked} == {"utilisation"}


def test_a_silent_partition_does_not_hide_the_others() -> None:
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
            app=Api(
                FakeLink(partition("rm-1"), partition("rm-2"), worker=worker),
                Settings(),
                AccessControl(loopback_users()),
            )
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


@pytest.mark.parametrize(
    "asked", [cluster_routes.partitions, cluster_routes.node_utilisations, cluster_routes.healthcheck]
)
def test_an_answer_is_as_old_as_the_oldest_of_its_parts(asked: Respond) -> None:
    body = json.dumps(HEALTHY).encode()
    dear = FakeLink(partition(), worker=lambda _: Answer(status=200, body=body, took_micro_seconds=1_000_000))
    now = [100.0]

    async def nothing() -> bytes:
        return b""

    services = Services(dear, Settings())
    services.cache = ResponseCache(dear.ask, clock=lambda: now[0])
    call = Call(services, {}, {}, nothing, "/")

    async def ages() -> AsyncIterator[str]:
        for _ in range(2):
            yield (await asked(call)).headers.get("Age", "none")
            now[0] += 5.5

    async def told() -> list[str]:
        return [age async for age in ages()]

    assert asyncio.run(told()) == ["none", "5"]
    assert len(dear.asked) == 1


METRICS = "/ws/v1/metrics"
NODE_GAUGE = gauge("n", "Nodes.", (), [((), 2)])


def answer(*told: Family) -> Answer:
    return Answer(status=200, body=encode_families(told))


def two(rm_a: str = "rm-1", rm_b: str = "rm-2", *told: Family) -> FakeLink:
    """Two resource managers; of those that tell something the first partition is called a, the other b."""
    link = FakeLink(partition(rm_a, "a"), partition(rm_b, "b"), worker=lambda _: answer(NODE_GAUGE, *told))
    managers = [ManagerEntry(rm_a, nodes_astray=3), ManagerEntry(rm_b, away_since_ns=1)]
    link.known = replace(link.known, managers=managers)
    return link


def series(link: FakeLink, path: str = METRICS) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in request(link, path).text.splitlines() if line[0] != "#"]
    return {name: float(value) for name, _, value in lines}


def test_series_of_several_partitions_differ_and_the_page_has_its_own_headers() -> None:
    response = request(two(), METRICS)
    shown = response.text.splitlines()
    assert [line for line in shown if line.startswith("n{")] == ['n{partition="rm-1_a"} 2', 'n{partition="rm-2_b"} 2']
    assert dict(response.headers) == {
        "content-type": "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
        "content-length": str(len(response.content)),
    }


@pytest.mark.parametrize(
    ("accepts", "kind", "ends"),
    [
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0", True),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4", False),
        ("*/*", "text/plain; version=0.0.4", False),
    ],
)
def test_the_page_is_text_or_openmetrics_as_accepted(accepts: str, kind: str, ends: bool) -> None:
    response = request(two(), METRICS, headers={"Accept": accepts})
    assert response.headers["content-type"].startswith(kind)
    assert response.text.endswith("# EOF\n") == ends


def test_a_large_page_is_compressed_once() -> None:
    link = two("rm-1", "rm-2", gauge("many", "Many.", ("x",), [((str(n),), n) for n in range(500)]))
    response = request(link, METRICS, headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert 'many{partition="rm-1_a",x="499"} 499\n' in response.text  # the client has undone it once


def test_a_silent_partition_is_reported_as_down() -> None:
    link = two()
    link.worker = lambda query: answer(NODE_GAUGE) if query.name == "a" else Answer(status=503, body=b"starting")
    shown = series(link)
    assert shown['yunishard_partition_up{partition="rm-1_a",rm="rm-1"}'] == 1
    assert [name for name in shown if "rm-2_b" in name] == [
        'yunishard_partition_up{partition="rm-2_b",rm="rm-2"}',
        'yunishard_process_up{partition="rm-2_b",process="partition_worker"}',
    ]
    assert not any(value for name, value in shown.items() if "rm-2_b" in name)


def test_a_partition_with_a_malformed_answer_is_down() -> None:
    link = FakeLink(partition(), worker=lambda _: Answer(status=200, body=b"{}"))
    assert series(link)['yunishard_partition_up{partition="rm-1_default",rm="rm-1"}'] == 0


def test_the_page_is_served_without_any_answer() -> None:
    assert series(SilentLink(partition()))['yunishard_partition_up{partition="rm-1_default",rm="rm-1"}'] == 0


def test_what_processes_have_told_the_broker_is_on_the_page() -> None:
    link = two()
    link.figures = answer(report_process_up("broker"), report_process_up("rmproxy", is_up=False))
    shown = series(link)
    assert (shown['yunishard_process_up{process="broker"}'], shown['yunishard_process_up{process="rmproxy"}']) == (1, 0)


def test_the_metrics_of_this_process_are_read_in_its_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is written in a thread, which may not read what the loop changes meanwhile."""

    def collect(_: EventStreams) -> Iterator[Metric]:
        asyncio.get_running_loop()  # raises in another thread
        return iter(())

    monkeypatch.setattr(EventStreams, "collect", collect)
    assert request(two(), METRICS).status_code == 200


class NoBroker(FakeLink):
    async def partitions(self) -> PartitionList:
        raise RequestError(503, "The broker did not answer within 10 s")

    async def ask(self, partition: str, query: Query) -> Answer:
        raise RequestError(503, "The broker did not answer within 10 s")


class StoppedBroker(FakeLink):
    async def partitions(self) -> PartitionList:
        return await asyncio.Future()

    async def ask(self, partition: str, query: Query) -> Answer:
        return await asyncio.Future()


def test_without_a_broker_the_page_has_what_this_process_tells() -> None:
    shown = series(NoBroker(partition()))
    assert shown['yunishard_process_up{process="broker"}'] == 0
    assert "yunishard_event_streams" in shown


def test_a_process_without_a_timely_answer_is_shown_as_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_routes, "METRICS_MAX_S", 0.001)
    assert 'yunishard_process_up{process="broker"} 0\n' in request(StoppedBroker(), METRICS, who=loopback_users(0)).text


def test_disconnected_managers_and_their_failed_nodes_are_reported() -> None:
    shown = series(two())
    assert shown['yunishard_rm_away_seconds{rm="rm-1"}'] == 0
    assert shown['yunishard_rm_away_seconds{rm="rm-2"}'] > 0
    assert shown['yunikorn_scheduler_node{rm="rm-1",state="failed"}'] == 3


def test_while_there_is_one_partition_its_failed_nodes_have_the_labels_of_yunikorn() -> None:
    link = FakeLink(partition(), worker=lambda _: answer(NODE_GAUGE))
    link.known = replace(link.known, managers=[ManagerEntry("rm-1", nodes_astray=2)])
    assert series(link)['yunikorn_scheduler_node{state="failed"}'] == 2


def test_of_one_manager_only_what_it_has_is_shown() -> None:
    link = two()
    link.figures = answer(
        report_process_up("broker"), gauge("window", "Window.", ("rm",), [(("rm-1",), 1), (("rm-2",), 2)])
    )
    assert series(link, f"{METRICS}?rm=rm-1") == {
        "n": 2,
        'window{rm="rm-1"}': 1,
        'yunikorn_scheduler_node{state="failed"}': 3,
        'yunishard_partition_up{partition="rm-1_a",rm="rm-1"}': 1,
        'yunishard_rm_away_seconds{rm="rm-1"}': 0,
    }
    assert [to for to, _ in link.asked] == ["rm-1_a"]


def test_requests_are_counted_by_route_and_status() -> None:
    api = Api(two(), Settings(), AccessControl(loopback_users()))

    async def asked() -> str:
        transport = httpx.ASGITransport(app=api, client=CLIENT)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9080") as visitor:
            for path in ("/ws/v1/clusters", "/ws/v1/clusters", "/ws/v1/partition/none/queues", "/nowhere"):
                await visitor.get(path)
            return (await visitor.get(METRICS)).text

    shown = asyncio.run(asked())
    assert 'yunishard_rest_requests_total{method="GET",route="/ws/v1/clusters",status="200"} 2\n' in shown
    assert 'route="/ws/v1/partition/{partition}/queues",status="404"} 1\n' in shown
    assert 'yunishard_rest_request_seconds_count{route="/ws/v1/clusters"} 2\n' in shown
    assert "nowhere" not in shown


class NeverAnswered(FakeLink):
    async def partitions(self) -> PartitionList:
        await asyncio.Event().wait()
        raise AssertionError


class Unreachable(FakeLink):
    async def partitions(self) -> PartitionList:
        raise RequestError(503, "The broker did not answer within 10 s")


@pytest.mark.parametrize("link", [FakeLink(), NeverAnswered(), Unreachable()])
def test_a_web_service_is_alive_whether_or_not_the_broker_answers(link: FakeLink) -> None:
    answer = request(link, "/ws/v1/livez")
    assert (answer.status_code, answer.content) == (200, b"live\n")


@pytest.mark.parametrize(
    ("link", "status", "text"),
    [
        (FakeLink(), 200, "ready"),
        (NeverAnswered(), 503, "The broker did not answer within 0.01 s"),
        (Unreachable(), 503, "The broker did not answer within 10 s"),
    ],
)
def test_a_host_is_ready_while_the_broker_answers(
    monkeypatch: pytest.MonkeyPatch, link: FakeLink, status: int, text: str
) -> None:
    if status == 503:
        monkeypatch.setattr(cluster_routes, "READY_MAX_S", 0.01)
    answer = request(link, "/ws/v1/readyz")
    assert answer.status_code == status
    assert text in answer.text
