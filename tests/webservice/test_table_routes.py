"""What is asked of the worker for a table, and which requests are refused."""

import asyncio

import httpx
import pytest
from msgspec.structs import replace

from tests.webservice.fakes import CLIENT, FakeLink, loopback_users, partition, request
from yunishard.common.messages.query_messages import NOT_MODIFIED, Answer, Query
from yunishard.common.names import ILLEGAL_QUEUE
from yunishard.common.rest.catalogue import OFFSET_MAX, ROWS_MAX, TABLES
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl

PATH = "/ws/v1/partition/default/table"
EMPTY = b'{"columns":[],"rows":[],"total":0,"resources":[]}\n'


def worker(query: Query) -> Answer:
    if query.known == "v1":
        return Answer(status=NOT_MODIFIED, body=b"", version="v1")
    return Answer(status=200, body=EMPTY, version="v1")


def link() -> FakeLink:
    return FakeLink(partition(), worker=worker)


def asked(path: str) -> Query:
    one = link()
    response = request(one, f"{PATH}/{path}")
    assert (response.status_code, response.content) == (200, EMPTY)
    [(_, query)] = one.asked
    return query


def refusal(path: str) -> tuple[int, str]:
    one = link()
    response = request(one, f"{PATH}/{path}")
    assert one.asked == [], "the worker is not asked"
    return response.status_code, response.json()["message"]


@pytest.mark.parametrize("name", TABLES)
def test_each_table_has_a_route(name: str) -> None:
    query = asked(name)
    assert (query.what, query.name, query.args) == (f"table-{name}", "default", {"limit": str(ROWS_MAX)})


def test_the_worker_gets_the_filters_that_are_set() -> None:
    query = asked(
        "applications?state=running&queue=ROOT.A&subtree=true&user=&text=x+y&sort=-pending.memory&limit=9&rm=rm-1"
    )
    assert query.args == {
        "state": "running",
        "queue": "root.a",
        "subtree": "true",
        "text": "x y",
        "sort": "-pending.memory",
        "limit": "9",
    }
    assert asked("nodes?offset=200&attribute=zone=x").args == {
        "limit": str(ROWS_MAX),
        "offset": "200",
        "attribute": "zone=x",
    }
    assert "offset" not in asked("nodes?offset=0").args


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nodes?limit=0", "limit must be a number from 1 to 10000"),
        ("nodes?limit=10001", "limit must be a number from 1 to 10000"),
        ("nodes?limit=", "limit must be a number from 1 to 10000"),
        ("nodes?offset=-1", f"offset must be a number from 0 to {OFFSET_MAX}"),
        ("nodes?offset=x", f"offset must be a number from 0 to {OFFSET_MAX}"),
        (
            "queues?sort=-name",
            "queues cannot be sorted by 'name', but by queue, state, leaf, managed, used",
        ),
        (
            "applications?sort=groups",
            "applications cannot be sorted by 'groups', but by application, state, queue, user",
        ),
        (
            "nodes?sort=rack.gpu",
            "'rack.gpu' is no order of nodes: a resource type may follow in capacity.TYPE, used.TYPE",
        ),
        ("nodes?sort=used.", "'used.' is no order of nodes: a resource type may follow in"),
        ("nodes?state=full", "state must be one of schedulable, unschedulable, cordoned, reserved, not 'full'"),
        (
            "nodes?user=bob",
            "'user' is no parameter of the table nodes, those are: attribute, limit, node, offset, rm, sort, state",
        ),
        ("asks?stat=x", "'stat' is no parameter of the table asks, those are: application, limit, offset, queue"),
        ("users?limited=yes", "limited must be true or false, not 'yes'"),
        ("users?queue=root.a&subtree=yes", "subtree must be true or false, not 'yes'"),
        ("users?subtree=true", "subtree=true needs a queue: add queue=PATH, such as root.a"),
        ("users?queue=root..a", ILLEGAL_QUEUE),
    ],
)
def test_a_wrong_parameter_is_refused_with_what_would_be_right(path: str, text: str) -> None:
    status, message = refusal(path)
    assert status == 400
    assert message.startswith(text)


def test_a_table_of_a_partition_that_does_not_exist_is_not_found() -> None:
    response = request(link(), "/ws/v1/partition/nosuch/table/nodes")
    assert (response.status_code, response.json()["message"]) == (404, "Partition not found")
    assert request(link(), f"{PATH}/pods").status_code == 404


def test_an_unchanged_table_is_not_sent_again() -> None:
    one = link()
    first = request(one, f"{PATH}/nodes")
    assert first.headers["ETag"] == 'W/"v1"'
    again = request(one, f"{PATH}/nodes", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_client_limits_the_age_of_a_table() -> None:
    """An answer that took its worker long is otherwise served again for seconds."""
    numbers: list[int] = []

    async def run() -> None:
        api = Api(one, Settings(), AccessControl(loopback_users()))
        transport = httpx.ASGITransport(app=api, client=CLIENT)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9080") as client:
            for cache_control in ("no-cache", "no-cache", "max-age=60", "max-age=0", "max-age=0"):
                response = await client.get(f"{PATH}/nodes", headers={"Cache-Control": cache_control})
                assert response.content == EMPTY
                numbers.append(len(one.asked))

    one = FakeLink(partition(), worker=lambda query: replace(worker(query), took_micro_seconds=100_000))
    asyncio.run(run())
    assert numbers == [1, 1, 1, 2, 3]
