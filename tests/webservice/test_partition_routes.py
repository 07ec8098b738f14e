"""The partition of the events, and the answers without one."""

import pytest

from tests.machines import said
from tests.partition_worker.bench import Bench
from tests.partition_worker.test_admin_actions import TWO_QUEUES
from tests.webservice.event_worker import FakeWorker
from tests.webservice.fakes import ADMIN, ALICE, FakeLink, loopback_users, partition, request
from yunishard.common.messages.query_messages import (
    STEPS_MAX,
    Answer,
    KillApplication,
    MoveApplication,
    PartitionEntry,
    PartitionList,
    Query,
    Schedule,
)
from yunishard.webservice.broker_client import Change

PATHS = ["/ws/v1/events/batch", "/ws/v1/events/stream"]


def batch(query: Query) -> Answer:
    return Answer(status=200, body=b'{"start":"%s"}\n' % query.args["start"].encode())


@pytest.mark.parametrize("path", PATHS)
def test_of_several_partitions_of_the_first_rm_one_has_to_be_chosen(path: str) -> None:
    link = FakeLink(partition("rm-2"), partition("rm-2", "gpu"), partition("rm-1"))
    response = request(link, path)
    assert (response.status_code, response.json()["message"]) == (
        409,
        "There are several partitions, choose one with the parameter partition: default, gpu",
    )
    assert link.asked == []


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("?", "rm-1_default"),
        ("?partition=rm-2_default", "rm-2_default"),
        ("?partition=[rm-1]default", "rm-1_default"),
        ("?rm=rm-2", "rm-2_default"),
        ("?rm=rm-1&partition=default", "rm-1_default"),
    ],
)
def test_a_partition_is_chosen_by_its_name_or_whose_it_is(query: str, asked: str) -> None:
    link = FakeLink(partition("rm-1"), partition("rm-2"), worker=batch)
    assert request(link, f"/ws/v1/events/batch{query}&start=7").json() == {"start": "7"}
    assert [name for name, _ in link.asked] == [asked]
    link = FakeLink(partition("rm-1"), partition("rm-2"), worker=FakeWorker(streams_max=0).answer)
    assert request(link, f"/ws/v1/events/stream{query}").status_code == 503
    assert [name for name, _ in link.asked] == [asked]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", ["partition=nosuch", "rm=nosuch"])
def test_one_that_is_not_there_is_not_found(path: str, query: str) -> None:
    assert request(FakeLink(partition()), f"{path}?{query}").status_code == 404


def test_before_there_is_a_partition_nothing_has_happened() -> None:
    response = request(FakeLink(), "/ws/v1/events/batch?start=5&count=1")
    assert response.status_code == 200
    assert {**response.json(), "InstanceUUID": ""} == {
        "InstanceUUID": "",
        "LowestID": 0,
        "HighestID": 0,
        "EventRecords": None,
    }


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("count=0", '0 is not a valid value for "count"'),
        ("count=abc", 'strconv.ParseUint: parsing "abc": invalid syntax'),
        ("start=-1", 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ("count=18446744073709551616", 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
    ],
)
def test_numbers_that_are_none_are_refused_then_as_well(query: str, text: str) -> None:
    response = request(FakeLink(), f"/ws/v1/events/batch?{query}")
    assert (response.status_code, response.json()["message"]) == (400, text)


def test_there_is_nothing_to_follow_before_there_is_a_partition() -> None:
    response = request(FakeLink(), "/ws/v1/events/stream")
    assert response.status_code == 503
    assert "no partition yet" in response.json()["message"]


@pytest.mark.parametrize(
    ("tracking", "streams_max", "query", "status", "text"),
    [
        (False, 0, "?count=abc", 500, "Event tracking is disabled"),
        (True, 0, "?count=abc", 503, "Too many streaming connections"),
        (True, 1, "?count=abc", 400, 'strconv.ParseUint: parsing "abc": invalid syntax'),
    ],
)
def test_the_errors_of_a_stream_have_the_order_that_clients_expect(
    tracking: bool, streams_max: int, query: str, status: int, text: str
) -> None:
    worker = FakeWorker(streams_max=streams_max)
    worker.tracking = tracking
    response = request(FakeLink(partition(), worker=worker.answer), f"/ws/v1/events/stream{query}")
    assert (response.status_code, response.json()) == (
        status,
        {"status_code": status, "message": text, "description": text},
    )


APPLICATION = "/ws/v1/partition/default/application/App%20+%251"


def link() -> FakeLink:
    return FakeLink(partition())


def test_an_application_is_killed_by_who_asks() -> None:
    asked = link()
    response = request(asked, f"{APPLICATION}/kill", "POST")
    assert (response.status_code, response.content) == (200, b'{"applicationID":"App +%1"}\n')
    assert asked.changes == [("rm-1_default", KillApplication(application_id="App +%1", actor=ALICE, name="default"))]


def test_an_application_is_moved_by_who_asks() -> None:
    asked = link()
    response = request(asked, f"{APPLICATION}/move?queue=root.A.b%2fc", "POST", who=loopback_users(0))
    assert response.status_code == 200
    wanted = MoveApplication(application_id="App +%1", queue="root.a.b/c", actor=ADMIN, name="default")
    assert asked.changes == [("rm-1_default", wanted)]


@pytest.mark.parametrize("action", ["application/a/kill", "application/a/move?queue=root.other", "schedule"])
@pytest.mark.parametrize(
    ("others", "path", "shown"),
    [([], "rm-1_default", "default"), ([partition("rm-2")], "[rm-1]default", "rm-1_default")],
)
def test_an_answer_to_a_change_names_the_partition_as_every_other_answer_does(
    others: list[PartitionEntry], path: str, shown: str, action: str
) -> None:
    worker = Bench(running=False, manual=True)
    worker.configure(TWO_QUEUES)
    worker.furnish()

    def changer(wanted: Change) -> Answer:
        (answered,) = [one for one in said(worker.hear(wanted)) if isinstance(one, Answer)]
        return answered

    asked = FakeLink(*others, partition("rm-1"), changer=changer)
    response = request(asked, f"/ws/v1/partition/{path}/{action}", "POST", who=loopback_users(0))
    assert (response.status_code, response.json()["partition"]) == (200, shown)


def test_a_refusal_of_steps_names_the_partition_as_every_other_answer_does() -> None:
    worker = Bench()

    def changer(wanted: Change) -> Answer:
        (answered,) = said(worker.hear(wanted))
        assert isinstance(answered, Answer)
        return answered

    asked = FakeLink(partition("rm-2"), partition("rm-1"), changer=changer)
    response = request(asked, "/ws/v1/partition/rm-1_default/schedule", "POST", who=loopback_users(0))
    assert response.json()["message"].startswith("partition rm-1_default schedules automatically")


@pytest.mark.parametrize("action", ["kill", "move?queue=root.b"])
@pytest.mark.parametrize("status", [400, 403, 404, 409])
def test_a_refusal_of_the_worker_is_passed_on(action: str, status: int) -> None:
    asked = FakeLink(partition(), changer=lambda _: Answer(status=status, body=b"so it is"))
    response = request(asked, f"{APPLICATION}/{action}", "POST")
    assert response.json() == {"status_code": status, "message": "so it is", "description": "so it is"}
    assert response.status_code == status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ws/v1/partition/x/application/a/kill", 404),
        ("/ws/v1/partition/x/application/a/move", 404),
        (f"{APPLICATION}/move", 400),
        (f"{APPLICATION}/move?queue=", 400),
        (f"{APPLICATION}/move?queue=root..a", 400),
        (f"{APPLICATION}/move?queue=root.a%20b", 400),
    ],
)
def test_what_makes_no_sense_is_not_sent_on(path: str, status: int) -> None:
    asked = link()
    assert request(asked, path, "POST").status_code == status
    assert asked.changes == []


def test_a_plain_name_of_two_partitions_means_the_first() -> None:
    asked = FakeLink(partition("rm-1"), partition("rm-2"))
    assert request(asked, f"{APPLICATION}/kill", "POST").status_code == 200
    assert [name for name, _ in asked.changes] == ["rm-1_default"]


@pytest.mark.parametrize("action", ["kill", "move"])
def test_only_posting_does_it(action: str) -> None:
    for method in ("GET", "PUT", "DELETE", "HEAD"):
        response = request(link(), f"{APPLICATION}/{action}", method)
        assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")


# Steps ----------------------------------------------------------------------------------------------------------------

SCHEDULE = "/ws/v1/partition/default/schedule"


@pytest.mark.parametrize(
    ("query", "steps"), [("", 1), ("?steps=3", 3), ("?steps=007", 7), (f"?steps={STEPS_MAX}", STEPS_MAX)]
)
def test_a_scheduler_administrator_has_a_partition_decide_step_by_step(query: str, steps: int) -> None:
    asked = link()
    response = request(asked, f"{SCHEDULE}{query}", "POST", who=loopback_users(0))
    assert (response.status_code, response.json()) == (200, {"made": steps})
    assert asked.changes == [("rm-1_default", Schedule(steps=steps, name="default"))]


@pytest.mark.parametrize("steps", ["0", "-1", "1.5", "many", "", "1e3", "\u0663", str(STEPS_MAX + 1), "9" * 1500])
def test_a_number_of_steps_that_cannot_be_is_refused_with_what_can(steps: str) -> None:
    asked = link()
    response = request(asked, f"{SCHEDULE}?steps={steps}", "POST", who=loopback_users(0))
    assert response.status_code == 400
    assert response.json()["message"].startswith(f"Say how many with ?steps=N, a whole number from 1 to {STEPS_MAX}")
    assert asked.changes == []


def test_steps_are_for_scheduler_administrators_only() -> None:
    asked = link()
    response = request(asked, SCHEDULE, "POST")
    assert (response.status_code, "not a scheduler administrator" in response.json()["message"]) == (403, True)
    assert asked.changes == []


def test_refused_steps_have_the_text_of_the_worker() -> None:
    asked = FakeLink(partition(), changer=lambda _: Answer(status=409, body=b"it schedules automatically"))
    response = request(asked, SCHEDULE, "POST", who=loopback_users(0))
    assert (response.status_code, response.json()["message"]) == (409, "it schedules automatically")


@pytest.mark.parametrize(("path", "lists"), [("rm-2_default", 0), ("[rm-2]default", 0), ("default", 1), ("rm-3_x", 1)])
def test_a_partition_named_in_full_is_asked_without_asking_the_broker_first(path: str, lists: int) -> None:
    class Counting(FakeLink):
        listed = 0

        def recent_partitions(self) -> PartitionList:
            return self.known

        async def partitions(self) -> PartitionList:
            self.listed += 1
            return self.known

    link = Counting(partition("rm-1"), partition("rm-2"))
    response = request(link, f"/ws/v1/partition/{path}/queues")
    assert (response.status_code, link.listed) == (404 if path == "rm-3_x" else 200, lists)
