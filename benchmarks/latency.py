"""How long one ask takes, from when it is sent until its node is heard: while nothing else happens, and under load.

The load is asks and releases in another queue of the same resource manager, a batch every few milliseconds, so many
that the worker is busy for a part of its time and never behind. All this is the same for each system.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Final, NamedTuple

from benchmarks.paths.heard import Rm
from benchmarks.paths.systems import WAYS, System
from benchmarks.paths.timing import prepared
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, Workload, latency
from common.rm_messages import STOPPED_BY_RM, AddApplicationRequest, Allocation, AllocationRelease, UserGroupInformation

SAMPLES: Final = 300
PAUSE_S: Final = 0.005
"""Between two asks."""

LOAD_BATCH: Final = 20
LOAD_PERIOD_S: Final = 0.01
"""Of the load: so many asks every so often, and as many releases: 2,000 of each a second."""

LOAD: Final = "load"


class Waits(NamedTuple):
    """How long asks took."""

    p50_ms: float
    p99_ms: float


def figures(plan: Plan, ways: Mapping[str, System] = WAYS) -> Iterator[Figure]:
    """Idle and under load, on each way; over the scheduler interface with the reference."""
    for name, system in ways.items():
        theirs = plan.reference if name == "grpc" else None
        for when, measured in (("idle", idle), ("loaded", loaded)):
            ours = measured(system, plan)
            other = None if theirs is None else measured(theirs, plan)
            yield Figure(f"latency/{name}/{when}/median", ours.p50_ms, "ms", reference=other and other.p50_ms)
            yield Figure(f"latency/{name}/{when}/99 of 100", ours.p99_ms, "ms", reference=other and other.p99_ms)


def idle(system: System, plan: Plan) -> Waits:
    """One ask at a time, and nothing else."""
    workload = _workload(plan)
    with prepared(system, workload) as (_, rm):
        return _sampled(rm, workload)


def loaded(system: System, plan: Plan) -> Waits:
    """One ask at a time, beside the load."""
    workload = _workload(plan)
    with prepared(system, workload) as (_, rm), _load(rm):
        return _sampled(rm, workload)


def _workload(plan: Plan) -> Workload:
    """With an application more, for the load, and room for it."""
    work = latency(plan.nodes, plan.asks)
    own = AddApplicationRequest(LOAD, "root.b", ugi=UserGroupInformation(user="bob", groups=["bob"]))
    config = work.config.rstrip("\n") + "\n      - name: b\n"
    return Workload(
        config=config,
        nodes=work.nodes,
        applications=[*work.applications, own],
        before=[],
        running=0,
        asks=work.asks[: plan.scaled(SAMPLES)],
    )


def _sampled(rm: Rm, workload: Workload) -> Waits:
    running = rm.heard.running
    found = []
    for ask in workload.asks:
        began = perf_counter()
        rm.asks([ask])
        rm.heard.until(lambda key=ask.allocation_key: key in running)  # type: ignore[misc]
        found.append((perf_counter() - began) * 1000)
        sleep(PAUSE_S)
    return Waits(median(found), quantiles(found, n=100)[-1] if len(found) > 1 else found[0])


@contextmanager
def _load(rm: Rm) -> Iterator[None]:
    """For as long as this lasts."""
    over = threading.Event()
    thread = threading.Thread(target=_keep_busy, args=(rm, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _keep_busy(rm: Rm, over: threading.Event) -> None:
    """What runs of the batch before the last ends as the next one begins."""
    step = 0
    while not over.wait(LOAD_PERIOD_S):
        rm.asks([_load_ask(step, n) for n in range(LOAD_BATCH)])
        if step > 1:
            ends = [
                AllocationRelease(
                    application_id=LOAD,
                    allocation_key=_load_ask(step - 2, n).allocation_key,
                    termination_type=STOPPED_BY_RM,
                )
                for n in range(LOAD_BATCH)
            ]
            rm.releases(ends)
        step += 1


def _load_ask(step: int, number: int) -> Allocation:
    return Allocation(f"{LOAD}-{step}-{number}", LOAD, resource_per_alloc=ONE)
