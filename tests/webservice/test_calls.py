"""Replies with versions, ages and links to the next page."""

import pytest

from common.query_messages import NOT_MODIFIED, Answer, Query
from tests.webservice.fakes import FakeLink, partition, request

NODES = "/ws/v1/partition/default/nodes"


def link(more: str = "") -> FakeLink:
    def worker(query: Query) -> Answer:
        if query.known == "7-a":
            return Answer(status=NOT_MODIFIED, body=b"", version="7-a")
        return Answer(status=200, body=b"[]\n", version="7-a", next=more)

    return FakeLink(partition(), worker=worker)


def test_a_list_has_a_version() -> None:
    response = request(link(), NODES)
    assert (response.status_code, response.headers["ETag"]) == (200, 'W/"7-a"')
    assert not {"Age", "Link", "Cache-Control"} & {name.title() for name in response.headers}


@pytest.mark.parametrize("condition", ['W/"7-a"', '"7-a"', 'W/"6-a", W/"7-a"', "*"])
def test_a_client_with_the_current_version_gets_304(condition: str) -> None:
    response = request(link(), NODES, headers={"If-None-Match": condition})
    assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", 'W/"7-a"')


@pytest.mark.parametrize("condition", ['W/"6-a"', "7-a", ""])
def test_a_client_that_has_another_one_gets_it(condition: str) -> None:
    response = request(link(), NODES, headers={"If-None-Match": condition})
    assert (response.status_code, response.content) == (200, b"[]\n")


def test_a_page_links_to_the_next_one() -> None:
    response = request(link(more="n 2"), NODES + "?limit=2&after=n%200")
    assert response.headers["Link"] == f'<{NODES}?limit=2&after=n%202>; rel="next"'
    assert response.links["next"]["url"] == f"{NODES}?limit=2&after=n%202"


def test_what_else_was_asked_for_is_in_the_link_too() -> None:
    path = "/ws/v1/partition/default/queue/root.a%2540b/applications/active"
    response = request(link(more="a2"), path + "?status=running&limit=1")
    assert response.headers["Link"] == f'<{path}?status=running&limit=1&after=a2>; rel="next"'


def test_an_error_has_no_version() -> None:
    refusing = FakeLink(partition(), worker=lambda _: Answer(status=404, body=b"Node not found", version="7-a"))
    response = request(refusing, "/ws/v1/partition/default/node/n1")
    assert response.status_code == 404
    assert "ETag" not in response.headers
