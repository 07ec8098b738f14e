"""Paths are matched exactly; near misses are mended; the rest is unknown."""

import pytest

from webservice.access import Access
from webservice.router import Elsewhere, Match, OtherMethods, Route, find

LIST = Route("GET", "/v/lists", 1, Access.KNOWN)
ONE = Route("GET", "/v/list/{list}/items", 2, Access.KNOWN)
STATE = Route("GET", "/v/list/{list}/items/{state}", 3, Access.KNOWN)
CHECK = Route("POST", "/v/check", 4, Access.KNOWN)
INDEX = Route("GET", "/v/pages/", 5, Access.KNOWN)
PAGE = Route("GET", "/v/pages/one", 6, Access.KNOWN)
ROUTES = (LIST, ONE, STATE, CHECK, INDEX, PAGE)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v/lists", Match(LIST, {})),
        ("/v/list/A b/items", Match(ONE, {"list": "A b"})),
        ("/v/list//items", Match(ONE, {"list": ""})),
        ("/v/list/../items", Match(ONE, {"list": ".."})),
        ("/v/list/x/items/y", Match(STATE, {"list": "x", "state": "y"})),
        ("/v/list/X/items/", Elsewhere("/v/list/X/items")),
        ("/V/List/X/ITEMS", Elsewhere("/v/list/X/items")),
        ("//v//lists", Elsewhere("/v/lists")),
        ("/v/./x/../lists", Elsewhere("/v/lists")),
        ("/v/pages/", Match(INDEX, {})),
        ("/v/pages", Elsewhere("/v/pages/")),
        ("/V/Pages/", Elsewhere("/v/pages/")),
        ("/v//pages//", Elsewhere("/v/pages/")),
        ("/v/pages/one", Match(PAGE, {})),
        ("/v/pages/one/", Elsewhere("/v/pages/one")),
        ("/v/pages/two", None),
        ("/v/check", OtherMethods("OPTIONS, POST")),
        ("/v/check/", None),
        ("/v/list/x", None),
        ("/v/lists/more", None),
        ("/v/list/", Elsewhere("/v/list")),
        ("/v/list/x/items//", Elsewhere("/v/list/x/items")),
        ("/v/lists/", Elsewhere("/v/lists")),
        ("/v/", None),
        ("/", None),
        ("", None),
        ("*", None),
    ],
)
def test_a_path_is_found_mended_or_unknown(path: str, found: Match[int] | Elsewhere | OtherMethods | None) -> None:
    assert find(ROUTES, "GET", path) == found


def test_a_mended_path_never_leaves_the_host() -> None:
    assert find(ROUTES, "GET", "//evil.example/..//v/lists") == Elsewhere("/v/lists")
    assert find(ROUTES, "GET", "//evil.example/v/lists") is None
