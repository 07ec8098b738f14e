"""Processor time of each process for one allocation, end to end.

Unlike a rate, it hardly depends on other work of the machine and on its cores. `make bench-check` therefore compares
it, in steps of the calibration loop, and rates for machines with more cores are calculated from it. The compared runs
use the interpreted engine, which every machine has; the worker as installed is shown beside it.
"""

import os
from collections.abc import Iterator
from statistics import median
from typing import Final

from msgspec.structs import replace

from benchmarks.calibration import calibrated
from benchmarks.end_to_end import Timed, measured
from benchmarks.results import PER_SECOND, Figure, Plan
from benchmarks.shapes import Workload, configuration, two_queues
from benchmarks.systems import CLIENT, INTERPRETED, WAYS, System
from yunishard.common.names import NODE_PARTITION

ASKS: Final = 20_000
WORKER: Final = "partition_worker"
ROLES: Final = (CLIENT, "rmproxy", "broker", WORKER)
"""The processes that an ask passes."""

CORES: Final = (2, 4, 8, 16)


def budget_figures(plan: Plan) -> Iterator[Figure]:
    """Measure each way and role. The server processes together, and the worker, are compared with committed figures."""
    for name, system in WAYS.items():
        us = median(_run(system, plan)[0].cpu_us()[WORKER] for _ in range(plan.rounds))
        yield Figure(f"budget/{name}/{WORKER}, as installed", us, "µs")
    for name, system in INTERPRETED.items():
        runs = [_run(system, plan) for _ in range(plan.rounds)]
        for role in ROLES:
            us = median(run.cpu_us()[role] for run, _ in runs)
            cost = median(run.cpu_us()[role] / 1e6 / unit for run, unit in runs) if role == WORKER else None
            yield Figure(f"budget/{name}/{role}", us, "µs", cost)
        whole = [(sum(run.cpu_us()[role] for role in ROLES[1:]), unit) for run, unit in runs]
        cost = median(us / 1e6 / unit for us, unit in whole)
        yield Figure(f"budget/{name}/server", median(us for us, _ in whole), "µs", cost)


def _run(system: System, plan: Plan) -> tuple[Timed, float]:
    """One run, and the duration of a calibration step around it."""
    return calibrated(lambda: measured(system, two_queues(plan.nodes, plan.scaled(ASKS)), plan.settling_s))


def reckoned(us: dict[str, float], *, cores: int, partitions: int) -> float:
    """Calculate the allocations per second of a machine with this many cores, from the processor time of each role.

    Every process has one busy thread, and each partition its own worker. The rate is limited by the first process
    without idle time, or by all cores together.
    """
    busiest = max(spent / (partitions if role == WORKER else 1) for role, spent in us.items())
    return 1e6 / max(busiest, sum(us.values()) / cores)


# Several partitions ---------------------------------------------------------------------------------------------------

SCALING_ASKS: Final = 40_000
PARTITIONS: Final = (1, 2, 4)
MORE: Final = (1, 2, 4, 8)
RECKONED: Final = f"{PER_SECOND}, reckoned"


def scaling_figures(plan: Plan) -> Iterator[Figure]:
    """Measured with each number of partitions, and reckoned from the run with most."""
    for partitions in PARTITIONS:
        workload = spread(plan.nodes, plan.scaled(SCALING_ASKS), partitions)
        runs = [measured(WAYS["native"], workload, plan.settling_s) for _ in range(plan.rounds)]
        run = max(runs, key=lambda one: one.per_second)
        yield Figure(f"scaling/{partitions}", run.per_second, PER_SECOND)
        for role in ROLES:
            yield Figure(f"scaling/{partitions}/{role}", run.cpu_us()[role], "µs")
    yield from _reckoned(run)


def _reckoned(run: Timed) -> Iterator[Figure]:
    us = {role: run.cpu_us()[role] for role in ROLES}
    for cores in sorted({os.cpu_count() or 1, *CORES}):
        for partitions in MORE:
            rate = reckoned(us, cores=cores, partitions=partitions)
            yield Figure(f"scaling/reckoned/{cores} cores/{partitions}", rate, RECKONED)


def spread(nodes: int, asks: int, partitions: int) -> Workload:
    """Two queues that ask for the same, in so many partitions that share nodes and asks; all are asked in turn."""
    one = two_queues(max(1, nodes // partitions), asks // partitions)
    names = [f"p{n}" for n in range(partitions)]
    queues = one.config[one.config.index("      queues:\n") :].removeprefix("      queues:\n")
    return Workload(
        config=configuration(queues, names=names),
        nodes=[
            replace(node, node_id=f"{name}-{node.node_id}", attributes={NODE_PARTITION: name})
            for name in names
            for node in one.nodes
        ],
        applications=[
            replace(each, application_id=f"{name}-{each.application_id}", partition_name=name)
            for name in names
            for each in one.applications
        ],
        asks=[
            replace(
                ask,
                allocation_key=f"{name}-{ask.allocation_key}",
                application_id=f"{name}-{ask.application_id}",
                partition_name=name,
            )
            for ask in one.asks
            for name in names
        ],
    )
