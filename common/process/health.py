"""Problems of one process that an operator has to see: slow writes, a clock that jumped, memory near a bound.

Each process finds them where they arise, and reports them with its answer to the health check (`ProcessHealth`) and its
metrics. Not here: the health check (`yunishard/webservice/health.py`), the limit at which a process ends (`limits.py`).
"""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from yunishard.common.process.limits import CGROUP, resident_bytes
from yunishard.common.text_formats import format_time

# Writes ---------------------------------------------------------------------------------------------------------------

WRITE_SLOW_S: Final = 0.5
"""A durable write that takes longer counts as slow: a good disk takes a few milliseconds, one over a network some ten.
If most writes of the last minute or two are slow, and at least SLOW_WRITES_MIN, the health check `Disk speed` fails.
Nothing else depends on it.
"""

SLOW_WRITES_MIN: Final = 3
"""Slow writes that are no exception any more."""

WRITE_STALLED_S: Final = 5.0
"""Seconds after which a single write that is still under way makes the check fail."""

WRITE_WINDOW_S: Final = 60.0
"""Writes are counted for a whole window and the present part of the next one."""


@dataclass(slots=True)
class _Window:
    """The writes of a minute."""

    began: float
    count: int = 0
    slow: int = 0
    slowest_s: float = 0.0


class WriteTimes:
    """The durations of the writes to one file or database, one at a time. Any thread may read them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = self._present = _Window(clock())
        self._began: float | None = None
        """When the write began that is under way."""

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure a write, whether it succeeds or not."""
        began = self._began = self._clock()
        try:
            yield
        finally:
            self._began = None
            now = self._clock()
            self._turn(now)
            window, took_s = self._present, now - began
            window.count += 1
            window.slow += took_s > WRITE_SLOW_S
            window.slowest_s = max(window.slowest_s, took_s)

    @property
    def slowest_s(self) -> float:
        """Of the writes of the last minute or two, and of the one that is under way."""
        now, began = self._clock(), self._began
        self._turn(now)
        return max(self._last.slowest_s, self._present.slowest_s, 0.0 if began is None else now - began)

    def describe_problem(self) -> str:
        """Why the writes count as slow; empty if they do not."""
        now, began = self._clock(), self._began
        if began is not None and now - began > WRITE_STALLED_S:
            return f"a write has been under way for {now - began:.0f} s"
        self._turn(now)
        windows = {id(one): one for one in (self._last, self._present)}.values()
        slow, count = sum(one.slow for one in windows), sum(one.count for one in windows)
        if slow < SLOW_WRITES_MIN or 2 * slow <= count:
            return ""
        slowest_s = max(one.slowest_s for one in windows)
        return f"{slow} of the last {count} writes took more than {WRITE_SLOW_S:g} s, the slowest {slowest_s:.1f} s"

    def _turn(self, now: float) -> None:
        """Begin a new window when the present one is over."""
        passed_s = now - self._present.began
        if passed_s >= WRITE_WINDOW_S:
            new = _Window(now)
            self._last = self._present if passed_s < 2 * WRITE_WINDOW_S else new
            self._present = new


# The clock ------------------------------------------------------------------------------------------------------------

CLOCK_JUMP_S: Final = 1.0
"""A change of the wall clock against the monotonic clock between two looks, half a second apart, that counts as a jump.
NTP corrects smaller differences by changing the speed. The health check `Clock` fails for CLOCK_REPORTED_S after a
jump. Nothing else depends on it: processes measure time with the monotonic clock.
"""

CLOCK_REPORTED_S: Final = 3600.0


class ClockWatch:
    """Detects jumps of the wall clock, also those because the machine was suspended."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset_s = wall() - monotonic()
        self.jumps = 0
        self._jumped_at = 0.0
        """Of the latest one, in monotonic seconds."""
        self._description = ""

    def look(self) -> None:
        """Compare the clocks."""
        wall, monotonic = self._wall(), self._monotonic()
        before_s, self._offset_s = self._offset_s, wall - monotonic
        jump_s = self._offset_s - before_s
        if abs(jump_s) < CLOCK_JUMP_S:
            return
        how = "forward, or the machine was suspended" if jump_s > 0 else "back"
        self.jumps, self._jumped_at = self.jumps + 1, monotonic
        self._description = f"at {format_time(int(wall * 1e9))} the clock was set {abs(jump_s):.1f} s {how}"

    def describe_problem(self) -> str:
        """The latest jump within CLOCK_REPORTED_S; empty if there was none."""
        is_recent = self._monotonic() - self._jumped_at < CLOCK_REPORTED_S
        return self._description if is_recent else ""


# Memory ---------------------------------------------------------------------------------------------------------------

MEMORY_FRACTION: Final = 0.9
"""Share of a bound on the memory of a process, container or service above which the health check `Memory` fails: at the
bound, processes end. Nothing else depends on it.
"""

HOST_MEMORY_FRACTION: Final = 0.95
"""The same for the memory of the whole host, which other programs use, too."""

PROC: Final = Path("/proc")


class MemoryUse(NamedTuple):
    """How much of one bound is in use."""

    what: str
    used: int
    bound: int
    fraction: float
    """Above this share of the bound it is a problem."""

    @property
    def share(self) -> float:
        return self.used / self.bound

    def describe_problem(self) -> str:
        """Why this is a problem; empty if it is none."""
        if self.share <= self.fraction:
            return ""
        return f"{self.what}: {self.used >> 20} of {self.bound >> 20} MiB are in use"


def list_memory_uses(own_max_bytes: int = 0, *, proc: Path = PROC, cgroup: Path = CGROUP) -> list[MemoryUse]:
    """The uses of all bounds on the memory of this process, the tightest first: its own one, the limits of the system,
    and the memory of the host. Only Linux has the last two.
    """
    uses = [MemoryUse("the process", resident_bytes(), own_max_bytes, MEMORY_FRACTION)] if own_max_bytes else []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    try:
        if limit != resource.RLIM_INFINITY:
            pages = int((proc / "self" / "statm").read_text().split()[0])
            size = pages * os.sysconf("SC_PAGE_SIZE")
            uses.append(MemoryUse("the address space of the process (ulimit -v)", size, limit, MEMORY_FRACTION))
        uses += _read_groups(proc, cgroup)
        uses += _read_host(proc)
    except (OSError, ValueError, IndexError, KeyError):
        pass  # not Linux, or no descriptor is free
    return sorted((one for one in uses if one.bound), key=lambda one: one.share / one.fraction, reverse=True)


def _read_groups(proc: Path, cgroup: Path) -> Iterator[MemoryUse]:
    """The uses of the limits of the control group of this process and those above it (version 2), without the part of
    the page cache that the kernel frees first.
    """
    lines = (proc / "self" / "cgroup").read_text().splitlines()
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if path is None:
        return
    group = cgroup / path
    for folder in (group, *(one for one in group.parents if one.is_relative_to(cgroup))):
        try:
            limit = (folder / "memory.max").read_text().strip()
            if limit == "max":
                continue
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            used = int((folder / "memory.current").read_text()) - int(statistics["inactive_file"])
        except FileNotFoundError:  # the root has none
            continue
        yield MemoryUse("the container or service", used, int(limit), MEMORY_FRACTION)


def _read_host(proc: Path) -> Iterator[MemoryUse]:
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    found = {line[0].removesuffix(":"): int(line[1]) << 10 for line in lines}
    total = found["MemTotal"]
    yield MemoryUse("the host", total - found["MemAvailable"], total, HOST_MEMORY_FRACTION)
