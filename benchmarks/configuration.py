"""Time to validate a large configuration, to start with it, and to apply it to a running partition.

The partition is busy: every tenth leaf has a running application. All work is in one
process; sending a configuration to the workers of other partitions is not included.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.engine import NOW_S, decide
from benchmarks.results import Figure, Plan
from benchmarks.shapes import ONE, application, cluster
from yunishard.common.config.model import PartitionConfig, compute_checksum
from yunishard.common.config.validation import load
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import Allocation, AllocationRequest, ApplicationRequest, NodeRequest
from yunishard.partition_worker.engine.partition import Partition

QUEUES: Final = 10_000
LEAVES_PER_PARENT: Final = 99
NODES: Final = 100
ROOM: Final = {kind: amount * 1_000_000 for kind, amount in ONE.items()}
BUSY_EVERY: Final = 10
"""One leaf in so many has an application that runs."""


def text_of(queues: int, *, maximum: int = 100, changed: int = 0, renamed: float = 0.0) -> str:
    """A configuration with about this many queues.

    `maximum` is that of every leaf but for the first `changed` ones, which have one more; `renamed` is the share of
    leaves that have another name.
    """
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", "    submitacl: '*'", "    queues:"]
    leaf = 0
    for parent in range(max(1, queues // (LEAVES_PER_PARENT + 1))):
        lines += [f"    - name: p{parent}", f"      adminacl: 'boss{parent} ops'", "      properties:"]
        lines += ["        application.sort.policy: fair", "      queues:"]
        for _ in range(LEAVES_PER_PARENT):
            name = "new" if leaf % 1000 < renamed * 1000 else "leaf"
            lines += [f"      - name: {name}{leaf}", f"        submitacl: 'user{leaf} dev,ops'", "        resources:"]
            lines += ["          guaranteed: {memory: 1Gi, vcore: 1}"]
            lines += [f"          max: {{memory: {maximum + (leaf < changed)}Gi, vcore: {maximum}}}"]
            if leaf % 10 == 0:
                lines += ["        limits:", "        - users: ['*']", "          maxresources: {memory: 1Gi}"]
            leaf += 1
    return "\n".join(lines) + "\n"


def figures(plan: Plan) -> Iterator[Figure]:
    """The median of each step over all rounds, and the longest way from a text to a partition that runs with it."""
    queues = plan.scaled(QUEUES)
    before = text_of(queues)
    changes = {
        "apply one maximum of all": text_of(queues, changed=1),
        "apply every maximum": text_of(queues, maximum=200),
        "apply a tenth of the leaves replaced": text_of(queues, renamed=0.1),
    }
    config = load(before).partitions[0]
    seconds = {
        "checksum": _median_s(plan, lambda: compute_checksum(before)),
        "validate": _median_s(plan, lambda: load(before)),
        "start with it": _median_s(plan, lambda: Partition(config, name="rm_default", now=NOW_S)),
    }
    for step, text in changes.items():
        wanted = load(text).partitions[0]
        seconds[step] = median(_apply_s(busy(config), wanted) for _ in range(plan.rounds))
    slowest = max(seconds[step] for step in changes)
    seconds["validate and the slowest change"] = seconds["validate"] + slowest
    for step, spent in seconds.items():
        yield Figure(f"configuration/{step}", spent, "s")


def busy(config: PartitionConfig) -> Partition:
    """A partition in which every tenth leaf has an application that runs."""
    partition = Partition(config, name="rm_default", now=NOW_S)
    for command in commands([queue.path for queue in partition.tree if queue.leaf][::BUSY_EVERY]):
        partition.apply(command, NOW_S)
    decide(partition)
    return partition


def commands(queues: Sequence[str]) -> Iterator[Command]:
    """An application with one ask in each of these queues, and nodes with room for all."""
    yield NodeRequest(nodes=cluster(NODES, [ROOM]))
    yield ApplicationRequest(new=[application(f"app-{n}", path) for n, path in enumerate(queues)])
    asks = [Allocation(f"k-{n}", f"app-{n}", resource_per_alloc=ONE) for n in range(len(queues))]
    yield AllocationRequest(allocations=asks)


def _median_s(plan: Plan, work: Callable[[], object]) -> float:
    return median(_timed(work) for _ in range(plan.rounds))


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _apply_s(partition: Partition, wanted: PartitionConfig) -> float:
    """Return the seconds for the vote, the change, and the decisions that follow."""
    start = perf_counter()
    assert not partition.objections(wanted)
    partition.reconfigure(wanted, NOW_S + 1)
    decide(partition, NOW_S + 1)
    return perf_counter() - start
