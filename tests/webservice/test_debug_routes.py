"""The state dump, and the debug routes, which exist only with the setting `debug`."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping

import httpx
import pytest

from tests.webservice.fakes import FakeLink, loopback_users, partition, request
from yunishard.common.messages.query_messages import Answer, Query, ReadConfig
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.debug_routes import DEBUG, Part, write_json
from yunishard.webservice.views import RequestError

ON = Settings(debug=True)
TEXT = "text/plain; charset=utf-8"
PAGES = ["allocs", "block", "cmdline", "goroutine", "heap", "mutex", "profile", "symbol", "threadcreate", "trace"]


def ask(path: str, *, link: FakeLink | None = None, method: str = "GET") -> httpx.Response:
    return request(link or FakeLink(), path, method, settings=ON)


@pytest.mark.parametrize("path", [route.path for route in DEBUG.routes if route.debug_only])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_without_the_setting_the_paths_are_unknown(path: str, method: str) -> None:
    response, unknown = (request(FakeLink(), one, method) for one in (path, "/debug/nosuch"))
    assert (response.status_code, response.content) == (404, b"404 page not found\n")
    assert response.headers == unknown.headers


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("debug", ["0", "1"])
def test_all_pages_are_there(name: str, debug: str) -> None:
    response = ask(f"/debug/pprof/{name}?debug={debug}")
    text = debug == "1" or name in ("cmdline", "symbol")
    assert (response.status_code, response.headers["Content-Type"]) == (
        200,
        TEXT if text else "application/octet-stream",
    )
    assert response.content


def test_the_index_names_all_of_them() -> None:
    response = ask("/debug/pprof/")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert all(f'<a href="{name}?debug=1">' in response.text for name in PAGES)
    assert ask("/debug/pprof/nosuch").status_code == 404
    assert ask("/debug/pprof/", method="POST").status_code == 405


def test_what_has_one_form_is_as_tools_expect_it() -> None:
    assert ask("/debug/pprof/symbol").content == b"num_symbols: 1\n"
    assert ask("/debug/pprof/cmdline").text.split("\0") == sys.orig_argv


def test_stacks_are_text_under_the_usual_type() -> None:
    response = ask("/debug/stack")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json; charset=UTF-8")
    assert response.text.startswith("thread ")


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("/ws/v1/stack", "/debug/stack"),
        ("/ws/v1/fullstatedump?x=1", "/debug/fullstatedump?x=1"),
        ("/debug/pprof", "/debug/pprof/"),
    ],
)
def test_old_paths_lead_to_new_ones(path: str, to: str) -> None:
    response = ask(path)
    assert (response.status_code, response.headers["Location"]) == (301, to)
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert response.text == f'<a href="{to}">Moved Permanently</a>.\n\n'
    assert "Access-Control-Allow-Origin" not in response.headers


def test_a_new_path_has_the_query_as_it_came() -> None:
    response = ask("/ws/v1/stack?c=d%20&a=1&a=2")
    assert response.headers["Location"] == "/debug/stack?c=d%20&a=1&a=2"


@pytest.mark.parametrize("name", ["profile", "trace"])
def test_profiles_name_the_tool_that_takes_them(name: str) -> None:
    assert ask(f"/debug/pprof/{name}?debug=1").text.startswith(f"py-spy record --pid {os.getpid()} ")


def test_the_memory_is_that_of_the_process() -> None:
    assert "VmRSS:" in ask("/debug/pprof/heap?debug=1").text


# The state dump -------------------------------------------------------------------------------------------------------


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
