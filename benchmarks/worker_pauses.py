"""Pauses of a worker: how long it makes no decisions while it answers a query or applies a configuration.

The worker's machine runs in this process, without a journal. Messages are encoded and decoded as between processes.
*Queue tree*: processor time for `GET /ws/v1/partition/default/queues`, after changes in every queue and without.
*Configuration changes*: the longest uninterrupted piece of work at the worker, and end to end the longest time that an
ask waits during the change.
"""

import threading
from collections.abc import Iterator
from statistics import median
from time import perf_counter, process_time
from typing import Final, NamedTuple

from benchmarks.calibration import as_in_a_worker, unit_s
from benchmarks.configuration import text_of
from benchmarks.resource_managers import NativeRm
from benchmarks.rest import configuration, leaves
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, batches, cluster
from benchmarks.systems import system
from common.config.validation import load
from common.control_messages import CommitConfig, PrepareConfig
from common.messages import Command, Header, Message
from common.names import BROKER
from common.query_messages import Answer, Query
from common.rm_messages import (
    Ack,
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    ApplicationRequest,
    NodeRequest,
    UserGroupInformation,
)
from common.wire import Incoming, Outgoing, decode_body, encode_body
from partition_worker.partition_host import PartitionHost
from partition_worker.worker import Worker

NAME: Final = "bench_default"
RM: Final = "bench"
SESSION: Final = "session-1"
NOW_S: Final = 1_700_000_000.0


class OneWorker:
    """A partition with this configuration, and the resource manager that talks to it."""

    def __init__(self, config: str) -> None:
        self.now = NOW_S
        self.worker = Worker(PartitionHost(partition=NAME, epoch=1))
        self._seq = 0
        self._rollout = 0
        self.reconfigure(config)

    def reconfigure(self, text: str) -> list[float]:
        """Take a configuration; seconds of processor time of each piece of work that is done without a break."""
        config, live = load(text).partitions[0], self.worker.partition is not None
        self._rollout += 1
        return [
            *self._timed(PrepareConfig(rollout=self._rollout, config=config, live=live)),
            *self._timed(CommitConfig(rollout=self._rollout)),
        ]

    def order(self, command: Command) -> None:
        """An update, and all decisions that follow."""
        self._seq += 1
        self._tell(command, seq=self._seq)
        self._settle()

    def answer(self, query: Query) -> Answer:
        """To a question."""
        [send] = self._tell(query, ref="question")
        return decode_body(Answer, send.body)

    def _timed(self, message: Message) -> list[float]:
        incoming = self._delivery(message)
        began = process_time()
        self.worker.handle(incoming, self.now)
        return [process_time() - began, *self._settle()]

    def _settle(self) -> list[float]:
        """Everything that is due; how long each turn took."""
        spent = []
        while self.worker.deadline <= self.now:
            began = process_time()
            self.worker.tick(self.now)
            spent.append(process_time() - began)
            self._tell(Ack(), ack=self.worker.host.channel.outbox.last)
        return spent

    def _tell(self, message: Message, *, seq: int = 0, ack: int = 0, ref: str = "") -> list[Outgoing]:
        return self.worker.handle(self._delivery(message, seq=seq, ack=ack, ref=ref), self.now)

    def _delivery(self, message: Message, *, seq: int = 0, ack: int = 0, ref: str = "") -> Incoming:
        kind = type(message).__name__
        header = Header(kind=kind, rm=RM, partition=NAME, session=SESSION, seq=seq, ack=ack, ref=ref)
        return Incoming(BROKER, header, encode_body(message))


# Queue tree -----------------------------------------------------------------------------------------------------------

TREE_QUEUES: Final = 2_000
TREE: Final = Query(what="queues", name="default")


class Asked(NamedTuple):
    """Processor time of the answers, in milliseconds."""

    changed_ms: float
    unchanged_ms: float
    steps: float
    """The first of the two, in steps of the calibration loop."""
    answer_bytes: int


def tree_figures(plan: Plan) -> Iterator[Figure]:
    """Of the whole tree."""
    found = answer_tree(plan.scaled(TREE_QUEUES), plan.rounds)
    yield Figure("queue-tree/after changes", found.changed_ms, "ms", found.steps)
    yield Figure("queue-tree/unchanged", found.unchanged_ms, "ms")


def answer_tree(queues: int, rounds: int) -> Asked:
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
            spent, size = _ask_tree(worker)
            unit = (before + unit_s()) / 2
        changed.append(spent * 1000)
        steps.append(spent / unit)
        unchanged.append(_ask_tree(worker)[0] * 1000)
    return Asked(median(changed), median(unchanged), median(steps), size)


def _ask_tree(worker: OneWorker) -> tuple[float, int]:
    began = process_time()
    answer = worker.answer(TREE)
    spent = process_time() - began
    assert answer.status == 200, answer.body
    return spent, len(answer.body)


# Configuration changes ------------------------------------------------------------------------------------------------

RELOAD_QUEUES: Final = 10_000
NODES: Final = 100
ROOM: Final = {kind: amount * 1_000_000 for kind, amount in ONE.items()}
BUSY_EVERY: Final = 10
"""One leaf in so many has an application that runs."""

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
    queues = max(200, plan.scaled(RELOAD_QUEUES))
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
