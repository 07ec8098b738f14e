"""Pauses of a worker: how long it makes no decisions while it answers a query or applies a configuration.

The worker's machine runs in this process, without a journal. Messages are encoded and decoded as between processes.
*Queue tree*: processor time for `GET /ws/v1/partition/default/queues`, after changes in every queue and without.
*Configuration changes*: the longest uninterrupted piece of work at the worker, and end to end the longest time that an
ask waits during the change.
"""

import threading
from collections.abc import Iterator
from contextlib import closing
from statistics import median
from time import perf_counter, process_time
from typing import Final, NamedTuple

from benchmarks.calibration import as_in_a_worker, calibrated
from benchmarks.configuration import BUSY_EVERY, NODES, QUEUES, ROOM, commands, text_of
from benchmarks.local_worker import LocalWorker
from benchmarks.resource_managers import NativeRm
from benchmarks.rest import configuration, leaves
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, application, batches, cluster
from benchmarks.systems import system
from yunishard.common.messages.query_messages import Query
from yunishard.common.messages.rm_messages import Allocation, AllocationRequest, ApplicationRequest, NodeRequest

# Queue tree -----------------------------------------------------------------------------------------------------------

TREE_QUEUES: Final = 2_000
TREE: Final = Query(what="queues", name="default")


def tree_figures(plan: Plan) -> Iterator[Figure]:
    """Processor time of the whole tree: the median of all rounds."""
    queues = plan.scaled(TREE_QUEUES)
    worker = LocalWorker(configuration(queues))
    paths = leaves(queues)
    room = {kind: amount * len(paths) * (plan.rounds + 1) for kind, amount in ONE.items()}
    worker.order(NodeRequest(nodes=cluster(10, [room])))
    for some in batches([application(f"app-{n}", path) for n, path in enumerate(paths)], 500):
        worker.order(ApplicationRequest(new=list(some)))
    changed, unchanged, steps = [], [], []
    for turn in range(plan.rounds):
        asks = [Allocation(f"k-{turn}-{n}", f"app-{n}", resource_per_alloc=ONE) for n in range(len(paths))]
        for pods in batches(asks, 500):
            worker.order(AllocationRequest(allocations=list(pods)))
        with as_in_a_worker():
            spent, unit = calibrated(lambda: _ask_tree_s(worker))
        changed.append(spent * 1000)
        steps.append(spent / unit)
        unchanged.append(_ask_tree_s(worker) * 1000)
    yield Figure("queue-tree/after changes", median(changed), "ms", median(steps))
    yield Figure("queue-tree/unchanged", median(unchanged), "ms")


def _ask_tree_s(worker: LocalWorker) -> float:
    began = process_time()
    answer = worker.answer(TREE)
    spent = process_time() - began
    assert answer.status == 200, answer.body
    return spent


# Configuration changes ------------------------------------------------------------------------------------------------

LITTLE: Final = {"memory": 1}
"""Resources of an ask end to end: so small that no queue fills up, and an ask waits only for the change."""

WARMING_UP: Final = 20
"""Asks before the configuration is sent."""


class Stall(NamedTuple):
    """Effect of a configuration change on a worker."""

    longest_ms: float
    whole_ms: float
    steps: float
    """The longest, in steps of the calibration loop."""


def reload_figures(plan: Plan) -> Iterator[Figure]:
    """For one change, and for the largest."""
    queues = max(200, plan.scaled(QUEUES))
    changes = {"one maximum": text_of(queues, changed=1), "every maximum": text_of(queues, maximum=200)}
    for name, text in changes.items():
        best = min((stalled(queues, text) for _ in range(plan.rounds)), key=lambda one: one.steps)
        yield Figure(f"reload/{name}/longest", best.longest_ms, "ms", best.steps)
        yield Figure(f"reload/{name}/whole", best.whole_ms, "ms")
    usual_ms, longest_ms = waited(queues, changes["every maximum"])
    yield Figure("reload/end to end/usual wait", usual_ms, "ms")
    yield Figure("reload/end to end/longest wait", longest_ms, "ms")


def stalled(queues: int, text: str) -> Stall:
    """The worker of a partition in which a part of the leaves is busy."""
    worker = LocalWorker(text_of(queues))
    for command in commands([queue.path for queue in worker.partition.tree if queue.leaf][1::BUSY_EVERY]):
        worker.order(command)
    worker.pieces.clear()
    with as_in_a_worker():
        _, unit = calibrated(lambda: worker.reconfigure(text))
    longest = max(worker.pieces)
    return Stall(longest * 1000, sum(worker.pieces) * 1000, longest / unit)


def waited(queues: int, text: str) -> tuple[float, float]:
    """Milliseconds for an ask, the shortest before and the longest during the change."""
    with system() as (_, at), closing(NativeRm(at["native"], text_of(queues))) as rm:
        rm.nodes(cluster(NODES, [ROOM]))
        rm.applications([application("app", "root.p0.leaf1")])
        rm.heard.until(lambda: rm.heard.applications == 1)
        usual = [_ask_ms(rm, n) for n in range(WARMING_UP)]
        change = threading.Thread(target=rm.configuration, args=(text,))
        change.start()
        during: list[float] = []
        while change.is_alive():
            during.append(_ask_ms(rm, WARMING_UP + len(during)))
        change.join()
        return min(usual), max(during)


def _ask_ms(rm: NativeRm, number: int) -> float:
    running, key = rm.heard.running, f"k-{number}"
    began = perf_counter()
    rm.asks([Allocation(key, "app", resource_per_alloc=LITTLE)])
    rm.heard.until(lambda: key in running)
    return (perf_counter() - began) * 1000
