"""What every server process tells about itself: its work, its memory, and whether its loop keeps up.

Asked for when somebody looks, but for the delay of the loop: a timer that should go off twice a second sees how much
later it does. What waits to be read is what the last turn found; what waits to be sent ZeroMQ does not say, so that is
seen where it is bounded, in the windows of each lane.

Not here: what the process is there for (its own figures), and an end to its memory (`memory.py`).
"""

import asyncio
import gc
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from common.driver import Transport
from common.metrics import Family, counter, gauge
from common.process_limits import count_open_descriptors, resident_bytes
from common.process_up import LABELS, up

LAG_EVERY_S: Final = 0.5
"""Between two measurements of the loop's delay."""

LAG_KEPT: Final = 60
"""Measurements of which the longest is told: of half a minute, so that no scrape misses it."""

TELL_EVERY_S: Final = 5.0
"""How often a process that nobody asks tells its figures."""


_STARTED: Final = time.time()


class ProcessFigures:
    """What this process tells; a worker says of which partition. Needs a running loop."""

    def __init__(self, process: str, partition: str = "", *, wire: Transport | None = None) -> None:
        self._labels = (process, partition)
        self._wire = wire
        self._lags: deque[float] = deque(maxlen=LAG_KEPT)
        self._checks = 0
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + LAG_EVERY_S
        self._timer = self._loop.call_at(self._due, self._look)

    def close(self) -> None:
        self._timer.cancel()

    def families(self) -> list[Family]:
        """All of them, as of now."""
        found = [up(*self._labels), *self._work(), *self._room(), *self._delay()]
        if self._wire is not None:
            found += self._messages(self._wire)
        return found

    def _look(self) -> None:
        now = self._loop.time()
        self._lags.append(max(0.0, now - self._due))
        self._checks += 1
        self._due = now + LAG_EVERY_S
        self._timer = self._loop.call_at(self._due, self._look)

    def _gauge(self, name: str, what: str, value: float) -> Family:
        return gauge(f"yunishard_process_{name}", what, LABELS, [(self._labels, value)])

    def _work(self) -> Iterator[Family]:
        what = "Seconds of processor time used. A rate near 1 is all that one process can do."
        yield counter("yunishard_process_cpu_seconds_total", what, LABELS, [(self._labels, time.process_time())])
        yield counter(
            "yunishard_process_garbage_collections_total",
            "Collections of garbage, by generation; each of generation 2 looks at everything and takes a while.",
            (*LABELS, "generation"),
            [((*self._labels, str(n)), one["collections"]) for n, one in enumerate(gc.get_stats())],
        )

    def _room(self) -> Iterator[Family]:
        what = "Memory in use, in bytes. Worry if it grows while the cluster does not."
        yield self._gauge("resident_bytes", what, resident_bytes())
        what = "Open files and sockets. Worry near the limit of the system (`ulimit -n`)."
        yield self._gauge("open_files", what, count_open_descriptors())
        yield self._gauge("threads", "Threads, those of libraries included.", _threads())
        what = "When the process started, in Unix seconds. Another time is another process: look for why."
        yield self._gauge("start_time_seconds", what, round(_STARTED, 3))

    def _delay(self) -> Iterator[Family]:
        what = "Seconds that the loop was late when it was last looked at, at most half a second ago."
        yield self._gauge("loop_lag_seconds", what, round(self._lags[-1], 6) if self._lags else 0.0)
        what = (
            "The longest delay of the loop within half a minute, in seconds. Worry above 1: who says nothing for "
            "longer than a lease (10 s) is replaced."
        )
        yield self._gauge("loop_lag_max_seconds", what, round(max(self._lags, default=0.0), 6))
        what = (
            "Times that the loop was looked at, two a second while it goes round, in an idle cluster too. Worry below "
            "one a second: the process, or the machine, has too much to do."
        )
        yield counter("yunishard_process_loop_checks_total", what, LABELS, [(self._labels, self._checks)])

    def _messages(self, wire: Transport) -> Iterator[Family]:
        traffic = wire.traffic
        yield counter(
            "yunishard_process_messages_total",
            "Messages that were read (in) and sent (out).",
            (*LABELS, "direction"),
            [((*self._labels, "in"), traffic.received), ((*self._labels, "out"), traffic.sent)],
        )
        what = (
            "Messages that were waiting to be read when the process last looked, at most 256 of each connection. Worry "
            "if it stays there: more arrives than is dealt with."
        )
        yield self._gauge("messages_waiting", what, traffic.waiting)
        what = (
            "Messages for a peer that was gone. They come again once it is back, so a few after a restart are nothing "
            "to worry about."
        )
        yield counter("yunishard_process_messages_dropped_total", what, LABELS, [(self._labels, wire.dropped)])


class Teller:
    """Tells, again and again, until it is closed. Needs a running loop."""

    def __init__(self, tell: Callable[[], None], *, every_s: float = TELL_EVERY_S) -> None:
        self._tell = tell
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_soon(self._told)

    def close(self) -> None:
        self._timer.cancel()

    def _told(self) -> None:
        self._timer = self._loop.call_later(self._every_s, self._told)
        self._tell()


def _threads() -> int:
    """How many threads the process has; 0 where the system does not say, or there is no descriptor to look."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0
