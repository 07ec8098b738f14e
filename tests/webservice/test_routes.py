"""The query of each path, the order of checks, and the joined answers of all partitions."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from msgspec.structs import replace

from tests.webservice.fakes import FakeLink, SilentLink, echo, loopback_users, partition, request
from yunishard.common.messages.query_messages import Answer, ManagerEntry, Query
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.calls import VALIDATIONS_MAX

PARTITION = "/ws/v1/partition/default"
ILLEGAL_QUEUE = (
    "invalid queue name, max 64 characters consisting of alphanumeric characters "
    "and '-', '_', '#', '@', '/', ':' allowed"
)


def link() -> FakeLink:
    return FakeLink(partition())


def missing_queue(query: Query) -> Answer:
    assert "queue" in query.args
    return Answer(status=404, body=b"Queue not found")


@pytest.mark.parametrize(
    ("path", "what", "args"),
    [
        ("/queues", "queues", {}),
        ("/queue/root.A", "queue", {"queue": "root.a"}),
        ("/queue/root.a?subtree", "queue", {"queue": "root.a", "subtree": "true"}),
        ("/queue/root.a?subtree=false", "queue", {"queue": "root.a", "subtree": "true"}),
        ("/queue/root.%2540recovery%2540", "queue", {"queue": "root.@recovery@"}),
        ("/queue/root.a%252Fb", "queue", {"queue": "root.a/b"}),
        ("/queue/root.a/applications", "queue-applications", {"queue": "root.a"}),
        ("/queue/root.a/applications/Active", "applications", {"queue": "root.a", "state": "active"}),
        (
            "/queue/root.a/applications/active?status=Running&status=new",
            "applications",
            {"queue": "root.a", "state": "active", "status": "running"},
        ),
        ("/applications/active?status=", "applications", {"state": "active"}),
        ("/applications/COMPLETED?status=nonsense", "applications", {"state": "completed"}),
        ("/applications/rejected", "applications", {"state": "rejected"}),
        ("/application/App%20+%251", "application", {"application": "App +%1"}),
        ("/nodes", "nodes", {}),
        ("/node/node-1", "node", {"node": "node-1"}),
        ("/usage/users", "users", {}),
        ("/usage/groups", "groups", {}),
        ("/usage/user/alice", "user", {"user": "alice"}),
        ("/usage/user/a.b%40c.org", "user", {"user": "a.b@c.org"}),
        ("/usage/user/a%252Fb", "user", {"user": "a/b"}),
        ("/usage/group/Dev", "group", {"group": "Dev"}),
        ("/placementrules", "rules", {}),
        ("/preemptions", "preemptions", {}),
        ("/nodes?limit=2&after=n%201", "nodes", {"limit": "2", "after": "n 1"}),
        ("/usage/users?limit=2", "users", {"limit": "2", "after": ""}),
        ("/usage/groups?limit=2", "groups", {"limit": "2", "after": ""}),
        ("/applications/completed?limit=2", "applications", {"state": "completed", "limit": "2", "after": ""}),
        ("/queue/root.a/applications?limit=2", "queue-applications", {"queue": "root.a", "limit": "2", "after": ""}),
        (
            "/queue/root.a/applications/active?limit=2",
            "applications",
            {"queue": "root.a", "state": "active", "limit": "2", "after": ""},
        ),
        ("/preemptions?limit=010", "preemptions", {"limit": "10", "after": ""}),
    ],
)
def test_a_path_asks_the_partition_one_question(path: str, what: str, args: dict[str, str]) -> None:
    asked = link()
    response = request(asked, PARTITION + path)
    assert (response.status_code, response.content) == (200, b'{"name":"default"}\n')
    assert asked.asked == [("rm-1_default", Query(what=what, name="default", args=args))]


def test_an_answer_is_passed_on_as_it_is() -> None:
    odd = FakeLink(partition(), worker=lambda _: Answer(status=404, body=b"Nothing here"))
    response = request(odd, f"{PARTITION}/node/n")
    assert response.json() == {"status_code": 404, "message": "Nothing here", "description": "Nothing here"}


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        # one queue: partition, decoding, syntax
        ("/ws/v1/partition/x/queue/root.%25zz", 404, "Partition not found"),
        (f"{PARTITION}/queue/root.%25zz", 400, 'invalid URL escape "%zz"'),
        (f"{PARTITION}/queue/root.a%20b", 400, ILLEGAL_QUEUE),
        (f"{PARTITION}/queue/root.a+b", 400, ILLEGAL_QUEUE),
        (f"{PARTITION}/queue/root..a", 400, ILLEGAL_QUEUE),
        # the applications of a queue: decoding, syntax, partition
        ("/ws/v1/partition/x/queue/root.%25zz/applications", 400, 'invalid URL escape "%zz"'),
        ("/ws/v1/partition/x/queue/root.!/applications", 400, ILLEGAL_QUEUE),
        ("/ws/v1/partition/x/queue/root.a/applications", 404, "Partition not found"),
        # with a state: partition, decoding, syntax, (queue,) state, status
        ("/ws/v1/partition/x/queue/root.%25/applications/active", 404, "Partition not found"),
        (f"{PARTITION}/queue/root.%25/applications/x", 400, 'invalid URL escape "%"'),
        (f"{PARTITION}/queue/root.!/applications/x", 400, ILLEGAL_QUEUE),
        (
            f"{PARTITION}/queue/root.a/applications/completed?status=x",
            400,
            "Only following application states are allowed: active",
        ),
        (
            f"{PARTITION}/queue/root.a/applications/active?status=x",
            400,
            "Only following active statuses are allowed: new,accepted,running,completing,failing,resuming",
        ),
        # of a partition: partition, state, status
        ("/ws/v1/partition/x/applications/x", 404, "Partition not found"),
        (
            f"{PARTITION}/applications/running",
            400,
            "Only following application states are allowed: active, rejected, completed",
        ),
        # preemptions: limit, partition
        (f"{PARTITION}/nodes?after=n1", 400, "after is for pages of a list: say with limit how many entries one has"),
        (f"{PARTITION}/usage/users?limit=0", 400, "limit must be a number from 1 to 10000"),
        (f"{PARTITION}/preemptions?limit=", 400, "limit must be a number from 1 to 10000"),
        ("/ws/v1/partition/x/preemptions?limit=-1", 400, "limit must be a number from 1 to 10000"),
        ("/ws/v1/partition/x/preemptions?limit=10001", 400, "limit must be a number from 1 to 10000"),
        ("/ws/v1/partition/x/preemptions", 404, "Partition not found"),
        # usage of one: decoding, syntax, existence
        (f"{PARTITION}/usage/user/a%25zz", 400, 'invalid URL escape "%zz"'),
        (f"{PARTITION}/usage/user/1abc", 400, "Invalid user name"),
        (f"{PARTITION}/usage/user/bad%20user", 400, "Invalid user name"),
        (f"{PARTITION}/usage/user/a+b", 400, "Invalid user name"),
        (f"{PARTITION}/usage/group/%25zz", 400, 'invalid URL escape "%zz"'),
        (f"{PARTITION}/usage/group/*", 400, "Invalid group name"),
        (f"{PARTITION}/usage/group/a@b", 400, "Invalid group name"),
        ("/ws/v1/partition/x/placementrules", 404, "Partition not found"),
        ("/ws/v1/partition//queues", 404, "Partition not found"),
        ("/ws/v1/partition/Default/queues", 404, "Partition not found"),
        ("/ws/v1/partition/x/nodes", 404, "Partition not found"),
        ("/ws/v1/partition/x/node/n", 404, "Partition not found"),
        ("/ws/v1/partition/x/application/a", 404, "Partition not found"),
    ],
)
def test_the_first_failed_check_is_reported(path: str, status: int, text: str) -> None:
    response = request(link(), path)
    assert (response.status_code, response.json()["message"]) == (status, text)


def test_a_missing_queue_is_reported_before_a_wrong_state() -> None:
    response = request(FakeLink(partition(), worker=missing_queue), f"{PARTITION}/queue/root.x/applications/completed")
    assert (response.status_code, response.json()["message"]) == (404, "Queue not found")


def test_the_brackets_of_the_scheduler_interface_name_a_partition_too() -> None:
    asked = link()
    request(asked, "/ws/v1/partition/[rm-1]default/queues")
    request(asked, "/ws/v1/partition/rm-1_default/queues")
    assert [(to, query.name) for to, query in asked.asked] == [("rm-1_default", "default")] * 2


def test_a_plain_name_of_two_partitions_means_the_first_and_the_other_is_shown_by_its_full_name() -> None:
    two = FakeLink(partition("rm-1"), partition("rm-2"))
    assert request(two, f"{PARTITION}/queues").json() == {"name": "default"}
    assert request(two, "/ws/v1/partition/rm-2_default/queues").json() == {"name": "rm-2_default"}
    assert [name for name, _ in two.asked] == ["rm-1_default", "rm-2_default"]


@pytest.mark.parametrize("what", ["users", "groups"])
def test_usage_is_asked_for_by_any_name_while_there_is_one_partition(what: str) -> None:
    assert request(link(), f"/ws/v1/partition/x/usage/{what}").json() == {"name": "default"}
    assert request(FakeLink(), f"/ws/v1/partition/x/usage/{what}").content == b"[]\n"
    two = FakeLink(partition("rm-1"), partition("rm-2", "gpu"))
    assert request(two, f"/ws/v1/partition/x/usage/{what}").content == b"[]\n"
    assert request(two, f"/ws/v1/partition/gpu/usage/{what}").json() == {"name": "gpu"}


@pytest.mark.parametrize(("path", "text"), [("user/alice", "User not found"), ("group/dev", "Group not found")])
def test_users_and_groups_are_not_found_without_a_partition(path: str, text: str) -> None:
    response = request(FakeLink(), f"{PARTITION}/usage/{path}")
    assert (response.status_code, response.json()["message"]) == (404, text)
    assert request(link(), f"/ws/v1/partition/x/usage/{path}").json() == {"name": "default"}


def test_clusters_lists_each_partition_with_the_builds_of_all_rms_its_own_first() -> None:
    response = request(FakeLink(partition("rm-2", "gpu"), partition("rm-1")), "/ws/v1/clusters")
    first, second = '{"buildVersion":"1.0","rmId":"rm-1"}', '{"buildVersion":"1.0","rmId":"rm-2"}'
    assert response.text == (
        f'[{{"startTime":7,"rmBuildInformation":[{second},{first}],"partition":"gpu","clusterName":"kubernetes",'
        f'"rmId":"rm-2"}},{{"startTime":7,"rmBuildInformation":[{first},{second}],"partition":"default",'
        f'"clusterName":"kubernetes","rmId":"rm-1"}}]\n'
    )


def test_clusters_show_when_their_rm_disconnected() -> None:
    two = FakeLink(partition("rm-1", "a"), partition("rm-2", "b"))
    managers = [ManagerEntry("rm-1"), ManagerEntry("rm-2", away_since_ns=5)]
    two.known = replace(two.known, managers=managers)
    shown = request(two, "/ws/v1/clusters").json()
    assert [(one["partition"], one.get("awaySince")) for one in shown] == [("a", None), ("b", 5)]


def test_partitions_joins_the_answers_of_all_workers() -> None:
    response = request(FakeLink(partition("rm-2", "gpu"), partition("rm-1")), "/ws/v1/partitions")
    assert response.content == b'[{"name":"gpu"},{"name":"default"}]\n'


def test_a_silent_partition_is_listed_beside_the_others() -> None:
    def worker(query: Query) -> Answer:
        return echo(query) if query.name == "a" else Answer(status=503, body=b"starting")

    two = FakeLink(partition("rm-1", "a"), partition("rm-2", "b"), worker=worker)
    first, silent = request(two, "/ws/v1/partitions").json()
    assert first == {"name": "a"}
    assert (silent["clusterId"], silent["name"], silent["state"]) == ("rm-2", "b", "Silent")
    assert (silent["totalNodes"], silent["applications"], silent["totalContainers"]) == (0, {"total": 0}, 0)


@pytest.mark.parametrize("path", ["/ws/v1/clusters", "/ws/v1/partitions"])
def test_without_partitions_the_lists_are_empty(path: str) -> None:
    assert request(FakeLink(), path).content == b"[]\n"


@pytest.mark.parametrize("path", ["/ws/v1/partitions", f"{PARTITION}/queues"])
def test_a_worker_that_does_not_answer_is_named(path: str) -> None:
    response = request(SilentLink(partition()), path)
    assert response.status_code == 503
    assert response.json()["message"] == "Partition rm-1_default did not answer within 10 s"


def test_a_worker_that_cannot_say_what_its_partition_is_makes_the_list_fail() -> None:
    response = request(FakeLink(partition(), worker=lambda _: Answer(status=500, body=b"no\n")), "/ws/v1/partitions")
    assert response.status_code == 503
    assert response.json()["message"] == "Partition rm-1_default answered with status 500: no"


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b"", b'{"allowed":true}\n'),
        (b"partitions:\n- name: default\n  queues:\n  - name: a\n", b'{"allowed":true}\n'),
        (b"partitions:\n- name: default\n", b'{"allowed":false,"reason":"queue config is not set"}\n'),
    ],
)
def test_a_configuration_gets_a_verdict(body: bytes, verdict: bytes) -> None:
    response = request(link(), "/ws/v1/validate-conf", "POST", body=body)
    assert (response.status_code, response.content) == (200, verdict)
    assert response.headers["access-control-allow-methods"] == "OPTIONS, POST"


def test_the_verdict_lists_all_problems_with_their_places_on_request() -> None:
    body = b"partitions:\n- name: default\n  queues:\n  - {name: a, resources: {max: {vcore: x}}}\n  - {name: a}\n"
    response = request(link(), "/ws/v1/validate-conf?problems=true", "POST", body=body)
    assert len(response.json()["problems"]) == 2
    assert {one["line"] for one in response.json()["problems"]} <= {4, 5}
    assert "problems" not in request(link(), "/ws/v1/validate-conf", "POST", body=body).json()
    refused = request(link(), "/ws/v1/validate-conf?problems=null", "POST", body=body)
    assert (refused.status_code, refused.json()["message"]) == (400, "problems is 'null', expected true or false")


def test_a_configuration_that_is_not_text_is_not_allowed() -> None:
    response = request(link(), "/ws/v1/validate-conf", "POST", body=b"\xff")
    assert response.json()["allowed"] is False


def test_configurations_are_validated_one_after_the_other_and_only_so_many_wait() -> None:
    async def run() -> tuple[int, list[int]]:
        coming, rest = asyncio.Semaphore(0), asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            coming.release()
            yield b"partitions: []"
            await rest.wait()

        transport = httpx.ASGITransport(app=Api(link(), Settings(), AccessControl(loopback_users())))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9080") as visitor:
            path = "/ws/v1/validate-conf"
            first = [asyncio.create_task(visitor.post(path, content=slow())) for _ in range(VALIDATIONS_MAX)]
            for _ in first:
                await coming.acquire()
            refused = await visitor.post(path)
            rest.set()
            return refused.status_code, [(await one).status_code for one in first]

    assert asyncio.run(run()) == (503, [200] * VALIDATIONS_MAX)


# Events ---------------------------------------------------------------------------------------------------------------

EVENTS = "/ws/v1/events/batch"


def test_the_history_is_asked_for_with_the_texts_of_the_query() -> None:
    asked = link()
    assert request(asked, f"{EVENTS}?start=x&count=7").status_code == 200
    assert asked.asked == [("rm-1_default", Query(what="events", name="default", args={"start": "x", "count": "7"}))]


def test_before_there_is_a_partition_nothing_has_happened() -> None:
    found = request(FakeLink(), EVENTS).json()
    assert len(found.pop("InstanceUUID")) == 36
    assert found == {"LowestID": 0, "HighestID": 0, "EventRecords": None}


def test_without_a_partition_events_are_those_of_the_first_rm() -> None:
    several = FakeLink(partition("rm-1"), partition("rm-2"))
    assert request(several, EVENTS).status_code == 200
    assert request(several, f"{EVENTS}?partition=rm-2_default").status_code == 200
    assert [name for name, _ in several.asked] == ["rm-1_default", "rm-2_default"]


def test_a_history_of_a_partition_that_does_not_exist_is_not_found() -> None:
    assert request(link(), f"{EVENTS}?partition=other").json()["message"] == "Partition not found"


@pytest.mark.parametrize("path", ["/ws/v1/partition/default/queues", "/ws/v1/partitions"])
@pytest.mark.parametrize("changed", [{"session": "second"}, {"life": 1}])
def test_an_expensive_answer_of_a_partition_that_ended_is_not_given_for_the_one_that_took_its_place(
    path: str, changed: dict[str, str | int]
) -> None:
    def worker(query: Query) -> Answer:
        document = json.dumps({"name": query.name, "generation": generation}).encode()
        return Answer(status=200, body=document, took_micro_seconds=1_000_000)

    async def run() -> list[str]:
        nonlocal generation
        entry = replace(partition(), session="first")
        link = FakeLink(entry, worker=worker)
        transport = httpx.ASGITransport(app=Api(link, Settings(), AccessControl(loopback_users())))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9080") as reader:
            texts = [(await reader.get(path)).text]
            generation = "later"
            texts.append((await reader.get(path)).text)
            link.known = replace(link.known, partitions=[replace(entry, **changed)])
            texts.append((await reader.get(path)).text)
        return ["later" if "later" in text else "first" for text in texts]

    generation = "first"
    assert asyncio.run(run()) == ["first", "first", "later"]
