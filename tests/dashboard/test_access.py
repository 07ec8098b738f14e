"""The dashboard with authentication: sign-in by token, the rights of users, a proxy with a path prefix."""

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.browser import Tab, open_tab
from tests.dashboard.example_cluster import example_cluster
from tests.deploy.system import FREE_PORTS, up
from yunishard.cli.main import main

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]


class Secured(NamedTuple):
    """A system that wants tokens, and some of them by the name of their user."""

    root: str
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def secured(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("system")
    keys = str(folder / "keys")
    assert main(["token", "--new-key", "--keys", keys]) == 0
    options = ("--ephemeral", *FREE_PORTS, "--auth", "token", "--auth-keys", keys, "--scheduler-admins", " ops")
    tokens = {user: make_token(keys, folder, user) for user in ("olga", "rita", "gil")}
    with up(*options, folder=folder) as running:
        endpoints = running.announced()
        with example_cluster(endpoints["native"]):
            yield Secured(endpoints["rest"], tokens)
        assert running.stop() == 0


def make_token(keys: str, folder: Path, user: str) -> str:
    """A token as `yunishard token` prints it; Olga is in the group `ops`."""
    with redirect_stdout(StringIO()) as output:
        assert main(["token", user, "--keys", keys, *(["--groups", "ops"] if user == "olga" else [])]) == 0
    return output.getvalue().strip()


@contextmanager
def signed_in(browser: Browser, secured: Secured, user: str, root: str = "") -> Iterator[Tab]:
    with open_tab(browser, root or secured.root) as tab:
        page = tab.open("overview")
        page.get_by_label("Token").fill(secured.tokens[user])
        page.get_by_role("button", name="Sign in").click()
        tab.expect_text("Capacity")
        tab.forget("401")
        yield tab
        tab.forget("401", is_certain=False)  # of requests from before the sign-in, reported late
        assert tab.problems == []


def test_the_page_asks_for_a_token_and_forgets_it_when_the_user_signs_out(browser: Browser, secured: Secured) -> None:
    with open_tab(browser, secured.root) as tab:
        page = tab.open("overview")
        expect(tab.heading("Sign in")).to_be_visible()
        assert tab.find_violations() == []
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        tab.expect_text("The token was refused")
        page.get_by_label("Token").fill(secured.tokens["olga"])
        page.keyboard.press("Enter")
        tab.expect_text("Capacity", "40 nodes")
        page.reload()
        tab.expect_text("Capacity")
        assert page.context.cookies() == []
        assert page.evaluate("localStorage.length") == 0
        page.get_by_role("button", name="Sign out").click()
        expect(tab.heading("Sign in")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0
        tab.forget("401")
        assert tab.problems == []


def test_a_user_sees_only_own_applications_and_the_pages_of_administrators_say_so(
    browser: Browser, secured: Secured
) -> None:
    with signed_in(browser, secured, "gil") as tab:
        tab.open("applications")
        tab.expect_text("2 rows", "scratch", "load-test")
        tab.open("application/train-llm")
        tab.expect_text("Application not found")
        tab.forget("404")
        for place in ("events", "configuration"):
            tab.open(place)
            tab.expect_text("Your user lacks the permission")
        tab.open("system")
        tab.expect_text("Only scheduler administrators see the hosts.")
        tab.forget("403")
        page = tab.open("node/node-20")
        page.get_by_role("button", name="Cordon").click()
        page.get_by_role("form", name="Cordon").get_by_role("button", name="Cordon").click()
        tab.expect_text("Your user lacks the permission")
        assert tab.find_violations() == []
        tab.forget("403")
        tab.forget("404", is_certain=False)  # the page of the application has two requests, and the second may be late


def test_the_administrator_of_a_queue_may_stop_it_and_sees_its_applications(browser: Browser, secured: Secured) -> None:
    with signed_in(browser, secured, "rita") as tab:
        tab.open("applications")
        tab.expect_text("2 rows", "train-llm", "train-resnet")
        page = tab.open("queue/root.research.vision")
        page.get_by_role("button", name="Stop the queue").click()
        page.get_by_role("form").get_by_role("button", name="Stop the queue").click()
        tab.expect_text("is stopped", "by rita")


def test_everything_works_below_the_path_prefix_of_a_proxy(browser: Browser, secured: Secured) -> None:
    with (
        proxy(secured.root, "/tools/scheduler") as address,
        signed_in(browser, secured, "olga", address) as tab,
    ):
        page = tab.page
        assert page.url.startswith(f"{address}/ui/#/")
        for place, text in (("queues", "language"), ("applications", "train-llm"), ("configuration", "No changes.")):
            tab.open(place)
            tab.expect_text(text)
        page = tab.open("node/node-21")
        page.get_by_role("button", name="Cordon").click()
        page.get_by_role("form").get_by_role("button", name="Cordon").click()
        tab.expect_text("by olga")
        page.goto(f"{address}/ui")  # without the slash
        expect(page).to_have_url(re.compile(re.escape(f"{address}/ui/")))


@contextmanager
def proxy(target: str, prefix: str) -> Iterator[str]:
    """A reverse proxy that removes a path prefix, on a port of its own; the address with the prefix."""
    host = target.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            connection = http.client.HTTPConnection(host, timeout=30)
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path.removeprefix(prefix), body, headers)
            answer = connection.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the browser has left the page
                self.wfile.write(content)
            connection.close()

        do_POST = do_PUT = do_GET  # noqa: N815 - names of the library

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
