"""Cost of the auditor: the processor time of its slices as a share of the elapsed time.

The partition is large and idle, so that a round examines as much as possible.
"""

from collections.abc import Iterator
from time import process_time
from typing import Final

from benchmarks.engine import NOW_S, Engine
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, Workload, application, cluster, configuration
from yunishard.common.messages.rm_messages import Allocation
from yunishard.partition_worker.engine.auditor import SLICE_EVERY_S

ALLOCATIONS: Final = 50_000
QUEUES: Final = 50
USERS: Final = 40
PER_APPLICATION: Final = 100
PER_NODE: Final = 50


def figures(plan: Plan) -> Iterator[Figure]:
    """One round over a partition: its share of the processor time, its duration, and its slowest slice."""
    partition = Engine(filled(plan.scaled(ALLOCATIONS))).partition
    partition.auditor.every_s = 1.0
    partition.auditor.schedule_round(partition)
    now, spent = NOW_S, []
    while (due := partition.auditor.deadline) < NOW_S + 1e6:
        now = max(now, due)
        began = process_time()
        partition.audit(now)
        spent.append(process_time() - began)
    assert partition.auditor.drift == 0, partition.auditor.health.drift
    round_s = len(spent) * SLICE_EVERY_S  # most of it is waiting
    yield Figure("auditor/share", sum(spent) / round_s * 100, "%")
    yield Figure("auditor/round", round_s, "s")
    yield Figure("auditor/longest slice", max(spent) * 1000, "ms")


def filled(allocations: int) -> Workload:
    """So many running allocations, over queues, users, applications and nodes."""
    return Workload(
        config=configuration("".join(f"      - name: q{n}\n" for n in range(QUEUES))),
        nodes=cluster(-(-allocations // PER_NODE), [{kind: amount * PER_NODE for kind, amount in ONE.items()}]),
        applications=[
            application(f"app-{n}", f"root.q{n % QUEUES}", user=f"u{n % USERS}")
            for n in range(-(-allocations // PER_APPLICATION))
        ],
        before=[
            Allocation(f"k-{n}", f"app-{n // PER_APPLICATION}", resource_per_alloc=ONE) for n in range(allocations)
        ],
        running=allocations,
    )
