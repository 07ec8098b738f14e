"""The history: numbers that are never used again, times that are never the same, and room for so many."""

import pytest

from tests.machines import said
from tests.partition_worker.bench import NOW, Bench
from yunishard.common.messages import event_codes
from yunishard.common.messages.control_messages import Pause, Repeat, Settings
from yunishard.common.messages.rm_messages import EVENTS, EventResponse
from yunishard.partition_worker.engine.effects import Event
from yunishard.partition_worker.event_ring_buffer import EVERY_S, EventRingBuffer

NOW_NS = 1_000_000_000_000


def build_events(*names: str) -> list[Event]:
    return [Event(event_codes.NODE, name, "", event_codes.ADD, event_codes.DETAILS_NONE, "", {}) for name in names]


def ring(*names: str, capacity: int = 10) -> EventRingBuffer:
    one = EventRingBuffer("rm-1_default 1", capacity)
    one.append_events(build_events(*names), NOW)
    return one


def names(one: EventRingBuffer, start: int, most: int = 100) -> list[str]:
    return [event.object_id for _, event in one.read_since(start, most)]


def test_an_empty_history_has_no_numbers() -> None:
    one = ring()
    assert (len(one), one.lowest, one.highest, one.read_since(0, 1)) == (0, 0, 0, [])


def test_events_are_numbered_from_zero_in_order() -> None:
    one = ring("a", "b", "c")
    assert (one.lowest, one.highest) == (0, 2)
    assert names(one, 0) == ["a", "b", "c"]
    assert names(one, 1, most=1) == ["b"]


def test_there_is_nothing_at_a_number_that_has_not_come() -> None:
    assert names(ring("a"), 1) == []


def test_the_oldest_go_when_there_is_no_room_and_numbers_go_on() -> None:
    one = ring("a", "b", "c", capacity=2)
    one.append_events(build_events("d"), NOW)
    assert (one.lowest, one.highest) == (2, 3)
    assert names(one, 1) == []
    assert names(one, 2) == ["c", "d"]


def test_a_smaller_history_keeps_the_newest_and_a_larger_one_all() -> None:
    one = ring("a", "b", "c")
    one.resize(2)
    assert (one.lowest, one.highest, names(one, 1)) == (1, 2, ["b", "c"])
    one.resize(3)
    one.append_events(build_events("d", "e"), NOW)
    assert (one.lowest, one.highest, names(one, 2)) == (2, 4, ["c", "d", "e"])


def test_no_event_is_at_the_time_of_another_or_before_it() -> None:
    one = ring("a", "b")
    one.append_events(build_events("c"), NOW)
    one.append_events(build_events("d"), NOW + 1)
    assert [at_ns for at_ns, _ in one.read_since(0, 4)] == [NOW_NS, NOW_NS + 1, NOW_NS + 2, NOW_NS + 1_000_000_000]


def test_each_history_has_a_name_of_its_own_that_stays() -> None:
    assert EventRingBuffer("one").instance == EventRingBuffer("one").instance != EventRingBuffer("other").instance
    assert [len(part) for part in EventRingBuffer("one").instance.split("-")] == [8, 4, 4, 4, 12]


def test_as_many_may_be_asked_for_as_a_setting_can_say() -> None:
    assert names(ring("a", "b"), 1, most=2**64 - 1) == ["b"]


def test_the_next_number_is_that_after_all_that_ever_happened() -> None:
    assert ring().end == 0
    assert ring("a", "b", "c", capacity=2).end == 3


DRAINED = Event(event_codes.NODE, "n7", "", event_codes.SET, event_codes.NODE_SCHEDULABLE, "schedulable: false", {})


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.hear(Settings(values={}, capabilities=[EVENTS]))
    bench.furnish()
    bench.schedule()
    return bench


def pushed(bench: Bench, now: float) -> list[str]:
    batches = [one for one in said(bench.worker.tick(now)) if isinstance(one, EventResponse)]
    return [event.object_id for batch in batches for event in batch.events]


def test_what_has_happened_is_told_after_a_while_and_once(bench: Bench) -> None:
    assert bench.worker.deadline == NOW + EVERY_S
    assert pushed(bench, NOW + 1) == []
    assert {"n1", "a"} <= set(pushed(bench, NOW + EVERY_S))
    assert pushed(bench, NOW + 2 * EVERY_S) == []


def test_events_are_not_numbered(bench: Bench) -> None:
    [batch] = [one for one in bench.worker.tick(NOW + EVERY_S) if one.header.kind == "EventResponse"]
    assert batch.header.seq == 0


def test_an_rm_that_does_not_want_them_hears_none() -> None:
    bench = Bench()
    bench.furnish()
    bench.schedule()
    assert bench.worker.deadline > NOW + EVERY_S
    assert pushed(bench, NOW + EVERY_S) == []


def test_an_rm_that_is_away_is_told_when_it_is_back(bench: Bench) -> None:
    bench.hear(Pause())
    assert pushed(bench, NOW + EVERY_S) == []
    assert bench.worker.deadline > NOW + EVERY_S
    bench.hear(Repeat())
    assert pushed(bench, NOW + 10) == []
    assert "n1" in pushed(bench, NOW + 10 + EVERY_S)


def test_only_so_many_are_told_at_once(bench: Bench) -> None:
    bench.hear(Settings(values={"event.requestCapacity": "2"}, capabilities=[EVENTS]))
    assert len(pushed(bench, NOW + EVERY_S)) == 2
    assert pushed(bench, NOW + 2 * EVERY_S) == []


def batches(bench: Bench, now: float) -> list[EventResponse]:
    return [one for one in said(bench.worker.tick(now)) if isinstance(one, EventResponse)]


def test_how_many_are_not_told_is(bench: Bench) -> None:
    bench.hear(Settings(values={"event.requestCapacity": "2"}, capabilities=[EVENTS]))
    happened = len(bench.worker.host.events)
    [batch] = batches(bench, NOW + EVERY_S)
    assert batch.missed == happened - 2 > 0


def test_what_is_gone_already_counts_as_well(bench: Bench) -> None:
    happened = len(bench.worker.host.events)
    bench.hear(Settings(values={"event.ringBufferCapacity": "3"}, capabilities=[EVENTS]))
    [batch] = batches(bench, NOW + EVERY_S)
    assert (len(batch.events), batch.missed) == (3, happened - 3)


def test_an_rm_that_does_not_read_its_news_is_sent_no_events_until_it_does(bench: Bench) -> None:
    outbox = bench.worker.host.channel.outbox
    assert pushed(bench, NOW + EVERY_S)
    assert len(outbox) > 0
    bench.worker.host.events.append_events([DRAINED], NOW + 3)
    assert pushed(bench, NOW + 4) == []
    assert pushed(bench, NOW + 4 + EVERY_S) == []
    outbox.acknowledge(outbox.last)
    assert pushed(bench, NOW + 8) == []
    assert pushed(bench, NOW + 8 + EVERY_S) == ["n7"]
