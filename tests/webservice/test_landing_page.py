"""The page at `/`, in each of its forms."""

import base64
import doctest
import hashlib
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.webservice.fakes import FakeLink, loopback_users, partition, request
from yunishard.common.settings import Settings
from yunishard.webservice import landing_page
from yunishard.webservice.api_document import ROUTES
from yunishard.webservice.authn_authz import AccessControl

BROWSER: Final = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def ask(method: str = "GET", *, root: Path | None = None, path: str = "/", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request(FakeLink(partition()), path, method, headers=named, settings=Settings(web_root=root))


def test_a_browser_gets_a_page_with_a_link_to_each_address() -> None:
    page = ask(**BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert re.findall(r'<a href="([^"]*)"', page.text) == [link.path for link in landing_page.LINKS]


def test_a_program_gets_the_links_as_json() -> None:
    found = ask(Accept="application/json")
    assert found.headers["content-type"] == "application/json; charset=UTF-8"
    assert found.json()["links"]["dashboard"] == "ui/"
    assert found.headers["vary"] == "Accept"


def test_curl_gets_one_line_for_each_address() -> None:
    found = ask(Accept="*/*")
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    assert "/ws/v1/metrics                Metrics: of all processes, for Prometheus\n" in found.text


def test_every_link_is_served() -> None:
    paths = {route.path for route in ROUTES}
    for link in landing_page.LINKS:
        assert f"/{link.path}" in paths or ask(path=f"/{link.path}").status_code == 200, link
        assert not link.path.startswith("/"), "a prefix of a proxy would be lost"


def test_the_page_runs_no_script_and_loads_only_its_icon() -> None:
    page = ask(**BROWSER)
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    [style] = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "img-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert not re.search(r"<script| style=| on[a-z]+=|https?:", page.text)
    assert ask(path="/ui/icon.svg").status_code == 200
    assert "set-cookie" not in page.headers


def test_a_client_revalidates_each_form_by_its_own_tag() -> None:
    tags = {ask(Accept=accept).headers["etag"] for accept in ("text/html", "application/json", "*/*")}
    assert len(tags) == 3
    again = ask(Accept="text/html", If_None_Match=ask(Accept="text/html").headers["etag"])
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_is_only_read() -> None:
    assert ask("POST").status_code == 405
    head = ask("HEAD", Accept="text/html")
    assert (head.content, int(head.headers["content-length"])) == (b"", len(ask(Accept="text/html").content))


def test_a_web_ui_has_the_address_instead(tmp_path: Path) -> None:
    assert ask(root=tmp_path, **BROWSER).status_code == 404
    (tmp_path / "index.html").write_text("another")
    assert ask(root=tmp_path, **BROWSER).text == "another"


def test_the_page_needs_no_authentication_and_names_nothing_of_the_system() -> None:
    open_page = ask(**BROWSER)
    control = AccessControl(loopback_users(), proxies=(ip_network("127.0.0.1"),))
    guarded = request(FakeLink(partition("secret-rm")), "/", headers=BROWSER, control=control)
    assert (guarded.status_code, guarded.content) == (200, open_page.content)


def luminance(color: str) -> float:
    """The relative luminance of WCAG 2."""
    digits = color if len(color) == 6 else "".join(digit * 2 for digit in color)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_have_the_contrast_of_wcag_aa(theme: int) -> None:
    block = re.findall(r":root \{([^}]*)\}", ask(**BROWSER).text)[theme]
    colors = {name: luminance(color) for name, color in re.findall(r"--(\w+): #([0-9a-f]+)", block)}
    for name in ("text", "quiet", "link"):
        low, high = sorted((colors[name], colors["back"]))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(landing_page).failed == 0
