"""Order keeps things by key and rank while keys change."""

from dataclasses import dataclass

from partition_worker.engine.order import Order


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
    assert order.last_key() == (5,)


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
    assert order.last_key() is None


def test_keys_of_several_parts_compare_part_by_part() -> None:
    order: Order[Thing] = Order()
    short, long = Thing(2), Thing(1)
    order.put(long, (1, (0.5, 0.25)))
    order.put(short, (1, (0.5,)))
    assert list(order) == [short, long]
