"""The debug routes, which exist only with the setting `debug`."""

import os
import sys

import httpx
import pytest

from common.settings import Settings
from tests.webservice.fakes import FakeLink, request
from webservice.debug_routes import DEBUG

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
