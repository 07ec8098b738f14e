"""Registry of sessions and worker slots, and names of partitions."""

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.broker.bench import PROXY, BrokerBench, answers
from tests.machines import config_of
from yunishard.broker.registry import Registry, RmSession
from yunishard.common.messages.control_messages import Repeat
from yunishard.common.messages.query_messages import PartitionEntry, Query
from yunishard.common.messages.rm_messages import (
    AllocationRequest,
    ConfigurationUpdated,
    Leave,
    PartitionRestarted,
    Received,
    Refused,
    Registered,
    Resume,
)
from yunishard.common.messages.wire import decode_body
from yunishard.common.names import NUMBERS_PER_INCARNATION, external_name, normalise_partition_name

CONFIG = config_of()


def registration(rm: str, *partitions: str, session: str = "s") -> RmSession:
    configs = dict.fromkeys(normalise_partition_name(rm, name) for name in partitions)
    return RmSession(rm=rm, session=session, proxy="rmproxy", configs=configs, call="", registered_ns=0)


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


def test_a_worker_that_loses_its_lease_is_dismissed_and_its_successor_has_a_later_epoch() -> None:
    places = Registry()
    seat = places.assign_slot("rm", "rm_a")
    seat.worker, seat.is_present = "worker/1", True
    assert places.find_partition("worker/1") == "rm_a"
    places.renew_lease("rm_a")
    assert (seat.worker, seat.is_present, seat.epoch) == ("", False, 2)
    assert places.dismissed == {"worker/1": "rm_a"}
    assert not places.find_partition("worker/1")
    seat.worker = "worker/2"
    places.free_slot("rm_a")
    assert places.dismissed == {"worker/1": "rm_a", "worker/2": "rm_a"}


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


PLAIN: Final = "partitions: [{name: %s, queues: [{name: root, submitacl: '*'}]}]"
TWO: Final = """
partitions:
  - {name: default, queues: [{name: root, submitacl: '*'}]}
  - {name: other, queues: [{name: root, submitacl: '*'}]}
"""
ANYTHING: Final = st.text(alphabet="ab_", min_size=1, max_size=4)
PAIRS: Final = st.tuples(ANYTHING, ANYTHING).filter(lambda pair: not pair[1].startswith(f"{pair[0]}_"))


def registered(bench: BrokerBench, rm: str, name: str) -> Registered:
    [told] = [one for one in bench.register(PLAIN % name, rm=rm, session=f"s-{rm}") if one.header.kind == "Registered"]
    return decode_body(Registered, told.body)


def full_name_of(bench: BrokerBench, rm: str) -> str:
    [name] = bench.broker.registry.sessions[rm].configs
    return name


def in_order(*pairs: tuple[str, str]) -> BrokerBench:
    bench = BrokerBench()
    for rm, name in pairs:
        registered(bench, rm, name)
    return bench


BOTH: Final = (("a", "b_default"), ("a_b", "default"))
ORDERS: Final = pytest.mark.parametrize("pairs", [BOTH, BOTH[::-1]], ids=["a first", "a_b first"])


@ORDERS
def test_both_rms_register_and_see_the_name_that_they_would_have_alone(pairs: tuple[tuple[str, str], ...]) -> None:
    bench = BrokerBench()
    for rm, name in pairs:
        assert registered(bench, rm, name).partitions == ["a_b_default"]
    first, second = (full_name_of(bench, rm) for rm, _ in pairs)
    assert (first, second) == ("a_b_default", f"a_b_default~{len(pairs[1][0])}")
    assert [(one.full_name, one.name, one.rm_id) for one in bench.broker.registry.partition_entries()] == [
        (first, pairs[0][1], pairs[0][0]),
        (second, pairs[1][1], pairs[1][0]),
    ]


@ORDERS
def test_each_rm_reaches_its_own_partition_only(pairs: tuple[tuple[str, str], ...]) -> None:
    bench = in_order(*pairs)
    for rm, _ in pairs:
        own = full_name_of(bench, rm)
        about = {"rm": rm, "session": f"s-{rm}", "partition": "a_b_default"}
        [sent] = bench.hear(PROXY, AllocationRequest(), seq=1, **about)
        assert (sent.to, sent.header.partition) == (own, own)
        [asked] = bench.hear(PROXY, Query(what="queues"), ref="q", **about)
        assert (asked.to, asked.header.partition) == (own, own)
        worker = {"rm": rm, "session": f"s-{rm}", "partition": own, "epoch": bench.epoch(own)}
        [back] = bench.hear(own, Received(), ack=1, **worker)
        assert (back.to, back.header.rm, back.header.partition) == (PROXY, rm, "a_b_default")


@ORDERS
def test_an_rm_cannot_name_the_partition_of_another(pairs: tuple[tuple[str, str], ...]) -> None:
    bench = in_order(*pairs)
    names = {full_name_of(bench, rm): rm for rm, _ in pairs}
    for rm, _ in pairs:
        for partition in (*names, "a_b_default~1", "a_b_default~3", "a_b_default~9"):
            about = {"rm": rm, "session": f"s-{rm}", "partition": partition}
            for sent in bench.hear(PROXY, AllocationRequest(), seq=1, **about):
                assert sent.to == PROXY or names[sent.to] == rm
            sent = bench.hear(PROXY, Query(what="queues"), ref="q", **about)
            assert answers(sent) == [(404, "Partition not found")] or names[sent[0].to] == rm


@ORDERS
def test_names_outlive_the_broker_and_whoever_had_the_plain_name(pairs: tuple[tuple[str, str], ...]) -> None:
    bench = in_order(*pairs)
    before = {rm: full_name_of(bench, rm) for rm, _ in pairs}
    leases = bench.leases()
    bench.begin_again()
    assert {rm: full_name_of(bench, rm) for rm, _ in pairs} == before
    assert bench.leases() == leases
    first, second = (rm for rm, _ in pairs)
    bench.hear(PROXY, Leave(), rm=first, session=f"s-{first}", ref="leave")
    bench.begin_again()
    bench.returns(before[second])
    assert full_name_of(bench, second) == before[second]
    resumed = bench.hear(PROXY, Resume(received={"a_b_default": 7}), rm=second, session=f"s-{second}", ref="again")
    [told] = [decode_body(Registered, one.body) for one in resumed if one.header.kind == "Registered"]
    assert told.partitions == ["a_b_default"]
    [repeat] = [one for one in resumed if one.header.kind == "Repeat"]
    assert (repeat.to, repeat.header.ack) == (before[second], 7)


@ORDERS
def test_what_an_rm_is_told_later_has_its_own_names_too(pairs: tuple[tuple[str, str], ...]) -> None:
    bench = in_order(*pairs)
    rm, name = pairs[1]
    own = full_name_of(bench, rm)
    [restarted] = [one for one in bench.lost(own) if one.header.kind == "PartitionRestarted"]
    assert restarted.header.partition == "a_b_default"
    assert own not in decode_body(PartitionRestarted, restarted.body).reason
    text = f"{PLAIN % name}\n# changed"
    sends = bench.agree(bench.update(text, rm=rm, session=f"s-{rm}"))
    [updated] = [
        decode_body(ConfigurationUpdated, one.body) for one in sends if one.header.kind == "ConfigurationUpdated"
    ]
    assert updated.partitions == ["a_b_default"]
    assert updated.lives == {"a_b_default": 1}
    asked = bench.update(f"{text} again", rm=rm, session=f"s-{rm}")
    [refused] = [decode_body(Refused, one.body) for one in bench.vote(asked[0], "no") if one.header.kind == "Refused"]
    assert "partition a_b_default: no" in refused.reason
    assert "~" not in refused.reason


@ORDERS
def test_a_resumption_counts_for_the_partition_under_the_name_that_its_rm_knows(
    pairs: tuple[tuple[str, str], ...],
) -> None:
    bench = in_order(*pairs)
    rm, _ = pairs[1]
    session = f"s-{rm}"
    resume = Resume(received={"a_b_default": 3}, acknowledged={"a_b_default": 7})
    sends = bench.hear(PROXY, resume, rm=rm, session=session, ref="again")
    [repeat] = [one for one in sends if one.header.kind == "Repeat"]
    assert (repeat.header.ack, decode_body(Repeat, repeat.body)) == (3, Repeat(acknowledged=7))


def test_the_life_of_another_partition_does_not_hide_that_the_record_is_older_whatever_the_name() -> None:
    bench = in_order(("a", "b_default"))
    bench.register(TWO, rm="a_b", session="s-a_b")
    bench.lost("a_b_other")
    resume = Resume(lives={"a_b_default": 1, "a_b_other": 1})
    sends = bench.hear(PROXY, resume, rm="a_b", session="s-a_b", ref="again")
    assert [one.header.kind for one in sends] == ["Refused"]
    assert decode_body(Refused, sends[0].body).code == "unknown-session"


@ORDERS
def test_an_rm_is_told_the_same_as_if_it_were_alone(pairs: tuple[tuple[str, str], ...]) -> None:
    rm, name = pairs[1]
    alone, second = registered(BrokerBench(), rm, name), registered(in_order(pairs[0]), rm, name)
    assert replace(second, configuration_number=alone.configuration_number) == alone  # one number series for all RMs


def test_an_rm_that_begins_a_new_session_keeps_its_names() -> None:
    bench = in_order(*BOTH)
    for rm, name in BOTH:
        own = full_name_of(bench, rm)
        sends = bench.register(PLAIN % name, rm=rm, session="another")
        assert [one.header.kind for one in sends if one.header.rm != rm] == []
        assert full_name_of(bench, rm) == own


@given(st.lists(PAIRS, min_size=1, max_size=6, unique=True), st.data())
@settings(max_examples=150)
def test_full_names_never_collide(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    bench, seen = BrokerBench(), dict[str, str]()
    for rm, name in pairs:
        if rm in seen:
            continue
        assert registered(bench, rm, name).partitions == [normalise_partition_name(rm, name)]
        seen[rm] = name
        if data.draw(st.booleans()):
            bench.begin_again()
        if len(seen) > 1 and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(seen)))
            bench.hear(PROXY, Leave(), rm=gone, session=f"s-{gone}", ref="leave")
            del seen[gone]
    names = {rm: full_name_of(bench, rm) for rm in seen}
    assert len(set(names.values())) == len(names)
    assert bench.broker.registry.slots.keys() == set(names.values())
    for rm, full_name in names.items():
        assert external_name(rm, full_name) == seen[rm]
