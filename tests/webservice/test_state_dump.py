"""The state dump: the indented document, written as its parts come."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping

import httpx

from common.query_messages import Answer, Query, ReadConfig
from common.settings import Settings
from tests.webservice.fakes import FakeLink, loopback_users, partition, request
from webservice.api import Api
from webservice.authn_authz import AccessControl
from webservice.debug_routes import Part, write_json
from webservice.views import RequestError


async def pages(*texts: str) -> AsyncIterator[bytes]:
    for text in texts:
        yield text.encode()


def document(*parts: Part) -> str:
    async def given() -> AsyncIterator[Part]:
        for part in parts:
            yield part

    async def run() -> str:
        return b"".join([piece async for piece in write_json(given())]).decode()

    return asyncio.run(run())


def test_it_is_written_as_if_it_had_been_there_at_once() -> None:
    text = document(
        ("at", b"7"),
        ("queues", pages('[{"name":"a","children":[{"name":"b"}]}]', '[1,{"text":"x\\ny"}]\n')),
        ("config", b'{"a":{"b":[1,2]}}'),
        ("nodes", pages("[[]]")),
    )
    whole = {
        "at": 7,
        "queues": [{"name": "a", "children": [{"name": "b"}]}, 1, {"text": "x\ny"}],
        "config": {"a": {"b": [1, 2]}},
        "nodes": [[]],
    }
    assert text == json.dumps(whole, indent=2) + "\n"


def test_what_is_empty_is_left_out() -> None:
    text = document(
        ("none", b"null"),
        ("list", b"[ ]\n"),
        ("pages", pages()),
        ("empty", pages("[]", "[]\n")),
        ("zero", b"0"),
        ("late", pages("[]", "[1]", "[]", "[2]")),
        ("object", b"{}"),
        ("text", b'""'),
    )
    assert text == json.dumps({"zero": 0, "late": [1, 2]}, indent=2) + "\n"


def test_without_any_part_it_is_an_empty_object() -> None:
    assert document() == "{}\n"
    assert document(("none", b"null")) == "{}\n"


PATH = "/debug/fullstatedump"

ANSWERS: Mapping[str, object] = {
    "partition": {"name": "P"},
    "queues": {"queuename": "root"},
    "rules": [{"name": "fixed"}],
    "rm-state": {"cache": 5},
}


def worker(query: Query) -> Answer:
    """Lists have two pages of one entry."""
    if query.what in ANSWERS:
        return Answer(status=200, body=json.dumps(ANSWERS[query.what]).encode() + b"\n")
    assert query.what in ("applications", "nodes"), query.what
    second = query.args.get("after") == "one"
    entry = {query.args.get("state", "node"): 2 if second else 1}
    return Answer(status=200, body=json.dumps([entry]).encode() + b"\n", next="" if second else "one")


class TwoLink(FakeLink):
    """One in which the partitions in `silent` do not answer."""

    silent: frozenset[str] = frozenset()

    async def ask(self, partition: str, query: Query) -> Answer:
        if partition in self.silent:
            self.asked.append((partition, query))
            raise RequestError(503, f"Partition {partition} did not answer within 10 s")
        return await super().ask(partition, query)


def dumped(link: FakeLink, path: str = PATH) -> dict[str, object]:
    response = request(link, path)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/json; charset=UTF-8"
    found = response.json()
    assert isinstance(found, dict)
    assert response.text == json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    return found


def test_everything_of_the_only_resource_manager_is_there() -> None:
    found = dumped(FakeLink(partition(), worker=worker))
    assert list(found) == [
        "timestamp",
        "partitions",
        "applications",
        "nodes",
        "clusterInfo",
        "queues",
        "rmDiagnostics",
        "logLevel",
        "config",
        "placementRules",
    ]
    assert found["partitions"] == [{"name": "P"}]
    assert found["applications"] == [{state: n} for state in ("active", "completed", "rejected") for n in (1, 2)]
    assert found["nodes"] == [{"partitionName": "default", "nodesInfo": [{"node": 1}, {"node": 2}]}]
    assert found["queues"] == [{"queuename": "root"}]
    assert found["rmDiagnostics"] == {"cache": 5}
    assert found["logLevel"] == "info"
    assert found["placementRules"] == [{"partition": "default", "rules": [{"name": "fixed"}]}]
    config = found["config"]
    assert isinstance(config, dict)
    assert config["Partitions"][0]["Name"] == "default"
    assert config["DeadlockTimeoutSeconds"] == 60


def test_before_an_rm_registers_the_dump_has_a_placeholder() -> None:
    found = dumped(FakeLink())
    assert {**found, "timestamp": 0} == {
        "timestamp": 0,
        "rmDiagnostics": {"empty": "Resource Manager did not register callback"},
        "logLevel": "info",
        "config": {"DeadlockDetectionEnabled": False, "DeadlockTimeoutSeconds": 60},
    }


def two(silent: str = "") -> TwoLink:
    link = TwoLink(partition("rm-1"), partition("rm-2"), worker=worker)
    link.silent = frozenset({silent})
    return link


def test_what_belongs_to_one_of_several_resource_managers_is_found_by_its_id() -> None:
    found = dumped(two())
    assert found["rmDiagnostics"] == {"rm-1": {"cache": 5}, "rm-2": {"cache": 5}}
    assert found["logLevel"] == {"rm-1": "info", "rm-2": "info"}
    assert isinstance(found["config"], dict)
    assert list(found["config"]) == ["rm-1", "rm-2"]
    assert isinstance(found["nodes"], list)
    assert [one["partitionName"] for one in found["nodes"]] == ["default", "rm-2_default"]


def test_the_parameter_rm_narrows_it_down() -> None:
    link = two()
    found = dumped(link, f"{PATH}?rm=rm-2")
    assert found["rmDiagnostics"] == {"cache": 5}
    assert {name for name, _ in link.asked} == {"rm-2_default"}
    assert request(link, f"{PATH}?rm=nosuch").status_code == 404


def test_a_partition_that_does_not_answer_is_named_and_asked_once() -> None:
    link = two(silent="rm-1_default")
    found = dumped(link)
    assert found["partitions"] == [{"name": "P"}]
    assert [name for name, _ in link.asked].count("rm-1_default") == 1
    missing = found["unanswered"]
    assert isinstance(missing, list)
    assert missing[0] == {
        "part": "partitions",
        "of": "rm-1_default",
        "reason": "Partition rm-1_default did not answer within 10 s",
    }
    assert {one["part"] for one in missing} > {"applications", "nodes", "queues", "placementRules", "rmDiagnostics"}
    assert {one["of"] for one in missing} == {"rm-1_default"}


def test_a_part_that_cannot_be_given_is_named_and_the_others_are_there() -> None:
    def refuses_queues(query: Query) -> Answer:
        return Answer(status=503, body=b"too long") if query.what == "queues" else worker(query)

    found = dumped(FakeLink(partition(), worker=refuses_queues))
    assert found["unanswered"] == [{"part": "queues", "of": "rm-1_default", "reason": "too long"}]
    assert "queues" not in found
    assert "placementRules" in found


def test_a_configuration_that_cannot_be_read_is_named() -> None:
    def reader(rm: str, question: ReadConfig) -> Answer:
        return Answer(status=404, body=b"unknown")

    found = dumped(FakeLink(partition(), worker=worker, reader=reader))
    missing = found["unanswered"]
    assert isinstance(missing, list)
    assert [one["part"] for one in missing] == ["logLevel", "config"]


def test_one_dump_is_made_at_a_time() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    class SlowLink(FakeLink):
        async def ask(self, partition: str, query: Query) -> Answer:
            asked.set()
            await go_on.wait()
            return await super().ask(partition, query)

    async def run() -> None:
        link = SlowLink(partition(), worker=worker)
        api = Api(link, Settings(), AccessControl(loopback_users()))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://x") as client:
            first = asyncio.create_task(client.get(PATH))
            await asked.wait()
            second = asyncio.create_task(client.get(PATH))
            done, _ = await asyncio.wait({second}, timeout=0.01)
            assert not done
            assert link.asked == []
            go_on.set()
            assert (await first).status_code == (await second).status_code == 200

    asyncio.run(run())
