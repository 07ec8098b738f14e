"""Asks of one kind in order, however they come and go."""

from random import Random

import pytest

from partition_worker.engine.applications.allocation import Allocation, from_message
from partition_worker.engine.applications.line import BLOCK_MAX, Line, place_of
from partition_worker.engine.ask_shapes import Needs
from tests.builders import ask


def one(number: int, priority: int = 0) -> Allocation:
    return from_message(ask(f"app a{number} memory=1 priority={priority}"), None, stamp_ns=number, needs=Needs())


def test_they_stand_by_priority_then_age_then_rank() -> None:
    line, young, old, urgent, late = Line(), one(9), one(3), one(9, 1), one(9)
    late.rank = 1
    for each in (late, young, urgent, old):
        line.add(each)
    assert list(line) == [urgent, old, young, late]
    assert (line.head, line.last, len(line)) == (urgent, late, 4)


@pytest.mark.parametrize("come", ["in order", "backwards", "by chance"])
@pytest.mark.parametrize("go", ["in order", "backwards", "by chance"])
def test_many_come_and_go_in_any_order(come: str, go: str) -> None:
    asks = [one(number) for number in range(3 * BLOCK_MAX)]
    line = Line()
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
    line, first, second = Line(), one(1), one(2)
    line.add(first)
    line.remove(first)
    line.add(second)
    assert list(line) == [second]


def test_an_ask_that_is_not_in_is_found_out() -> None:
    line = Line()
    for number in (1, 3):
        line.add(one(number))
    with pytest.raises(AssertionError, match="a2"):
        line.remove(one(2))


def _shuffled(asks: list[Allocation], how: str) -> list[Allocation]:
    if how == "by chance":
        return Random(7).sample(asks, len(asks))
    return asks if how == "in order" else asks[::-1]
