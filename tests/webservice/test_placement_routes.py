"""The request for an explained placement, and the query that the worker gets."""

import doctest
import json

import pytest

from tests.webservice.fakes import FakeLink, partition, request
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.webservice import placement_routes

PATH = "/ws/v1/partition/default/explain/placement"


def asked(query: str) -> dict[str, str]:
    link = FakeLink(partition())
    assert request(link, f"{PATH}?{query}").status_code == 200
    [(name, one)] = link.asked
    assert isinstance(one, Query)
    assert (name, one.what) == ("rm-1_default", "placement")
    return one.args


def test_the_submission_is_passed_to_the_worker() -> None:
    found = asked("user=bob&groups=dev,qa&queue=root.a&tags=namespace=a,application.type=spark%3D3")
    tags = json.loads(found.pop("tags"))
    assert found == {"user": "bob", "groups": "dev,qa", "queue": "root.a"}
    assert tags == {"namespace": "a", "application.type": "spark=3"}


def test_what_is_not_given_is_not_passed() -> None:
    assert asked("user=&queue=root.a") == {"queue": "root.a"}


def test_tags_with_commas_are_a_json_object() -> None:
    found = asked("tags=%7B%22namespace.resourcequota%22%3A%22%7B1%2C2%7D%22%7D")
    assert json.loads(found["tags"]) == {"namespace.resourcequota": "{1,2}"}


@pytest.mark.parametrize("tags", ["a", "a=b,,", "=b", "%7B", "%7B%22a%22%3A1%7D"])
def test_tags_of_another_form_are_refused(tags: str) -> None:
    link = FakeLink(partition())
    refused = request(link, f"{PATH}?tags={tags}")
    assert (refused.status_code, link.asked) == (400, [])
    assert refused.json()["message"].startswith("tags ")


def test_the_refusal_of_the_worker_is_the_answer() -> None:
    link = FakeLink(partition(), worker=lambda _: Answer(status=403, body=b"only administrators"))
    assert request(link, PATH).status_code == 403


def test_the_examples_are_true() -> None:
    assert doctest.testmod(placement_routes).failed == 0
