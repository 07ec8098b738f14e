"""From a message to an allocation, and what the RM is told of it."""

import itertools
import random
from random import Random

import pytest

from tests.builders import apps as new_apps
from tests.builders import ask, asks, config, nodes
from tests.partition_worker.engine.allocations import received
from tests.properties.plain_scheduler import PlainApp, PlainAsk, PlainQueue
from tests.trial import START_S, Trial
from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.allocation import (
    REMOVED_MAX,
    Allocation,
    AskGroup,
    AskShape,
    PendingAsks,
    Standing,
    find_creation_time,
    place_of,
)
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.attempt_log import WaitCause, log_attempt

STAMP_NS = 1_700_000_000_000_000_123


def test_everything_of_the_message_is_kept() -> None:
    text = "app-1 a1 memory=4 priority=3 group=tg placeholder originator victim tag.x=y"
    one = Trial().takes(new_apps("app-1 root.a"), asks(text)).app("app-1").requests["a1"]
    assert (one.key, one.resources, one.priority, one.task_group) == ("a1", {"memory": 4}, 3, "tg")
    assert (one.placeholder, one.originator, one.tags) == (True, True, {"x": "y"})
    assert one.preemption_policy == rm_messages.PreemptionPolicy(allow_preempt_self=True)
    assert (one.created_ns // 10**9, one.node_id) == (START_S, "")


@pytest.mark.parametrize(
    ("tag", "created_ns"),
    [
        ("1600000000", 1_600_000_000 * 10**9),
        ("0", 0),
        ("1800000000", 1_800_000_000 * 10**9),  # the future
        ("99999999999", INT64_MAX),
        ("999999999999", STAMP_NS),
        ("-5", STAMP_NS),
        ("1.5", STAMP_NS),
        ("soon", STAMP_NS),
        ("", STAMP_NS),
        ("٣", STAMP_NS),
    ],
)
def test_the_creation_time_is_whole_seconds_or_else_now(tag: str, created_ns: int) -> None:
    assert find_creation_time({"creationTime": tag}, STAMP_NS) == created_ns


def test_a_message_and_its_allocation_do_not_share_amounts() -> None:
    message = asks("app-1 a1 memory=4")
    trial = Trial().takes(new_apps("app-1 root.a"), message)
    message.allocations[0].resource_per_alloc["memory"] = 5
    assert trial.app("app-1").requests["a1"].resources == {"memory": 4}


def test_the_rm_is_told_only_what_it_needs_to_act() -> None:
    """Spec 1.5: no tags, priority or partition."""
    text = "app-1 a1 memory=4 priority=3 group=tg originator victim tag.x=y"
    trial = Trial().does(nodes("n1 memory=9"), new_apps("app-1 root.a"), asks(text))
    (told,) = (effect.part for effect in trial.effects if isinstance(effect.part, rm_messages.Allocation))
    assert told == rm_messages.Allocation(
        allocation_key="a1",
        application_id="app-1",
        node_id="n1",
        resource_per_alloc={"memory": 4},
        task_group_name="tg",
        originator=True,
        preemption_policy=rm_messages.PreemptionPolicy(allow_preempt_self=True),
    )


# Order of pending asks -----------------------------------------------------------------------------------------------


def pending(key: str, words: str = "memory=1") -> Allocation:
    return received(ask(f"app-1 {key} {words}"), stamp_ns=10**18)


def drained(asks: PendingAsks) -> list[str]:
    """The keys in the order in which asks would be tried, if each attempt succeeded."""
    keys = []
    while asks.groups_by_key:
        head = next(asks.groups).head
        keys.append(head.key)
        asks.remove(head)
    return keys


def test_vector_1_priority_then_time_and_the_reference_rule_for_ties() -> None:
    asks = PendingAsks()
    for key, words in (
        ("a", "created=100"),
        ("b", "created=100"),
        ("low", "created=100 priority=-5"),
        ("c", "created=100"),
        ("d", "created=100"),
        ("hi", "created=100 priority=5"),
        ("early", "created=99"),
        ("late", "created=101"),
    ):
        asks.add(pending(key, f"memory=1 {words}"))
    assert drained(asks) == ["hi", "early", "d", "c", "a", "b", "late", "low"]


def test_the_order_is_the_same_when_asks_differ_in_shape() -> None:
    asks = PendingAsks()
    for number, (key, words) in enumerate(
        [("a", "created=100"), ("b", "created=100"), ("low", "created=100 priority=-5"), ("c", "created=100")]
    ):
        asks.add(pending(key, f"memory={number + 1} {words}"))
    assert drained(asks) == ["c", "a", "b", "low"]


def test_asks_with_the_same_amounts_and_required_node_are_one_group() -> None:
    asks = PendingAsks()
    for key, words in (
        ("a", "memory=1 gpu=2"),
        ("b", "gpu=2 memory=1"),
        ("c", "memory=1 gpu=2 required=n1"),
        ("d", "memory=1"),
    ):
        asks.add(pending(key, words))
    assert len(list(asks.groups)) == 3
    assert {one.key for one in asks} == {"a", "b", "c", "d"}


def test_equal_asks_keep_their_amounts_once_and_one_that_is_resized_has_its_own() -> None:
    asks, (first, second) = PendingAsks(), (pending("a", "memory=1 gpu=2"), pending("b", "gpu=2 memory=1"))
    asks.add(first)
    asks.add(second)
    assert second.resources is first.resources
    assert second.shape is first.shape
    asks.resize(second, {"memory": 3})
    assert (first.resources, second.resources) == ({"memory": 1, "gpu": 2}, {"memory": 3})
    assert first.shape.amounts == amounts_of({"memory": 1, "gpu": 2})
    assert second.shape.amounts == amounts_of({"memory": 3})


def test_a_group_moves_when_its_first_ask_comes_or_goes() -> None:
    asks = PendingAsks()
    first, big, second = pending("first"), pending("big", "memory=9"), pending("second")
    first.created_ns, big.created_ns, second.created_ns = 1, 2, 3
    for one in (first, big, second):
        asks.add(one)
    assert [group.head.key for group in asks.groups] == ["first", "big"]
    asks.remove(first)
    assert [group.head.key for group in asks.groups] == ["big", "second"]


def test_asks_of_another_priority_or_that_wait_for_a_placeholder_are_a_group_of_their_own() -> None:
    asks = PendingAsks()
    low, high, held = pending("low"), pending("high", "memory=1 priority=1"), pending("held")
    for one in (low, high, held):
        asks.add(one)
    held.held = True
    asks.regroup(held)
    assert [(group.head.key, group.standing) for group in asks.groups if len(group) == 1] == [
        ("high", Standing.OPEN),
        ("low", Standing.OPEN),
        ("held", Standing.HELD),
    ]


def test_what_came_of_the_attempts_goes_with_an_ask_that_waits_in_another_way() -> None:
    asks = PendingAsks()
    first, second, untried = pending("first"), pending("second"), pending("untried", "memory=1")
    for one in (first, second):
        asks.add(one)
    assert first.group is not None
    first.group.attempted = True
    log_attempt(first.group.log, WaitCause(Reason.QUEUE_MAXIMUM), 7.0)
    first.held = True
    asks.regroup(first)
    moved, left = first.group, second.group
    assert moved is not None
    assert left is not None
    assert (moved.attempted, moved.log) == (True, left.log)
    log_attempt(moved.log, WaitCause(Reason.QUEUE_MAXIMUM), 8.0)
    assert (left.attempted, left.log[Reason.QUEUE_MAXIMUM].times) == (True, 1)
    asks.add(untried)
    untried.held = True
    asks.regroup(untried)
    assert not moved.attempted


def test_the_priority_is_that_of_the_first_ask() -> None:
    asks = PendingAsks()
    assert asks.priority is None
    low, high = pending("low", "memory=1 priority=-3"), pending("high", "memory=2 priority=4")
    asks.add(low)
    asks.add(high)
    assert asks.priority == 4
    asks.remove(high)
    assert asks.priority == -3
    asks.remove(low)
    assert (asks.priority, list(asks), list(asks.groups)) == (None, [], [])


def test_a_list_that_is_searched_for_every_insertion_gives_the_same_order() -> None:
    rng = random.Random(7)
    queue = PlainQueue("root", None, config().root)
    for _ in range(100):
        asks, plain = PendingAsks(), PlainApp("app", queue, submitted=0)
        for number, _step in enumerate(range(rng.randint(1, 12))):
            priority, created, memory = rng.choice((0, 1)), rng.choice((100, 101)), rng.choice((1, 2))
            asks.add(pending(f"k{number}", f"memory={memory} created={created} priority={priority}"))
            plain.insert(PlainAsk(f"k{number}", {}, priority, created, ""))
        assert drained(asks) == [one.key for one in plain.asks]


def test_removing_asks_leaves_the_others_in_their_order() -> None:
    keys = "abcdef"
    for gone in itertools.combinations(keys, 2):
        asks = PendingAsks()
        all_of = {key: pending(key, f"memory={1 + number % 2} created=100") for number, key in enumerate(keys)}
        for one in all_of.values():
            asks.add(one)
        for key in gone:
            asks.remove(all_of[key])
        assert drained(asks) == [key for key in keys if key not in gone]


# Asks of one group ----------------------------------------------------------------------------------------------------


def one(number: int) -> Allocation:
    return received(ask(f"app-1 a{number} memory=1"), stamp_ns=number)


def no_asks() -> AskGroup:
    return AskGroup(AskShape(amounts_of({"memory": 1})), 0, Standing.OPEN, False, "")


def test_they_stand_by_age_then_rank_and_it_is_told_when_another_one_is_first() -> None:
    line, young, old, late = no_asks(), one(9), one(3), one(9)
    late.rank = 1
    assert [line.add(each) for each in (late, young, old)] == [True, True, True]
    assert list(line) == [old, young, late]
    assert (line.head, line.last, len(line)) == (old, late, 3)
    assert [line.remove(each) for each in (young, old)] == [False, True]
    assert line.add(young)
    assert list(line) == [young, late]


@pytest.mark.parametrize("come", ["in order", "backwards", "by chance"])
@pytest.mark.parametrize("go", ["in order", "backwards", "by chance"])
def test_many_come_and_go_in_any_order(come: str, go: str) -> None:
    asks = [one(number) for number in range(3 * REMOVED_MAX)]
    line = no_asks()
    for each in _shuffled(asks, come):
        line.add(each)
    assert list(line) == asks
    left = set(asks)
    for number, each in enumerate(_shuffled(asks, go)):
        line.remove(each)
        left.remove(each)
        assert len(line) == len(left)
        if number % 100 == 0:
            assert list(line) == sorted(left, key=place_of)
    assert not list(line)


def test_an_empty_line_takes_asks_again() -> None:
    line, first, second = no_asks(), one(1), one(2)
    line.add(first)
    line.remove(first)
    line.add(second)
    assert list(line) == [second]


def test_an_ask_that_is_not_in_is_found_out() -> None:
    line = no_asks()
    for number in (1, 3):
        line.add(one(number))
    with pytest.raises(AssertionError, match="a2"):
        line.remove(one(2))


def _shuffled(asks: list[Allocation], how: str) -> list[Allocation]:
    if how == "by chance":
        return Random(7).sample(asks, len(asks))
    return asks if how == "in order" else asks[::-1]


# Ask shapes -----------------------------------------------------------------------------------------------------------


def test_the_order_in_which_types_were_written_makes_no_difference() -> None:
    one, other = amounts_of({"vcore": 1, "memory": 2}), amounts_of({"memory": 2, "vcore": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert list(one) == list(other) == [("memory", 2), ("vcore", 1)]


def test_an_ask_that_must_run_on_one_node_needs_something_else() -> None:
    amounts = amounts_of({"memory": 2})
    assert AskShape(amounts, "n1") != AskShape(amounts)
