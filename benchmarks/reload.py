"""For how long nothing is decided while a partition takes another configuration with thousands of queues.

At the worker: the longest piece of work that is done without a break, in processor time. From end to end: the longest
that a resource manager waits for one ask while the configuration goes from its hands to the worker.
"""

import threading
from collections.abc import Iterator
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks.calibration import as_in_a_worker, unit_s
from benchmarks.configuration import text_of
from benchmarks.one_worker import OneWorker
from benchmarks.paths.native import NativeRm
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, cluster
from benchmarks.system import system
from common.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
    UserGroupInformation,
)

QUEUES: Final = 10_000
NODES: Final = 100
ROOM: Final = {kind: amount * 1_000_000 for kind, amount in ONE.items()}
BUSY_EVERY: Final = 10
"""One leaf in so many has an application that runs."""

LITTLE: Final = {"memory": 1}
"""What an ask needs from end to end: no number of them fills a queue, and none waits for anything but the change."""

WARMING_UP: Final = 20
"""Asks before the configuration is sent."""


class Stall(NamedTuple):
    """What a change of the configuration is to a worker."""

    longest_ms: float
    whole_ms: float
    steps: float
    """The longest, in steps of the calibration loop."""


def figures(plan: Plan) -> Iterator[Figure]:
    """For one change, and for the largest."""
    queues = max(200, plan.scaled(QUEUES))
    changes = {"one maximum": text_of(queues, changed=1), "every maximum": text_of(queues, maximum=200)}
    for name, text in changes.items():
        stalls = [stalled(queues, text) for _ in range(plan.rounds)]
        best = min(stalls, key=lambda one: one.steps)
        yield Figure(f"reload/{name}/longest", best.longest_ms, "ms", best.steps)
        yield Figure(f"reload/{name}/whole", best.whole_ms, "ms")
    usual_ms, longest_ms = waited(queues, changes["every maximum"])
    yield Figure("reload/end to end/usual wait", usual_ms, "ms")
    yield Figure("reload/end to end/longest wait", longest_ms, "ms")


def stalled(queues: int, text: str) -> Stall:
    """The worker of a partition in which a part of the leaves is busy."""
    worker = OneWorker(text_of(queues))
    partition = worker.worker.partition
    assert partition is not None
    worker.order(NodeRequest(nodes=cluster(NODES, [ROOM])))
    paths = [queue.path for queue in partition.tree if queue.leaf][1::BUSY_EVERY]
    worker.order(ApplicationRequest(new=[_application(f"app-{n}", path) for n, path in enumerate(paths)]))
    asks = [Allocation(f"k-{n}", f"app-{n}", resource_per_alloc=ONE) for n in range(len(paths))]
    worker.order(AllocationRequest(allocations=asks))
    with as_in_a_worker():
        before = unit_s()
        pieces = worker.reconfigure(text)
        unit = (before + unit_s()) / 2
    return Stall(max(pieces) * 1000, sum(pieces) * 1000, max(pieces) / unit)


def waited(queues: int, text: str) -> tuple[float, float]:
    """Milliseconds for an ask, the shortest before and the longest during the change."""
    with system() as (_, at):
        rm = NativeRm(at["native"], text_of(queues))
        try:
            rm.nodes(cluster(NODES, [ROOM]))
            rm.applications([_application("app", "root.p0.leaf1")])
            rm.heard.until(lambda: rm.heard.applications == 1)
            usual = [_ask_ms(rm, n) for n in range(WARMING_UP)]
            change = threading.Thread(target=rm.configuration, args=(text,))
            change.start()
            during: list[float] = []
            while change.is_alive():
                during.append(_ask_ms(rm, WARMING_UP + len(during)))
            change.join()
            return min(usual), max(during)
        finally:
            rm.close()


def _ask_ms(rm: NativeRm, number: int) -> float:
    running, key = rm.heard.running, f"k-{number}"
    began = perf_counter()
    rm.asks([Allocation(key, "app", resource_per_alloc=LITTLE)])
    rm.heard.until(lambda: key in running)
    return (perf_counter() - began) * 1000


def _application(application_id: str, queue: str) -> AddApplicationRequest:
    return AddApplicationRequest(application_id, queue, ugi=UserGroupInformation(user="ann", groups=["dev"]))
