"""Rates and latencies end to end: from sending an ask to receiving its allocation, natively and over gRPC.

The clock of a rate runs from the first ask sent to the last allocation received; each allocation is in the journal by
then. Over gRPC the same client drives the reference in the same run, if there is one. For the latency under load,
another queue of the same RM has asks and releases, a batch every few milliseconds, so that the worker is busy for a
part of its time and never behind.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Final, NamedTuple

from benchmarks.resource_managers import Rm
from benchmarks.results import PER_SECOND, Figure, Plan
from benchmarks.shapes import ONE, RELEASED_AT_ONCE, SHAPES, Workload, batches, latency
from benchmarks.systems import WAYS, System, Up, grpc, native
from common.rm_messages import STOPPED_BY_RM, AddApplicationRequest, Allocation, AllocationRelease, UserGroupInformation

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
    with system() as up:
        rm = up.connect(workload.config)
        try:
            prepare(rm, workload, settling_s)
            yield up, rm
        finally:
            rm.close()


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
        rm.releases(
            [
                AllocationRelease(application_id=owner, allocation_key=key, termination_type=STOPPED_BY_RM)
                for key, owner in some
            ]
        )
        rm.heard.until(lambda: len(running) >= full)


# Rates ----------------------------------------------------------------------------------------------------------------


def native_figures(plan: Plan) -> Iterator[Figure]:
    """Over the native protocol, which the reference does not speak."""
    yield from rate_figures("native", native, plan._replace(reference=None))


def grpc_figures(plan: Plan) -> Iterator[Figure]:
    """Over the scheduler interface."""
    yield from rate_figures("grpc", grpc, plan)


def rate_figures(name: str, system: System, plan: Plan, shapes: Iterable[str] = SHAPES) -> Iterator[Figure]:
    """The rate of each shape, and right after it the reference's."""
    for shape in shapes:
        workload = SHAPES[shape](plan.nodes, plan.asks)
        ours = rate(system, workload, plan)
        theirs = None if plan.reference is None else rate(plan.reference, workload, plan._replace(rounds=1))
        yield Figure(f"{name}/{shape}", ours, PER_SECOND, reference=theirs)


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

LOAD: Final = "load"


class Waits(NamedTuple):
    """How long asks took."""

    p50_ms: float
    p99_ms: float


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
    """Release the running allocations of the batch before the last one when the next batch starts."""
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
