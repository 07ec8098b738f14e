"""A tally knows the largest of the numbers that are in it."""

from partition_worker.engine.queues.queue import Tally


def test_an_empty_tally_has_no_highest() -> None:
    assert Tally().highest is None


def test_the_highest_goes_when_the_last_of_its_kind_goes() -> None:
    tally = Tally()
    for number in (3, 7, 7):
        tally.exchange(None, number)
    tally.exchange(7, None)
    assert tally.highest == 7
    tally.exchange(7, None)
    assert tally.highest == 3
    tally.exchange(3, None)
    assert tally.highest is None


def test_a_number_is_exchanged_for_another() -> None:
    tally = Tally()
    tally.exchange(None, -5)
    tally.exchange(-5, -9)
    assert tally.highest == -9


def test_a_number_exchanged_for_itself_stays() -> None:
    tally = Tally()
    tally.exchange(None, 1)
    tally.exchange(1, 1)
    assert tally.highest == 1
