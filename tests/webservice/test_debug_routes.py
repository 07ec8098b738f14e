"""What of a process is told, to whom, and that without the setting nothing of it is there."""

import asyncio
import sys

import httpx
import pytest

from common.query_messages import Answer, Query
from tests.webservice.fakes import FakeLink, partition, people, request
from webservice.api import Api
from webservice.calls import Startup
from webservice.debug_routes import HIDDEN

ON = Startup(debug=True)
TEXT = "text/plain; charset=utf-8"
PAGES = ["allocs", "block", "cmdline", "goroutine", "heap", "mutex", "profile", "symbol", "threadcreate", "trace"]


def ask(path: str, *, link: FakeLink | None = None, method: str = "GET") -> httpx.Response:
    return request(link or FakeLink(), path, method, startup=ON)


@pytest.mark.parametrize("path", [route.path for route in HIDDEN])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_without_the_setting_the_paths_are_unknown(path: str, method: str) -> None:
    response, unknown = (request(FakeLink(), one, method) for one in (path, "/debug/nosuch"))
    assert (response.status_code, response.content) == (404, b"404 page not found\n")
    assert response.headers == unknown.headers


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("debug", ["0", "1"])
def test_all_pages_are_there(name: str, debug: str) -> None:
    response = ask(f"/debug/pprof/{name}?seconds=0.02&debug={debug}")
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


def worker(query: Query) -> Answer:
    return Answer(status=200, body=f"{query.what};{query.args['seconds']} 2\n".encode())


@pytest.mark.parametrize("query", ["partition=default", "process=worker&partition=rm-1_default"])
def test_a_worker_is_looked_into_by_its_partition(query: str) -> None:
    link = FakeLink(partition(), worker=worker)
    assert ask(f"/debug/stack?{query}", link=link).content == b"stack;0 2\n"
    assert [name for name, _ in link.asked] == ["rm-1_default"]


def test_the_broker_can_be_looked_into() -> None:
    link = FakeLink()
    link.figures = Answer(status=200, body=b"what the broker tells")
    assert ask("/debug/pprof/heap?process=broker", link=link).content == b"what the broker tells"


def test_a_workers_profile_is_taken_in_rounds() -> None:
    link = FakeLink(partition(), worker=worker)
    response = ask("/debug/pprof/profile?partition=default&seconds=12", link=link)
    assert response.text == "profile;2.0 2\nprofile;5.0 4\n"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/debug/stack?process=rmproxy", 400),
        ("/debug/stack?process=worker", 404),
        ("/debug/stack?partition=nosuch", 404),
        ("/debug/pprof/profile?seconds=abc", 400),
        ("/debug/pprof/profile?seconds=0", 400),
        ("/debug/pprof/profile?seconds=nan", 400),
        ("/debug/pprof/profile?seconds=61", 400),
        ("/debug/pprof/trace?seconds=6", 400),
    ],
)
def test_what_cannot_be_looked_at_is_refused(path: str, status: int) -> None:
    assert ask(path, link=FakeLink(partition(), worker=worker)).status_code == status


def test_one_profile_is_taken_at_a_time() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    class SlowLink(FakeLink):
        async def ask(self, partition: str, query: Query) -> Answer:
            asked.set()
            await go_on.wait()
            return await super().ask(partition, query)

    async def run() -> None:
        api = Api(SlowLink(partition(), worker=worker), people(), ON)
        path = "/debug/pprof/profile?partition=default&seconds=1"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://x") as client:
            first = asyncio.create_task(client.get(path))
            await asked.wait()
            assert (await client.get(path)).status_code == 503
            go_on.set()
            assert (await first).status_code == 200
            assert (await client.get(path)).status_code == 200

    asyncio.run(run())
