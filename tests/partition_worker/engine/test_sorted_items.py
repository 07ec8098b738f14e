"""Order and SortedItems keep things by key and rank while keys change."""

import random
from dataclasses import dataclass

import pytest

from yunishard.partition_worker.engine.sorted_items import BLOCK_MAX, NO_SHARES, Item, Order, SortedItems, SortKey


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


# SortedItems ----------------------------------------------------------------------------------------------------------


def key_of(*parts: int) -> SortKey:
    """A key that differs from others in its first and last part only."""
    return parts[0], 0.0, NO_SHARES, 0, parts[-1]


def test_items_are_in_the_order_of_all_parts_of_their_keys_then_of_their_ranks() -> None:
    items: SortedItems[Item] = SortedItems()
    keys: list[SortKey] = [
        (-1, 9.0, (9.0,), 9, 9),
        (0, 0.25, (9.0,), 9, 9),
        (0, 0.5, NO_SHARES, 9, 9),
        (0, 0.5, (0.5,), 9, 9),
        (0, 0.5, (0.5, 0.25), -1, 9),
        (0, 0.5, (0.5, 0.25), 0, -9),
        (0, 0.5, (0.5, 0.25), 0, 0),
        (0, 0.5, (0.5, 0.25), 0, 0),
    ]
    expected = [Item(rank) for rank in range(len(keys))]
    for item, key in sorted(zip(expected, keys, strict=True), key=lambda pair: -pair[0].rank):
        items.put(item, key)
    assert list(items) == expected
    assert items.first() is expected[0]
    assert [item.sort_key for item in items] == keys


def test_an_item_is_in_no_collection_before_it_is_put_and_after_it_is_dropped() -> None:
    items: SortedItems[Item] = SortedItems()
    one, other = Item(1), Item(2)
    items.drop(one)
    items.put(one, key_of(1))
    items.put(one, key_of(1))
    assert (one.is_sorted, other.is_sorted, len(items)) == (True, False, 1)
    items.drop(one)
    items.drop(one)
    assert (one.is_sorted, len(items), items.first(), list(items)) == (False, 0, None, [])


def test_an_item_that_is_handed_over_keeps_its_key() -> None:
    items: SortedItems[Item] = SortedItems()
    others: SortedItems[Item] = SortedItems()
    one, small, large = Item(1), Item(2), Item(3)
    items.put(one, key_of(5))
    others.put(small, key_of(4))
    others.put(large, key_of(6))
    items.hand_over(one, others)
    assert (list(items), list(others)) == ([], [small, one, large])


def random_key(rng: random.Random) -> SortKey:
    """Many keys are equal, and each part decides about some."""
    shares = rng.choice([NO_SHARES, (0.5,), (0.5, 0.25)])
    return rng.randrange(3), rng.choice([0.0, 0.5]), shares, rng.randrange(2), rng.randrange(50)


@pytest.mark.parametrize("seed", range(5))
def test_items_agree_with_a_sorted_list_whatever_is_put_moves_and_goes(seed: int) -> None:
    rng = random.Random(seed)
    items: SortedItems[Item] = SortedItems()
    others: SortedItems[Item] = SortedItems()
    keys: dict[Item, SortKey] = {}
    other_keys: dict[Item, SortKey] = {}
    everything = [Item(rank) for rank in range(5 * BLOCK_MAX)]
    for changes in (
        ("put",),
        ("put", "move", "move a bit", "hand over", "hand back"),
        ("drop", "drop", "move", "hand over"),
        ("put", "move", "move the first", "hand back", "drop"),
        ("drop",),
    ):
        for item in rng.sample(everything, len(everything)):
            change, is_here = rng.choice(changes), item in keys
            if (change == "put" and item not in other_keys) or (change == "move" and is_here):
                keys[item] = random_key(rng)
                items.put(item, keys[item])
            elif change == "move a bit" and is_here:
                keys[item] = (*keys[item][:4], keys[item][4] + rng.choice([-1, 1]))
                items.put(item, keys[item])
            elif change == "move the first" and (first := items.first()) is not None:
                keys[first] = random_key(rng)
                items.put(first, keys[first])
            elif change == "hand over" and is_here:
                other_keys[item] = keys.pop(item)
                items.hand_over(item, others)
            elif change == "hand back" and item in other_keys:
                keys[item] = other_keys.pop(item)
                others.hand_over(item, items)
            elif change == "drop" and is_here:
                del keys[item]
                items.drop(item)
        for found, expected in ((items, keys), (others, other_keys)):
            in_order = sorted(expected, key=lambda one: (expected[one], one.rank))
            assert list(found) == in_order
            assert len(found) == len(in_order)
            assert found.first() is (in_order[0] if in_order else None)
            assert [one.sort_key for one in found] == [expected[one] for one in in_order]
    assert not keys
    assert len(others) > BLOCK_MAX
    for item in list(others):
        assert others.first() is item
        others.drop(item)
    assert not list(others)
