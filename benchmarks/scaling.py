"""What several partitions do at the same time, and what more cores would do.

One resource manager has one, two or four partitions, each with a worker of its own, and asks of all of them at once. On
a machine with few cores the rate ends where all are busy; what each process costs says where it would end on another
(`budget.reckoned`). The reckoning is also given for this machine, where what was measured shows what it is worth.
"""

import os
from collections.abc import Iterator
from typing import Final

from benchmarks.budget import CORES, ROLES, reckoned
from benchmarks.paths.systems import native
from benchmarks.paths.timing import Timed, measured
from benchmarks.results import PER_SECOND, Figure, Plan
from benchmarks.shapes import Workload, configuration, two_queues
from common.names import NODE_PARTITION
from common.rm_messages import AddApplicationRequest, Allocation, NodeInfo

ASKS: Final = 40_000
PARTITIONS: Final = (1, 2, 4)
MORE: Final = (1, 2, 4, 8)
RECKONED: Final = f"{PER_SECOND}, reckoned"


def figures(plan: Plan) -> Iterator[Figure]:
    """Measured with each number of partitions, and reckoned from the run with most."""
    for partitions in PARTITIONS:
        workload = spread(plan.nodes, plan.scaled(ASKS), partitions)
        run = max(
            (measured(native, workload, plan.settling_s) for _ in range(plan.rounds)), key=lambda one: one.per_second
        )
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
        nodes=[_node(node, name) for name in names for node in one.nodes],
        applications=[_application(application, name) for name in names for application in one.applications],
        before=[],
        running=0,
        asks=[_ask(ask, name) for ask in one.asks for name in names],
    )


def _node(node: NodeInfo, partition: str) -> NodeInfo:
    return NodeInfo(
        f"{partition}-{node.node_id}",
        action=node.action,
        attributes={NODE_PARTITION: partition},
        schedulable_resource=node.schedulable_resource,
    )


def _application(application: AddApplicationRequest, partition: str) -> AddApplicationRequest:
    return AddApplicationRequest(
        f"{partition}-{application.application_id}",
        application.queue_name,
        partition_name=partition,
        ugi=application.ugi,
    )


def _ask(ask: Allocation, partition: str) -> Allocation:
    return Allocation(
        f"{partition}-{ask.allocation_key}",
        f"{partition}-{ask.application_id}",
        partition_name=partition,
        resource_per_alloc=ask.resource_per_alloc,
    )
