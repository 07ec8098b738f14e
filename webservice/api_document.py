"""Generates the OpenAPI 3.1 document from the declared routes.

Schemas of bodies are generated from the msgspec structs that encode them, so they always have the fields that the API
sends. Parameters, access rules and texts come from the declarations (`router.py`) and the handlers' docstrings.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from msgspec.json import schema_components

from webservice.parameters import ANY_TEXT, SEGMENTS, Json, Parameter
from webservice.router import JSON_MEDIA, TEXT, Access, Content, Route, RouteGroup
from webservice.views import ErrorView

VERSION: Final = "3.1.0"
PREFIX: Final = "/ws/v1"

_REF: Final = "#/components/schemas/{name}"
_SEGMENT: Final = re.compile(r"\{(\w+)\}")
_DESCRIPTION: Final = (
    "Queries about the scheduler, and changes to what it runs. A new key may appear in any object: ignore keys that you"
    " do not know. The extension `x-yunishard-access` says who may use a route while authentication is on: `anybody`;"
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

_AUTH_STATUSES: Final[Mapping[int, str]] = {
    401: "The caller is not authenticated.",
    403: "The caller may not do this.",
}
"""Statuses of every route that requires authentication."""

_ERROR_STATUSES: Final[Mapping[int, str]] = {**_STATUSES, **_AUTH_STATUSES}

_CHANGE_HEADERS: Final[Mapping[str, str]] = {"X-Request-Id": "The ID of the request in the audit log."}

_SECURITY: Final[Mapping[str, Json]] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "mutualTLS": {"type": "mutualTLS", "description": "A client certificate, or a proxy that is trusted to check it."},
}


def api_document(groups: Sequence[RouteGroup], *, release: str) -> dict[str, Json]:
    """The document of all routes of these groups."""
    routes = [route for group in groups for route in group.routes]
    schemas = _Schemas(content for route in routes for content in (*route.answers, *route.body))
    paths: dict[str, dict[str, Json]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": VERSION,
        "info": {"title": "yunishard", "version": release, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "tags": [{"name": group.name, "description": group.description} for group in groups],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas.components,
            "responses": {_response_name(status): _error(text, schemas) for status, text in _ERROR_STATUSES.items()},
            "securitySchemes": _SECURITY,
        },
    }


def operation_id(method: str, path: str) -> str:
    """A name for generated client code: the method and the words of the path.

    >>> operation_id("GET", "/ws/v1/partition/{partition}/queue/{queue}/applications/{state}")
    'get_partition_queue_applications_by_state'
    """
    words = [method.lower()]
    for segment in path.removeprefix(PREFIX).strip("/").split("/"):
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
        made, components = schema_components(list(types), ref_template=_REF)
        self._made: dict[object, Json] = dict(zip(types, map(_renamed, made), strict=True))
        self.components: dict[str, Json] = {_short(name): _renamed(components[name]) for name in sorted(components)}

    def of(self, content: Content) -> Json:
        return content.schema if isinstance(content.schema, Mapping) else self._made[content.schema]

    @property
    def error(self) -> Json:
        return self._made[ErrorView]


def _operation(route: Route, schemas: _Schemas) -> Json:
    shown: dict[str, Json] = {
        "operationId": operation_id(route.method, route.path),
        "tags": [route.group],
        "summary": route.summary,
        "x-yunishard-access": route.access.value,
        "security": [{}] if route.access is Access.ANYBODY else [{}, *({name: []} for name in _SECURITY)],
    }
    if route.description:
        shown["description"] = route.description
    if route.streams:
        shown["x-yunishard-stream"] = True
    parameters = [*_segments(route), *map(_parameter, route.parameters)]
    if parameters:
        shown["parameters"] = parameters
    if route.body:
        shown["requestBody"] = {"required": route.body_required, "content": _bodies(route.body, schemas)}
    shown["responses"] = _responses(route, schemas)
    return shown


def _segments(route: Route) -> Iterator[Json]:
    for name in _SEGMENT.findall(route.path):
        text, schema = SEGMENTS[name]
        schema = route.segments.get(name, schema)
        yield {"name": name, "in": "path", "required": True, "description": text, "schema": schema}


def _parameter(one: Parameter) -> Json:
    return {
        "name": one.name,
        "in": one.place,
        "required": one.required,
        "description": one.description,
        "schema": one.schema,
    }


def _responses(route: Route, schemas: _Schemas) -> dict[str, Json]:
    general = _STATUSES if route.access is Access.ANYBODY else _ERROR_STATUSES
    found: dict[int, Json] = {
        status: {"$ref": f"#/components/responses/{_response_name(status)}"} for status in general
    }
    found |= {status: _error(text, schemas) for status, text in route.statuses.items()}
    if 304 in found:
        found[304] = {"description": route.statuses[304]}
    own = {**route.headers, **(_CHANGE_HEADERS if route.changes else {})}
    headers: Json = {name: {"description": text, "schema": ANY_TEXT} for name, text in own.items()}
    status, text = (301, "The new address.") if route.redirects else (200, route.summary)
    found[status] = {"description": text, "content": _bodies(route.answers, schemas), "headers": headers}
    return {str(status): found[status] for status in sorted(found)}


def _response_name(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "")


def _error(text: str, schemas: _Schemas) -> Json:
    content: Json = {JSON_MEDIA: {"schema": schemas.error}, TEXT: {"schema": ANY_TEXT}}
    return {"description": text, "content": content}


def _bodies(contents: Sequence[Content], schemas: _Schemas) -> Json:
    return {one.media: {"schema": schemas.of(one)} for one in contents}


def _renamed(made: object) -> Json:
    """A schema whose types are named for what they show: `Queue`, not `QueueView`."""
    match made:
        case Mapping():
            return {str(key): _named(str(key), value) for key, value in made.items()}
        case list() | tuple():
            return [_renamed(value) for value in made]
        case None | bool() | int() | float() | str():
            return made
    raise TypeError(f"not part of a schema: {made!r}")


def _named(key: str, value: object) -> Json:
    return _short(value) if key in ("$ref", "title") and isinstance(value, str) else _renamed(value)


def _short(name: str) -> str:
    """The name of a struct without `View`.

    >>> _short("QueueView"), _short("PageView_QueueView_")
    ('Queue', 'Page_Queue')
    """
    return re.sub(r"View(?=\W|_|$)", "", name).rstrip("_")
