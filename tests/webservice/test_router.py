"""Paths are matched exactly, and near misses are corrected."""

import pytest

from yunishard.webservice.calls import Call, Reply
from yunishard.webservice.router import Access, Elsewhere, Match, OtherMethods, Route, RouteGroup, find

GROUP = RouteGroup("group", "Routes of the test.")


async def respond(call: Call) -> Reply:
    """One thing.

    More about it.

    Raises:
        RequestError: never.
    """
    return Reply(call.raw_path.encode())


for method, path in (
    ("GET", "/v/lists"),
    ("GET", "/v/list/{list}/items"),
    ("GET", "/v/list/{list}/items/{state}"),
    ("POST", "/v/check"),
    ("GET", "/v/pages/"),
    ("GET", "/v/pages/one"),
):
    Route(GROUP, method, path, Access.KNOWN, (int,))(respond)
ROUTES = LIST, ONE, STATE, CHECK, INDEX, PAGE = tuple(GROUP.routes)


def test_a_declaration_takes_the_summary_and_the_description_from_the_docstring() -> None:
    assert (LIST.group.name, LIST.summary, LIST.description) == ("group", "One thing", "More about it.")


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
        ("/v/list/", None),
        ("/v/list/x/items//", Elsewhere("/v/list/x/items")),
        ("/v/lists/", Elsewhere("/v/lists")),
        ("/v/", None),
        ("/", None),
        ("", None),
        ("*", None),
    ],
)
def test_a_path_is_found_corrected_or_unknown(path: str, found: Match | Elsewhere | OtherMethods | None) -> None:
    assert find(ROUTES, "GET", path) == found


def test_a_corrected_path_stays_on_the_host() -> None:
    assert find(ROUTES, "GET", "//evil.example/..//v/lists") == Elsewhere("/v/lists")
    assert find(ROUTES, "GET", "//evil.example/v/lists") is None
