"""Cost of several RMs that share one system.

    python -m benchmarks.tenants --idle 19 --seconds 20

A real system is started for each of these: one resource manager that is busy; one beside many that have nothing to do;
one beside another busy one; idle ones only, one and many. A busy one keeps a number of asks under way and releases what
it gets; its latency is that of an ask that is sent when nothing else waits. Everything runs on this machine, resource
managers too, so figures compare only with those of the same machine.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, perf_counter, sleep
from typing import Final, NamedTuple

from benchmarks.systems import roles_of, system
from common.rm_messages import AllocationResponse
from yunishard.client import ResourceManager
from yunishard.items import application, ask, node, release

QUEUES: Final = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"
NODES: Final = 100
UNDER_WAY: Final = 256
"""Asks that a busy resource manager keeps waiting while its throughput is measured."""

PAUSE_S: Final = 0.01
"""Between two asks while its latency is measured."""

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
REGISTERING_MAX_S: Final = 300.0
SETTLING_S: Final = 5.0


class Busy(NamedTuple):
    """Measurements of a busy RM."""

    asks_per_s: float
    latency_ms: float
    """The median."""
    latency_ms_max: float
    """Of 99 in 100."""


class Idle(NamedTuple):
    """Cost of an idle system."""

    managers: int
    cpu_percent: float
    """Of one core, all processes together."""
    cpu_percent_by_role: dict[str, float]
    memory_mib: float
    """Memory of all processes, shared pages counted once."""
    written_bytes: int
    """By all processes to files, in the time that was measured."""


# Resource managers ----------------------------------------------------------------------------------------------------


async def busy(address: str, rm_id: str, seconds: float) -> Busy:
    """One that works for so long: half of it as fast as it can, half of it one ask at a time."""
    async with await ResourceManager.connect(address, rm_id=rm_id, config=QUEUES) as rm:
        await rm.update_nodes([node(f"n{number}", {"vcore": "64"}) for number in range(NODES)])
        await rm.update_applications(new=[application("app", "root.batch", user="ann")])
        return Busy(await _throughput(rm, seconds / 2), *await _latencies(rm, seconds / 2))


async def _throughput(rm: ResourceManager, seconds: float) -> float:
    started, placed, gone, sent = perf_counter(), 0, 0, UNDER_WAY
    await rm.update_allocations(allocations=[ask(f"t{number}", "app", {"vcore": "1"}) for number in range(sent)])
    async for _, news in rm.results():
        if not isinstance(news, AllocationResponse):
            continue
        placed, gone = placed + len(news.new), gone + len(news.released)
        if news.new:
            more = len(news.new) if perf_counter() - started < seconds else 0
            await rm.update_allocations(
                allocations=[ask(f"t{number}", "app", {"vcore": "1"}) for number in range(sent, sent + more)],
                releases=[release("app", one.allocation_key) for one in news.new],
            )
            sent += more
        if gone == sent:
            break
    return placed / (perf_counter() - started)


async def _latencies(rm: ResourceManager, seconds: float) -> tuple[float, float]:
    """Milliseconds from an ask to its node."""
    found: list[float] = []
    until = perf_counter() + seconds
    while perf_counter() < until:
        key, sent_at = f"l{len(found)}", perf_counter()
        await rm.update_allocations(allocations=[ask(key, "app", {"vcore": "1"})])
        async for _, news in rm.results():
            if isinstance(news, AllocationResponse) and news.new:
                found.append((perf_counter() - sent_at) * 1000)
                await rm.update_allocations(releases=[release("app", key)])
                break
        await asyncio.sleep(PAUSE_S)
    return median(found), quantiles(found, n=100)[-1]


async def _linger(address: str, managers: int, line: "Connection[None, None]") -> None:
    """So many that register, say that they have, and then do nothing."""
    async with AsyncExitStack() as stack:
        for number in range(managers):
            rm = await ResourceManager.connect(address, rm_id=f"idle-{number}", config=QUEUES, timeout_s=60)
            stack.push_async_callback(rm.close)
            await rm.update_nodes([node("n1", {"vcore": "8"})])
        line.send(None)
        await asyncio.to_thread(line.recv)


def _lingering(address: str, managers: int, line: "Connection[None, None]") -> None:
    asyncio.run(_linger(address, managers, line))


def _working(address: str, rm_id: str, seconds: float, line: "Connection[Busy, None]") -> None:
    line.send(asyncio.run(busy(address, rm_id, seconds)))


# The system -----------------------------------------------------------------------------------------------------------


@contextmanager
def lingering(address: str, managers: int) -> Iterator[None]:
    """Idle resource managers, in a process of their own."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_lingering, args=(address, managers, theirs))
    process.start()
    try:
        assert ours.poll(REGISTERING_MAX_S), "they do not all get in"
        ours.recv()
        yield
    finally:
        ours.send(None)
        process.join()


def working(address: str, rm_ids: list[str], seconds: float) -> list[Busy]:
    """Busy ones at the same time, each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    lines = [spawn.Pipe() for _ in rm_ids]
    works = [
        spawn.Process(target=_working, args=(address, rm_id, seconds, theirs))
        for rm_id, (_, theirs) in zip(rm_ids, lines, strict=True)
    ]
    for work in works:
        work.start()
    found = [ours.recv() for ours, _ in lines]
    for work in works:
        work.join()
    return found


# What processes cost --------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Of one process, from the file system of processes."""

    cpu_s: float
    memory_kib: int
    written_bytes: int


def costs(supervisor: int) -> dict[tuple[str, int], Cost]:
    """Of all processes of a system, by role and process id."""
    found = {}
    for process, role in roles_of(supervisor).items():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found[role, process] = _cost(process)
    return found


def _cost(process: int) -> Cost:
    folder = Path(f"/proc/{process}")
    stat = (folder / "stat").read_text().rpartition(")")[2].split()
    memory = next(line for line in (folder / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    written = next(line for line in (folder / "io").read_text().splitlines() if line.startswith("write_bytes:"))
    return Cost((int(stat[11]) + int(stat[12])) / TICKS_PER_S, int(memory.split()[1]), int(written.split()[1]))


def idle(supervisor: int, managers: int, seconds: float) -> Idle:
    """Measure the cost over this time."""
    sleep(SETTLING_S)
    before, started = costs(supervisor), monotonic()
    sleep(seconds)
    after, passed = costs(supervisor), monotonic() - started
    used: dict[str, float] = {}
    for (role, process), cost in after.items():
        used[role] = used.get(role, 0.0) + (cost.cpu_s - before[role, process].cpu_s) / passed * 100
    return Idle(
        managers,
        sum(used.values()),
        {role: round(percent, 2) for role, percent in used.items()},
        sum(cost.memory_kib for cost in after.values()) / 1024,
        sum(cost.written_bytes - before[one].written_bytes for one, cost in after.items()),
    )


# Measuring ------------------------------------------------------------------------------------------------------------


def measured(others: int, seconds: float) -> dict[str, Busy | Idle]:
    """All of them, by name."""
    found: dict[str, Busy | Idle] = {}
    with system() as (_, at):
        [found["busy, alone"]] = working(at["native"], ["busy"], seconds)
    with system() as (supervisor, at), lingering(at["native"], 1):
        found["one idle"] = idle(supervisor, 1, seconds)
    with system() as (supervisor, at), lingering(at["native"], others + 1):
        found[f"{others + 1} idle"] = idle(supervisor, others + 1, seconds)
    with system() as (_, at), lingering(at["native"], others):
        [found[f"busy, beside {others} idle"]] = working(at["native"], ["busy"], seconds)
    with system() as (_, at):
        found["busy, beside a busy one"], _ = working(at["native"], ["busy", "other"], seconds)
    return found


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tenants", description=__doc__.split("\n\n")[0])
    parser.add_argument("--idle", type=int, default=19, metavar="N", help="resource managers that do nothing")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="for each of the measurements")
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    options = parser.parse_args()
    found = measured(options.idle, options.seconds)
    if options.json:
        sys.stdout.write(json.dumps({name: one._asdict() for name, one in found.items()}) + "\n")
        return 0
    for name, one in found.items():
        if isinstance(one, Busy):
            latency = f"{one.latency_ms:6.2f} ms, 99 of 100 {one.latency_ms_max:.2f}"
            told = f"{one.asks_per_s:9.0f} asks/s   latency {latency}"
        else:
            told = f"{one.cpu_percent:9.2f} % of a core   {one.memory_mib:.0f} MiB   {one.written_bytes} bytes written"
        sys.stdout.write(f"  {name:<24} {told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
