"""What a full tree of queues costs the worker that is asked for it: nothing is decided meanwhile.

    GET /ws/v1/partition/default/queues

All queues have an application that runs. The tree is asked for after something has changed in each of them, and again
when nothing has.
"""

from collections.abc import Iterator
from statistics import median
from time import process_time
from typing import Final, NamedTuple

from benchmarks.calibration import as_in_a_worker, unit_s
from benchmarks.one_worker import OneWorker
from benchmarks.rest import configuration, leaves
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, batches, cluster
from common.query_messages import Query
from common.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
    UserGroupInformation,
)

QUEUES: Final = 2_000
TREE: Final = Query(what="queues", name="default")


class Asked(NamedTuple):
    """What the answer took, in milliseconds of processor time."""

    changed_ms: float
    unchanged_ms: float
    steps: float
    """The first of the two, in steps of the calibration loop."""
    answer_bytes: int


def figures(plan: Plan) -> Iterator[Figure]:
    """Of the whole tree."""
    found = measured(plan.scaled(QUEUES), plan.rounds)
    yield Figure("queue-tree/after changes", found.changed_ms, "ms", found.steps)
    yield Figure("queue-tree/unchanged", found.unchanged_ms, "ms")


def measured(queues: int, rounds: int) -> Asked:
    """So many times, the median of all."""
    worker = OneWorker(configuration(queues))
    paths = leaves(queues)
    room = {kind: amount * len(paths) * (rounds + 1) for kind, amount in ONE.items()}
    worker.order(NodeRequest(nodes=cluster(10, [room])))
    user = UserGroupInformation(user="ann", groups=["dev"])
    for some in batches([AddApplicationRequest(f"app-{n}", path, ugi=user) for n, path in enumerate(paths)], 500):
        worker.order(ApplicationRequest(new=list(some)))
    changed, unchanged, steps, size = [], [], [], 0
    for turn in range(rounds):
        asks = [Allocation(f"k-{turn}-{n}", f"app-{n}", resource_per_alloc=ONE) for n in range(len(paths))]
        for pods in batches(asks, 500):
            worker.order(AllocationRequest(allocations=list(pods)))
        with as_in_a_worker():
            before = unit_s()
            spent, size = _asked(worker)
            unit = (before + unit_s()) / 2
        changed.append(spent * 1000)
        steps.append(spent / unit)
        unchanged.append(_asked(worker)[0] * 1000)
    return Asked(median(changed), median(unchanged), median(steps), size)


def _asked(worker: OneWorker) -> tuple[float, int]:
    began = process_time()
    answer = worker.answer(TREE)
    spent = process_time() - began
    assert answer.status == 200, answer.body
    return spent, len(answer.body)
