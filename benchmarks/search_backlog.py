"""Cost of preemption while a long backlog waits: processor time of the engine, in multiples of that without preemption.

The cluster is full, and thousands of applications of a queue below its guarantee wait. Their search for victims fails
every 15 seconds, because all other queues are within their guarantees. A few allocations end in each second, and the
next applications start. For comparison, all applications are tried at each search, as a scheduler does that has a
timer for each of them.
"""

from collections.abc import Iterator
from time import process_time
from typing import Final

from benchmarks.calibration import as_in_a_worker
from benchmarks.engine import NOW_S, Engine, decide
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, Workload, application, cluster, configuration, release
from yunishard.common.messages.rm_messages import (
    Allocation,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    PreemptionPolicy,
)
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.state import PREEMPTION_PAUSE_S

NODES: Final = 500
PER_NODE: Final = 4
LEAVES: Final = 20
"""The queues that fill the cluster."""

WAITING: Final = 4_000
"""Applications, each with one ask."""

PLAYED_S: Final = 120
ENDS_PER_S: Final = 5

_POLICY: Final = PreemptionPolicy(allow_preempt_self=True, allow_preempt_other=True)


def figures(plan: Plan) -> Iterator[Figure]:
    """The best of all rounds of each kind."""
    nodes, waiting = max(LEAVES, plan.scaled(NODES)), plan.scaled(WAITING)
    with as_in_a_worker():
        off, on, each = (
            min(_play_s(_fill(nodes, waiting, preempts=preempts), tries_all=tries_all) for _ in range(plan.rounds))
            for preempts, tries_all in ((False, False), (True, False), (True, True))
        )
    yield Figure("search-backlog/preemption against none", on / off, "times")
    yield Figure("search-backlog/all tried at each search", each / off, "times")


def _fill(nodes: int, waiting: int, *, preempts: bool) -> Partition:
    """A full cluster, and applications that have waited for the preemption delay."""
    guaranteed = -(-nodes * PER_NODE // LEAVES) * ONE["memory"]
    queues = [f"      - {{name: q{n}, resources: {{guaranteed: {{memory: {guaranteed}}}}}}}\n" for n in range(LEAVES)]
    queues.append(
        f"      - {{name: late, resources: {{guaranteed: {{memory: {nodes * PER_NODE * ONE['memory']}}}}}}}\n"
    )
    config = configuration("".join(queues))
    if not preempts:
        config = config.replace("    queues:", "    preemption: {enabled: false}\n    queues:", 1)
    running = [
        Allocation(f"k-{n}", f"app-{n % LEAVES}", resource_per_alloc=ONE, preemption_policy=_POLICY)
        for n in range(nodes * PER_NODE)
    ]
    workload = Workload(
        config=config,
        nodes=cluster(nodes, [{kind: amount * PER_NODE for kind, amount in ONE.items()}]),
        applications=[application(f"app-{n}", f"root.q{n}") for n in range(LEAVES)],
        before=running,
        running=len(running),
    )
    partition = Engine(workload).partition
    late = [f"late-{n}" for n in range(waiting)]
    partition.apply(ApplicationRequest(new=[application(name, "root.late") for name in late]), NOW_S)
    asks = [Allocation(name, name, resource_per_alloc=ONE, preemption_policy=_POLICY) for name in late]
    partition.apply(AllocationRequest(allocations=asks), NOW_S)
    decide(partition)
    _pass_time(partition, NOW_S + 60.0)
    return partition


def _play_s(partition: Partition, *, tries_all: bool) -> float:
    """Let allocations end one after the other; return the processor time."""
    start, number = partition.now, partition.running_allocations
    next_trial = start + PREEMPTION_PAUSE_S
    began = process_time()
    for end in range(min(PLAYED_S * ENDS_PER_S, number)):
        now = start + end / ENDS_PER_S
        _pass_time(partition, now)
        if tries_all and now >= next_trial:
            next_trial += PREEMPTION_PAUSE_S
            for one in partition.applications.values():
                partition.readiness.touch_application(one)
        ends = [release(f"app-{end % LEAVES}", f"k-{end}")]
        partition.apply(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=ends)), now)
        decide(partition, now)
        assert partition.running_allocations == number, "the next application starts"
    spent = process_time() - began
    assert not partition.preemptions.made, "there are no victims"
    return spent


def _pass_time(partition: Partition, until: float) -> None:
    """Let all timers fire at their times."""
    while (now := partition.next_change) <= until:
        partition.step(max(now, partition.now), 0)
        decide(partition, partition.now)
