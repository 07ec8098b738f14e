"""Metrics that a process reports about itself."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from prometheus_client import Histogram

from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Incoming, Outgoing
from yunishard.common.process import process_metrics
from yunishard.common.process.health import WriteTimes
from yunishard.common.process.metrics import Family
from yunishard.common.process.process_metrics import CHECK_INTERVAL_S, ProcessMetrics, list_families
from yunishard.common.transport.event_loop import Transport
from yunishard.common.transport.inbox import Inbox

_T = TypeVar("_T")


LABELS = {"partition": "rm-1_default", "process": "partition_worker"}


def told(tell: Callable[[], _T]) -> _T:
    """Within a loop."""

    async def run() -> _T:
        return tell()

    return asyncio.run(run())


def values(families: list[Family], name: str) -> dict[tuple[str, ...], float]:
    return dict(
        sample for family in families if family.name == f"yunishard_process_{name}" for sample in family.samples
    )


def test_everything_says_which_process_it_is_about() -> None:
    def families() -> list[Family]:
        metrics = ProcessMetrics("partition_worker", "rm-1_default")
        found = list_families(metrics.registry)
        metrics.close()
        return found

    found = told(families)
    assert values(found, "up") == {("partition_worker", "rm-1_default"): 1}
    for family in found:
        assert dict(zip(family.labels, family.samples[0][0], strict=True)).items() >= LABELS.items()
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "threads", "start_time_seconds"):
        assert all(value > 0 for value in values(found, name).values()), name
    assert len(values(found, "garbage_collections_total")) == 3


def checks(metrics: ProcessMetrics) -> float:
    return sum(values(list_families(metrics), "loop_checks_total").values())


def check(metrics: ProcessMetrics, *, late_s: float) -> float:
    """Check the loop as if it were so late; return the delay that is reported."""
    metrics._check_timer.cancel()
    metrics._check(asyncio.get_running_loop().time() - late_s)
    return sum(values(list_families(metrics), "loop_lag_seconds").values())


def test_checks_of_an_idle_loop_are_counted() -> None:
    async def run() -> list[float]:
        metrics = ProcessMetrics("broker")
        counts = [checks(metrics)]
        for _ in range(2):
            check(metrics, late_s=0.0)
            counts.append(checks(metrics))
        metrics.close()
        return counts

    assert asyncio.run(run()) == [0, 1, 2]


def test_a_loop_that_was_busy_is_late() -> None:
    async def run() -> tuple[float, float, float]:
        metrics = ProcessMetrics("broker")
        late, later = check(metrics, late_s=2 * CHECK_INTERVAL_S), check(metrics, late_s=0.0)
        longest = sum(values(list_families(metrics), "loop_lag_max_seconds").values())
        metrics.close()
        return late, later, longest

    late, later, longest = asyncio.run(run())
    assert later < 2 * CHECK_INTERVAL_S <= late == longest


class Sink(Inbox):
    def send(self, message: Outgoing) -> None:
        """Takes anything."""


def test_messages_are_counted_in_each_direction_and_those_that_wait() -> None:
    async def run() -> list[Family]:
        wire = Transport()
        sink = Sink(wake=wire.wake)
        wire.add("", sink)
        for _ in range(3):
            sink.put(Incoming("peer", Header(kind="Ack"), b""))
        await wire.receive(0.0)
        wire.send(Outgoing("peer", Header(kind="Ack"), b""))
        metrics = ProcessMetrics("broker", wire=wire)
        found = list_families(metrics.registry)
        metrics.close()
        return found

    found = asyncio.run(run())
    assert values(found, "messages_total") == {("broker", "in"): 3, ("broker", "out"): 1}
    assert values(found, "messages_waiting") == {("broker",): 3}
    assert values(found, "messages_dropped_total") == {("broker",): 0}


def test_metrics_are_sent_at_once_and_again_until_they_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "REPORT_INTERVAL_S", 0.0)

    async def run() -> int:
        sent: list[int] = []
        done = asyncio.Event()

        def send() -> None:
            sent.append(1)
            if len(sent) == 3:
                metrics.close()
                done.set()

        metrics = ProcessMetrics("rmproxy", send=send)
        await done.wait()
        await asyncio.sleep(0)
        return len(sent)

    assert asyncio.run(run()) == 3


def test_the_longest_write_is_reported_by_what_was_written() -> None:
    times = iter((0.0, 1.0, 3.5, 4.0))
    writes = WriteTimes(clock=lambda: next(times, 4.0))
    with writes.measure():
        pass

    def families() -> list[Family]:
        metrics = ProcessMetrics("broker")
        metrics.watch_writes("record", writes)
        found = list_families(metrics.registry)
        metrics.close()
        return found

    [family] = [one for one in told(families) if one.name == "yunishard_write_slowest_seconds"]
    assert (family.labels, family.samples) == (("partition", "what"), [(("", "record"), 2.5)])


def test_a_histogram_of_the_library_is_sent_with_its_counts_by_bucket() -> None:
    took = Histogram("a_seconds", "About a.", ("way",), registry=None, buckets=(0.5, 1.0))
    for way, seconds in (("in", 0.7), ("in", 0.8), ("out", 9.0)):
        took.labels(way).observe(seconds)
    assert list_families(took) == [
        Family(
            "a_seconds",
            "histogram",
            "About a.",
            ("way",),
            [],
            (0.5, 1.0),
            [(("in",), [0, 2, 0], 1.5), (("out",), [0, 0, 1], 9.0)],
        )
    ]
