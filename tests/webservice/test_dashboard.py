"""The files of the dashboard as the web service serves them, and the libraries that it brings along."""

import hashlib
import json
import re
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.webservice.fakes import FakeLink, partition, request
from yunishard.common.settings import Settings
from yunishard.webservice.web_root import DASHBOARD

VENDOR: Final = DASHBOARD / "vendor"
FILES: Final = sorted(path for path in DASHBOARD.rglob("*") if path.is_file())


def ask(path: str, method: str = "GET", *, root: Path | None = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request(FakeLink(partition()), path, method, headers=named, settings=Settings(web_root=root))


def test_the_directory_leads_to_the_page_below_any_prefix() -> None:
    response = ask("/ui")
    assert (response.status_code, response.headers["location"]) == (301, "ui/")
    page = ask("/ui/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert not re.search(r'(src|href)="(/|[a-z]+:)', page.text), "an address that does not depend on the prefix"


def test_scripts_run_only_from_files_of_this_origin() -> None:
    headers = ask("/ui/").headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in headers
    assert not re.search(r"<script(?! type=\"module\" src=)|<style| on[a-z]+=| style=", ask("/ui/").text)


def test_a_browser_revalidates_a_file_by_its_tag() -> None:
    first = ask("/ui/app.js")
    assert first.headers["cache-control"] == "no-cache"
    again = ask("/ui/app.js", If_None_Match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")


def test_large_files_are_compressed() -> None:
    response = ask("/ui/vendor/uplot.js", Accept_Encoding="gzip")
    assert response.headers["content-encoding"] == "gzip"
    assert response.content == (VENDOR / "uplot.js").read_bytes()


@pytest.mark.parametrize(
    "path", ["/ui/none.js", "/ui/../api.py", "/ui/%2e%2e/api.py", "/ui/queues", "/uis", "/ui/vendor/"]
)
def test_nothing_else_is_there(path: str) -> None:
    assert ask(path, Accept="text/html").status_code == 404


def test_files_are_only_read() -> None:
    assert ask("/ui/", "POST").status_code == 405
    head = ask("/ui/app.js", "HEAD")
    assert (head.content, int(head.headers["content-length"])) == (b"", (DASHBOARD / "app.js").stat().st_size)


def test_another_web_ui_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("another")
    assert ask("/", root=tmp_path).text == "another"
    assert "yunishard" in ask("/ui/", root=tmp_path).text


def test_nothing_is_loaded_from_elsewhere() -> None:
    own = [path for path in FILES if path.suffix in (".js", ".css", ".html") and VENDOR not in path.parents]
    assert len(own) > 10
    for path in own:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"""["'(]\s*(https?:)?//""", text), path
        imports = re.findall(r'^(?:import|export) .*from "([^"]+)"', text, re.MULTILINE)
        assert all((path.parent / name).is_file() for name in imports), path


@pytest.mark.parametrize("folder", [VENDOR, Path(__file__).parents[1] / "dashboard" / "vendor"])
def test_libraries_are_those_that_are_recorded_with_their_licences(folder: Path) -> None:
    recorded = json.loads((folder / "vendor.json").read_text())
    files = {name: digest for one in recorded for name, (_, digest) in one["files"].items()}
    found = {path.name for path in folder.iterdir()}
    assert {name for name in found if not name.startswith("LICENSE.")} == {"vendor.json", *files}
    assert found >= {f"LICENSE.{one['package']}" for one in recorded}
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files} == files


def test_pages_are_short_enough_to_read() -> None:
    assert {
        path.name: lines
        for path in FILES
        if VENDOR not in path.parents and (lines := path.read_bytes().count(b"\n")) > 600
    } == {}
