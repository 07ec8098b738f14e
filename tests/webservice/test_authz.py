"""What the log says of those who were not let in. Who is let in where, `test_roles.py` sees for all routes."""

import logging

import pytest

from tests.webservice.fakes import FakeLink, people, request
from tests.webservice.identities import token
from webservice.auth import LOGGED_A_MINUTE_MAX, AccessControl, Authenticator, Authorizer
from webservice.cross_site import Cors


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_who_is_not_let_in_is_told_without_a_secret_and_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "core.rest")
    clock = Clock()
    guard = AccessControl(Authorizer(people(), Authenticator(certificates=True), clock=clock), Cors(is_open=False))
    secret = token()

    def knock() -> None:
        headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-User": "root"}
        assert request(FakeLink(), "/ws/v1/clusters?a=%0A", headers=headers, guard=guard).status_code == 403

    for _ in range(LOGGED_A_MINUTE_MAX + 3):
        knock()
    assert len(caplog.messages) == LOGGED_A_MINUTE_MAX
    assert caplog.messages[0].startswith("refused: GET /ws/v1/clusters from 127.0.0.1: 127.0.0.1 is no proxy ")
    clock.now += 60
    knock()
    assert caplog.messages[LOGGED_A_MINUTE_MAX] == "requests refused in that minute besides those logged: 3"
    assert len(caplog.messages) == LOGGED_A_MINUTE_MAX + 2
    assert not any(part in "".join(caplog.messages) for part in secret.split("."))


def test_an_attempt_to_change_something_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "core.rest")
    guard = AccessControl(Authorizer(people(), Authenticator(certificates=True)), Cors(is_open=False))
    path = "/ws/v1/partition/default/schedule"
    assert request(FakeLink(), path, "POST", guard=guard).status_code == 401
    assert caplog.messages == [f"refused: POST {path} from 127.0.0.1: The caller is not authenticated"]
