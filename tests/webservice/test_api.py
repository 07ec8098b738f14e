"""Properties of every answer: headers, plain texts of the router, compression, limits."""

import asyncio
import gzip
import logging
from ipaddress import ip_network

import httpx
import pytest
from starlette.types import Message

from tests.webservice.fakes import QUEUES, FakeLink, loopback_users, partition, request
from yunishard.common.config.acl import parse_acl
from yunishard.common.messages.query_messages import Answer, PartitionList, Query
from yunishard.common.settings import Settings
from yunishard.webservice import api, response_cache
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.response_cache import accepts_gzip

LINK = FakeLink(partition())


def test_an_answer_has_the_headers_of_the_api() -> None:
    response = request(LINK, "/ws/v1/clusters")
    assert dict(response.headers) == {
        "content-type": "application/json; charset=UTF-8",
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "GET, OPTIONS",
        "access-control-allow-headers": "X-Requested-With,Content-Type,Accept,Origin",
        "content-length": str(len(response.content)),
    }


def test_an_error_has_them_too() -> None:
    response = request(LINK, "/ws/v1/partition/nosuch/queues")
    assert response.status_code == 404
    assert response.content == (
        b'{"status_code":404,"message":"Partition not found","description":"Partition not found"}\n'
    )
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.headers["content-type"] == "application/json; charset=UTF-8"


@pytest.mark.parametrize(
    "path", ["/index.html", "/ws/v1/nosuch", "/ws/v1/partition/default/applications/", "/ws/v1/clusters/x"]
)
def test_the_answer_to_an_unknown_path_is_plain_text(path: str) -> None:
    response = request(LINK, path)
    assert (response.status_code, response.content) == (404, b"404 page not found\n")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/ws/v1/clusters", "GET, OPTIONS"),
        ("DELETE", "/ws/v1/partition/default/queues", "GET, OPTIONS"),
        ("PUT", "/ws/v1/validate-conf", "OPTIONS, POST"),
        ("GET", "/ws/v1/validate-conf", "OPTIONS, POST"),
        ("DELETE", "/ws/v1/config", "GET, OPTIONS, POST, PUT"),
        ("HEAD", "/ws/v1/config", "GET, OPTIONS, POST, PUT"),
        ("GET", "/ws/v1/config/rollback", "OPTIONS, POST"),
        ("PUT", "/ws/v1/config/history", "GET, OPTIONS"),
        ("POST", "/ws/v1/config/version/1", "GET, OPTIONS"),
        ("POST", "/ws/v1/settings", "GET, OPTIONS"),
    ],
)
def test_another_method_is_refused_with_those_allowed(method: str, path: str, allowed: str) -> None:
    response = request(LINK, path, method)
    assert (response.status_code, response.text) == (405, "" if method == "HEAD" else "Method Not Allowed\n")
    assert response.headers["allow"] == allowed
    assert response.headers["x-content-type-options"] == "nosniff"


def test_head_is_another_method() -> None:
    response = request(LINK, "/ws/v1/clusters", "HEAD")
    assert (response.status_code, response.content, response.headers["allow"]) == (405, b"", "GET, OPTIONS")


def test_options_lists_only_the_allowed_methods() -> None:
    response = request(LINK, "/ws/v1/clusters", "OPTIONS")
    assert (response.status_code, response.content) == (200, b"")
    assert dict(response.headers) == {"allow": "GET, OPTIONS", "content-length": "0"}
    assert request(LINK, "/ws/v1/validate-conf", "OPTIONS").headers["allow"] == "OPTIONS, POST"
    assert request(LINK, "/ws/v1/config", "OPTIONS").headers["allow"] == "GET, OPTIONS, POST, PUT"
    assert "access-control-allow-origin" not in request(LINK, "/ws/v1/config", "OPTIONS").headers


@pytest.mark.parametrize("path", ["/ws/v1/clusters/", "/WS/V1/Clusters", "/ws//v1/clusters"])
def test_a_path_with_a_small_mistake_is_redirected(path: str) -> None:
    response = request(LINK, path)
    assert (response.status_code, response.headers["location"]) == (301, "/ws/v1/clusters")
    assert response.content == b'<a href="/ws/v1/clusters">Moved Permanently</a>.\n\n'
    assert response.headers["content-type"] == "text/html; charset=utf-8"


def test_a_redirect_keeps_query_and_escapes() -> None:
    response = request(LINK, "/ws/v1/partition/a%22%0d%0ab/queues/?x=1&y=%22")
    assert response.headers["location"] == "/ws/v1/partition/a%22%0D%0Ab/queues?x=1&y=%22"
    assert b"?x=1&amp;y=%22" in response.content


def test_a_redirected_post_keeps_its_method() -> None:
    response = request(LINK, "/ws/v1/validate-conf/", "POST")
    assert (response.status_code, response.headers["location"]) == (307, "/ws/v1/validate-conf")


@pytest.mark.parametrize(
    ("accept_encoding", "accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0", True),
        ("gzip;q=0, gzip", False),
        ("br", False),
        ("", False),
        ("xgzip", False),
    ],
)
def test_the_first_mention_of_gzip_decides(accept_encoding: str, *, accepted: bool) -> None:
    assert accepts_gzip(accept_encoding) is accepted


def sized(size: int) -> FakeLink:
    def worker(_: Query) -> Answer:
        return Answer(status=200, body=b"x" * size)

    return FakeLink(partition(), worker=worker)


@pytest.mark.parametrize("size", [response_cache.GZIP_BYTES_MIN, response_cache.THREAD_BYTES_MIN])
def test_a_large_body_is_compressed_for_clients_that_accept_gzip(size: int) -> None:
    response = request(sized(size), "/ws/v1/partition/default/queues", headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["vary"] == "Accept-Encoding"
    assert int(response.headers["content-length"]) < size
    assert response.content == b"x" * size


@pytest.mark.parametrize("size", [response_cache.GZIP_BYTES_MIN, response_cache.THREAD_BYTES_MIN])
def test_a_cached_answer_is_compressed_once_for_all_its_readers(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    version, compressed = "1", list[bytes]()
    compress = gzip.compress

    def counted(body: bytes, *args: int, **kwargs: int) -> bytes:
        compressed.append(body[:1])
        return compress(body, *args, **kwargs)

    def worker(query: Query) -> Answer:
        if query.known == version:
            return Answer(status=304, body=b"", version=version)
        return Answer(status=200, body=version.encode() * size, version=version)

    async def run() -> list[bytes]:
        nonlocal version
        answering = Api(FakeLink(partition(), worker=worker), Settings(), AccessControl(loopback_users()))
        transport = httpx.ASGITransport(app=answering)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9080") as reader:
            path, bodies = "/ws/v1/partition/default/queues", list[bytes]()
            for current in ("1", "2"):
                version = current
                replies = await asyncio.gather(*(reader.get(path, headers={"Accept-Encoding": "gzip"}) for _ in "123"))
                replies += [await reader.get(path, headers={"Accept-Encoding": "gzip"}) for _ in "456"]
                assert {reply.headers["content-encoding"] for reply in replies} == {"gzip"}
                bodies += sorted({reply.content for reply in replies})
                plain = await reader.get(path, headers={"Accept-Encoding": "identity"})
                assert ("content-encoding" in plain.headers, plain.content) == (False, bodies[-1])
        return bodies

    monkeypatch.setattr("gzip.compress", counted)
    assert asyncio.run(run()) == [b"1" * size, b"2" * size]
    assert compressed == [b"1", b"2"]


def test_a_small_body_is_not_compressed() -> None:
    link = sized(response_cache.GZIP_BYTES_MIN - 1)
    response = request(link, "/ws/v1/partition/default/queues", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers
    assert "vary" not in response.headers


def test_a_body_over_the_limit_is_refused() -> None:
    response = request(LINK, "/ws/v1/validate-conf", "POST", body=b"x" * (api.BODY_BYTES_MAX + 1))
    assert response.status_code == 413
    assert response.headers["access-control-allow-methods"] == "OPTIONS, POST"
    assert response.json()["message"] == "Request body is larger than 16777216 bytes"


def test_options_of_everything_tell_nothing() -> None:
    (begin, end) = converse(LINK, {"method": "OPTIONS", "path": "*", "raw_path": b"*"}, [WHOLE])
    assert (begin["status"], end["body"]) == (200, b"")
    assert not [name for name, _ in begin["headers"] if name == b"content-type"]


# Other sites, other hosts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["?rm=rm-1", "?rm=no", "?x=1&rm=", "/default", "/history", "/version/3", "/version/x"])
def test_what_only_we_tell_is_for_no_other_site(path: str) -> None:
    for answered in (request(LINK, f"/ws/v1/config{path}"), request(LINK, "/ws/v1/settings")):
        assert not [name for name in answered.headers if name.startswith("access-control")]


PRIVATE_PATHS = [
    "/ws/v1/config?rm=rm-1",
    "/ws/v1/config/default",
    "/ws/v1/config/history",
    "/ws/v1/config/version/3",
    "/ws/v1/settings",
    "/ws/v1/history/applications",
]


@pytest.mark.parametrize("path", PRIVATE_PATHS)
def test_a_private_answer_is_refused_to_a_page_that_gave_its_own_name_our_address(path: str) -> None:
    asked = FakeLink(partition())
    response = request(asked, path, headers={"Host": "evil.example:9080"})
    assert response.status_code == 403
    assert response.json()["message"] == (
        "Refused: Host 'evil.example:9080' is not a known name of this server, so a page of another site may be asking"
        " (DNS rebinding). Ask by address, or name the host by the setting rest-hosts"
    )
    assert (asked.asked, asked.read_of) == ([], [])
    assert request(asked, path, headers={"Host": "10.0.0.7:9080"}).status_code != 403


@pytest.mark.parametrize(
    "path", ["/ws/v1/clusters", "/ws/v1/partition/default/queues", "/ws/v1/metrics", "/ws/v1/config"]
)
def test_what_yunikorn_answers_is_answered_whatever_the_host_is_called(path: str) -> None:
    assert request(LINK, path, headers={"Host": "yunikorn-service:9080"}).status_code == 200


def test_a_private_answer_is_given_where_the_host_is_checked_by_other_means() -> None:
    named = AccessControl(loopback_users(), hosts=("core.example",))
    headers = {"Host": "Core.example.:9080"}
    assert request(LINK, "/ws/v1/settings", headers=headers, control=named).status_code == 200
    known = AccessControl(loopback_users(), proxies=(ip_network("127.0.0.1"),), admins=parse_acl("ann"))
    headers = {"Host": "evil.example:9080", "X-Forwarded-User": "ann"}
    assert request(LINK, "/ws/v1/settings", headers=headers, control=known).status_code == 200
    tls = {"method": "GET", "path": "/ws/v1/settings", "raw_path": b"/ws/v1/settings", "scheme": "https"}
    assert converse(LINK, {**tls, "headers": [(b"host", b"core.example")]}, [])[0]["status"] == 200


@pytest.mark.parametrize("path", ["", "?x=rm", "?RM=rm-1"])
def test_the_configuration_as_yunikorn_shows_it_is_for_all_sites(path: str) -> None:
    assert request(LINK, f"/ws/v1/config{path}").headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("host", ["127.0.0.1:9080/?rm=evil&version=1&", "h?rm=evil#", "h#", "[", "a b", ""])
def test_the_query_is_what_was_asked_for_whatever_the_host_is_called(host: str) -> None:
    asked = FakeLink(partition(), partition("evil", "x"))
    headers = [(b"host", host.encode())]
    sent = converse(asked, {"method": "GET", "query_string": b"rm=rm-1", "headers": headers}, [WHOLE], hosts=("*",))
    assert (sent[0]["status"], [rm for rm, _ in asked.read_of]) == (200, ["rm-1"])
    path = CONFIG + "/"
    scope = {"method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"x=1", "headers": headers}
    assert (b"location", b"/ws/v1/config?x=1") in converse(asked, scope, [WHOLE])[0]["headers"]


def test_a_query_that_is_no_text_is_read_as_far_as_it_goes() -> None:
    asked = FakeLink(partition(), partition("evil", "x"))
    sent = converse(asked, {"method": "GET", "query_string": b"rm=rm-1&x=\xff"}, [WHOLE])
    assert (sent[0]["status"], [rm for rm, _ in asked.read_of]) == (200, ["rm-1"])
    path = CONFIG + "/"
    scope = {"method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"\xff"}
    assert (b"location", b"/ws/v1/config?\xff") in converse(asked, scope, [WHOLE])[0]["headers"]


# Changes --------------------------------------------------------------------------------------------------------

CONFIG = "/ws/v1/config"
KILL = "/ws/v1/partition/default/application/a/kill"


def refused(asked: FakeLink, path: str = KILL, method: str = "POST", **headers: str) -> str:
    """Why nobody may change anything in this way, which nobody is asked about."""
    response = request(asked, path, method, headers={name.replace("_", "-"): text for name, text in headers.items()})
    assert response.status_code == 403
    assert (asked.asked, asked.read_of, asked.changes) == ([], [], [])
    message = response.json()["message"]
    assert isinstance(message, str)
    return message


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", CONFIG), ("POST", CONFIG), ("POST", f"{CONFIG}/rollback"), ("POST", KILL)]
)
def test_a_page_of_another_site_changes_nothing(method: str, path: str) -> None:
    asked = FakeLink(partition())
    assert "'http://evil.example' may not change anything" in refused(asked, path, method, Origin="http://evil.example")
    assert "Host 'evil.example:9080'" in refused(asked, path, method, Host="evil.example:9080")
    assert "a page of another site" in refused(asked, path, method, Sec_Fetch_Site="cross-site")
    assert "a proxy" in refused(asked, path, method, X_Forwarded_For="10.0.0.7")


def test_our_own_page_does() -> None:
    response = request(FakeLink(partition()), KILL, "POST", headers={"Origin": "http://127.0.0.1:9080"})
    assert response.status_code == 200


def test_from_another_machine_nothing_is_changed() -> None:
    response = request(FakeLink(partition()), KILL, "POST", client=("10.0.0.7", 40000))
    assert response.status_code == 403
    assert response.json()["message"] == (
        "The caller is unknown: the request came from 10.0.0.7; changes are accepted only from this machine,"
        " over its loopback address: log in there and use 127.0.0.1"
    )


@pytest.mark.parametrize(("uid", "status"), [(0, 200), (1000, 403)])
def test_an_answer_to_a_change_is_for_no_other_site(uid: int, status: int) -> None:
    response = request(FakeLink(partition()), CONFIG, "PUT", body=QUEUES.encode(), who=loopback_users(uid))
    assert response.status_code == status
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_who_may_not_is_refused_before_the_body_is_read() -> None:
    body = b"x" * (api.BODY_BYTES_MAX + 1)
    assert request(FakeLink(partition()), CONFIG, "PUT", body=body).status_code == 403
    assert request(FakeLink(partition()), CONFIG, "PUT", body=body, who=loopback_users(0)).status_code == 413


def test_every_change_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "core.rest")
    line = FakeLink(partition())
    request(line, f"{CONFIG}?rm=rm-1&x=%0A", "PUT", body=QUEUES.encode(), who=loopback_users(0))
    request(line, KILL, "POST")
    request(line, KILL, "POST", client=("10.0.0.7", 40000))
    no = FakeLink(partition(), changer=lambda _: Answer(status=409, body=b"not\nnow " + b"x" * 999))
    request(no, KILL, "POST")
    request(line, CONFIG)
    first, second, third, fourth = [record.getMessage() for record in caplog.records]
    assert first == "PUT /ws/v1/config?rm=rm-1&x=%0A by root from 127.0.0.1 port 40000: 200"
    assert second == f"POST {KILL} by alice from 127.0.0.1 port 40000: 200"
    assert third.startswith(f"POST {KILL} by an unknown user from 10.0.0.7 port 40000: 403 The caller is unknown: ")
    assert fourth.startswith(f"POST {KILL} by alice from 127.0.0.1 port 40000: 409 not now xxx")
    assert len(fourth) < 300


def converse(
    asked: FakeLink, scope: dict[str, object], events: list[Message], hosts: tuple[str, ...] = ()
) -> list[Message]:
    """What is sent for a request that a server would not let through, or whose sender is gone."""
    sent: list[Message] = []

    async def receive() -> Message:
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    usual: dict[str, object] = {
        "type": "http",
        "method": "PUT",
        "path": CONFIG,
        "raw_path": CONFIG.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:9080")],
        "scheme": "http",
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 9080),
    }
    control = AccessControl(loopback_users(0), hosts=hosts)
    asyncio.run(Api(asked, Settings(), control)({**usual, **scope}, receive, send))
    return sent


WHOLE: Message = {"type": "http.request", "body": QUEUES.encode(), "more_body": False}


def test_who_has_gone_before_the_change_began_changes_nothing() -> None:
    asked = FakeLink(partition())
    assert converse(asked, {}, [WHOLE]) == []
    assert asked.changes == []


def test_a_connection_without_addresses_has_no_owner() -> None:
    asked = FakeLink(partition())
    sent = converse(asked, {"client": None, "server": ("/run/socket", None)}, [WHOLE])
    assert (sent[0]["status"], asked.changes) == (403, [])


def test_two_lines_of_a_header_are_one_list() -> None:
    asked = FakeLink(partition())
    checksum = b'"' + b"A" * 64 + b'"'
    headers = [(b"if-match", checksum), (b"if-match", b"*"), (b"host", b"127.0.0.1:9080")]
    empty: Message = {"type": "http.request", "body": b"", "more_body": True}
    sent = converse(asked, {"headers": headers}, [WHOLE, empty])
    assert (sent[0]["status"], asked.changes) == (400, [])


def test_a_request_with_too_many_headers_is_refused() -> None:
    asked = FakeLink(partition())
    headers = [(b"host", b"127.0.0.1:9080"), *((b"x-%d" % number, b"") for number in range(api.HEADERS_MAX))]
    sent = converse(asked, {"headers": headers}, [WHOLE])
    assert (sent[0]["status"], asked.changes) == (431, [])
    empty: Message = {"type": "http.request", "body": b"", "more_body": True}
    assert converse(asked, {"headers": headers[:-1]}, [WHOLE, empty])[0]["status"] == 200


def test_an_address_with_too_many_requests_at_once_has_to_wait() -> None:
    waiting, most = asyncio.Event(), api.REQUESTS_OF_ONE_MAX

    class SlowLink(FakeLink):
        async def partitions(self) -> PartitionList:
            await waiting.wait()
            return self.known

    async def run() -> tuple[list[int], int]:
        app = Api(SlowLink(), Settings(), AccessControl(loopback_users()))

        async def ask(host: str) -> httpx.Response:
            transport = httpx.ASGITransport(app=app, client=(host, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9080") as visitor:
                return await visitor.get("/ws/v1/clusters")

        asked = [asyncio.create_task(ask("10.0.0.7")) for _ in range(most)]
        await asyncio.sleep(0)
        late = await ask("10.0.0.7")
        assert late.headers["retry-after"] == "1"
        other = asyncio.create_task(ask("10.0.0.8"))
        waiting.set()
        found = [(await one).status_code for one in (*asked, other)]
        return [*found, (await ask("10.0.0.7")).status_code], late.status_code

    found, late = asyncio.run(run())
    assert (set(found), len(found), late) == ({200}, most + 2, 429)
