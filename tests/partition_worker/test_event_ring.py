"""The history: numbers that are never used again, times that are never the same, and room for so many."""

from common import event_codes
from partition_worker.engine.effects import Happening
from partition_worker.event_ring import EventRing

NOW = 1000.0
NOW_NS = 1_000_000_000_000


def happenings(*names: str) -> list[Happening]:
    return [Happening(event_codes.NODE, name, "", event_codes.ADD, event_codes.DETAILS_NONE, "", {}) for name in names]


def ring(*names: str, capacity: int = 10) -> EventRing:
    one = EventRing("rm-1_default 1", capacity)
    one.add(happenings(*names), NOW)
    return one


def names(one: EventRing, start: int, most: int = 100) -> list[str] | None:
    found = one.since(start, most)
    return None if found is None else [happening.object_id for happening in found.happenings]


def test_an_empty_history_has_no_numbers() -> None:
    one = ring()
    assert (len(one), one.lowest, one.highest, one.since(0, 1)) == (0, 0, 0, None)


def test_events_are_numbered_from_zero_in_order() -> None:
    one = ring("a", "b", "c")
    assert (one.lowest, one.highest) == (0, 2)
    assert names(one, 0) == ["a", "b", "c"]
    assert names(one, 1, most=1) == ["b"]


def test_there_is_nothing_at_a_number_that_has_not_come() -> None:
    assert names(ring("a"), 1) is None


def test_the_oldest_go_when_there_is_no_room_and_numbers_go_on() -> None:
    one = ring("a", "b", "c", capacity=2)
    one.add(happenings("d"), NOW)
    assert (one.lowest, one.highest) == (2, 3)
    assert names(one, 1) is None
    assert names(one, 2) == ["c", "d"]


def test_a_smaller_history_keeps_the_newest_and_a_larger_one_all() -> None:
    one = ring("a", "b", "c")
    one.resize(2)
    assert (one.lowest, one.highest, names(one, 1)) == (1, 2, ["b", "c"])
    one.resize(3)
    one.add(happenings("d", "e"), NOW)
    assert (one.lowest, one.highest, names(one, 2)) == (2, 4, ["c", "d", "e"])


def test_no_event_is_at_the_time_of_another_or_before_it() -> None:
    one = ring("a", "b")
    one.add(happenings("c"), NOW)
    one.add(happenings("d"), NOW + 1)
    found = one.since(0, 4)
    assert found is not None
    assert found.times_ns == [NOW_NS, NOW_NS + 1, NOW_NS + 2, NOW_NS + 1_000_000_000]


def test_each_history_has_a_name_of_its_own_that_stays() -> None:
    assert EventRing("one").instance == EventRing("one").instance != EventRing("other").instance
    assert [len(part) for part in EventRing("one").instance.split("-")] == [8, 4, 4, 4, 12]


def test_as_many_may_be_asked_for_as_a_setting_can_say() -> None:
    assert names(ring("a", "b"), 1, most=2**64 - 1) == ["b"]


def test_the_next_number_is_that_after_all_that_ever_happened() -> None:
    assert ring().end == 0
    assert ring("a", "b", "c", capacity=2).end == 3
