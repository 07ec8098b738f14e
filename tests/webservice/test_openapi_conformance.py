"""Every answer conforms to the OpenAPI document.

Schemathesis makes the requests from the document, good ones and spoiled ones, from a fixed seed. Among the names that
it makes up are some that exist, so that there is something to answer.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Final

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from schemathesis import Case, HookContext
from schemathesis.checks import not_a_server_error
from schemathesis.generation.feedback import NO_FEEDBACK
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.webservice.cluster import FILLED, api
from yunishard.webservice.api_document import ROUTES

EXAMPLES: Final = 10
"""Requests to each operation that are made up, besides those at the bounds of each parameter."""

CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
    response_schema_conformance,
]
LASTING: Final = ["/debug/pprof/profile", "/debug/pprof/trace", "/debug/pprof/heap", "/debug/pprof/allocs"]
"""They last as long as somebody says, or look at everything that is in memory; each is asked for once."""

STACK: Final = "/debug/stack"
"""Text, although its type says JSON, as it is with YuniKorn; so its schema cannot be checked."""

EXISTING: Final = {
    "partition": ["default", "rm-golden_default", "[rm-golden]default"],
    "queue": ["root.gang", "root", "ROOT.production.services", "root.%2540recovery%2540"],
    "application": ["app-gang", "app-running", "app-none"],
    "ask": ["real-a-1", "gp-4"],
    "node": ["node-1", "node-2"],
    "user": ["alice", "bob"],
    "group": ["developers"],
    "state": ["active", "completed", "rejected"],
    "host": ["a", "b"],
    "rm": ["rm-golden", "nowhere"],
    "number": ["1"],
}


class Served:
    """The API of a cluster that begins anew for each operation that changes something, so that no other one sees it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changing = ""
        self._app = self._anew()

    def begin(self, method: str, path: str) -> None:
        """Requests of this operation follow."""
        changing = "" if method == "GET" else f"{method} {path}"
        if changing != self._changing:
            self._changing = changing
            self._app = self._anew()

    def _anew(self) -> ASGIApp:
        return api(FILLED, Path(mkdtemp(dir=self._folder)) / "history.sqlite")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


REFUSING: Final = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx", "5xx"]}}}
"""Any of them does: with what is in force 412 may come before a look at the body."""

pytestmark = pytest.mark.timeout(300)  # many requests in one test


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with TemporaryDirectory(prefix="yunishard-", ignore_cleanup_errors=True) as folder:
        yield Served(Path(folder))


@pytest.fixture(scope="module")
def document(served: Served) -> BaseSchema:
    whole = schemathesis.openapi.from_asgi(
        "/ws/v1/openapi.json", served, config=schemathesis.Config.from_dict(REFUSING)
    )
    found = whole.exclude(func=lambda context: "x-yunishard-stream" in context.operation.definition.raw)
    found.hook("before_generate_path_parameters")(names_that_exist)
    return found


def names_that_exist(context: HookContext, made_up: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    names = [one.name for one in context.operation.path_parameters]
    existing = st.fixed_dictionaries({name: st.sampled_from(EXISTING[name]) for name in names})
    return st.one_of(existing, made_up)


def test_there_is_something_to_read_everywhere(served: Served, document: BaseSchema) -> None:
    reading = [one.ok() for one in document.get_all_operations() if one.ok().method == "get"]
    assert len(reading) > 40
    for operation in reading:
        served.begin(operation.method.upper(), operation.path)
        names = {one.name: EXISTING[one.name][0] for one in operation.path_parameters}
        query = {"seconds": 0.05} if "seconds" in [one.name for one in operation.query] else {}
        checks = CHECKS[:-1] if operation.path == STACK else CHECKS
        response = operation.Case(path_parameters=names, query=query).call_and_validate(checks=checks)
        assert response.status_code in (200, 301), operation.path
        assert len(response.content) > 3, operation.path  # more than an empty list


@pytest.mark.parametrize(
    ("method", "path"),
    [(one.method, one.path) for one in ROUTES if not one.streams and one.path not in (*LASTING, STACK)],
)
def test_every_answer_conforms_to_the_document(served: Served, document: BaseSchema, method: str, path: str) -> None:
    """What `document.parametrize()` would run. That makes the requests of all operations in each process that collects
    tests, which takes longer than to collect all other tests.
    """
    served.begin(method, path)
    build_operation_test(
        config=document.config,
        operation=document[path][method],
        test_func=conforms,
        given_kwargs={},
        feedback=NO_FEEDBACK,
    )()


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def conforms(case: Case) -> None:
    case.call_and_validate(checks=CHECKS)
