"""The history over REST: parameters, answers, errors and access."""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from tests.webservice.fakes import FakeLink, answer, loopback_users, partition, request
from tests.webservice.history.accounts import GPU, MINUTE, NOW, OTHER, S, application, began, portion, sample, usage
from yunishard.common.config.acl import parse_acl
from yunishard.common.messages.query_messages import Actor, Answer, Query
from yunishard.common.settings import Settings
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.credentials import Identity
from yunishard.webservice.history.queries import LISTS, HistoryReader, ListName
from yunishard.webservice.history.sqlite_store import SqliteHistory
from yunishard.webservice.history_routes import HISTORY

H = "/ws/v1/history"
OFF = "Internal metrics collection is not enabled."


@dataclass
class Kept:
    history: SqliteHistory
    problem: str = ""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    path = tmp_path_factory.mktemp("history") / "history.sqlite"
    store = SqliteHistory(path).open_writer()
    store.write(
        [
            portion(
                began("a"),
                began("b", NOW + S, queue="root.a.x", user="eve", app="app-2"),
                ended=[application("app-1"), application("app-2", NOW + S, user="eve", state="Failed")],
            ),
            portion(began("g", NOW + 2 * S), partition=GPU),
            portion(ended=[application("=app-3", NOW + 2 * S, state="Rejected")], partition=OTHER),
            *(portion(at_ns=NOW + minute * MINUTE, sample=sample()) for minute in (0, 1)),
            replace(portion(), usage=[("queues", usage("root.a")), ("users", usage("bob")), ("groups", usage("dev"))]),
        ]
    )
    store.close()
    return Kept(SqliteHistory(path))


Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(kept: Kept) -> Ask:
    def asked(path: str, **headers: str) -> httpx.Response:
        return request(FakeLink(partition()), H + path, headers=headers, past=HistoryReader(kept))

    return asked


def shown(response: httpx.Response, key: str = "applicationID") -> list[object]:
    assert response.status_code == 200, response.text
    return [row[key] for row in response.json()["rows"]]


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["message"]


# What YuniKorn tells --------------------------------------------------------------------------------------------------


def test_charts_have_the_keys_of_yunikorn(ask: Ask) -> None:
    at = f'"timestamp":{NOW}', f'"timestamp":{NOW + MINUTE}'
    apps, containers = ask("/apps"), ask("/containers")
    assert apps.text == f'[{{{at[0]},"totalApplications":"3"}},{{{at[1]},"totalApplications":"3"}}]\n'
    assert containers.text == f'[{{{at[0]},"totalContainers":"16"}},{{{at[1]},"totalContainers":"16"}}]\n'
    assert apps.headers["Content-Type"] == "application/json; charset=UTF-8"
    assert ask("/apps?partition=gpu").text == "[]\n"
    assert ask("/containers?rm=rm-2").text == "[]\n"


def test_pages_of_other_sites_may_read_what_yunikorn_tells_and_nothing_else(ask: Ask) -> None:
    header = "Access-Control-Allow-Origin"
    assert [ask(path, Origin="http://other").headers.get(header) for path in ("/apps", "/users")] == ["*", None]


@pytest.mark.parametrize("path", ["/apps", "/containers"])
def test_without_a_history_charts_have_the_error_of_yunikorn(path: str) -> None:
    response = request(FakeLink(partition()), H + path)
    assert response.status_code == 500
    assert response.json() == {"status_code": 500, "message": OFF, "description": OFF}


def test_without_one_the_others_say_what_to_set() -> None:
    assert refusal(request(FakeLink(partition()), f"{H}/gaps")) == (
        503,
        "No history is recorded: start with the setting history=true",
    )


@pytest.mark.parametrize("path", ["/apps", "/gaps"])
def test_the_reason_is_shown_while_nothing_is_recorded(kept: Kept, path: str) -> None:
    past = HistoryReader(replace(kept, problem="disk full"))
    assert refusal(request(FakeLink(), H + path, past=past)) == (503, "There is no history: disk full")


# Lists ----------------------------------------------------------------------------------------------------------------


def test_a_list_is_an_object_with_rows(ask: Ask) -> None:
    found = ask("/users").json()
    assert found == {
        "rows": [
            {
                "partition": "rm-1_default",
                "rmId": "rm-1",
                "timestamp": NOW,
                "userName": "bob",
                "runningApps": 1,
                "resourceUsage": {"memory": 1},
            }
        ]
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["app-1", "app-2", "=app-3"]),
        ("?partition=rm-1_default", ["app-1", "app-2"]),
        ("?partition=default&rm=rm-2", ["=app-3"]),
        ("?user=eve", ["app-2"]),
        ("?queue=ROOT.A", ["app-1", "app-2", "=app-3"]),
        ("?queue=root&subtree", ["app-1", "app-2", "=app-3"]),
        ("?queue=root", []),
        ("?application=app-1&state=Completed", ["app-1"]),
        ("?state=rejected", ["=app-3"]),
        ("?order=newest&limit=2", ["=app-3", "app-2"]),
        (f"?since={NOW // S + 1}", ["app-2", "=app-3"]),
        ("?until=2027-01-15T08:00:01Z", ["app-1"]),
        ("?since=2027-01-15T09:00:01+01:00&until=", ["app-2", "=app-3"]),
    ],
)
def test_lists_are_narrowed_by_the_query(ask: Ask, query: str, expected: list[str]) -> None:
    assert shown(ask(f"/applications{query}")) == expected


def test_times_may_be_relative_to_now(ask: Ask) -> None:
    assert shown(ask("/applications?until=-999999h")) == []
    assert shown(ask("/applications?since=-999999h")) == ["app-1", "app-2", "=app-3"]


def test_the_link_leads_to_the_next_page(ask: Ask) -> None:
    first = ask("/applications?limit=2")
    match = re.fullmatch(r'</ws/v1/history/applications\?(limit=2&after=\S+)>; rel="next"', first.headers["Link"])
    assert match
    last = ask(f"/applications?{match[1]}")
    assert first.json()["next"] == match[1].partition("after=")[2]
    assert shown(first) + shown(last) == ["app-1", "app-2", "=app-3"]
    assert "Link" not in last.headers
    assert "next" not in last.json()


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/applications?limit=0", 400, "limit must be a number from 1 to 10000"),
        ("/applications?limit=10001", 400, "limit must be a number from 1 to 10000"),
        ("/applications?order=oldest", 400, "order must be newest, or left out"),
        ("/applications?after=nonsense", 400, "after must be the value of next in an earlier answer"),
        ("/applications?since=yesterday", 400, "since must be a time such as"),
        ("/applications?state=running", 400, "state must be one of completed, failed, removed, rejected"),
        ("/allocations?state=failed", 400, "state must be one of running, ended"),
        ("/applications?queue=root.a%20b", 400, "invalid queue name"),
        ("/applications?format=xml", 400, "format must be one of json, csv"),
        ("/applications?usr=bob", 400, "'usr' is no parameter here, those are: after, application, format"),
        ("/queues?user=bob", 400, "'user' is no parameter here"),
        ("/gaps?queue=root", 400, "'queue' is no parameter here"),
        ("/queues?partition=none", 404, "Partition not found"),
        ("/apps?partition=none", 404, "Partition not found"),
    ],
)
def test_what_cannot_be_meant_is_refused(ask: Ask, path: str, status: int, told: str) -> None:
    found = refusal(ask(path))
    assert found[0] == status
    assert found[1].startswith(told)


# CSV ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "accept"), [("?format=csv", "*/*"), ("", "text/csv"), ("", "text/csv;q=0.9, */*;q=0.1")]
)
def test_a_list_can_be_had_as_csv(ask: Ask, query: str, accept: str) -> None:
    response = ask(f"/applications{query}", Accept=accept)
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8; header=present"
    assert response.headers["Vary"] == "Accept"
    names, *rows = csv.reader(io.StringIO(response.text, newline=""))
    assert [dict(zip(names, row, strict=True))["applicationID"] for row in rows] == ["app-1", "app-2", "'=app-3"]


def test_csv_has_pages_too(ask: Ask) -> None:
    first = ask("/applications?format=csv&limit=2")
    following = first.headers["Link"].partition("?")[2].partition(">")[0]
    assert len(ask(f"/applications?{following}").text.splitlines()) == 2


def test_who_wants_json_gets_it_whatever_else_they_would_take(ask: Ask) -> None:
    assert shown(ask("/applications?format=json", Accept="text/csv")) == ["app-1", "app-2", "=app-3"]


# Who sees what --------------------------------------------------------------------------------------------------------


CLOSED = AccessControl(loopback_users(), certificates=True, admins=parse_acl("root"))
ADMINISTERS = {"carl": {"submit": ["root.a"], "admin": ["root.a"]}, "eve": {"submit": ["root"], "admin": []}}


def rights(query: Query) -> Answer:
    """A worker that knows what carl and eve may do."""
    assert query.what == "visible"
    assert query.viewer is not None
    return answer(ADMINISTERS.get(query.viewer.user, {"submit": [], "admin": []}))


def asked_by(user: str, path: str, kept: Kept, link: FakeLink | None = None, *groups: str) -> httpx.Response:
    known = link or FakeLink(partition(), worker=rights)
    return request(known, H + path, control=CLOSED, shown=Identity(user, groups), past=HistoryReader(kept))


@pytest.mark.parametrize(
    ("user", "path", "expected"),
    [
        ("root", "/applications", ["app-1", "app-2", "=app-3"]),
        ("carl", "/applications", ["app-1", "app-2"]),
        ("carl", "/applications?partition=default", ["app-1", "app-2"]),
        ("eve", "/applications", ["app-2"]),
        ("mallory", "/applications", []),
        ("mallory", "/applications?user=eve", []),
        ("eve", "/allocations", ["app-2"]),
        ("carl", "/allocations?rm=rm-1&partition=gpu", []),
    ],
)
def test_who_does_not_see_everything_gets_their_own_and_what_they_administer(
    kept: Kept, user: str, path: str, expected: list[str]
) -> None:
    assert shown(asked_by(user, path, kept)) == expected


def test_usage_is_shown_to_whom_it_concerns(kept: Kept) -> None:
    assert shown(asked_by("eve", "/queues", kept), "queueName") == ["root.a"]
    assert shown(asked_by("mallory", "/queues", kept), "queueName") == []
    assert shown(asked_by("bob", "/users", kept), "userName") == ["bob"]
    assert shown(asked_by("eve", "/users", kept), "userName") == []
    assert shown(asked_by("eve", "/groups", kept, None, "dev"), "groupName") == ["dev"]


def test_csv_is_no_way_around_that(kept: Kept) -> None:
    assert len(asked_by("eve", "/applications?format=csv", kept).text.splitlines()) == 2


def test_a_worker_is_asked_once_for_what_may_be_seen_and_only_where_that_is_meant(kept: Kept) -> None:
    link = FakeLink(partition(), partition("rm-2"), partition(name="gpu"), worker=rights)
    asked_by("eve", "/applications?partition=default&rm=rm-2", kept, link)
    eve = Actor(user="eve", groups=[])
    assert link.asked == [("rm-2_default", Query(what="visible", viewer=eve))]


def test_a_partition_that_does_not_say_so_is_not_left_out_without_a_word(kept: Kept) -> None:
    link = FakeLink(partition(), worker=lambda _: Answer(status=503, body=b"the partition is starting"))
    assert refusal(asked_by("eve", "/applications", kept, link)) == (
        503,
        "Partition rm-1_default does not report the rights of the caller: the partition is starting",
    )


def test_what_ran_each_minute_is_the_same_for_all(kept: Kept) -> None:
    assert asked_by("mallory", "/apps", kept).text == asked_by("root", "/apps", kept).text


# All that the document says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_the_documented_parameters_are_the_accepted_ones(name: ListName) -> None:
    told = {one.name for route in HISTORY.routes if route.path == f"{H}/{name}" for one in route.parameters}
    response = request(FakeLink(), f"{H}/{name}?no-such-name", past=HistoryReader(Kept(SqliteHistory(Path("/none")))))
    assert told == set(refusal(response)[1].partition("those are: ")[2].split(", "))


TWO = FakeLink(partition("rm-2"), partition("rm-1"), worker=rights)
"""Two RMs with a partition of the same name; the second one in the alphabet registered first."""


@pytest.mark.parametrize(
    ("link", "settings", "expected"),
    [
        (TWO, Settings(), ["=app-3"]),
        (TWO, Settings(default_rm="rm-1"), ["app-1", "app-2"]),
        (FakeLink(partition("rm-1")), Settings(), ["app-1", "app-2"]),
        (FakeLink(), Settings(), ["app-1", "app-2", "=app-3"]),
    ],
)
def test_a_plain_name_means_the_same_partition_as_elsewhere_or_all_that_are_gone(
    kept: Kept, link: FakeLink, settings: Settings, expected: list[str]
) -> None:
    response = request(link, f"{H}/applications?partition=default", past=HistoryReader(kept), settings=settings)
    assert shown(response) == expected


def test_the_sums_of_a_plain_name_are_those_of_one_partition(kept: Kept) -> None:
    assert request(TWO, f"{H}/apps?partition=default", past=HistoryReader(kept)).json() == []
    first = request(TWO, f"{H}/apps?partition=default&rm=rm-1", past=HistoryReader(kept)).json()
    assert first == request(TWO, f"{H}/apps", past=HistoryReader(kept)).json() != []


def test_a_viewer_sees_nothing_of_another_rm_by_the_plain_name(kept: Kept) -> None:
    """The plain name means the same partition for everybody; rights decide what of it is shown."""

    def only_in_the_second(query: Query) -> Answer:
        return answer({"submit": [], "admin": []})

    two = FakeLink(partition("rm-1"), partition("rm-2"), worker=only_in_the_second)
    assert shown(asked_by("mallory", "/applications?partition=default", kept, two)) == []
    assert {name for name, _ in two.asked} == {"rm-1_default"}
