"""Metrics that every server process reports about itself: work, memory, and the delay of its event loop.

They are collected on request, except for the delay of the loop, which a timer measures. ZeroMQ does not report how many
messages wait to be sent; the windows of flow control do.

Not here: metrics of what the process does, and the limit on its memory (`limits.py`).
"""

import asyncio
import gc
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from yunishard.common.messages.query_messages import ProcessHealth
from yunishard.common.process.health import ClockWatch, WriteTimes, list_memory_uses
from yunishard.common.process.limits import count_open_descriptors, resident_bytes
from yunishard.common.process.metrics import PROCESS_LABELS, Family, counter, gauge, report_process_up
from yunishard.common.transport.event_loop import Transport

CHECK_INTERVAL_S: Final = 0.5
"""Between two measurements of the loop's delay."""

CHECKS_KEPT: Final = 60
"""Measurements for the longest delay: half a minute, so that no scrape misses it."""

REPORT_INTERVAL_S: Final = 5.0
"""How often a process sends its metrics if it is not queried for them."""

_HELP: Final = {
    "cpu_seconds_total": "Seconds of processor time used. A rate near 1 is the most that one process can use.",
    "garbage_collections_total": "Garbage collections by generation; each of generation 2 visits every object and "
    "takes a while.",
    "resident_bytes": "Memory in use, in bytes. Investigate growth while the cluster does not grow.",
    "memory_bound_ratio": "Share of the tightest bound on its memory that is in use: its own one, a limit of the "
    "system, or the memory of the host. Investigate values above 0.9: at the bound processes end.",
    "open_files": "Open files and sockets. Investigate values near the limit of the system (`ulimit -n`).",
    "threads": "Threads, with those of libraries.",
    "start_time_seconds": "When the process started, in Unix seconds. A new time is a restart: the log has the reason.",
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

_STARTED: Final = time.time()


class ProcessMetrics:
    """The metrics of this process. Needs a running event loop.

    Args:
        process: The name of the process.
        partition: The partition of a worker.
        wire: The transport whose messages are counted.
        memory_max_bytes: The bound at which this process ends; 0 without one.
        send: Called every REPORT_INTERVAL_S seconds to send the metrics; None if they are only queried.
    """

    def __init__(
        self,
        process: str,
        partition: str = "",
        wire: Transport | None = None,
        send: Callable[[], None] | None = None,
        *,
        memory_max_bytes: int = 0,
    ) -> None:
        self._labels = (process, partition)
        self._wire = wire
        self._send = send
        self._delays_s: deque[float] = deque(maxlen=CHECKS_KEPT)
        self._checks = 0
        self._memory_max_bytes = memory_max_bytes
        self._clock = ClockWatch()
        self._loop = asyncio.get_running_loop()
        self._check_timer = self._schedule_check()
        self._send_timer = self._loop.call_soon(self._send_metrics)

    def close(self) -> None:
        self._check_timer.cancel()
        self._send_timer.cancel()

    def report_health(self, writes: WriteTimes | None = None) -> ProcessHealth:
        """Return the problems of this process as of now; `writes` are those to its file."""
        return ProcessHealth(
            slow_writes=writes.describe_problem() if writes is not None else "",
            clock=self._clock.describe_problem(),
            memory=next((one.describe_problem() for one in list_memory_uses(self._memory_max_bytes)), ""),
        )

    def collect(self) -> list[Family]:
        """Return all of them as of now."""
        memory = list_memory_uses(self._memory_max_bytes)
        values: dict[str, float | Mapping[str, float]] = {
            "cpu_seconds_total": time.process_time(),
            "garbage_collections_total": {str(n): one["collections"] for n, one in enumerate(gc.get_stats())},
            "resident_bytes": resident_bytes(),
            "memory_bound_ratio": round(memory[0].share, 4) if memory else 0.0,
            "clock_jumps_total": self._clock.jumps,
            "open_files": count_open_descriptors(),
            "threads": count_threads(),
            "start_time_seconds": round(_STARTED, 3),
            "loop_lag_seconds": round(self._delays_s[-1], 6) if self._delays_s else 0.0,
            "loop_lag_max_seconds": round(max(self._delays_s, default=0.0), 6),
            "loop_checks_total": self._checks,
        }
        if self._wire is not None:
            values |= {
                "messages_total": {"in": self._wire.received, "out": self._wire.sent},
                "messages_waiting": self._wire.waiting,
                "messages_dropped_total": self._wire.dropped,
            }
        return [report_process_up(*self._labels), *(self._make(name, value) for name, value in values.items())]

    def _make(self, name: str, value: float | Mapping[str, float]) -> Family:
        """Make a family of one value, or of one for each value of another label."""
        values = {(key,): one for key, one in value.items()} if isinstance(value, Mapping) else {(): value}
        make = counter if name.endswith("_total") else gauge
        labels = (*PROCESS_LABELS, _LABEL[name]) if name in _LABEL else PROCESS_LABELS
        samples = [((*self._labels, *key), one) for key, one in values.items()]
        return make(f"yunishard_process_{name}", _HELP[name], labels, samples)

    def _schedule_check(self) -> asyncio.TimerHandle:
        due = self._loop.time() + CHECK_INTERVAL_S
        return self._loop.call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        self._delays_s.append(max(0.0, self._loop.time() - due))
        self._checks += 1
        self._clock.look()
        self._check_timer = self._schedule_check()

    def _send_metrics(self) -> None:
        if self._send is not None:
            self._send_timer = self._loop.call_later(REPORT_INTERVAL_S, self._send_metrics)
            self._send()


def count_threads() -> int:
    """The number of threads; 0 if the system does not tell, or no file descriptor is free to read it."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0
