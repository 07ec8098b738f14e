"""The OpenAPI document describes every route and no other, and is valid OpenAPI 3.1."""

import doctest
import json
import re
from typing import Final

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from tests.webservice.fakes import QUEUES, FakeLink, loopback_users, partition, request
from yunishard.webservice import api_document
from yunishard.webservice.api_document import ROUTES, operation_id

PATH: Final = "/ws/v1/openapi.json"


def served() -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    found = request(FakeLink(partition()), PATH).json()
    assert isinstance(found, dict)
    return found


def test_every_route_is_described_once() -> None:
    assert all(route.summary for route in ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_the_document_has_every_route_with_its_access_rule() -> None:
    paths = served()["paths"]
    shown = {(method, path): one["x-yunishard-access"] for path, of in paths.items() for method, one in of.items()}
    assert shown == {(route.method.lower(), route.path): route.access.value for route in ROUTES}


def test_operations_have_names_of_their_own() -> None:
    names = [operation_id(route.method, route.path) for route in ROUTES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]\w+", name) for name in names)


def test_every_segment_of_a_path_is_described_where_it_stands() -> None:
    for path, operations in served()["paths"].items():
        for operation in operations.values():
            parameters = operation.get("parameters", [])
            assert isinstance(parameters, list)
            segments = [one["name"] for one in parameters if one["in"] == "path"]
            assert segments == re.findall(r"{(\w+)}", path)


def test_the_document_is_as_openapi_wants_it() -> None:
    validator = jsonschema_rs.Draft202012Validator(OPENAPI_31)
    assert [str(error) for error in validator.iter_errors(served())] == []
    spoiled = {**served(), "paths": {"no-slash": {}}}
    assert not validator.is_valid(spoiled)


def test_every_schema_is_one_and_leads_only_to_others() -> None:
    components = served()["components"]["schemas"]
    for name, schema in components.items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        assert not name.endswith("View")
        jsonschema_rs.meta.validate(schema)
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(served())))
    assert named <= set(components)


@pytest.mark.parametrize("path", ["/ws/v1/config", "/ws/v1/validate-conf"])
def test_a_configuration_can_be_sent_by_clients_that_generators_make(path: str) -> None:
    """openapi-generator takes the first type, and sends only text or JSON; openapi-python-client leaves out a route
    that offers neither JSON, a form nor `application/octet-stream`.
    """
    body = served()["paths"][path]["post"]["requestBody"]
    assert isinstance(body, dict)
    offered = {media: content["schema"].get("type") for media, content in body["content"].items()}
    assert next(iter(offered.items())) == ("text/plain", "string")
    assert offered["application/octet-stream"] == "string"
    for media in offered:
        sent = request(
            FakeLink(partition()),
            path,
            "POST",
            headers={"Content-Type": media},
            body=QUEUES.encode(),
            who=loopback_users(0),
        )
        assert sent.status_code == 200, sent.text


def test_the_document_is_sent_once_to_who_keeps_it() -> None:
    first = request(FakeLink(), PATH)
    assert first.headers["content-type"] == "application/json; charset=UTF-8"
    again = request(FakeLink(), PATH, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])


def test_a_route_that_streams_is_marked() -> None:
    stream = served()["paths"]["/ws/v1/events/stream"]["get"]
    assert stream["x-yunishard-stream"] is True


def test_the_examples_are_true() -> None:
    assert doctest.testmod(api_document).failed == 0
