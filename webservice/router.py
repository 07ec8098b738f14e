"""Which route a method and a path mean, and what to say when it is none.

A path is matched after its percent escapes were decoded, so a segment cannot hold a slash. Rejected: Starlette's own
router, which answers HEAD, matches no empty segment, and neither mends the case of a path nor tells OPTIONS what the
API tells.

Not here: what a route answers (`routes.py`).
"""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from webservice.access import Access

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Route(Generic[_T]):
    """A method and a path in lower case, in which a segment such as `{queue}` stands for any text without a slash. Few
    paths end with a slash, and that is a part of them.
    """

    method: str
    path: str
    answer: _T
    access: Access


@dataclass(frozen=True, slots=True)
class Match(Generic[_T]):
    """The route that was meant, and the texts of its named segments."""

    route: Route[_T]
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The path that must have been meant: the given one differs by slashes, dots or case."""

    path: str


@dataclass(frozen=True, slots=True)
class OtherMethods:
    """The path exists, but not for this method; `allowed` as in the header of that name."""

    allowed: str


def find(routes: Sequence[Route[_T]], method: str, path: str) -> Match[_T] | Elsewhere | OtherMethods | None:
    """The route of a request, or why there is none; None if nothing has such a path."""
    mine = [route for route in routes if route.method == method]
    for route in mine:
        parameters = _parameters(route.path, path)
        if parameters is not None:
            return Match(route, parameters)
    for route in mine:
        mended = _mended(route.path, path)
        if mended is not None:
            return Elsewhere(mended)
    if _is_cut_short(mine, path):
        return Elsewhere(path.removesuffix("/"))
    methods = {route.method for route in routes if _parameters(route.path, path) is not None}
    return OtherMethods(", ".join(sorted({*methods, "OPTIONS"}))) if methods else None


def _parameters(pattern: str, path: str) -> dict[str, str] | None:
    pairs = _pairs(pattern, path)
    if pairs is None or path.endswith("/") != pattern.endswith("/"):  # a mistake to mend, not an empty name
        return None
    if any(name is None and fixed != given for fixed, name, given in pairs):
        return None
    return {name: given for _, name, given in pairs if name is not None}


def _mended(pattern: str, path: str) -> str | None:
    pairs = _pairs(pattern, posixpath.normpath("/" + path.strip("/")) + "/" * pattern.endswith("/"))
    if pairs is None or any(name is None and fixed != given.lower() for fixed, name, given in pairs):
        return None
    return "/".join(fixed if name is None else given for fixed, name, given in pairs)


def _is_cut_short(routes: Sequence[Route[_T]], path: str) -> bool:
    """Whether a path ends where the name of one thing should follow (`/queue/`), of which there is also a list
    (`/queues`). It is as little there without its slash, but clients of the API know to be sent there.
    """
    return path.endswith("/") and _begins(routes, path + "x") and _begins(routes, path.removesuffix("/") + "s")


def _begins(routes: Sequence[Route[_T]], path: str) -> bool:
    """Whether a path is that of a route as far as it goes."""
    count = path.count("/") + 1
    return any(_parameters("/".join(route.path.split("/")[:count]), path) is not None for route in routes)


def _pairs(pattern: str, path: str) -> list[tuple[str, str | None, str]] | None:
    """For each segment: the text in the pattern, the name if it has one, the text in the path. None if not as many."""
    wanted, given = pattern.split("/"), path.split("/")
    return list(_named(wanted, given)) if len(wanted) == len(given) else None


def _named(wanted: list[str], given: list[str]) -> Iterator[tuple[str, str | None, str]]:
    for fixed, text in zip(wanted, given, strict=True):
        yield fixed, fixed[1:-1] if fixed.startswith("{") else None, text
