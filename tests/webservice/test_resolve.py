"""A name leads to one partition or to none, and what is shown leads back."""

import pytest

from tests.webservice.fakes import partition
from webservice.resolve import AmbiguityError, Directory


def test_a_name_that_one_partition_has_leads_there() -> None:
    one = partition("rm-1", "gpu")
    directory = Directory([one, partition("rm-1", "default")])
    assert directory.find("gpu") == one
    assert directory.find("rm-1_gpu") == one
    assert directory.find("[rm-1]gpu") == one
    assert directory.shown(one) == "gpu"


def test_an_unknown_name_leads_nowhere() -> None:
    directory = Directory([partition()])
    assert directory.find("") is None
    assert directory.find("Default") is None
    assert directory.find("rm-2_default") is None


def test_a_name_that_two_have_leads_nowhere_and_is_not_shown() -> None:
    directory = Directory([partition("b"), partition("a")])
    with pytest.raises(AmbiguityError, match="use one of: a_default, b_default"):
        directory.find("default")
    assert [shown for shown, _ in directory.all()] == ["a_default", "b_default"]


def test_a_plain_name_that_looks_like_an_inner_one_does_not_hide_it() -> None:
    plain, odd = partition("a", "default"), partition("b", "a_default")
    directory = Directory([plain, odd])
    assert directory.find("a_default") == plain
    assert directory.shown(odd) == "b_a_default"


@pytest.mark.parametrize("names", [[("a", "x"), ("b", "x"), ("a", "y"), ("c", "a_x")], [("a", "x"), ("x", "a_x")]])
def test_what_is_shown_leads_back(names: list[tuple[str, str]]) -> None:
    directory = Directory([partition(rm_id, name) for rm_id, name in names])
    assert len(directory.all()) == len(names)
    assert all(directory.find(shown) is entry for shown, entry in directory.all())
