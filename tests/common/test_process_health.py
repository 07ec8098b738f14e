"""What a process finds out about its writes, its clock and its memory, under other clocks and real limits."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from yunishard.common.process import health
from yunishard.common.process.health import (
    CLOCK_REPORTED_S,
    MEMORY_FRACTION,
    SLOW_WRITES_MIN,
    WRITE_SLOW_S,
    WRITE_STALLED_S,
    WRITE_WINDOW_S,
    ClockWatch,
    WriteTimes,
    list_memory_uses,
)


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def write(times: WriteTimes, clock: Clock, *durations_s: float) -> None:
    for duration_s in durations_s:
        with times.measure():
            clock.now += duration_s


SLOW = WRITE_SLOW_S + 1.0


def test_slow_writes_are_a_problem_once_they_are_no_exception() -> None:
    clock = Clock()
    times = WriteTimes(clock)
    write(times, clock, *[SLOW] * (SLOW_WRITES_MIN - 1))
    assert times.describe_problem() == ""
    write(times, clock, 2.5)
    assert times.describe_problem() == "3 of the last 3 writes took more than 0.5 s, the slowest 2.5 s"
    assert times.slowest_s == 2.5


def test_a_few_slow_writes_among_many_are_no_problem() -> None:
    clock = Clock()
    times = WriteTimes(clock)
    write(times, clock, *[0.001] * 4, *[SLOW] * 4)
    assert times.describe_problem() == ""
    write(times, clock, SLOW)
    assert times.describe_problem() != ""


def test_a_failed_write_counts_too() -> None:
    clock = Clock()
    times = WriteTimes(clock)
    for _ in range(SLOW_WRITES_MIN):
        with suppress(OSError), times.measure():
            clock.now += SLOW
            raise OSError
    assert times.describe_problem().startswith("3 of the last 3 writes")


def test_slow_writes_are_past_after_two_windows() -> None:
    clock = Clock()
    times = WriteTimes(clock)
    write(times, clock, *[SLOW] * 3)
    clock.now += WRITE_WINDOW_S
    assert times.describe_problem() != ""
    write(times, clock, 0.001)
    clock.now += WRITE_WINDOW_S
    assert times.describe_problem() == ""
    assert 0.0 < times.slowest_s < WRITE_SLOW_S
    clock.now += 3 * WRITE_WINDOW_S
    assert times.slowest_s == 0.0


def test_a_write_that_does_not_return_is_a_problem_while_it_lasts() -> None:
    clock = Clock()
    times = WriteTimes(clock)
    with times.measure():
        clock.now += WRITE_STALLED_S
        assert times.describe_problem() == ""
        clock.now += 1.0
        assert times.describe_problem() == "a write has been under way for 6 s"
        assert times.slowest_s == 6.0
    assert times.describe_problem() == ""


def test_a_clock_that_is_set_is_reported_for_an_hour() -> None:
    wall, monotonic = Clock(1_700_000_000.0), Clock(5.0)
    watch = ClockWatch(wall, monotonic)
    for one in (wall, monotonic):
        one.now += 3600.0
    watch.look()
    assert (watch.describe_problem(), watch.jumps) == ("", 0)
    wall.now -= 90.0
    watch.look()
    assert watch.describe_problem() == "at 2023-11-14T23:11:50Z the clock was set 90.0 s back"
    wall.now += 7.0
    watch.look()
    watch.look()
    text = "at 2023-11-14T23:11:57Z the clock was set 7.0 s forward, or the machine was suspended"
    assert (watch.describe_problem(), watch.jumps) == (text, 2)
    for one in (wall, monotonic):
        one.now += CLOCK_REPORTED_S
    watch.look()
    assert (watch.describe_problem(), watch.jumps) == ("", 2)


def test_a_clock_that_is_corrected_slowly_has_not_jumped() -> None:
    wall, monotonic = Clock(), Clock()
    watch = ClockWatch(wall, monotonic)
    for _ in range(100):
        monotonic.now += 0.5
        wall.now += 0.9
        watch.look()
    assert watch.jumps == 0


@pytest.fixture
def system(tmp_path: Path) -> tuple[Path, Path]:
    """The files of a kernel: a service with a limit in a slice without one, on a host with a tenth free."""
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    group = cgroup / "system.slice" / "yunishard.service"
    group.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("4:memory:/old\n0::/system.slice/yunishard.service\n")
    (proc / "meminfo").write_text("MemTotal: 10240 kB\nMemFree: 1 kB\nMemAvailable: 1024 kB\n")
    for folder, limit in ((group, str(100 << 20)), (group.parent, "max")):
        (folder / "memory.max").write_text(limit + "\n")
        (folder / "memory.current").write_text(f"{95 << 20}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {4 << 20}\n")
    return proc, cgroup


def test_the_limit_of_a_service_counts_without_the_cache_that_can_be_freed(system: tuple[Path, Path]) -> None:
    proc, cgroup = system
    service, host = list_memory_uses(proc=proc, cgroup=cgroup)
    assert service.describe_problem() == "the container or service: 91 of 100 MiB are in use"
    assert (host.what, host.share, host.describe_problem()) == ("the host", 0.9, "")


def test_the_bound_at_which_the_process_ends_counts(system: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    proc, cgroup = system
    monkeypatch.setattr(health, "resident_bytes", lambda: 199 << 20)
    first = list_memory_uses(200 << 20, proc=proc, cgroup=cgroup)[0]
    assert first.describe_problem() == "the process: 199 of 200 MiB are in use"


def test_a_system_without_these_files_has_no_bounds(tmp_path: Path) -> None:
    assert list_memory_uses(proc=tmp_path, cgroup=tmp_path) == []


LIMITED = f"""
import resource
from yunishard.common.process.health import list_memory_uses
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (int(size / ({MEMORY_FRACTION} + 0.05)), resource.RLIM_INFINITY))
print(list_memory_uses()[0].describe_problem())
"""


def test_a_real_limit_on_the_address_space_counts() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", LIMITED], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.startswith("the address space of the process (ulimit -v): ")
