"""Lists in parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_worker.answers import pages
from partition_worker.answers.pages import Listing, TooLong, Wanted, page, wanted

KEYS = ["b", "d", "a", "c"]
ENTRIES = {key: key.upper() for key in KEYS}


def test_without_a_limit_everything_comes_in_the_order_of_keys() -> None:
    assert page(Listing(ENTRIES), wanted({})) == (["A", "B", "C", "D"], "")


def test_a_page_is_in_order_and_says_after_what_to_go_on() -> None:
    assert page(Listing(ENTRIES), wanted({"limit": "2"})) == (["A", "B"], "b")
    assert page(Listing(ENTRIES), wanted({"limit": "2", "after": "b"})) == (["C", "D"], "")


def test_it_begins_behind_a_key_that_has_gone() -> None:
    assert page(Listing(ENTRIES), Wanted(limit=1, after="bb")) == (["C"], "c")


def test_what_is_not_shown_takes_no_place_and_is_not_named() -> None:
    assert page(Listing(ENTRIES, lambda one: one in "AD"), Wanted(limit=2, after="")) == (["A", "D"], "")
    assert page(Listing(ENTRIES, lambda one: one in "AD"), Wanted(limit=1, after="")) == (["A"], "a")


def test_a_page_ends_where_it_would_take_long_but_has_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "WEIGHT_MAX", 5)
    heavy = Listing(ENTRIES, weight=lambda one: 9 if one == "C" else 2)
    assert page(heavy, Wanted(limit=4, after="")) == (["A", "B"], "b")
    assert page(heavy, Wanted(limit=4, after="b")) == (["C"], "c")
    assert page(heavy, Wanted(limit=4, after="c")) == (["D"], "")


def test_a_whole_list_that_would_take_long_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "WEIGHT_MAX", 5)
    assert page(Listing(ENTRIES), wanted({})) == (["A", "B", "C", "D"], "")
    assert page(Listing({"a": 9}, weight=lambda one: one), wanted({})) == ([9], ""), "one entry has no pages"
    with pytest.raises(TooLong, match="ask for pages of it with limit"):
        page(Listing(ENTRIES, weight=lambda _: 2), wanted({}))


@given(st.sets(st.text(min_size=1, max_size=3)), st.integers(1, 4))
def test_all_pages_together_are_the_list(keys: set[str], limit: int) -> None:
    entries = {key: key for key in sorted(keys, reverse=True)}
    found: list[str] = []
    after, more = "", True
    while more:
        some, after = page(Listing(entries), Wanted(limit, after))
        found, more = found + some, bool(after)
    assert found == sorted(keys)
