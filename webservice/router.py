"""Declares REST routes, and finds the route of a request.

A route is one handler, declared by its group:

    @GROUP.route("GET", "/ws/v1/partition/{partition}/nodes", Access.SEEN, list[NodeView], parameters=(LIMIT, AFTER))
    async def nodes(call: Call) -> Reply:
        \"\"\"All nodes with their allocations.\"\"\"

Everything else follows from the declaration: how a path finds its handler (`find`), who may use the route (`authz.py`),
and the OpenAPI document (`api_document.py`), which takes the summary and the description from the docstring.

A path is matched after percent-decoding, so a segment cannot contain a slash. Rejected: Starlette's router, which
answers HEAD, matches no empty segment, does not correct the case of a path, and does not answer OPTIONS as the API
does.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import getdoc
from types import UnionType
from typing import Final

from webservice.calls import Respond
from webservice.parameters import Parameter, Schema

JSON_MEDIA: Final = "application/json"
TEXT: Final = "text/plain"
YAML: Final = "application/x-yaml"
CSV: Final = "text/csv"
HTML: Final = "text/html"
BINARY: Final = "application/octet-stream"

BYTES: Final[Schema] = {"type": "string", "format": "binary"}
ANY_OBJECT: Final[Schema] = {"type": "object"}


class Access(Enum):
    """Who may use a route while authentication is on. Without it, every caller may read everything."""

    ANYBODY = "anybody"
    """Unauthenticated callers too; the answer reveals nothing about anyone's work."""
    KNOWN = "known"
    """Authenticated callers; the answer is the same for all."""
    SEEN = "seen"
    """Authenticated callers; the answer is limited to what the caller may see."""
    OWN = "own"
    """A change that the worker authorizes by the access control lists of the queue."""
    ADMINS = "admins"
    """Scheduler administrators."""


@dataclass(frozen=True, slots=True)
class Content:
    """A form that a body may have: a schema, or a type from which the schema is generated."""

    schema: Schema | type[object] | UnionType
    media: str = JSON_MEDIA


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path in lower case; a segment such as `{queue}` matches any text without a slash. A slash at the
    end belongs to the path.
    """

    method: str
    path: str
    access: Access
    respond: Respond
    changes: bool = False
    """Whether it changes something: then the caller is always known, the request is audited, and `Call.requester` is
    set."""
    is_private: bool = False
    """Whether pages of other sites may not read the answer: YuniKorn has no such route."""
    private_with: str = ""
    """A query parameter that makes the answer private."""
    debug_only: bool = False
    """Whether it exists only with the setting `debug`."""
    group: str
    summary: str
    description: str = ""
    answers: tuple[Content, ...] = ()
    """The forms of a good answer; none for a redirect."""
    parameters: tuple[Parameter, ...] = ()
    segments: Mapping[str, Schema] = field(default_factory=dict)
    """Schemas of path segments that are narrower here than in `parameters.SEGMENTS`."""
    body: tuple[Content, ...] = ()
    body_required: bool = True
    """Whether an empty body is refused."""
    statuses: Mapping[int, str] = field(default_factory=dict)
    """Statuses beyond those of every route, with their meaning."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of a good answer, with their meaning."""
    redirects: bool = False
    """It answers 301."""
    streams: bool = False
    """The answer is an endless sequence of lines."""


class RouteGroup:
    """Routes that belong together: one tag of the OpenAPI document. `routes` is in the order of declaration."""

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.routes: list[Route] = []

    def route(
        self,
        method: str,
        path: str,
        access: Access,
        *answers: Content | Schema | type[object] | UnionType,
        summary: str = "",
        parameters: tuple[Parameter, ...] = (),
        segments: Mapping[str, Schema] | None = None,
        body: tuple[Content, ...] = (),
        body_required: bool = True,
        statuses: Mapping[int, str] | None = None,
        headers: Mapping[str, str] | None = None,
        changes: bool = False,
        is_private: bool = False,
        private_with: str = "",
        debug_only: bool = False,
        redirects: bool = False,
        streams: bool = False,
    ) -> Callable[[Respond], Respond]:
        """Declare the decorated function as the handler. The first paragraph of its docstring is the summary, unless
        one is given; the rest is the description.
        """

        def declare(respond: Respond) -> Respond:
            first, _, rest = (getdoc(respond) or "").partition("\n\n")
            self.routes.append(
                Route(
                    method=method,
                    path=path,
                    access=access,
                    respond=respond,
                    changes=changes,
                    is_private=is_private,
                    private_with=private_with,
                    debug_only=debug_only,
                    group=self.name,
                    summary=summary or " ".join(first.split()).removesuffix("."),
                    description=" ".join(rest.partition("\n\n")[0].split()),
                    answers=tuple(one if isinstance(one, Content) else Content(one) for one in answers),
                    parameters=parameters,
                    segments=segments or {},
                    body=body,
                    body_required=body_required,
                    statuses=statuses or {},
                    headers=headers or {},
                    redirects=redirects,
                    streams=streams,
                )
            )
            return respond

        return declare


# Finding a route ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Match:
    """The route of a request, and the texts of its named segments."""

    route: Route
    segments: dict[str, str]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The corrected path: the given one differs from it by slashes, dots or case."""

    path: str


@dataclass(frozen=True, slots=True)
class OtherMethods:
    """The path exists, but not for this method; `allowed` is the value of the header `Allow`."""

    allowed: str


def find(routes: Sequence[Route], method: str, path: str) -> Match | Elsewhere | OtherMethods | None:
    """The route of a request, or why there is none; None if no route has such a path."""
    mine = [route for route in routes if route.method == method]
    for route in mine:
        segments = _match(route.path, path)
        if segments is not None:
            return Match(route, segments)
    for route in mine:
        corrected = _correct(route.path, path)
        if corrected is not None:
            return Elsewhere(corrected)
    if _is_cut_short(mine, path):
        return Elsewhere(path.removesuffix("/"))
    methods = {route.method for route in routes if _match(route.path, path) is not None}
    return OtherMethods(", ".join(sorted({*methods, "OPTIONS"}))) if methods else None


def _match(pattern: str, path: str) -> dict[str, str] | None:
    pairs = _pairs(pattern, path)
    if pairs is None or path.endswith("/") != pattern.endswith("/"):  # a path to correct, not an empty name
        return None
    if any(name is None and fixed != given for fixed, name, given in pairs):
        return None
    return {name: given for _, name, given in pairs if name is not None}


def _correct(pattern: str, path: str) -> str | None:
    pairs = _pairs(pattern, posixpath.normpath("/" + path.strip("/")) + "/" * pattern.endswith("/"))
    if pairs is None or any(name is None and fixed != given.lower() for fixed, name, given in pairs):
        return None
    return "/".join(fixed if name is None else given for fixed, name, given in pairs)


def _is_cut_short(routes: Sequence[Route], path: str) -> bool:
    """Whether a path ends where a name should follow (`/queue/`) and there is a list of the same things (`/queues`).
    The path without its slash does not exist either, but clients of the API expect to be redirected there.
    """
    return path.endswith("/") and _begins(routes, path + "x") and _begins(routes, path.removesuffix("/") + "s")


def _begins(routes: Sequence[Route], path: str) -> bool:
    """Whether some route begins with this path."""
    count = path.count("/") + 1
    return any(_match("/".join(route.path.split("/")[:count]), path) is not None for route in routes)


def _pairs(pattern: str, path: str) -> list[tuple[str, str | None, str]] | None:
    """For each segment: the text in the pattern, the name if it has one, the text in the path. None if the numbers of
    segments differ.
    """
    wanted, given = pattern.split("/"), path.split("/")
    return list(_named(wanted, given)) if len(wanted) == len(given) else None


def _named(wanted: list[str], given: list[str]) -> Iterator[tuple[str, str | None, str]]:
    for fixed, text in zip(wanted, given, strict=True):
        yield fixed, fixed[1:-1] if fixed.startswith("{") else None, text
