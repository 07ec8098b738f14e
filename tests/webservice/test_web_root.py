"""The files of a web UI are served from a directory, and nothing else is."""

import doctest
import os
from pathlib import Path

import httpx
import pytest

from tests.webservice.fakes import FakeLink, partition, request
from yunishard.common.settings import Settings
from yunishard.webservice import web_root

PAGE = b"<!doctype html><script src=main.js></script>"
SCRIPT = b"let a = 1;" * 200
BROWSER = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ui"
    (made / "assets").mkdir(parents=True)
    (made / ".git").mkdir()
    (made / "index.html").write_bytes(PAGE)
    (made / "main.js").write_bytes(SCRIPT)
    (made / "assets" / "logo.svg").write_bytes(b"<svg/>")
    (made / ".env").write_bytes(b"secret")
    (made / ".git" / "config").write_bytes(b"secret")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    return made


def ask(root: Path | None, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request(FakeLink(partition()), path, method, headers=named, settings=Settings(web_root=root))


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/", PAGE, "text/html; charset=utf-8"),
        ("/index.html", PAGE, "text/html; charset=utf-8"),
        ("/main.js", SCRIPT, "text/javascript; charset=utf-8"),
        ("/assets/logo.svg?v=1", b"<svg/>", "image/svg+xml"),
        ("/%2Fassets//logo.svg", b"<svg/>", "image/svg+xml"),
    ],
)
def test_a_file_is_served_with_its_type(root: Path, path: str, body: bytes, kind: str) -> None:
    response = ask(root, path)
    assert (response.status_code, response.content, response.headers["content-type"]) == (200, body, kind)


def test_a_file_of_an_unknown_kind_is_not_guessed_at(root: Path) -> None:
    (root / "data.bin").write_bytes(b"<html>")
    response = ask(root, "/data.bin")
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_page_may_load_from_its_own_origin_only_and_be_in_no_frame(root: Path) -> None:
    policy = ask(root, "/").headers["content-security-policy"]
    assert {"default-src 'self'", "frame-ancestors 'none'", "object-src 'none'"} <= set(policy.split("; "))
    assert "'unsafe-eval'" not in policy
    assert "access-control-allow-origin" not in ask(root, "/").headers


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/../../secret.txt",
        "/..%2fsecret.txt",
        "/.env",
        "/.git/config",
        "/.git%2Fconfig",
        "/assets",
        "/assets/",
        "/none.js",
        "/main.js/",
        "/a%00b",
        "/" + "x" * 300,
        "/linked.txt",
        "/elsewhere/secret.txt",
        "/loop",
        "/hidden",
        "/pipe",
    ],
)
def test_nothing_else_is_there(root: Path, path: str) -> None:
    (root / "linked.txt").symlink_to(root.parent / "secret.txt")
    (root / "elsewhere").symlink_to(root.parent)
    (root / "loop").symlink_to(root / "loop")
    (root / "hidden").symlink_to(root / ".env")
    os.mkfifo(root / "pipe")
    response = ask(root, path)
    if path == "/main.js/":
        assert response.content == SCRIPT
        return
    assert (response.status_code, response.content) == (404, b"404 page not found\n")


def test_a_link_within_the_directory_is_followed(root: Path) -> None:
    (root / "logo.svg").symlink_to(root / "assets" / "logo.svg")
    assert ask(root, "/logo.svg").content == b"<svg/>"


def test_a_file_that_is_too_large_is_not_served(root: Path) -> None:
    with (root / "large.bin").open("wb") as file:
        file.truncate(web_root.FILE_BYTES_MAX + 1)
    assert ask(root, "/large.bin").status_code == 404


def test_an_address_within_the_application_is_its_page_for_who_looks_at_it(root: Path) -> None:
    for path in ("/dashboard", "/queues/root", "/queues-v2/"):
        assert ask(root, path, **BROWSER).content == PAGE
        assert ask(root, path, Accept="*/*").status_code == 404
        assert ask(root, path, Accept="application/json").status_code == 404
    assert ask(root, "/none.js", **BROWSER).status_code == 404
    assert ask(root, "/.hidden/page", **BROWSER).status_code == 404


@pytest.mark.parametrize(
    "path", ["/ws", "/ws/", "/ws/v1/none", "/WS/v1/none", "/%2Fws/v1/none", "/a%2F..%2Fws/x", "/debug/x"]
)
def test_a_path_of_the_api_is_never_a_file(root: Path, path: str) -> None:
    for name in ("ws", "debug"):
        (root / name / "v1").mkdir(parents=True)
        (root / name / "v1" / "none").write_bytes(b"file")
        (root / name / "x").write_bytes(b"file")
    assert ask(root, path, **BROWSER).status_code == 404


def test_the_api_answers_as_without_files(root: Path) -> None:
    assert ask(root, "/ws/v1/clusters").json()[0]["partition"] == "default"
    assert ask(root, "/ws/v1/clusters", "HEAD").status_code == 405


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_files_are_only_read(root: Path, method: str) -> None:
    response = ask(root, "/main.js", method)
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


def test_a_head_request_has_the_length_of_the_file(root: Path) -> None:
    response = ask(root, "/main.js", "HEAD")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(len(SCRIPT))


def test_a_current_version_is_not_sent_again(root: Path) -> None:
    first = ask(root, "/main.js")
    tag, changed = first.headers["etag"], first.headers["last-modified"]
    assert ask(root, "/main.js", If_None_Match=tag).status_code == 304
    assert ask(root, "/main.js", If_Modified_Since=changed).status_code == 304
    assert ask(root, "/main.js", If_Modified_Since="Thu, 01 Jan 1970 00:00:00 GMT").status_code == 200
    assert ask(root, "/main.js", If_Modified_Since="yesterday").status_code == 200
    (root / "main.js").write_bytes(b"let a = 2;")
    assert ask(root, "/main.js", If_None_Match=tag, If_Modified_Since=changed).content == b"let a = 2;"


def test_a_long_file_is_compressed_for_who_takes_it(root: Path) -> None:
    response = ask(root, "/main.js", Accept_Encoding="gzip")
    assert (response.headers["content-encoding"], response.content) == ("gzip", SCRIPT)
    assert response.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in ask(root, "/", Accept_Encoding="gzip").headers


def test_without_a_directory_there_are_no_files(root: Path) -> None:
    for missing in (None, root / "none"):
        response = ask(missing, "/page", **BROWSER)
        assert (response.status_code, response.content) == (404, b"404 page not found\n")
        assert response.headers["content-type"] == "text/plain; charset=utf-8"


def test_the_examples_are_true() -> None:
    assert doctest.testmod(web_root).failed == 0
