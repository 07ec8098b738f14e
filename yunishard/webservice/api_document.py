"""The route table, and the OpenAPI 3.1 document that is generated from it.

To add a route, write a handler in one of the `*_routes.py` modules; nothing else has to change. Schemas of bodies are
generated from the msgspec structs that encode them, so they always have the fields that the API sends. Parameters,
access rules and texts come from the declarations (`router.py`) and the handlers' docstrings.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Final

import msgspec

from yunishard.webservice import (
    cluster_routes,
    config_routes,
    debug_routes,
    explain_routes,
    history_routes,
    host_routes,
    operator_routes,
    partition_routes,
    placement_routes,
    plan_routes,
    table_routes,
)
from yunishard.webservice.calls import Call, Reply
from yunishard.webservice.parameters import ANY_TEXT, IF_MATCH, IF_NONE_MATCH, SEGMENTS, Json, entity_tag
from yunishard.webservice.router import ANY_OBJECT, TEXT, Access, Content, Route, RouteGroup
from yunishard.webservice.views import ErrorView

GROUPS: Final[tuple[RouteGroup, ...]] = (
    cluster_routes.CLUSTER,
    partition_routes.PARTITION,
    table_routes.TABLES_GROUP,
    placement_routes.PLACEMENT,
    explain_routes.EXPLANATIONS,
    plan_routes.PLANS,
    partition_routes.EVENTS,
    history_routes.HISTORY,
    config_routes.CONFIGURATION,
    host_routes.HOSTS,
    operator_routes.OPERATIONS,
    partition_routes.STEPS,
    debug_routes.DEBUG,
)

_TAG_LENGTH: Final = 32


@Route(cluster_routes.CLUSTER, "GET", "/ws/v1/openapi.json", Access.ANYBODY, (ANY_OBJECT,), parameters=(IF_NONE_MATCH,))
async def openapi(call: Call) -> Reply:
    """This document."""
    text, tag = _make_document()
    return Reply(text, headers={"ETag": entity_tag(tag), "Cache-Control": "no-cache"})


@cache
def _make_document() -> tuple[bytes, str]:
    """The document and its tag, generated on first use: routes do not change while the process runs."""
    text = msgspec.json.encode(api_document(GROUPS, release=version("yunishard"))) + b"\n"
    return text, hashlib.sha256(text).hexdigest()[:_TAG_LENGTH]


ROUTES: Final[tuple[Route, ...]] = tuple(route for group in GROUPS for route in group.routes)


def routes(*, debug: bool) -> tuple[Route, ...]:
    """The routes that exist with the setting `debug`, or without it."""
    return tuple(route for route in ROUTES if debug or not route.debug_only)


# The document ---------------------------------------------------------------------------------------------------------

_PREFIX: Final = "/ws/v1"
_SEGMENT: Final = re.compile(r"\{(\w+)\}")
_DESCRIPTION: Final = (
    "Queries about the scheduler, and changes to its applications and configurations. A new key may appear in any"
    " object: ignore unknown keys. The extension `x-yunishard-access` is the access rule while authentication is on:"
    " `anybody`: every caller;"
    " `known`: every authenticated caller; `seen`: the same, and the answer is limited to what the caller may see;"
    " `own`: a change that the queue's access control lists decide about; `admins`: scheduler administrators. While"
    " authentication is off, every caller may read everything."
)

_STATUSES: Final[Mapping[int, str]] = {
    400: "The request is malformed.",
    404: "The named thing does not exist, or the caller may not see it.",
    429: "Too many requests of this address are running, or too many changes of this user failed: try again later.",
    503: "The process that has the answer does not respond: try again.",
}
"""Statuses of every route."""

_AUTH_STATUSES: Final[Mapping[int, str]] = {401: "The caller is not authenticated.", 403: "The caller may not do this."}
"""Statuses of every route that requires authentication."""

_ERROR_STATUSES: Final[Mapping[int, str]] = {**_STATUSES, **_AUTH_STATUSES}

_SECURITY: Final[Mapping[str, Json]] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "mutualTLS": {"type": "mutualTLS", "description": "A client certificate, or a proxy that is trusted to check it."},
}


def api_document(groups: Sequence[RouteGroup], *, release: str) -> dict[str, Json]:
    """The document of all routes of these groups."""
    routes = [route for group in groups for route in group.routes]
    schemas = _Schemas(content for route in routes for content in (*_list_answers(route), *route.body))
    errors = {_name_response(status): schemas.error(text) for status, text in _ERROR_STATUSES.items()}
    paths: dict[str, dict[str, Json]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "yunishard", "version": release, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "tags": [{"name": group.name, "description": group.description} for group in groups],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": schemas.components, "responses": errors, "securitySchemes": _SECURITY},
    }


def operation_id(method: str, path: str) -> str:
    """A name for generated client code: the method and the words of the path.

    >>> operation_id("GET", "/ws/v1/partition/{partition}/queue/{queue}/applications/{state}")
    'get_partition_queue_applications_by_state'
    """
    words = [method.lower()]
    for segment in path.removeprefix(_PREFIX).strip("/").split("/"):
        named = _SEGMENT.fullmatch(segment)
        if named is None:
            words.append(re.sub(r"\W", "_", segment) or "root")
        elif named[1] != words[-1]:
            words += ["by", named[1]]
    return "_".join(words)


class _Schemas:
    """The schemas of the types of all bodies; each struct is in the components once."""

    def __init__(self, contents: Iterator[Content]) -> None:
        types = dict.fromkeys([ErrorView, *(one.schema for one in contents if not isinstance(one.schema, Mapping))])
        made, components = msgspec.json.schema_components(list(types), ref_template="#/components/schemas/{name}")
        text = msgspec.json.encode([made, components], order="deterministic").decode()
        text = re.sub(r'View(?=\W|_)|_(?=")', "", text)  # types are named for what they show: `Queue`, not `QueueView`
        renamed: list[Json]
        renamed, self.components = msgspec.json.decode(text)
        self._made: dict[object, Json] = dict(zip(types, renamed, strict=True))

    def bodies(self, contents: Sequence[Content]) -> Json:
        """The schema of each form, by its media type."""
        return {
            one.media: {"schema": one.schema if isinstance(one.schema, Mapping) else self._made[one.schema]}
            for one in contents
        }

    def error(self, text: str) -> Json:
        """A response that is an error."""
        return {"description": text, "content": self.bodies((Content(ErrorView), Content(ANY_TEXT, TEXT)))}


def _list_answers(route: Route) -> tuple[Content, ...]:
    return tuple(one if isinstance(one, Content) else Content(one) for one in route.answers)


def _describe_operation(route: Route, schemas: _Schemas) -> Json:
    shown: dict[str, Json] = {
        "operationId": operation_id(route.method, route.path),
        "tags": [route.group.name],
        "summary": route.summary,
        "x-yunishard-access": route.access.value,
        "security": [{}] if route.access is Access.ANYBODY else [{}, *({name: []} for name in _SECURITY)],
    }
    if route.description:
        shown["description"] = route.description
    if route.streams:
        shown["x-yunishard-stream"] = True
    parameters: list[Json] = []
    for name in _SEGMENT.findall(route.path):
        text, schema = SEGMENTS[name]
        schema = route.segments.get(name, schema)
        parameters.append({"name": name, "in": "path", "required": True, "description": text, "schema": schema})
    for one in route.parameters:
        texts = {"name": one.name, "in": one.place, "description": one.description}
        parameters.append({**texts, "required": one.required, "schema": one.schema})
    if parameters:
        shown["parameters"] = parameters
    if route.body:
        shown["requestBody"] = {"required": route.body_required, "content": schemas.bodies(route.body)}
    shown["responses"] = _describe_responses(route, schemas)
    return shown


def _describe_responses(route: Route, schemas: _Schemas) -> dict[str, Json]:
    general = _STATUSES if route.access is Access.ANYBODY else _ERROR_STATUSES
    found: dict[int, Json] = {
        status: {"$ref": f"#/components/responses/{_name_response(status)}"} for status in general
    }
    errors = {**route.statuses, **({413: "The body is too large."} if route.method != "GET" else {})}
    found |= {status: schemas.error(text) for status, text in errors.items()}
    own = {"X-Request-Id": "The ID of the request in the audit log."} if route.changes else {}
    if IF_NONE_MATCH in route.parameters:
        found[304] = {"description": "The client has the current answer already."}
        own["ETag"] = "The version of the answer."
    if IF_MATCH in route.parameters:
        found[412] = schemas.error("Another version is in force than the one in `If-Match`.")
        own["ETag"] = "The version that is in force now."
    if any(one.name == "after" for one in route.parameters):
        own["Link"] = "The address of the next page; absent on the last one."
    headers: Json = {name: {"description": text, "schema": ANY_TEXT} for name, text in own.items()}
    status, text = (301, "The new address.") if route.redirect else (200, route.summary)
    found[status] = {"description": text, "content": schemas.bodies(_list_answers(route)), "headers": headers}
    return {str(status): found[status] for status in sorted(found)}


def _name_response(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "")
