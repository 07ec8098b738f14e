"""Order keeps things by key and rank while keys change."""

import random
from dataclasses import dataclass

import pytest

from yunishard.partition_worker.engine.sorted_items import BLOCK_MAX, Order


@dataclass(eq=False)
class Thing:
    rank: int


def test_the_smallest_key_is_first() -> None:
    order: Order[Thing] = Order()
    low, high = Thing(2), Thing(1)
    order.put(high, (5,))
    order.put(low, (3,))
    assert list(order) == [low, high]
    assert order.first() is low


def test_of_equal_keys_the_smaller_rank_is_first() -> None:
    order: Order[Thing] = Order()
    second, first = Thing(2), Thing(1)
    order.put(second, (0,))
    order.put(first, (0,))
    assert list(order) == [first, second]


def test_a_thing_moves_when_its_key_changes() -> None:
    order: Order[Thing] = Order()
    one, other = Thing(1), Thing(2)
    order.put(one, (1,))
    order.put(other, (2,))
    order.put(one, (3,))
    assert list(order) == [other, one]
    assert len(order) == 2


def test_putting_a_thing_with_its_own_key_changes_nothing() -> None:
    order: Order[Thing] = Order()
    one = Thing(1)
    order.put(one, (1,))
    order.put(one, (1,))
    assert len(order) == 1


def test_what_was_dropped_is_gone_and_dropping_it_again_is_harmless() -> None:
    order: Order[Thing] = Order()
    one = Thing(1)
    order.put(one, (1,))
    order.drop(one)
    order.drop(one)
    assert one not in order
    assert order.first() is None


def test_keys_of_several_parts_compare_part_by_part() -> None:
    order: Order[Thing] = Order()
    short, long = Thing(2), Thing(1)
    order.put(long, (1, (0.5, 0.25)))
    order.put(short, (1, (0.5,)))
    assert list(order) == [short, long]


def test_the_first_place_is_made_unique_by_the_rank() -> None:
    order: Order[Thing] = Order()
    assert order.first_place() is None
    order.put(Thing(7), (3, "a"))
    assert order.first_place() == (3, "a", 7)


@pytest.mark.parametrize("seed", range(5))
def test_any_number_of_things_stays_in_order_whatever_moves_and_goes(seed: int) -> None:
    rng = random.Random(seed)
    order: Order[Thing] = Order()
    keys: dict[Thing, tuple[int, ...]] = {}
    things = [Thing(rank) for rank in range(5 * BLOCK_MAX)]
    for growing in (True, False, True):
        for thing in rng.sample(things, len(things)):
            if growing or rng.random() < 0.1:
                keys[thing] = (rng.randrange(3), rng.randrange(1000))
                order.put(thing, keys[thing])
            else:
                keys.pop(thing, None)
                order.drop(thing)
        expected = sorted(keys, key=lambda one: (keys[one], one.rank))
        assert list(order) == expected
        assert len(order) == len(expected)
        assert order.first() is expected[0]
        assert order.first_place() == (*keys[expected[0]], expected[0].rank)
    for thing in expected:
        assert order.first() is thing
        order.drop(thing)


def test_what_comes_after_everything_went_is_in_order_again() -> None:
    order: Order[Thing] = Order()
    things = [Thing(rank) for rank in range(3 * BLOCK_MAX)]
    for keys in (things, reversed(things)):
        for key, thing in enumerate(keys):
            order.put(thing, (key,))
        for thing in things:
            order.drop(thing)
    order.put(things[1], (1,))
    order.put(things[0], (0,))
    assert list(order) == things[:2]
