"""The order in which the asks of an application are tried."""

import itertools
import random

from partition_worker.engine.applications.allocation import Allocation, from_message
from partition_worker.engine.applications.asks import PendingAsks, Standing
from partition_worker.engine.ask_shapes import Needs
from tests.builders import ask as message
from tests.builders import config
from tests.properties.plain_scheduler import PlainApp, PlainAsk, PlainQueue


def ask(key: str, words: str = "memory=1") -> Allocation:
    return from_message(message(f"app {key} {words}"), None, stamp_ns=10**18, needs=Needs())


def drained(asks: PendingAsks) -> list[str]:
    """The keys in the order in which asks would be tried, if each attempt succeeded."""
    keys = []
    while len(asks):
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
        asks.add(ask(key, f"memory=1 {words}"))
    assert drained(asks) == ["hi", "early", "d", "c", "a", "b", "late", "low"]


def test_the_order_is_the_same_when_asks_differ_in_shape() -> None:
    asks = PendingAsks()
    for number, (key, words) in enumerate(
        [("a", "created=100"), ("b", "created=100"), ("low", "created=100 priority=-5"), ("c", "created=100")]
    ):
        asks.add(ask(key, f"memory={number + 1} {words}"))
    assert drained(asks) == ["c", "a", "b", "low"]


def test_asks_with_the_same_amounts_and_required_node_are_one_group() -> None:
    asks = PendingAsks()
    for key, words in (
        ("a", "memory=1 gpu=2"),
        ("b", "gpu=2 memory=1"),
        ("c", "memory=1 gpu=2 required=n1"),
        ("d", "memory=1"),
    ):
        asks.add(ask(key, words))
    assert len(list(asks.groups)) == 3
    assert {one.key for one in asks} == {"a", "b", "c", "d"}


def test_equal_asks_keep_their_amounts_once_and_one_that_is_resized_has_its_own() -> None:
    asks, (first, second) = PendingAsks(), (ask("a", "memory=1 gpu=2"), ask("b", "gpu=2 memory=1"))
    asks.add(first)
    asks.add(second)
    assert second.resources is first.resources
    assert second.need is first.need
    asks.resize(second, {"memory": 3})
    assert (first.resources, second.resources) == ({"memory": 1, "gpu": 2}, {"memory": 3})
    assert (first.need.shape, second.need.shape) == ((("gpu", 2), ("memory", 1)), (("memory", 3),))


def test_a_group_moves_when_its_first_ask_comes_or_goes() -> None:
    asks = PendingAsks()
    first, big, second = ask("first"), ask("big", "memory=9"), ask("second")
    first.created_ns, big.created_ns, second.created_ns = 1, 2, 3
    for one in (first, big, second):
        asks.add(one)
    assert [group.head.key for group in asks.groups] == ["first", "big"]
    asks.remove(first)
    assert [group.head.key for group in asks.groups] == ["big", "second"]


def test_asks_of_another_priority_or_that_wait_for_a_placeholder_are_a_group_of_their_own() -> None:
    asks = PendingAsks()
    low, high, held = ask("low"), ask("high", "memory=1 priority=1"), ask("held")
    for one in (low, high, held):
        asks.add(one)
    held.held = True
    asks.regroup(held)
    assert [(group.head.key, group.kind.standing) for group in asks.groups if len(group.asks) == 1] == [
        ("high", Standing.OPEN),
        ("low", Standing.OPEN),
        ("held", Standing.HELD),
    ]


def test_what_came_of_the_attempts_goes_with_an_ask_that_waits_in_another_way() -> None:
    asks = PendingAsks()
    first, second, untried = ask("first"), ask("second"), ask("untried", "memory=1")
    for one in (first, second):
        asks.add(one)
    assert first.group is not None
    first.group.attempted = True
    first.group.note("Not enough queue quota", 7.0)
    first.held = True
    asks.regroup(first)
    moved, left = first.group, second.group
    assert moved is not None
    assert left is not None
    assert (moved.attempted, moved.failures) == (True, left.failures)
    moved.note("Not enough queue quota", 8.0)
    assert (left.attempted, left.failures["Not enough queue quota"].times) == (True, 1)
    asks.add(untried)
    untried.held = True
    asks.regroup(untried)
    assert not moved.attempted


def test_the_priority_is_that_of_the_first_ask() -> None:
    asks = PendingAsks()
    assert asks.priority is None
    low, high = ask("low", "memory=1 priority=-3"), ask("high", "memory=2 priority=4")
    asks.add(low)
    asks.add(high)
    assert asks.priority == 4
    asks.remove(high)
    assert asks.priority == -3
    asks.remove(low)
    assert (asks.priority, len(asks), list(asks.groups)) == (None, 0, [])


def test_a_list_that_is_searched_for_every_insertion_gives_the_same_order() -> None:
    rng = random.Random(7)
    queue = PlainQueue("root", None, config().root)
    for _ in range(100):
        asks, plain = PendingAsks(), PlainApp("app", queue, submitted=0)
        for number, _step in enumerate(range(rng.randint(1, 12))):
            priority, created, memory = rng.choice((0, 1)), rng.choice((100, 101)), rng.choice((1, 2))
            asks.add(ask(f"k{number}", f"memory={memory} created={created} priority={priority}"))
            plain.insert(PlainAsk(f"k{number}", {}, priority, created, ""))
        assert drained(asks) == [one.key for one in plain.asks]


def test_removing_asks_leaves_the_others_in_their_order() -> None:
    keys = "abcdef"
    for gone in itertools.combinations(keys, 2):
        asks = PendingAsks()
        all_of = {key: ask(key, f"memory={1 + number % 2} created=100") for number, key in enumerate(keys)}
        for one in all_of.values():
            asks.add(one)
        for key in gone:
            asks.remove(all_of[key])
        assert drained(asks) == [key for key in keys if key not in gone]
