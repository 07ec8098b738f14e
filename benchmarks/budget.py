"""Where the time goes: the processor time of each process for an allocation, from end to end.

Unlike a rate it hardly depends on what else the machine does, and on how many cores it has; so it is what is judged of
the whole path, in steps of the calibration loop, and what a machine with more cores would do is reckoned from it. The
engine is judged as Python, which every machine has; what workers cost as they are installed is shown beside it.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Final

from benchmarks.calibration import unit_s
from benchmarks.paths.systems import CLIENT, INTERPRETED, WAYS, System
from benchmarks.paths.timing import Timed, measured
from benchmarks.results import Figure, Plan
from benchmarks.shapes import two_queues

ASKS: Final = 20_000
WORKER: Final = "partition_worker"
ROLES: Final = (CLIENT, "rmproxy", "broker", WORKER)
"""Those through which an ask goes on its way."""

CORES: Final = (2, 4, 8, 16)


def figures(
    plan: Plan, ways: Mapping[str, System] = INTERPRETED, installed: Mapping[str, System] = WAYS
) -> Iterator[Figure]:
    """Of each way, each role; what our own processes cost together is judged, and the worker alone."""
    for name, system in installed.items():
        us = median(_run(system, plan)[0].cpu_us()[WORKER] for _ in range(plan.rounds))
        yield Figure(f"budget/{name}/{WORKER}, as installed", us, "µs")
    for name, system in ways.items():
        runs = [_run(system, plan) for _ in range(plan.rounds)]
        for role in ROLES:
            us = median(run.cpu_us()[role] for run, _ in runs)
            cost = median(run.cpu_us()[role] / 1e6 / unit for run, unit in runs) if role == WORKER else None
            yield Figure(f"budget/{name}/{role}", us, "µs", cost)
        whole = [(sum(run.cpu_us()[role] for role in ROLES[1:]), unit) for run, unit in runs]
        cost = median(us / 1e6 / unit for us, unit in whole)
        yield Figure(f"budget/{name}/server", median(us for us, _ in whole), "µs", cost)


def _run(system: System, plan: Plan) -> tuple[Timed, float]:
    """And how fast the machine was then."""
    before = unit_s()
    run = measured(system, two_queues(plan.nodes, plan.scaled(ASKS)), plan.settling_s)
    return run, (before + unit_s()) / 2


def reckoned(us: dict[str, float], *, cores: int, partitions: int) -> float:
    """Allocations a second of a machine with so many cores, by the processor time of each role.

    Every process has one thread that works, and each partition a worker of its own: so the rate ends where the first of
    them has no time left, or all cores have none.
    """
    busiest = max(spent / (partitions if role == WORKER else 1) for role, spent in us.items())
    return 1e6 / max(busiest, sum(us.values()) / cores)
