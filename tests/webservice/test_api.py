"""What every answer has in common: headers, plain texts of the router, compression, limits."""

import pytest

from common.messages import Answer, Query
from tests.webservice.fakes import FakeLink, partition, request
from webservice import api
from webservice.api import accepts_gzip

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


@pytest.mark.parametrize("path", ["/", "/ws/v1/nosuch", "/ws/v1/partition/default/application/", "/ws/v1/clusters/x"])
def test_an_unknown_path_is_told_in_plain_text(path: str) -> None:
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
    ],
)
def test_another_method_is_refused_with_those_allowed(method: str, path: str, allowed: str) -> None:
    response = request(LINK, path, method)
    assert (response.status_code, response.text) == (405, "Method Not Allowed\n")
    assert response.headers["allow"] == allowed
    assert response.headers["x-content-type-options"] == "nosniff"


def test_head_is_another_method() -> None:
    response = request(LINK, "/ws/v1/clusters", "HEAD")
    assert (response.status_code, response.content, response.headers["allow"]) == (405, b"", "GET, OPTIONS")


def test_options_says_only_what_is_allowed() -> None:
    response = request(LINK, "/ws/v1/clusters", "OPTIONS")
    assert (response.status_code, response.content) == (200, b"")
    assert dict(response.headers) == {"allow": "GET, OPTIONS", "content-length": "0"}
    assert request(LINK, "/ws/v1/validate-conf", "OPTIONS").headers["allow"] == "OPTIONS, POST"


@pytest.mark.parametrize("path", ["/ws/v1/clusters/", "/WS/V1/Clusters", "/ws//v1/clusters"])
def test_a_path_with_a_slip_is_redirected(path: str) -> None:
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


@pytest.mark.parametrize("size", [api.GZIP_BYTES_MIN, api.THREAD_BYTES_MIN])
def test_a_large_body_is_compressed_for_those_who_take_it(size: int) -> None:
    response = request(sized(size), "/ws/v1/partition/default/queues", headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["vary"] == "Accept-Encoding"
    assert int(response.headers["content-length"]) < size
    assert response.content == b"x" * size


def test_a_small_body_is_not_compressed() -> None:
    link = sized(api.GZIP_BYTES_MIN - 1)
    response = request(link, "/ws/v1/partition/default/queues", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers
    assert "vary" not in response.headers


def test_a_body_over_the_limit_is_refused() -> None:
    response = request(LINK, "/ws/v1/validate-conf", "POST", body=b"x" * (api.BODY_BYTES_MAX + 1))
    assert response.status_code == 413
    assert response.headers["access-control-allow-methods"] == "OPTIONS, POST"
    assert response.json()["message"] == "Request body is larger than 16777216 bytes"
