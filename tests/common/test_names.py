""""""

import pytest

from yunishard.common.names import (
    PARTITION,
    QUEUE,
    RM_ID,
    USER,
    compile_rm_ids,
    external_name,
    normalise_partition_name,
    parse_rm_ids,
)


@pytest.mark.parametrize(
    ("rm_id", "name", "full"),
    [
        ("mycluster", "", "mycluster_default"),
        ("mycluster", "default", "mycluster_default"),
        ("mycluster", "gpu", "mycluster_gpu"),
        ("mycluster", "mycluster_default", "mycluster_default"),
        ("mycluster", "[mycluster]default", "mycluster_default"),
        ("mycluster", "[mycluster]mycluster_gpu", "mycluster_gpu"),
        ("mycluster", "[mycluster]", "mycluster_default"),
        ("mycluster", "[other]default", "mycluster_[other]default"),
        ("mycluster", "other_default", "mycluster_other_default"),
        ("a", "a_b_c", "a_b_c"),
        ("a", "b_c", "a_b_c"),
        ("a_b", "c", "a_b_c"),
        ("rm", "rmx_default", "rm_rmx_default"),
    ],
)
def test_a_partition_carries_its_rm_in_its_name(rm_id: str, name: str, full: str) -> None:
    assert normalise_partition_name(rm_id, name) == full


@pytest.mark.parametrize("name", ["", "default", "b_default", "[b]default", "[b]b_default", "_", "a", "[a]b_x"])
def test_a_name_always_stays_within_its_own_rm_and_normalising_twice_changes_nothing(name: str) -> None:
    full = normalise_partition_name("a", name)
    assert full.startswith("a_")
    assert normalise_partition_name("a", full) == full


def test_its_own_rm_sees_the_name_it_configured() -> None:
    assert external_name("rm-1", "rm-1_gpu") == "gpu"
    assert external_name("rm-1", "rm-1_rm-1_gpu") == "rm-1_gpu"


@pytest.mark.parametrize("rm_id", ["a", "rm:123", "A.b-c_9", "x" * 64])
def test_an_rm_id(rm_id: str) -> None:
    assert RM_ID.fullmatch(rm_id)


@pytest.mark.parametrize("rm_id", ["", "x" * 65, "a b", "ä", "a/b", "a\n", "[a]"])
def test_no_rm_id(rm_id: str) -> None:
    assert not RM_ID.fullmatch(rm_id)


def test_a_partition_name_has_no_colon_and_a_queue_name_no_dot() -> None:
    assert PARTITION.fullmatch("gpu-1.a_b")
    assert not PARTITION.fullmatch("gpu:1")
    assert not PARTITION.fullmatch("")
    assert QUEUE.fullmatch("a:b#c/d@e-f")
    assert not QUEUE.fullmatch("a.b")


def test_a_user_may_end_in_a_dollar_but_not_begin_with_a_digit() -> None:
    assert USER.fullmatch("machine$")
    assert USER.fullmatch("_x@y.z")
    assert not USER.fullmatch("9a")
    assert not USER.fullmatch("a$b")


# Which resource managers a text means ---------------------------------------------------------------------------------


def test_ids_may_have_blanks_around_them() -> None:
    assert parse_rm_ids("a, b-* ,c") == ("a", "b-*", "c")


@pytest.mark.parametrize(("text", "wrong"), [("", "''"), ("a,,b", "''"), ("a b", "'a b'"), ("a," + "x" * 65, "'xxx")])
def test_a_text_that_is_no_id_is_named(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"^{wrong}.* is no RM id: expected ids with commas between"):
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
