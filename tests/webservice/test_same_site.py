"""A page of another site cannot make a browser on this machine change anything."""

import pytest

from webservice.same_site import is_known_host, objection

HERE = "127.0.0.1:9080"


def said(server: str = "127.0.0.1", scheme: str = "http", **headers: str) -> str:
    return objection({name.replace("_", "-"): value for name, value in headers.items()}, scheme=scheme, server=server)


@pytest.mark.parametrize(
    "host", [HERE, "localhost:9080", "LOCALHOST", "localhost.:9080", "[::1]:9080", "127.1.2.3:1", "127.0.0.1"]
)
def test_this_machine_may_be_called_by_its_loopback_names(host: str) -> None:
    assert said(host=host) == ""


def test_it_may_be_called_by_the_address_that_was_reached() -> None:
    assert said(server="10.0.0.7", host="10.0.0.7:9080") == ""


@pytest.mark.parametrize(
    "host",
    ["evil.example:9080", "evil.example", "10.0.0.8:9080", "localhost.evil.example", "", "[::1", "x@localhost:y"],
)
def test_another_name_is_refused_even_if_it_leads_here(host: str) -> None:
    assert "is not an address of this machine" in said(host=host)


def test_no_name_is_refused() -> None:
    assert "is not an address of this machine" in objection({}, scheme="http", server="127.0.0.1")


def test_our_own_page_may_ask() -> None:
    assert said(host=HERE, origin=f"http://{HERE}", sec_fetch_site="same-origin") == ""
    assert said(scheme="https", host=HERE, origin=f"https://{HERE}") == ""


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", f"https://{HERE}", "http://127.0.0.1:3000", "http://127.0.0.1", "file://"],
)
def test_another_page_may_not(origin: str) -> None:
    assert "may not change anything here" in said(host=HERE, origin=origin)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "new-word"])
def test_nor_when_only_the_browser_says_so(site: str) -> None:
    assert "a page of another site" in said(host=HERE, sec_fetch_site=site)


def test_an_address_that_a_person_typed_is_no_page() -> None:
    assert said(host=HERE, sec_fetch_site="none") == ""


@pytest.mark.parametrize(
    "header", ["forwarded", "via", "x_forwarded_for", "x_forwarded_host", "x_real_ip", "x_forwarded_user"]
)
def test_what_a_proxy_passes_on_is_nobody_s_we_know(header: str) -> None:
    assert "says that a proxy asks" in said(host=HERE, **{header: "10.0.0.7"})


@pytest.mark.parametrize(
    "host",
    [HERE, "localhost", "LOCALHOST.:9080", "10.0.0.8:9080", "[2001:db8::7]:9080", "Core.example:80", "core.example."],
)
def test_a_host_is_known_if_it_is_an_address_or_a_name_that_was_set(host: str) -> None:
    assert is_known_host(host, ("core.example", "0.0.0.0"))


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "core.example.evil.example", "x.core.example", "[::1", "core.example@evil.example", "1.2"],
)
def test_another_host_is_not_known(host: str) -> None:
    assert not is_known_host(host, ("core.example",))
    assert is_known_host(host, ("*",))
