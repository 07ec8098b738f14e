"""A page of another site cannot make a browser on this machine change anything."""

import pytest

from tests.webservice.fakes import QUEUES, FakeLink, answer, loopback_users, partition, request
from yunishard.common.messages.query_messages import Answer
from yunishard.common.settings import Settings
from yunishard.webservice.cross_site import PREFLIGHT_S, Cors, explain_not_local, is_known_host

HERE = "127.0.0.1:9080"


def explain(server: str = "127.0.0.1", scheme: str = "http", **headers: str) -> str:
    return explain_not_local(
        {name.replace("_", "-"): value for name, value in headers.items()}, scheme=scheme, server=server
    )


@pytest.mark.parametrize(
    "host", [HERE, "localhost:9080", "LOCALHOST", "localhost.:9080", "[::1]:9080", "127.1.2.3:1", "127.0.0.1"]
)
def test_this_machine_may_be_called_by_its_loopback_names(host: str) -> None:
    assert explain(host=host) == ""


def test_it_may_be_called_by_the_address_that_was_reached() -> None:
    assert explain(server="10.0.0.7", host="10.0.0.7:9080") == ""


@pytest.mark.parametrize(
    "host",
    ["evil.example:9080", "evil.example", "10.0.0.8:9080", "localhost.evil.example", "", "[::1", "x@localhost:y"],
)
def test_another_name_is_refused_even_if_it_leads_here(host: str) -> None:
    assert "is not an address of this machine" in explain(host=host)


def test_no_name_is_refused() -> None:
    assert "is not an address of this machine" in explain_not_local({}, scheme="http", server="127.0.0.1")


def test_our_own_page_may_ask() -> None:
    assert explain(host=HERE, origin=f"http://{HERE}", sec_fetch_site="same-origin") == ""
    assert explain(scheme="https", host=HERE, origin=f"https://{HERE}") == ""


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", f"https://{HERE}", "http://127.0.0.1:3000", "http://127.0.0.1", "file://"],
)
def test_another_page_may_not(origin: str) -> None:
    assert "may not change anything here" in explain(host=HERE, origin=origin)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "new-word"])
def test_a_cross_site_fetch_header_is_refused(site: str) -> None:
    assert "a page of another site" in explain(host=HERE, sec_fetch_site=site)


def test_an_address_that_a_person_typed_is_no_page() -> None:
    assert explain(host=HERE, sec_fetch_site="none") == ""


@pytest.mark.parametrize(
    "header", ["forwarded", "via", "x_forwarded_for", "x_forwarded_host", "x_real_ip", "x_forwarded_user"]
)
def test_a_forwarded_request_is_refused(header: str) -> None:
    assert "shows that a proxy sent the request" in explain(host=HERE, **{header: "10.0.0.7"})


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


UI = "https://ui.example"
QUEUE_PATH = "/ws/v1/partition/default/queues"


def cors_of(path: str, origin: str | None, *, method: str = "GET", origins: tuple[str, ...] = (UI,)) -> dict[str, str]:
    """The headers of an answer that are about it."""
    headers = {} if origin is None else {"Origin": origin}
    settings = Settings(cors=origins)
    found = request(FakeLink(partition()), path, method, headers=headers, settings=settings, who=loopback_users(0))
    return {name: text for name, text in found.headers.items() if name.startswith("access-control") or name == "vary"}


@pytest.mark.parametrize("origins", [(), ("*",)])
@pytest.mark.parametrize("origin", [None, UI, "null"])
def test_without_a_list_all_may_read_as_with_yunikorn(origin: str | None, origins: tuple[str, ...]) -> None:
    assert cors_of(QUEUE_PATH, origin, origins=origins) == {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "GET, OPTIONS",
        "access-control-allow-headers": "X-Requested-With,Content-Type,Accept,Origin",
    }
    assert cors_of("/ws/v1/settings", origin, origins=origins) == {}
    assert cors_of(QUEUE_PATH, origin, method="OPTIONS", origins=origins) == {}


def test_with_a_list_only_listed_sites_may_read_and_the_answer_varies() -> None:
    found = cors_of(QUEUE_PATH, UI)
    assert found.pop("access-control-expose-headers").split(",")[:2] == ["ETag", "Link"]
    assert found == {
        "vary": "Origin",
        "access-control-allow-origin": UI,
        "access-control-allow-methods": "GET,OPTIONS",
        "access-control-allow-headers": ("Authorization,Content-Type,Accept,If-Match,If-None-Match,X-Requested-With"),
    }


@pytest.mark.parametrize(
    "origin", [None, "", "null", "*", "https://evil.example", f"{UI}.evil.example", "http://ui.example"]
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_another_may_not(origin: str | None, method: str) -> None:
    assert cors_of(QUEUE_PATH, origin, method=method) == {"vary": "Origin"}


def test_an_error_has_the_cors_headers_of_the_answer() -> None:
    assert cors_of("/ws/v1/partition/nosuch/queues", UI)["access-control-allow-origin"] == UI


def test_a_preflight_request_gets_the_allowed_headers() -> None:
    found = cors_of("/ws/v1/config", UI, method="OPTIONS")
    assert found["access-control-allow-origin"] == UI
    assert found["access-control-allow-methods"] == "GET,OPTIONS,POST,PUT"
    assert "Authorization" in found["access-control-allow-headers"]
    assert found["access-control-max-age"] == str(PREFLIGHT_S)


def test_private_answers_are_private_while_authentication_is_off() -> None:
    assert cors_of("/ws/v1/settings", UI) == {"vary": "Origin"}
    private = Cors((UI,), is_open=False).headers(UI, ["GET"], private=True)
    assert private["Access-Control-Allow-Origin"] == UI


def test_credentials_are_for_sites_on_the_list_only_and_where_they_matter() -> None:
    by_browser = Cors((UI,), is_open=False, credentials=True)
    assert by_browser.headers(UI, ["GET"], private=False)["Access-Control-Allow-Credentials"] == "true"
    assert by_browser.headers("https://evil.example", ["GET"], private=False) == {"Vary": "Origin"}
    by_token = Cors((UI,), is_open=False)
    assert "Access-Control-Allow-Credentials" not in by_token.headers(UI, ["GET"], private=False)


@pytest.mark.parametrize("origins", [(), ("*",), (UI,)])
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("origin", [None, "*", UI, "https://evil.example"])
def test_credentials_are_not_allowed_for_all_sites(origins: tuple[str, ...], is_open: bool, origin: str | None) -> None:
    cors = Cors(origins, is_open=is_open, credentials=not is_open)
    for found in (cors.headers(origin, ["GET"], private=False), cors.preflight(origin, ["GET"])):
        if found.get("Access-Control-Allow-Origin") == "*":
            assert is_open
            assert "Access-Control-Allow-Credentials" not in found


def test_with_authentication_only_listed_sites_may_read() -> None:
    assert Cors((), is_open=False).headers(UI, ["GET"], private=False) == {"Vary": "Origin"}


def test_vary_joins_all_its_values() -> None:
    large = QUEUES + "# " + "x" * 5000
    link = FakeLink(partition(), reader=lambda _, __: _answer(large))
    headers = {"Origin": UI, "Accept-Encoding": "gzip"}
    found = request(link, "/ws/v1/config?rm=rm-1", headers=headers, settings=Settings(cors=(UI,)))
    assert found.headers["vary"] == "Accept, Origin, Accept-Encoding"


def _answer(text: str) -> Answer:
    return answer({"rm": "rm-1", "version": 3, "checksum": "A" * 64, "config": text, "extra": {}})
