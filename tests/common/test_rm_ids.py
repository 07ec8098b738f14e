"""Which resource managers a text means."""

import pytest

from common.names import RmIdError, compile_rm_ids, parse_rm_ids


def test_ids_may_have_blanks_around_them() -> None:
    assert parse_rm_ids("a, b-* ,c") == ("a", "b-*", "c")


@pytest.mark.parametrize(("text", "wrong"), [("", "''"), ("a,,b", "''"), ("a b", "'a b'"), ("a," + "x" * 65, "'xxx")])
def test_a_text_that_is_no_id_is_named(text: str, wrong: str) -> None:
    with pytest.raises(RmIdError, match=f"^{wrong}.* is no RM id: expected ids with commas between"):
        parse_rm_ids(text)


@pytest.mark.parametrize(
    ("rm", "meant"),
    [("rm-1", True), ("rm-11", False), ("a.rm-1", False), ("test-", True), ("test-7", True), ("atest-7", False)],
)
def test_an_id_means_one_and_a_star_any_text(rm: str, meant: bool) -> None:
    assert bool(compile_rm_ids(("rm-1", "test-*")).fullmatch(rm)) == meant


def test_a_point_is_a_point() -> None:
    assert compile_rm_ids(["rm.1"]).fullmatch("rmx1") is None


def test_no_id_means_nobody() -> None:
    assert compile_rm_ids([]).fullmatch("") is None
