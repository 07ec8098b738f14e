"""The partition's metrics as samples: the reference's names, labels and meanings.

The front end renders those of all partitions, each for itself. As in the reference, a labelled series appears with its
first use, but for those that its periodic checks and records make appear soon after a start: they are there at once.
Not here: what YuniKorn does not count (`own_figures.py`), figures of processes.

Two things differ on purpose. Nodes are put into ranges of usage when somebody asks, not every second, and without
nodes there are none. And only whole cycles are timed: the engine reads no clock, so what happens within a cycle keeps
a count of zero, which is all that can honestly be said of it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from common.families import Distribution, Family, Sample, Written, piece, whole
from common.histogram import BOUNDS_S, Histogram
from common.process_up import journal_stuck
from partition_worker.answers.figure_memo import ENDED, RANGES, Memo
from partition_worker.engine.application_states import AppState
from partition_worker.engine.partition import Partition

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_:]")

_NOT_TIMED: Final = "not timed, always empty"


def families(
    partition: Partition,
    cycles: Histogram,
    now: float,
    *,
    full_name: str = "",
    kept: bool = True,
    memo: Memo | None = None,
) -> list[Family | Written]:
    """All families of the partition; `full_name` is its label where that differs from the name that its RM knows, `now`
    is Unix seconds, `kept` says whether what happens becomes durable.
    """
    memo, full_name = memo or Memo(), full_name or partition.name
    return [
        *_scheduler(partition),
        *_durations(cycles),
        *_node_usage(memo.ranges(partition.fleet)),
        *_applications(partition, memo.applications(partition.tree, partition.applications)),
        _resources(memo.resources(partition.tree)),
        _draining(full_name, partition, now),
        *_containers(partition),
        *_audit(full_name, partition),
        *_condition(full_name, partition, kept=kept),
    ]


# The partition as a whole --------------------------------------------------------------------------------------------


def _scheduler(partition: Partition) -> Iterator[Family]:
    counters = partition.counters
    yield Family(
        "yunikorn_scheduler_container_allocation_attempt_total",
        "counter",
        "Allocations announced to and releases confirmed for resource managers, asks refused, and internal errors.",
        ("state",),
        [
            (("allocated",), counters.allocated),
            (("released",), counters.released),
            (("error",), counters.errors),
            *_used([(("rejected",), counters.rejected)]),
        ],
    )
    yield Family(
        "yunikorn_scheduler_application_submission_total",
        "counter",
        "Applications put into a queue (new), that got their first ask (accepted), or were refused (rejected).",
        ("result",),
        _used(
            [
                (("new",), counters.submitted - counters.refused),
                (("accepted",), counters.accepted),
                (("rejected",), counters.refused),
            ]
        ),
    )
    states = Counter([application.state for application in partition.applications.values()])
    live = (AppState.STARTING, AppState.RESUMING, AppState.FAILING, AppState.COMPLETING)
    yield Family(
        "yunikorn_scheduler_application_total",
        "gauge",
        "Applications in this state now; completed and failed ones only ever add up.",
        ("state",),
        [
            (("running",), states[AppState.RUNNING]),
            *(((state.lower(),), states[state]) for state in live if counters.entries(state)),
            *_used([(("completed",), counters.completed), (("failed",), counters.failed)]),
        ],
    )
    draining = sum(not node.schedulable for node in partition.fleet)
    yield Family(
        "yunikorn_scheduler_node",
        "gauge",
        "Registered nodes (active), those that take nothing new (draining), how many have left (decommissioned), and "
        "those that were registered for a partition that does not exist (failed).",
        ("state",),
        [
            (("active",), len(partition.fleet)),
            (("draining",), draining),
            (("decommissioned",), counters.decommissioned),
        ],
    )


def _used(samples: Iterable[Sample]) -> list[Sample]:
    """Those of series that only grow which have begun to."""
    return [sample for sample in samples if sample[1]]


def _durations(cycles: Histogram) -> Iterator[Family]:
    """A worker has one partition, so a cycle over all partitions is a cycle over this one."""
    distribution: Distribution = ((), cycles.counts, cycles.sum_s)
    help_text = "Seconds that a scheduling cycle took: timers, decisions (up to a few hundred) and the news of them."
    for name in ("scheduling_latency", "scheduling_cycle"):
        yield _histogram(name, help_text, (), [distribution])
    nothing = Histogram()
    levels: list[Distribution] = []
    if any(cycles.counts):
        levels = [((level,), nothing.counts, nothing.sum_s) for level in ("app", "queue")]
    yield _histogram(
        "node_sorting_latency",
        "Seconds spent on sorting applications or queues; empty, for they are kept in order and never sorted.",
        ("level",),
        levels,
    )
    for name, what in (
        ("trynode_latency", "put an ask on a node"),
        ("trynode_evaluation", "find a node for an ask"),
        ("trypreemption_latency", "look for victims"),
    ):
        help_text = f"Seconds it took to {what}; {_NOT_TIMED}."
        yield _histogram(name, help_text, (), [((), nothing.counts, nothing.sum_s)])


def _histogram(name: str, help_text: str, labels: tuple[str, ...], distributions: list[Distribution]) -> Family:
    return Family(
        name=f"yunikorn_scheduler_{name}_milliseconds",
        kind="histogram",
        help=help_text,
        labels=labels,
        samples=[],
        bounds=BOUNDS_S,
        distributions=distributions,
    )


def _node_usage(nodes: Mapping[str, list[int]]) -> Iterator[Family]:
    """For each type how many nodes use how much of what they have of it; nodes without any are not among them."""
    for name, kind in _distinct(nodes):
        yield Family(
            f"yunikorn_scheduler_{name}_node_usage_total",
            "gauge",
            f"Nodes by how much of their {kind} is allocated.",
            ("range",),
            [((label,), count) for label, count in zip(RANGES, nodes[kind], strict=True)],
        )


def _distinct(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each name as a part of a metric's name, before itself; of several that would become the same only the first."""
    taken: set[str] = set()
    for name in sorted(names):
        part = sanitised(name)
        if part not in taken:
            taken.add(part)
            yield part, name


def sanitised(name: str) -> str:
    """A name as a part of the name of a metric.

    >>> sanitised("root.@recovery@"), sanitised("nvidia.com/gpu"), sanitised("2nd")
    ('root__recovery_', 'nvidia_com_gpu', '_2nd')
    """
    part = _ILLEGAL.sub("_", name)
    return f"_{part}" if part[:1].isdigit() else part


# Queues --------------------------------------------------------------------------------------------------------------


def _applications(partition: Partition, of_queues: Iterable[bytes]) -> Iterator[Family | Written]:
    """As in the reference, a refused application is taken off the new ones although it never was one of them."""
    reached = partition.counters.reached
    samples: list[Sample] = []
    if homeless := reached["", AppState.REJECTED]:
        samples += [(("", "new"), -homeless), (("", "rejected"), homeless)]
    yield Written(
        "yunikorn_queue_app",
        "gauge",
        "Applications of the queue itself, by state; completed, failed and rejected ones only ever add up, and "
        "rejected ones are subtracted from the new.",
        ("queue", "state"),
        whole([*of_queues, piece(samples)]),
    )
    yield Family(
        "yunikorn_queue_app_total",
        "counter",
        "Applications that ended in the queue or were refused in it, also in an earlier queue of the same path.",
        ("queue", "state"),
        [((path, state.lower()), count) for (path, state), count in reached.items() if state in ENDED],
    )


def _resources(of_queues: Iterable[bytes]) -> Written:
    return Written(
        "yunikorn_queue_resource",
        "gauge",
        "What the queue is guaranteed, may use at most, uses, waits for and is asked to let go, in base units; and "
        "how many of its applications may run, 0 for any number.",
        ("queue", "state", "resource"),
        whole(of_queues),
    )


def _draining(full_name: str, partition: Partition, now: float) -> Family:
    """Not in the reference. It names the partition, for the sum over partitions would be no duration of anything."""
    draining = [queue for queue in partition.tree if queue.draining]
    return Family(
        "yunishard_queue_draining_seconds",
        "gauge",
        "For how many seconds the queue, which left the configuration, has been waiting for its applications to end. "
        "Worry about one that never does: an application in it hangs.",
        ("partition", "queue"),
        [((full_name, queue.path), max(0.0, now - queue.draining_since_ns / 1e9)) for queue in draining],
    )


def _audit(full_name: str, partition: Partition) -> Iterator[Family]:
    auditor = partition.auditor
    for name, what, count in (
        (
            "rounds",
            "Times that every sum was derived again from the allocations. Worry if it stands still.",
            auditor.rounds,
        ),
        (
            "drift",
            "Sums that were not those of the allocations, in each round again. Worry at any: it is a defect.",
            auditor.drift,
        ),
    ):
        yield Family(f"yunishard_audit_{name}_total", "counter", what, ("partition",), [((full_name,), count)])


def _condition(full_name: str, partition: Partition, *, kept: bool) -> Iterator[Family]:
    yield journal_stuck(full_name, stuck=not kept)
    what = "Whether nothing is placed, as the resource manager reports everything anew. Worry if it does for minutes."
    syncing = int(partition.report is not None)
    yield Family("yunishard_syncing", "gauge", what, ("partition",), [((full_name,), syncing)])


def _containers(partition: Partition) -> Iterator[Family]:
    """A family for each queue, which has a counter's kind but not its name."""
    queues = {queue.path: queue for queue in partition.tree if queue.bound or queue.released}
    for name, path in _distinct(queues):
        yield Family(
            f"yunikorn_{name}_queue_container",
            "counter",
            "Allocations in the queue that a resource manager placed itself (allocated), and those that it released "
            "or that went with their node (released).",
            ("state",),
            _used([(("allocated",), queues[path].bound), (("released",), queues[path].released)]),
        )
