"""Hosts over REST: messages to the broker, and every answer."""

import pytest

from tests.webservice.fakes import HOSTS, FakeLink, loopback_users, request
from yunishard.common.messages.query_messages import Answer, ChangeHosts, HostAction, ReadHosts

HOSTS_PATH = "/ws/v1/hosts"


def test_hosts_are_listed_as_the_broker_sees_them() -> None:
    asked = FakeLink()
    assert request(asked, HOSTS_PATH, who=loopback_users(0)).json() == HOSTS
    assert asked.read_of == [("", ReadHosts())]


@pytest.mark.parametrize(
    ("path", "action", "host"),
    [
        ("a/drain", "drain", "a"),
        ("b-2/undrain", "undrain", "b-2"),
        ("a/remove", "remove", "a"),
        ("rebalance", "rebalance", ""),
    ],
)
def test_each_action_is_one_request_to_the_broker(path: str, action: HostAction, host: str) -> None:
    asked = FakeLink()
    response = request(asked, f"{HOSTS_PATH}/{path}", "POST", who=loopback_users(0))
    assert (response.status_code, response.json()) == (200, HOSTS)
    assert asked.changes == [("", ChangeHosts(action=action, host=host))]


def test_a_refusal_is_passed_on() -> None:
    asked = FakeLink(changer=lambda _: Answer(status=409, body=b"no other host"))
    response = request(asked, f"{HOSTS_PATH}/a/drain", "POST", who=loopback_users(0))
    assert (response.status_code, response.json()["message"]) == (409, "no other host")


@pytest.mark.parametrize("name", ["A", "a" * 64, "-a", "a.b"])
def test_no_host_has_such_a_name(name: str) -> None:
    asked = FakeLink()
    assert request(asked, f"{HOSTS_PATH}/{name}/drain", "POST", who=loopback_users(0)).status_code == 404
    assert asked.changes == []


@pytest.mark.parametrize("path", ["a/drain", "a/undrain", "a/remove", "rebalance"])
def test_only_scheduler_administrators_may_move_partitions(path: str) -> None:
    asked = FakeLink()
    assert request(asked, f"{HOSTS_PATH}/{path}", "POST").status_code == 403
    assert asked.changes == []
