import pytest

from broker.roster import Registration, Roster
from common.messages import PartitionEntry
from common.names import normalised
from tests.machines import config_of

CONFIG = config_of()


def registration(rm: str, *partitions: str, session: str = "s") -> Registration:
    return Registration(rm, session, "rmproxy", {normalised(rm, name): CONFIG for name in partitions}, {}, b"")


def roster(*registrations: Registration) -> Roster:
    found = Roster()
    for one in registrations:
        found.registrations[one.rm] = one
    return found


def test_an_rm_is_registered_in_its_current_session_only() -> None:
    one = registration("rm-1", "default")
    assert roster(one).registration("rm-1", "s") is one
    assert roster(one).registration("rm-1", "earlier") is None
    assert roster(one).registration("rm-2", "s") is None


def test_a_partition_has_one_owner() -> None:
    first, second = registration("rm-1", "default"), registration("rm-2", "default")
    assert roster(first, second).owner("rm-2_default") is second
    assert roster(first, second).owner("rm-3_default") is None


def test_each_seat_has_a_lease_of_its_own_and_a_new_one_once_it_was_given_up() -> None:
    places = Roster()
    first, second = places.seat("a").epoch, places.seat("b").epoch
    assert first != second
    assert places.seat("a").epoch == first
    assert places.leases() == {"a": first, "b": second}
    del places.seats["a"]
    assert places.seat("a").epoch not in (first, second)


def test_partitions_are_listed_by_rm_under_both_names() -> None:
    assert list(roster(registration("b", "x", "y"), registration("a", "x")).entries()) == [
        PartitionEntry(full_name="b_x", name="x", rm_id="b"),
        PartitionEntry(full_name="b_y", name="y", rm_id="b"),
        PartitionEntry(full_name="a_x", name="x", rm_id="a"),
    ]


@pytest.mark.parametrize("rm", ["mycluster", "rm:123", "a", "x" * 64])
def test_names_that_may_be(rm: str) -> None:
    assert roster().name_problem(rm, ["default", "gpu-1.a_b"], []) == ""


@pytest.mark.parametrize(
    ("rm", "partition", "words"),
    [
        ("", "default", "partition cannot be created without name or RM, one is not set"),
        ("a b", "default", "RM id 'a b' must be"),
        ("x" * 65, "default", "must be 1 to 64"),
        ("rm-1", "rm-1_default", "must not begin with the RM's own prefix 'rm-1_'"),
    ],
)
def test_names_that_may_not_be(rm: str, partition: str, words: str) -> None:
    assert words in roster().name_problem(rm, [partition], [])


def test_two_rms_cannot_have_partitions_of_the_same_full_name() -> None:
    expected = "partition 'c' of RM 'a_b' would be 'a_b_c', which is partition 'b_c' of RM 'a'"
    assert roster(registration("a", "b_c")).name_problem("a_b", ["c"], []) == expected
    assert roster().name_problem("a_b", ["c"], [registration("a", "b_c")]) == expected


def test_an_rm_does_not_collide_with_what_it_has_itself() -> None:
    own = registration("a", "b_c")
    assert roster(own).name_problem("a", ["b_c", "default"], [own]) == ""
