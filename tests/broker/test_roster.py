from collections.abc import Callable

import pytest
from msgspec.structs import replace

from broker.registry import NUMBERS_PER_INCARNATION, Registry, RmSession
from common.names import normalise_partition_name
from common.query_messages import PartitionEntry
from tests.machines import config_of

CONFIG = config_of()


def registration(rm: str, *partitions: str, session: str = "s") -> RmSession:
    configs = {normalise_partition_name(rm, name): CONFIG for name in partitions}
    return RmSession(rm=rm, session=session, proxy="rmproxy", configs=configs, call="", text="", registered_ns=0)


def registry(*registrations: RmSession) -> Registry:
    found = Registry()
    for one in registrations:
        found.set_session(one)
    return found


def test_an_rm_is_registered_in_its_current_session_only() -> None:
    one = registration("rm-1", "default")
    assert registry(one).find_session("rm-1", "s") is one
    assert registry(one).find_session("rm-1", "earlier") is None
    assert registry(one).find_session("rm-2", "s") is None


def test_a_partition_has_one_owner() -> None:
    first, second = registration("rm-1", "default"), registration("rm-2", "default")
    assert registry(first, second).owner("rm-2_default") is second
    assert registry(first, second).owner("rm-3_default") is None


def test_each_seat_has_a_lease_of_its_own_and_a_new_one_once_it_was_given_up_or_lost() -> None:
    places = Registry()
    first, second = places.assign_slot("rm", "a").epoch, places.assign_slot("rm", "b").epoch
    assert first != second
    assert places.assign_slot("rm", "a").epoch == first
    assert {name: slot.epoch for name, slot in places.slots.items()} == {"a": first, "b": second}
    places.free_slot("a")
    third = places.assign_slot("rm", "a").epoch
    places.renew_lease("a")
    assert len({first, second, third, places.assign_slot("rm", "a").epoch}) == 4


def test_a_worker_is_called_by_partition_and_lease() -> None:
    places = Registry()
    assert places.assign_slot("rm", "rm_a").worker == "rm_a#1"
    places.renew_lease("rm_a")
    assert places.assign_slot("rm", "rm_a").worker == "rm_a#2"


def test_no_lease_comes_again_in_another_incarnation() -> None:
    for incarnation in (1, 2, 1_800_000_000):
        assert Registry(incarnation).assign_slot("rm", "a").epoch == incarnation * NUMBERS_PER_INCARNATION + 1


def test_what_an_rm_has_no_more_ends_with_its_lease() -> None:
    places = registry(registration("a", "x", "y"), registration("b", "x"))
    places.set_session(registration("a", "y", "z"))
    assert list(places.slots) == ["a_y", "b_x", "a_z"]
    places.remove_rm("a")
    assert list(places.slots) == ["b_x"]
    assert places.owner("a_y") is None


def test_a_partition_that_leaves_has_its_seat_and_no_owner_until_it_is_gone() -> None:
    places = registry(registration("a", "x", "y"))
    going = replace(registration("a", "x"), leaving=("a_y",))
    places.set_session(going, leave_by=7.0)
    places.set_session(going, leave_by=9.0)
    assert (places.leaving, places.owner("a_y")) == ({"a_y": 7.0}, None)
    assert going.has("a_y")
    places.set_session(replace(going, leaving=()))
    assert (places.leaving, list(places.slots)) == ({}, ["a_x"])


def test_whatever_changes_of_an_rm_is_noted() -> None:
    places = registry(registration("a", "x"), registration("b", "x"))
    changes: tuple[Callable[[], None], ...] = (
        lambda: places.set_session(registration("a", "x", session="t")),
        lambda: places.renew_lease("a_x"),
        lambda: places.remove_rm("a"),
    )
    for change in changes:
        places.changed_rms = {}
        change()
        assert list(places.changed_rms) == ["a"]


def test_time_in_which_nobody_could_be_heard_counts_for_nobody() -> None:
    places = registry(replace(registration("a", "x"), leaving=("a_y",)))
    places.slots["a_x"].last_seen, places.away["a"], places.leaving["a_y"] = 5.0, 8.0, 30.0
    places.extend_deadlines(4.0, now=10.0)
    assert (places.slots["a_x"].last_seen, places.away["a"], places.leaving["a_y"]) == (9.0, 10.0, 34.0)


def test_partitions_are_listed_by_rm_under_both_names() -> None:
    first, second = registration("b", "x", "y").ordered(None, 1), registration("a", "x").ordered(None, 2)
    assert list(registry(first, second).partition_entries()) == [
        PartitionEntry(full_name="b_x", name="x", rm_id="b", epoch=1, session="s"),
        PartitionEntry(full_name="b_y", name="y", rm_id="b", epoch=2, session="s"),
        PartitionEntry(full_name="a_x", name="x", rm_id="a", epoch=3, session="s"),
    ]


@pytest.mark.parametrize("rm", ["mycluster", "rm:123", "a", "x" * 64])
def test_names_that_may_be(rm: str) -> None:
    assert registry().name_problem(rm, ["default", "gpu-1.a_b"]) == ""


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
    assert words in registry().name_problem(rm, [partition])


def test_two_rms_never_have_partitions_of_the_same_full_name() -> None:
    places = registry(registration("a", "b_c"))
    assert places.name_problem("a_b", ["c"]) == ""
    assert (places.full_name("a", "b_c"), places.full_name("a_b", "c")) == ("a_b_c", "a_b_c~3")
    under_way = Registry()
    under_way.assign_slot("a", "a_b_c")
    assert under_way.full_name("a_b", "c") == "a_b_c~3"


def test_a_partition_keeps_its_name_when_the_usual_one_becomes_free() -> None:
    places = Registry()
    places.assign_slot("a", "a_b_c")
    places.assign_slot("a_b", "a_b_c~3")
    places.free_slot("a_b_c")
    assert places.full_name("a_b", "c") == "a_b_c~3"
    places.free_slot("a_b_c~3")
    assert places.full_name("a_b", "c") == "a_b_c"


def test_an_rm_does_not_collide_with_what_it_has_itself() -> None:
    assert registry(registration("a", "b_c")).name_problem("a", ["b_c", "default"]) == ""
