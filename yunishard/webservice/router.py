"""Declares REST routes, and finds the route of a request.

A route is one handler and its declaration:

    @Route(PARTITION, "GET", "/ws/v1/partition/{partition}/nodes", Access.SEEN, (list[NodeView],), parameters=(RM,))
    async def nodes(call: Call) -> Reply:
        \"\"\"All nodes with their allocations.\"\"\"

Everything else follows from the declaration: how a path finds its handler (`find`), who may use the route
(`authn_authz.py`), and the OpenAPI document (`api_document.py`), which takes the summary and the description from the
docstring.

A path is matched after percent-decoding, so a segment cannot contain a slash. Rejected: Starlette's router, which
answers HEAD, matches no empty segment, does not correct the case of a path, and does not answer OPTIONS as the API
does.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import cache
from inspect import getdoc
from types import UnionType
from typing import Final

from yunishard.webservice.calls import Respond
from yunishard.webservice.parameters import Parameter, Schema

JSON_MEDIA: Final = "application/json"
TEXT: Final = "text/plain"
YAML: Final = "application/x-yaml"
CSV: Final = "text/csv"
HTML: Final = "text/html"
BINARY: Final = "application/octet-stream"

BYTES: Final[Schema] = {"type": "string", "format": "binary"}
ANY_OBJECT: Final[Schema] = {"type": "object"}


class Access(Enum):
    """The callers that may use a route while authentication is on. Without it, every caller may read everything."""

    ANYBODY = "anybody"
    """Unauthenticated callers too; the answer reveals nothing about any user's work."""
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


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Routes that belong together: one tag of the OpenAPI document. `routes` is in the order of declaration."""

    name: str
    description: str
    routes: list["Route"] = field(default_factory=list, compare=False, repr=False)


@dataclass(slots=True)
class Route:
    """A method and a path in lower case; a segment such as `{queue}` matches any text without a slash. A slash at the
    end belongs to the path. As a decorator, it declares the handler, and adds the route to its group.
    """

    group: RouteGroup
    method: str
    path: str
    access: Access
    answers: tuple[Content | Schema | type[object] | UnionType, ...] = ()
    """The forms of a good answer, JSON unless the content has another media type; none for a redirect."""
    _: KW_ONLY
    parameters: tuple[Parameter, ...] = ()
    segments: Mapping[str, Schema] = field(default_factory=dict)
    """Schemas of path segments that are narrower here than in `parameters.SEGMENTS`."""
    body: tuple[Content, ...] = ()
    body_required: bool = True
    """Whether an empty body is refused."""
    statuses: Mapping[int, str] = field(default_factory=dict)
    """Statuses that do not follow from the rest of the declaration, with their meaning."""
    is_private: bool = False
    """Whether pages of other sites may not read the answer: YuniKorn has no such route."""
    private_with: str | None = None
    """A query parameter that makes the answer private."""
    debug_only: bool = False
    """Whether it exists only with the setting `debug`."""
    redirect: str = ""
    """The path to which it redirects; then it has no handler."""
    only_examines: bool = False
    """Whether a route with another method than GET only examines its body, and changes nothing."""
    streams: bool = False
    """The answer is an endless sequence of lines."""
    summary: str = ""
    """The first paragraph of the handler's docstring, unless one is given."""
    description: str = ""
    """The second paragraph, likewise."""
    respond: Respond = field(init=False)

    def __call__(self, respond: Respond) -> Respond:
        """Declare the handler."""
        first, _, rest = (getdoc(respond) or "").partition("\n\n")
        self.summary = self.summary or " ".join(first.split()).removesuffix(".")
        self.description = self.description or " ".join(rest.partition("\n\n")[0].split())
        self.respond = respond
        self.group.routes.append(self)
        return respond

    @property
    def changes(self) -> bool:
        """Whether it changes something: then the caller is always known, the request is audited, and `Call.requester`
        is set. A route with another method than GET that every authenticated caller may use only checks its body.
        """
        return self.method != "GET" and self.access is not Access.KNOWN and not self.only_examines


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
        if found := _compile(route.path).fullmatch(path):
            return Match(route, found.groupdict())
    for route in mine:
        normal = posixpath.normpath("/" + path.strip("/")) + "/" * route.path.endswith("/")
        if found := _compile(route.path, re.IGNORECASE).fullmatch(normal):
            return Elsewhere(route.path.format(**found.groupdict()))
    methods = {route.method for route in routes if _compile(route.path).fullmatch(path)}
    return OtherMethods(", ".join(sorted({*methods, "OPTIONS"}))) if methods else None


@cache
def _compile(path: str, flags: int = 0) -> re.Pattern[str]:
    """Matches the paths of a route. A named segment at the end is not empty: that is a path to correct."""
    named = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]*)", re.escape(path))
    return re.compile(re.sub(r"\*\)$", "+)", named), flags)
