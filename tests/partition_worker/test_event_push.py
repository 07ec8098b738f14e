"""Events go to an RM that wants them, a batch at a time, and to nobody else."""

import pytest

from common import event_codes
from common.control_messages import Pause, Repeat, Settings
from common.rm_messages import EVENTS, EventResponse
from partition_worker.engine.effects import Happening
from partition_worker.event_push import EVERY_S
from tests.machines import said
from tests.partition_worker.bench import NOW, Bench

DRAINED = Happening(event_codes.NODE, "n7", "", event_codes.SET, event_codes.NODE_SCHEDULABLE, "schedulable: false", {})


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
    happened = len(bench.worker.replica.events)
    [batch] = batches(bench, NOW + EVERY_S)
    assert batch.missed == happened - 2 > 0


def test_what_is_gone_already_counts_as_well(bench: Bench) -> None:
    happened = len(bench.worker.replica.events)
    bench.hear(Settings(values={"event.ringBufferCapacity": "3"}, capabilities=[EVENTS]))
    [batch] = batches(bench, NOW + EVERY_S)
    assert (len(batch.events), batch.missed) == (3, happened - 3)


def test_an_rm_that_does_not_read_its_news_is_sent_no_events_until_it_does(bench: Bench) -> None:
    outbox = bench.worker.replica.lane.outbox
    assert pushed(bench, NOW + EVERY_S)
    assert len(outbox) > 0
    bench.worker.replica.events.add([DRAINED], NOW + 3)
    assert pushed(bench, NOW + 4) == []
    assert pushed(bench, NOW + 4 + EVERY_S) == []
    outbox.acknowledge(outbox.last)
    assert pushed(bench, NOW + 8) == []
    assert pushed(bench, NOW + 8 + EVERY_S) == ["n7"]
