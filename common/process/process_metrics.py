"""Metrics that every server process reports about itself, and the way of its metrics to another process.

They are kept in a registry of prometheus-client. Most are read on request; a timer measures the delay of the event
loop. ZeroMQ does not report how many messages wait to be sent; the windows of flow control do.

Not here: metrics of what the process does, and the limit on its memory (`limits.py`).
"""

import asyncio
import gc
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from yunishard.common.messages.query_messages import ProcessHealth
from yunishard.common.process.health import ClockWatch, WriteTimes, list_memory_uses
from yunishard.common.process.metrics import PROCESS_UP, Distribution, Family, counter, gauge
from yunishard.common.transport.event_loop import Transport

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series for each counter that holds the time of its start

CHECK_INTERVAL_S: Final = 0.5
"""Between two measurements of the loop's delay."""

CHECKS_KEPT: Final = 60
"""Measurements for the longest delay: half a minute, so that no scrape misses it."""

REPORT_INTERVAL_S: Final = 5.0
"""How often a process sends its metrics if it is not queried for them."""

_HELP: Final = {
    "up": PROCESS_UP,
    "garbage_collections_total": "Garbage collections by generation; each of generation 2 visits every object and "
    "takes a while. A worker with a partition makes none.",
    "memory_bound_ratio": "Share of the tightest bound on its memory that is in use: its own one, a limit of the "
    "system, or the memory of the host. Investigate values above 0.9: at the bound processes end.",
    "threads": "Threads, with those of libraries.",
    "loop_lag_seconds": "Delay of the event loop in seconds at the last check, at most half a second ago.",
    "loop_lag_max_seconds": "The longest delay of the event loop within half a minute, in seconds. Investigate values "
    "above 1: a worker that is silent for longer than a lease (10 s) is replaced.",
    "clock_jumps_total": "Jumps of the wall clock by a second or more, also because the machine was suspended. "
    "Investigate any: times in events and in the history are wrong around it.",
    "loop_checks_total": "Checks of the event loop, two a second while it runs, in an idle cluster too. Investigate "
    "less than one a second: the process or the machine is overloaded.",
    "messages_total": "Messages that were received (in) and sent (out).",
    "messages_waiting": "Messages that waited at the last read, at most 256 of each connection. Investigate if it "
    "stays there: more messages arrive than the process handles.",
    "messages_dropped_total": "Messages for a disconnected peer. They are repeated once it is back: a few after a "
    "restart are normal.",
}
"""By the name after `yunishard_process_`."""

_LABEL: Final = {"garbage_collections_total": "generation", "messages_total": "direction"}
"""The label of metrics with several values."""


class ProcessMetrics:
    """The metrics of this process, a collector of its registry. Needs a running event loop.

    Args:
        process: The name of the process.
        partition: The partition of a worker.
        wire: The transport whose messages are counted.
        memory_max_bytes: The bound at which this process ends; 0 without one.
        send: Called every REPORT_INTERVAL_S seconds to send the metrics; None if they are only queried.
        registry: The registry of all metrics of the process; a new one by default.
    """

    def __init__(
        self,
        process: str,
        partition: str = "",
        wire: Transport | None = None,
        send: Callable[[], None] | None = None,
        *,
        memory_max_bytes: int = 0,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._labels = {"process": process, "partition": partition} if partition else {"process": process}
        self._partition = partition
        self._wire = wire
        self._send = send
        self._delays_s: deque[float] = deque(maxlen=CHECKS_KEPT)
        self._memory_max_bytes = memory_max_bytes
        self._clock = ClockWatch()
        self._checks = Counter("yunishard_process_loop_checks_total", _HELP["loop_checks_total"], registry=None)
        self._system = ProcessCollector("yunishard", registry=None)
        self.registry = registry or CollectorRegistry()
        self.registry.register(self)
        self._slowest = Gauge(
            "yunishard_write_slowest_seconds",
            "Seconds until the longest write of the last minute or two was durable, by what was written: journal, "
            "record (of the broker), history, audit. Investigate above 0.5: the disk or the database is slow.",
            ("partition", "what"),
            registry=self.registry,
        )
        self._loop = asyncio.get_running_loop()
        self._check_timer = self._schedule_check()
        self._send_timer = self._loop.call_soon(self._send_metrics)

    def close(self) -> None:
        self._check_timer.cancel()
        self._send_timer.cancel()

    def watch_writes(self, what: str, writes: WriteTimes) -> None:
        """Report the longest of these writes, too."""
        self._slowest.labels(self._partition, what).set_function(lambda: round(writes.slowest_s, 6))

    def report_health(self, writes: WriteTimes | None = None) -> ProcessHealth:
        """Return the problems of this process as of now; `writes` are those to its file."""
        return ProcessHealth(
            slow_writes=writes.describe_problem() if writes is not None else "",
            clock=self._clock.describe_problem(),
            memory=next((one.describe_problem() for one in list_memory_uses(self._memory_max_bytes)), ""),
        )

    def collect(self) -> Iterator[Metric]:
        """All of them as of now, with the labels of the process."""
        for metric in (*self._system.collect(), *self._checks.collect(), *self._read()):
            metric.samples = [one._replace(labels=self._labels | one.labels) for one in metric.samples]
            yield metric

    def _read(self) -> Iterator[Metric]:
        """The metrics whose values are kept elsewhere."""
        memory = list_memory_uses(self._memory_max_bytes)
        values: dict[str, float | Mapping[str, float]] = {
            "up": 1,
            "garbage_collections_total": {str(n): one["collections"] for n, one in enumerate(gc.get_stats())},
            "memory_bound_ratio": round(memory[0].share, 4) if memory else 0.0,
            "clock_jumps_total": self._clock.jumps,
            "threads": count_threads(),
            "loop_lag_seconds": round(self._delays_s[-1], 6) if self._delays_s else 0.0,
            "loop_lag_max_seconds": round(max(self._delays_s, default=0.0), 6),
        }
        if self._wire is not None:
            values |= {
                "messages_total": {"in": self._wire.received, "out": self._wire.sent},
                "messages_waiting": self._wire.waiting,
                "messages_dropped_total": self._wire.dropped,
            }
        for name, value in values.items():
            make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            labels = [_LABEL[name]] if name in _LABEL else []
            metric = make(f"yunishard_process_{name}", _HELP[name], labels=labels)
            for key, one in (value if isinstance(value, Mapping) else {"": value}).items():
                metric.add_metric([key], one)  # without a label the key is dropped
            yield metric

    def _schedule_check(self) -> asyncio.TimerHandle:
        due = self._loop.time() + CHECK_INTERVAL_S
        return self._loop.call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        self._delays_s.append(max(0.0, self._loop.time() - due))
        self._checks.inc()
        self._clock.look()
        self._check_timer = self._schedule_check()

    def _send_metrics(self) -> None:
        if self._send is not None:
            self._send_timer = self._loop.call_later(REPORT_INTERVAL_S, self._send_metrics)
            self._send()


def list_families(collector: Collector) -> list[Family]:
    """Return the metrics of a collector, such as a registry, in the form that another process receives."""
    return [_make_family(metric) for metric in collector.collect() if metric.samples]


def _make_family(metric: Metric) -> Family:
    labels = tuple(label for label in metric.samples[0].labels if label != "le")
    if metric.type != "histogram":
        make = counter if metric.type == "counter" else gauge
        samples = [(tuple(one.labels.values()), one.value) for one in metric.samples]
        return make(metric.samples[0].name, metric.documentation, labels, samples)
    found: list[Distribution] = []
    bounds, counts = dict[float, None](), [0.0]
    for one in metric.samples:  # of each distribution first the buckets, which count all values up to their bound
        if one.name.endswith("_bucket"):
            bounds[float(one.labels["le"])] = None
            counts.append(one.value)
        elif one.name.endswith("_sum"):
            found.append((tuple(one.labels.values()), [int(b - a) for a, b in pairwise(counts)], one.value))
            counts = [0.0]
    return Family(metric.name, "histogram", metric.documentation, labels, [], tuple(bounds)[:-1], found)


def count_threads() -> int:
    """The number of threads; 0 if the system does not tell, or no file descriptor is free to read it."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0
