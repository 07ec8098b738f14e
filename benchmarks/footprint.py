"""Memory of a pending ask, an allocation, and an empty worker.

Measured for a real worker, as the kernel counts it (`worker`), and for the engine alone, as Python counts it
(`engine`), which is equal on every machine and is compared with committed figures. The inputs are decoded as in a
worker, so that texts are not shared with the caller.
"""

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from time import sleep
from typing import Final, NamedTuple

from benchmarks import engine
from benchmarks.end_to_end import prepare
from benchmarks.resource_managers import Rm
from benchmarks.results import Figure, Plan
from benchmarks.shapes import Workload, backlog, batches, two_queues
from benchmarks.systems import Memory, Up, memory_of, own
from yunishard.common.messages.rm_messages import Allocation, AllocationRequest
from yunishard.common.messages.wire import decode_body, encode_body

ASKS: Final = 100_000
ENGINE_ASKS: Final = 20_000
QUIET_S: Final = 0.3
QUIET_MS: Final = 20
"""A system is at rest once its processes have worked for less than this in that time."""

WORKER: Final = "partition_worker"


class Taken(NamedTuple):
    """Memory of a worker."""

    empty: Memory
    each_bytes: float


def engine_figures(plan: Plan) -> Iterator[Figure]:
    """Of the engine alone."""
    asks = plan.scaled(ENGINE_ASKS)
    waiting, running = engine_bytes(two_queues(plan.nodes, asks))
    yield Figure("memory/ask", waiting, "bytes", waiting)
    yield Figure("memory/allocation", running, "bytes", running)


def worker_figures(plan: Plan) -> Iterator[Figure]:
    """Of real workers."""
    pending = in_worker(backlog(plan.nodes, plan.scaled(ASKS)))
    placed = in_worker(two_queues(plan.nodes, plan.scaled(ASKS)))
    yield Figure("footprint/empty", pending.empty.resident_bytes / 2**20, "MiB")
    yield Figure("footprint/empty, shared pages in part", pending.empty.proportional_bytes / 2**20, "MiB")
    yield Figure("footprint/ask", pending.each_bytes, "bytes")
    yield Figure("footprint/allocation", placed.each_bytes, "bytes")


def engine_bytes(workload: Workload) -> tuple[float, float]:
    """Of each ask while all wait, and of each allocation once all run."""
    bodies = [encode_body(AllocationRequest(allocations=list(some))) for some in batches(workload.asks)]
    partition = engine.Engine(workload).partition
    gc.collect()
    tracemalloc.start()
    try:
        for body in bodies:
            partition.apply(decode_body(AllocationRequest, body), engine.NOW_S)
        waiting = _traced() / len(workload.asks)
        engine.decide(partition)
        return waiting, _traced() / len(workload.asks)
    finally:
        tracemalloc.stop()


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def in_worker(workload: Workload) -> Taken:
    """Of a real worker: what waits there before the clock would start, or else what is placed."""
    with own("native") as up, closing(up.connect(workload.config)) as rm:
        empty = _memory_at_rest(up)
        prepare(rm, replace(workload, before=[], running=0))
        before = _memory_at_rest(up)
        _send(rm, workload.before or workload.asks, placed=not workload.before)
        after = _memory_at_rest(up)
    grown = {process: after[process].resident_bytes - before[process].resident_bytes for process in after}
    worker = max(grown, key=lambda process: grown[process])
    return Taken(empty[worker], grown[worker] / len(workload.before or workload.asks))


def _send(rm: Rm, asks: Sequence[Allocation], *, placed: bool) -> None:
    """Send one message at a time, and wait for the outcome of each where there is one."""
    sent = 0
    for some in batches(asks):
        rm.asks(some)
        sent += len(some)
        if placed:
            rm.heard.until(lambda wanted=sent: len(rm.heard.running) >= wanted)  # type: ignore[misc]


def _rest(up: Up) -> None:
    """Wait until nothing happens any more."""
    before = up.cpu_s()
    while True:
        sleep(QUIET_S)
        after = up.cpu_s()
        if sum(after.values()) - sum(before.values()) < QUIET_MS / 1000:
            return
        before = after


def _memory_at_rest(up: Up) -> dict[int, Memory]:
    """Return the memory of each worker once nothing happens any more."""
    _rest(up)
    return {process: memory_of(process) for process, role in up.processes().items() if role == WORKER}
