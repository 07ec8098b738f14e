"""The document of the API in OpenAPI 3.1, made from the table of routes and what is said about each.

Schemas of bodies are made from the structs that bodies are encoded from, so the document cannot say other fields than
there are. Not here: what is said (`areas.py`), serving it (`webservice/openapi_routes.py`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from msgspec.json import schema_components

from webservice.access import Access
from webservice.calls import ApiRoute, Changing
from webservice.openapi.operation import JSON, TEXT, Area, Content, Json, Operation, Parameter, Schema
from webservice.openapi.words import SEGMENTS
from webservice.views import ErrorView

VERSION: Final = "3.1.0"
PREFIX: Final = "/ws/v1"

_REF: Final = "#/components/schemas/{name}"
_SEGMENT: Final = re.compile(r"\{(\w+)\}")
_SAYS: Final = (
    "What the scheduler knows, and what people may change in it. A new key may appear in any object: ignore what you do"
    " not know. The extension `x-yunishard-access` says who may use a route while people have to say who they are:"
    " `anybody`; `known`: whoever has; `seen`: they are shown what the queues let them see; `own`: a change that the"
    " queue's access control lists decide about; `admins`: scheduler administrators. Until that is switched on"
    " everybody may read everything."
)

_STATUSES: Final[Mapping[int, str]] = {
    400: "Something in the request cannot be understood.",
    404: "What is asked for does not exist, or not for who asks.",
    429: "Too many requests of this address are running, or too many changes came to nothing: try again later.",
    503: "Whoever would know the answer does not answer; try again.",
}
"""What every route may answer."""

_DOOR: Final[Mapping[int, str]] = {
    401: "Nobody knows who asks, and here that has to be said.",
    403: "Who asks may not do this.",
}
"""And every route that is not for anybody."""

_GENERAL: Final[Mapping[int, str]] = {**_STATUSES, **_DOOR}

_CHANGING: Final[Mapping[str, str]] = {"X-Request-Id": "By which the audit log names the request."}
"""The header of every answer to a change."""

_TEXT: Final[Schema] = {"type": "string"}

_SECURITY: Final[Mapping[str, Json]] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "mutualTLS": {"type": "mutualTLS", "description": "A client certificate, or a proxy that is trusted to check it."},
}


def document(routes: Sequence[ApiRoute], areas: Sequence[Area], *, release: str) -> dict[str, Json]:
    """The document of these routes.

    Raises:
        KeyError: nothing is said about one of them.
    """
    said = {key: (area.name, operation) for area in areas for key, operation in area.operations.items()}
    types = [kind for _, one in said.values() for content in (*one.answers, *one.body) for kind in content.types]
    schemas = _Schemas(list(dict.fromkeys(types)))
    paths: dict[str, dict[str, Json]] = {}
    for route in routes:
        tag, operation = said[key_of(route)]
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, tag, operation, schemas)
    return {
        "openapi": VERSION,
        "info": {"title": "yunishard", "version": release, "description": _SAYS},
        "servers": [{"url": "/"}],
        "tags": [{"name": area.name, "description": area.says} for area in areas],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas.components,
            "responses": {_response_name(status): _error(says, schemas) for status, says in _GENERAL.items()},
            "securitySchemes": _SECURITY,
        },
    }


def key_of(route: ApiRoute) -> str:
    """By which a route is described."""
    return f"{route.method} {route.path}"


def operation_id(route: ApiRoute) -> str:
    """A name for the code that generators make: the method and the path's words.

    >>> from webservice.router import Route
    >>> path = "/ws/v1/partition/{partition}/queue/{queue}/applications/{state}"
    >>> operation_id(Route("GET", path, document, Access.SEEN))
    'get_partition_queue_applications_by_state'
    """
    words = [route.method.lower()]
    for segment in route.path.removeprefix(PREFIX).strip("/").split("/"):
        named = _SEGMENT.fullmatch(segment)
        if named is None:
            words.append(re.sub(r"\W", "_", segment) or "root")
        elif named[1] != words[-1]:
            words += ["by", named[1]]
    return "_".join(words)


class _Schemas:
    """The schemas of types, each of which stands in the components once."""

    def __init__(self, types: Sequence[object]) -> None:
        made, components = schema_components([ErrorView, *types], ref_template=_REF)
        self._made: dict[object, Json] = dict(zip([ErrorView, *types], map(_renamed, made), strict=True))
        self.components: dict[str, Json] = {_short(name): _renamed(components[name]) for name in sorted(components)}

    def of(self, content: Content) -> Json:
        match content.schema:
            case Mapping():
                return content.schema
            case kind:
                return self._made[kind]

    @property
    def error(self) -> Json:
        return self._made[ErrorView]


def _operation(route: ApiRoute, tag: str, said: Operation, schemas: _Schemas) -> Json:
    shown: dict[str, Json] = {
        "operationId": operation_id(route),
        "tags": [tag],
        "summary": said.summary,
        "x-yunishard-access": route.access.value,
        "security": [{}] if route.access is Access.ANYBODY else [{}, *({name: []} for name in _SECURITY)],
    }
    if said.says:
        shown["description"] = said.says
    if said.streams:
        shown["x-yunishard-stream"] = True
    parameters = [*_segments(route, said), *map(_parameter, said.parameters)]
    if parameters:
        shown["parameters"] = parameters
    if said.body:
        shown["requestBody"] = {"required": said.body_required, "content": _bodies(said.body, schemas)}
    shown["responses"] = _responses(route, said, schemas)
    return shown


def _segments(route: ApiRoute, said: Operation) -> Iterator[Json]:
    for name in _SEGMENT.findall(route.path):
        says, schema = SEGMENTS[name]
        schema = said.segments.get(name, schema)
        yield {"name": name, "in": "path", "required": True, "description": says, "schema": schema}


def _parameter(one: Parameter) -> Json:
    return {
        "name": one.name,
        "in": one.place,
        "required": one.required,
        "description": one.says,
        "schema": one.schema,
    }


def _responses(route: ApiRoute, said: Operation, schemas: _Schemas) -> dict[str, Json]:
    general = _STATUSES if route.access is Access.ANYBODY else _GENERAL
    found: dict[int, Json] = {
        status: {"$ref": f"#/components/responses/{_response_name(status)}"} for status in general
    }
    found |= {status: _error(says, schemas) for status, says in said.statuses.items()}
    if 304 in found:
        found[304] = {"description": said.statuses[304]}
    own = {**said.headers, **(_CHANGING if isinstance(route.answer, Changing) else {})}
    headers: Json = {name: {"description": says, "schema": _TEXT} for name, says in own.items()}
    if said.redirects:
        found[301] = {"description": "It is elsewhere.", "content": _bodies(said.answers, schemas), "headers": headers}
    else:
        found[200] = {"description": said.summary, "content": _bodies(said.answers, schemas), "headers": headers}
    return {str(status): found[status] for status in sorted(found)}


def _response_name(status: int) -> str:
    return HTTPStatus(status).phrase.replace(" ", "")


def _error(says: str, schemas: _Schemas) -> Json:
    content: Json = {JSON: {"schema": schemas.error}, TEXT: {"schema": _TEXT}}
    return {"description": says, "content": content}


def _bodies(contents: Sequence[Content], schemas: _Schemas) -> Json:
    return {one.media: {"schema": schemas.of(one)} for one in contents}


def _renamed(made: object) -> Json:
    """A schema in which types are called what they show: `Queue`, not `QueueView`."""
    match made:
        case Mapping():
            return {str(key): _named(str(key), value) for key, value in made.items()}
        case list() | tuple():
            return [_renamed(value) for value in made]
        case None | bool() | int() | float() | str():
            return made
    raise TypeError(f"no part of a schema: {made!r}")


def _named(key: str, value: object) -> Json:
    return _short(value) if key in ("$ref", "title") and isinstance(value, str) else _renamed(value)


def _short(name: str) -> str:
    """What a type shows.

    >>> _short("QueueView"), _short("PageView_QueueView_")
    ('Queue', 'Page_Queue')
    """
    return re.sub(r"View(?=\W|_|$)", "", name).rstrip("_")
