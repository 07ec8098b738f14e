"""Killing and moving: what the worker is asked, by whom, and every answer."""

import pytest

from common.messages import Answer, KillApplication, MoveApplication
from tests.webservice.fakes import ADMIN, ALICE, FakeLink, partition, people, request

APPLICATION = "/ws/v1/partition/default/application/App%20+%251"


def link() -> FakeLink:
    return FakeLink(partition())


def test_an_application_is_killed_by_who_asks() -> None:
    asked = link()
    response = request(asked, f"{APPLICATION}/kill", "POST")
    assert (response.status_code, response.content) == (200, b'{"applicationID":"App +%1"}\n')
    assert asked.changes == [("rm-1_default", KillApplication(application_id="App +%1", actor=ALICE))]


def test_an_application_is_moved_by_who_asks() -> None:
    asked = link()
    response = request(asked, f"{APPLICATION}/move?queue=root.A.b%2fc", "POST", who=people(0))
    assert response.status_code == 200
    wanted = MoveApplication(application_id="App +%1", queue="root.a.b/c", actor=ADMIN)
    assert asked.changes == [("rm-1_default", wanted)]


@pytest.mark.parametrize("action", ["kill", "move?queue=root.b"])
@pytest.mark.parametrize("status", [400, 403, 404, 409])
def test_what_the_worker_refuses_is_told_as_it_says(action: str, status: int) -> None:
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


def test_a_plain_name_of_two_partitions_is_refused() -> None:
    asked = FakeLink(partition("rm-1"), partition("rm-2"))
    assert request(asked, f"{APPLICATION}/kill", "POST").status_code == 409
    assert asked.changes == []


@pytest.mark.parametrize("action", ["kill", "move"])
def test_only_posting_does_it(action: str) -> None:
    for method in ("GET", "PUT", "DELETE", "HEAD"):
        response = request(link(), f"{APPLICATION}/{action}", method)
        assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")
