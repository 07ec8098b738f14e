"""Cost of one preemption decision with thousands of candidates.

A queue with a guarantee and no allocations asks for the room of two. All nodes are full of preemptable allocations of
queues that use twice their guarantees. The figure is the processor time of the decision in the engine.
"""

from collections.abc import Iterator
from statistics import median
from time import process_time
from typing import Final, NamedTuple

from benchmarks.calibration import as_in_a_worker, calibrated
from benchmarks.engine import NOW_S, Engine, decide
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, Workload, application, cluster, configuration, release
from yunishard.common.messages.rm_messages import (
    PREEMPTED_BY_SCHEDULER,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    PreemptionPolicy,
)
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition

NODES: Final = 500
PER_NODE: Final = 4
PARENTS: Final = 5
LEAVES: Final = 20
"""In all, evenly below the parents."""

NEED: Final = {kind: amount * 2 for kind, amount in ONE.items()}
DECISIONS: Final = 10
"""In a round, one after the other."""

WAITED_S: Final = 60.0
"""After so long an ask may look for victims."""

_VICTIM: Final = PreemptionPolicy(allow_preempt_self=True)
_TAKER: Final = PreemptionPolicy(allow_preempt_other=True)


class Decided(NamedTuple):
    """Measurements of one decision."""

    ms: float
    """The median."""
    steps: float
    """The same, in steps of the calibration loop."""


def figures(plan: Plan) -> Iterator[Figure]:
    """The median over all decisions of all rounds."""
    rounds = [measured(plan.scaled(NODES)) for _ in range(plan.rounds)]
    best = min(rounds, key=lambda one: one.steps)
    yield Figure("preemption/decision", best.ms, "ms", best.steps)


def measured(nodes: int) -> Decided:
    """Decisions, one after the other, each with its victims gone before the next."""
    partition = crowded(nodes)
    with as_in_a_worker():
        spent, unit = calibrated(lambda: [_decision_s(partition, n) for n in range(min(DECISIONS, nodes))])
    middle = median(spent)
    return Decided(middle * 1000, middle / unit)


def _decision_s(partition: Partition, number: int) -> float:
    """Processor time of the decision for one ask, whose victims end afterwards."""
    now = NOW_S + number * WAITED_S
    ask = Allocation(f"need-{number}", "needy", resource_per_alloc=NEED, preemption_policy=_TAKER)
    partition.apply(AllocationRequest(allocations=[ask]), now)
    decide(partition, now)
    now += WAITED_S
    partition.step(now, 0)
    began = process_time()
    effects = partition.step(now, 1)
    spent = process_time() - began
    _let_go(partition, effects, now)
    return spent


def crowded(nodes: int) -> Partition:
    """A partition full of preemptable allocations."""
    crowds = [application(f"crowd{n}", f"root.p{n % PARENTS}.crowd{n}") for n in range(LEAVES)]
    asks = [
        Allocation(f"k-{n}", f"crowd{n % LEAVES}", resource_per_alloc=ONE, preemption_policy=_VICTIM)
        for n in range(nodes * PER_NODE)
    ]
    workload = Workload(
        config=_configuration(nodes),
        nodes=cluster(nodes, [{kind: amount * PER_NODE for kind, amount in ONE.items()}]),
        applications=[*crowds, application("needy", "root.needy")],
        before=asks,
        running=len(asks),
    )
    return Engine(workload).partition


def _configuration(nodes: int) -> str:
    each = nodes * PER_NODE * ONE["memory"] // LEAVES // 2
    text = ""
    for parent in range(PARENTS):
        text += f"      - name: p{parent}\n        queues:\n"
        for leaf in range(parent, LEAVES, PARENTS):
            text += f"          - {{name: crowd{leaf}, resources: {{guaranteed: {{memory: {each}}}}}}}\n"
    wanted = DECISIONS * NEED["memory"]
    return configuration(f"{text}      - {{name: needy, resources: {{guaranteed: {{memory: {wanted}}}}}}}\n")


def _let_go(partition: Partition, effects: list[Effect], now: float) -> None:
    """Release the victims as an RM does; then the ask runs."""
    chosen = [one.part for one in effects if isinstance(one.part, AllocationRelease)]
    assert chosen, "there are no victims"
    assert {one.termination_type for one in chosen} == {PREEMPTED_BY_SCHEDULER}
    before = partition.running_allocations
    ends = [release(one.application_id, one.allocation_key) for one in chosen]
    partition.apply(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=ends)), now)
    decide(partition, now)
    assert partition.running_allocations == before - len(chosen) + 1, "the ask does not run"
