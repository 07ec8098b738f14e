"""Rates and latencies end to end: from sending an ask to receiving its allocation, natively and over gRPC.

The clock of a rate runs from the first ask sent to the last allocation received; each allocation is in the journal by
then. Over gRPC the same client drives the reference in the same run, if there is one. For the latency under load,
another queue of the same RM has asks and releases, a batch every few milliseconds, so that the worker is busy for a
part of its time and never behind.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from statistics import median
from time import perf_counter, sleep
from typing import Final, NamedTuple

from benchmarks.resource_managers import Rm
from benchmarks.results import PER_SECOND, Figure, Plan, Waits
from benchmarks.shapes import LOAD, ONE, RELEASED_AT_ONCE, SHAPES, Workload, batches, latency, release
from benchmarks.systems import WAYS, System, Up
from yunishard.common.messages.rm_messages import Allocation

NODES_AT_ONCE: Final = 1_000


class Timed(NamedTuple):
    """Measurements of one run."""

    allocations: int
    seconds: float
    cpu_s: Mapping[str, float]
    """Processor time while the clock ran, by role."""

    @property
    def per_second(self) -> float:
        return self.allocations / self.seconds

    def cpu_us(self) -> dict[str, float]:
        """Microseconds for each allocation, by role."""
        return {role: spent / self.allocations * 1e6 for role, spent in self.cpu_s.items()}


def measured(system: System, workload: Workload, settling_s: float) -> Timed:
    """Start a system, run the workload on it, and end it."""
    with prepared(system, workload, settling_s) as (up, rm):
        return timed(up, rm, workload)


@contextmanager
def prepared(system: System, workload: Workload, settling_s: float = 0.0) -> Iterator[tuple[Up, Rm]]:
    """A system in which everything is there, and its resource manager; both end afterwards."""
    with system() as up, closing(up.connect(workload.config)) as rm:
        prepare(rm, workload, settling_s)
        yield up, rm


def prepare(rm: Rm, workload: Workload, settling_s: float = 0.0) -> None:
    """Everything that has to be there before the clock starts.

    `settling_s`: asks that fit nowhere have no outcome, so wait this long until the scheduler has processed them.
    """
    heard = rm.heard
    for nodes in batches(workload.nodes, NODES_AT_ONCE):
        rm.nodes(nodes)
    heard.until(lambda: heard.nodes >= len(workload.nodes))
    rm.applications(workload.applications)
    heard.until(lambda: heard.applications >= len(workload.applications))
    for asks in batches(workload.before):
        rm.asks(asks)
    heard.until(lambda: len(heard.running) >= workload.running)
    if len(workload.before) > workload.running:
        sleep(settling_s)


def timed(up: Up, rm: Rm, workload: Workload) -> Timed:
    """Run the timed part."""
    before = up.cpu_s()
    began = perf_counter()
    if workload.released:
        _turn_over(rm, workload.released)
    else:
        wanted = len(rm.heard.running) + len(workload.asks)
        for asks in batches(workload.asks):
            rm.asks(asks)
        rm.heard.until(lambda: len(rm.heard.running) >= wanted)
    seconds = perf_counter() - began
    spent = {role: cpu_s - before.get(role, 0.0) for role, cpu_s in up.cpu_s().items()}
    return Timed(workload.timed, seconds, spent)


def _turn_over(rm: Rm, count: int) -> None:
    """So many end, always those that run longest, and each time as many get in as have gone."""
    running = rm.heard.running
    full = len(running)
    while count:
        some = list(running.items())[: min(RELEASED_AT_ONCE, count)]
        count -= len(some)
        for key, _ in some:
            del running[key]
        rm.releases([release(owner, key) for key, owner in some])
        rm.heard.until(lambda: len(running) >= full)


# Rates ----------------------------------------------------------------------------------------------------------------


def rate_figures(way: str, plan: Plan) -> Iterator[Figure]:
    """The rate of each shape; over the scheduler interface, right after it the reference's."""
    reference = plan.reference if way == "grpc" else None
    for name, shape in SHAPES.items():
        workload = shape(plan.nodes, plan.asks)
        ours = rate(WAYS[way], workload, plan)
        theirs = None if reference is None else rate(reference, workload, plan._replace(rounds=1))
        yield Figure(f"{way}/{name}", ours, PER_SECOND, reference=theirs)


def rate(system: System, workload: Workload, plan: Plan) -> float:
    """Allocations a second, the median of all rounds."""
    return median(measured(system, workload, plan.settling_s).per_second for _ in range(plan.rounds))


# Latency --------------------------------------------------------------------------------------------------------------

SAMPLES: Final = 300
PAUSE_S: Final = 0.005
"""Between two asks."""

LOAD_BATCH: Final = 20
LOAD_PERIOD_S: Final = 0.01
"""Of the load: so many asks every so often, and as many releases: 2,000 of each a second."""


def latency_figures(plan: Plan, ways: Mapping[str, System] = WAYS) -> Iterator[Figure]:
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
    workload = latency(plan.nodes, plan.asks)
    with prepared(system, workload) as (_, rm):
        return _sampled(rm, workload.asks[: plan.scaled(SAMPLES)])


def loaded(system: System, plan: Plan) -> Waits:
    """One ask at a time, beside the load."""
    workload = latency(plan.nodes, plan.asks)
    with prepared(system, workload) as (_, rm), _load(rm):
        return _sampled(rm, workload.asks[: plan.scaled(SAMPLES)])


def _sampled(rm: Rm, asks: Sequence[Allocation]) -> Waits:
    running = rm.heard.running
    found = []
    for ask in asks:
        began = perf_counter()
        rm.asks([ask])
        rm.heard.until(lambda key=ask.allocation_key: key in running)  # type: ignore[misc]
        found.append((perf_counter() - began) * 1000)
        sleep(PAUSE_S)
    return Waits.of(found)


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
    """Release the running allocations of the batch before the last one when the next batch starts."""
    step = 0
    while not over.wait(LOAD_PERIOD_S):
        rm.asks([_load_ask(step, n) for n in range(LOAD_BATCH)])
        if step > 1:
            rm.releases([release(LOAD, _load_ask(step - 2, n).allocation_key) for n in range(LOAD_BATCH)])
        step += 1


def _load_ask(step: int, number: int) -> Allocation:
    return Allocation(f"{LOAD}-{step}-{number}", LOAD, resource_per_alloc=ONE)
