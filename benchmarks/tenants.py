"""Cost of several RMs that share one system.

A real system is started for each of these: one resource manager that is busy; one beside many that have nothing to do;
one beside another busy one; idle ones only, one and many. A busy one keeps a number of asks under way and releases what
it gets; its latency is that of an ask that is sent when nothing else waits. Everything runs on this machine, resource
managers too, so figures compare only with those of the same machine.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Final, NamedTuple

from benchmarks.results import PER_SECOND, Figure, Plan, Waits
from benchmarks.systems import SPAWN, Line, in_background, memory_of, roles_of, system, ticks_s_of
from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node, release

QUEUES: Final = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"
NODES: Final = 100
UNDER_WAY: Final = 256
"""Asks that a busy resource manager keeps waiting while its throughput is measured."""

PAUSE_S: Final = 0.01
"""Between two asks while its latency is measured."""

OTHERS: Final = 19
SECONDS: Final = 20.0
"""For each of the measurements."""

SECONDS_MIN: Final = 2.0
"""For each of those of a small part."""

SETTLING_S: Final = 5.0


class Busy(NamedTuple):
    """Measurements of a busy RM."""

    allocations_per_s: float
    latency: Waits


class Idle(NamedTuple):
    """Cost of an idle system."""

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
        return Busy(await _throughput(rm, seconds / 2), await _latencies(rm, seconds / 2))


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


async def _latencies(rm: ResourceManager, seconds: float) -> Waits:
    """From an ask to its node."""
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
    return Waits.of(found)


async def linger(address: str, managers: int, line: Line) -> None:
    """So many that register, say that they have, and then do nothing."""
    async with AsyncExitStack() as stack:
        for number in range(managers):
            rm = await ResourceManager.connect(address, rm_id=f"idle-{number}", config=QUEUES, timeout_s=60)
            stack.push_async_callback(rm.close)
            await rm.update_nodes([node("n1", {"vcore": "8"})])
        line.send(None)
        await asyncio.to_thread(line.recv)


def _working(address: str, seconds: float, rm_id: str) -> Busy:
    return asyncio.run(busy(address, rm_id, seconds))


def working(address: str, rm_ids: list[str], seconds: float) -> list[Busy]:
    """Busy ones at the same time, each in a process of its own."""
    with ProcessPoolExecutor(len(rm_ids), SPAWN) as pool:
        return list(pool.map(partial(_working, address, seconds), rm_ids))


# What processes cost --------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Of one process, from the file system of processes."""

    cpu_s: float
    memory_bytes: int
    written_bytes: int


def costs(supervisor: int) -> dict[tuple[str, int], Cost]:
    """Of all processes of a system, by role and process id."""
    found = {}
    for process, role in roles_of(supervisor).items():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found[role, process] = _cost(process)
    return found


def _cost(process: int) -> Cost:
    written = next(
        line for line in Path(f"/proc/{process}/io").read_text().splitlines() if line.startswith("write_bytes:")
    )
    return Cost(ticks_s_of(process), memory_of(process).proportional_bytes, int(written.split()[1]))


def idle(supervisor: int, seconds: float) -> Idle:
    """Measure the cost over this time."""
    sleep(SETTLING_S)
    before, started = costs(supervisor), monotonic()
    sleep(seconds)
    after, passed = costs(supervisor), monotonic() - started
    used: dict[str, float] = {}
    for (role, process), cost in after.items():
        used[role] = used.get(role, 0.0) + (cost.cpu_s - before[role, process].cpu_s) / passed * 100
    return Idle(
        sum(used.values()),
        used,
        sum(cost.memory_bytes for cost in after.values()) / 2**20,
        sum(cost.written_bytes - before[one].written_bytes for one, cost in after.items()),
    )


# Measuring ------------------------------------------------------------------------------------------------------------


def figures(plan: Plan) -> Iterator[Figure]:
    """Of each of these systems."""
    many, seconds = plan.scaled(OTHERS), max(SECONDS_MIN, plan.share * SECONDS)
    for busy_ids, others in ((["busy"], 0), (["busy"], many), (["busy", "other"], 0)):
        with system() as (_, at), in_background(linger, at["native"], others):
            first, *more = working(at["native"], busy_ids, seconds)
        name = f"tenants/busy, beside {others} idle and {len(more)} busy"
        yield Figure(f"{name}/rate", first.allocations_per_s, PER_SECOND)
        yield Figure(f"{name}/median", first.latency.p50_ms, "ms")
        yield Figure(f"{name}/99 of 100", first.latency.p99_ms, "ms")
    for managers in (1, many + 1):
        with system() as (supervisor, at), in_background(linger, at["native"], managers):
            found = idle(supervisor, seconds)
        name = f"tenants/{managers} idle"
        for role, percent in found.cpu_percent_by_role.items():
            yield Figure(f"{name}/{role}", percent, "%")
        yield Figure(f"{name}/all processes", found.cpu_percent, "%")
        yield Figure(f"{name}/memory", found.memory_mib, "MiB")
        yield Figure(f"{name}/written", found.written_bytes, "bytes")
