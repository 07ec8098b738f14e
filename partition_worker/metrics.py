"""The partition's metrics: YuniKorn's metric families with its names and meanings, and this project's own.

The webservice renders the families of all partitions. As in YuniKorn, a labelled series appears when it is first used,
except for series that YuniKorn's periodic checks create soon after a start: these exist at once.

Two differences are intended. Nodes are sorted into usage ranges when metrics are requested, not every second, and a
partition without nodes has no ranges. And only whole scheduling cycles are timed: the engine reads no clock, so the
histograms of steps within a cycle stay empty.

The samples of each queue and the usage of each node are cached while they do not change: with thousands of queues and
nodes, computing all of them takes a tenth of a second, during which the worker does not schedule.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from common.metrics import (
    BOUNDS_S,
    Distribution,
    Family,
    Histogram,
    Sample,
    Written,
    counter,
    distribution,
    gauge,
    piece,
    whole,
)
from common.process_up import journal_stuck
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import AppState
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.nodes import Nodes
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.rm_verdicts import Verdicts
from partition_worker.engine.preemption_log import Preemptions
from partition_worker.engine.queues.queue import Queue
from partition_worker.outbox_barrier import OutboxBarrier
from partition_worker.partition_host import PartitionHost

# Cached samples -------------------------------------------------------------------------------------------------------

_LIVE: Final = (
    AppState.NEW,
    AppState.ACCEPTED,
    AppState.STARTING,
    AppState.RUNNING,
    AppState.RESUMING,
    AppState.FAILING,
    AppState.COMPLETING,
)
ENDED: Final = (AppState.COMPLETED, AppState.FAILED, AppState.REJECTED)

RANGES: Final = ("[0,10%]", *(f"({tens}0%,{tens + 1}0%]" for tens in range(1, 10)))


class _QueueSamples:
    """What a queue has, as it was, and its samples, encoded."""

    __slots__ = ("_amounts", "_settings", "piece")

    def __init__(self, queue: Queue) -> None:
        self._amounts = dict(queue.allocated), dict(queue.pending), dict(queue.preempting)
        self._settings = _settings(queue)
        self.piece = piece(list(_resources_of(queue)))

    def holds(self, queue: Queue) -> bool:
        """Whether everything that the samples are made of is still so."""
        allocated, pending, preempting = self._amounts
        return (
            queue.pending == pending
            and queue.allocated == allocated
            and queue.preempting == preempting
            and _settings(queue) == self._settings
        )


def _settings(queue: Queue) -> tuple[object, ...]:
    """What only another configuration changes, or more nodes; limits are replaced as a whole then."""
    return (
        queue.guaranteed,
        queue.maximum,
        len(queue.once_guaranteed),
        len(queue.once_limited),
        _has_application_limit(queue),
        queue.max_applications,
    )


class _ApplicationSamples:
    """The same of the applications of a queue. One that enters a state is counted, so none has to be looked at."""

    __slots__ = ("_ids", "_reached", "piece")

    def __init__(self, queue: Queue, alive: Mapping[str, Application]) -> None:
        self._ids = list(queue.applications)
        self._reached = dict(queue.reached)
        self.piece = piece(list(_applications_of(queue, alive)))

    def holds(self, queue: Queue) -> bool:
        """Whether everything that the samples are made of is still so."""
        return list(queue.applications) == self._ids and dict(queue.reached) == self._reached


class SampleCache:
    """What was told of each queue and node the last time. Most are as they were, and are not looked through again: of
    thousands that takes a tenth of a second, in which nothing else is done.
    """

    def __init__(self) -> None:
        self._queues: dict[Queue, _QueueSamples] = {}
        self._applications: dict[Queue, _ApplicationSamples] = {}
        self._nodes: dict[Node, tuple[int, list[tuple[str, int]]]] = {}
        self._ranges: dict[str, list[int]] = defaultdict(lambda: [0] * len(RANGES))

    def resources(self, queues: Iterable[Queue]) -> list[bytes]:
        """The samples of each queue's resources, encoded."""
        before, self._queues = self._queues, {}
        for queue in queues:
            known = before.get(queue)
            self._queues[queue] = known if known is not None and known.holds(queue) else _QueueSamples(queue)
        return [known.piece for known in self._queues.values()]

    def applications(self, queues: Iterable[Queue], alive: Mapping[str, Application]) -> list[bytes]:
        """The samples of each queue's applications, encoded."""
        before, self._applications = self._applications, {}
        for queue in queues:
            known = before.get(queue)
            kept = known is not None and known.holds(queue)
            self._applications[queue] = known if known is not None and kept else _ApplicationSamples(queue, alive)
        return [known.piece for known in self._applications.values()]

    def ranges(self, nodes: Nodes) -> dict[str, list[int]]:
        """By type, how many nodes use how much of it; of types that no node has any more, none."""
        for node in nodes:
            known = self._nodes.get(node)
            if known is None or known[0] != node.version:
                used = node.allocated
                of_types = [(kind, _range(used.get(kind, 0), n)) for kind, n in node.capacity.items()]
                self._count([] if known is None else known[1], -1)
                self._count(of_types, 1)
                self._nodes[node] = node.version, of_types
        if len(self._nodes) > len(nodes):
            here = dict.fromkeys(nodes)
            for gone in [node for node in self._nodes if node not in here]:
                self._count(self._nodes.pop(gone)[1], -1)
        return {kind: counts for kind, counts in self._ranges.items() if any(counts)}

    def _count(self, of_types: Iterable[tuple[str, int]], more: int) -> None:
        for kind, place in of_types:
            self._ranges[kind][place] += more


def _applications_of(queue: Queue, alive: Mapping[str, Application]) -> Iterator[Sample]:
    reached = queue.reached
    if not reached and not queue.applications:  # those that were moved here entered their states elsewhere
        return
    now = Counter([alive[name].state for name in queue.applications])
    now[AppState.NEW] -= reached[AppState.REJECTED]
    for state in _LIVE:
        if reached[state] or now[state]:
            yield (queue.path, state.lower()), now[state]
    for state in ENDED:
        if reached[state]:
            yield (queue.path, state.lower()), reached[state]


def _resources_of(queue: Queue) -> Iterator[Sample]:
    for state, amounts in (
        ("guaranteed", {**dict.fromkeys(queue.once_guaranteed, 0), **(queue.guaranteed or {})}),
        ("max", {**dict.fromkeys(queue.once_limited, 0), **(queue.maximum or {})}),
        ("allocated", queue.allocated),
        ("pending", queue.pending),
        ("preempting", queue.preempting),
    ):
        for kind, amount in sorted(amounts.items()):
            yield (queue.path, state, kind), amount
    if _has_application_limit(queue):
        yield (queue.path, "maxRunningApps", "apps"), queue.max_applications


def _has_application_limit(queue: Queue) -> bool:
    """Whether somebody could say how many applications may run here, if only that any number may: the configuration,
    or the template that a dynamic leaf was made from.
    """
    if queue.managed or queue.max_applications:
        return True
    return queue.leaf and queue.parent is not None and queue.parent.template is not None


def _range(allocated: int, capacity: int) -> int:
    """The index of the range; the upper bound belongs to it, and more than everything is everything."""
    return min(max(-(-allocated * 10 // capacity) - 1, 0), len(RANGES) - 1)


# YuniKorn's metrics ---------------------------------------------------------------------------------------------------

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_:]")

_NOT_TIMED: Final = "not timed, always empty"


def yunikorn_families(
    partition: Partition,
    cycles: Histogram,
    now: float,
    *,
    full_name: str = "",
    kept: bool = True,
    memo: SampleCache | None = None,
) -> list[Family | Written]:
    """All families of the partition; `full_name` is its label where that differs from the name that its RM knows, `now`
    is Unix seconds, `kept` says whether what happens becomes durable.
    """
    memo, full_name = memo or SampleCache(), full_name or partition.name
    return [
        *_scheduler(partition),
        *_durations(cycles),
        *_node_usage(memo.ranges(partition.nodes)),
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
    draining = sum(not node.schedulable for node in partition.nodes)
    yield Family(
        "yunikorn_scheduler_node",
        "gauge",
        "Registered nodes (active), those that take nothing new (draining), how many have left (decommissioned), and "
        "those that were registered for a partition that does not exist (failed).",
        ("state",),
        [
            (("active",), len(partition.nodes)),
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


# Own metrics ----------------------------------------------------------------------------------------------------------

_LABELS: Final = ("partition",)


def worker_families(
    host: PartitionHost, partition: Partition, cycles: Histogram, barrier: OutboxBarrier | None, now: float
) -> Iterator[Family]:
    """All of them; `now` is Unix seconds."""
    yield from _deciding(host.name, partition, cycles)
    what = "Messages that were set aside as they ended the worker twice. Worry at any: the log says where each is kept."
    yield counter("yunishard_poison_messages_total", what, _LABELS, _one(host.name, host.poisons))
    yield from _outbox(host)
    what = (
        "Releases by the resource manager that had no effect, as the partition has no such application, ask or "
        "allocation. A few are normal, as both sides may end the same thing. Worry about a rate that stays up: "
        "releases may go to the wrong partition."
    )
    yield counter("yunishard_releases_ignored_total", what, _LABELS, _one(host.name, host.releases_ignored))
    yield from _preemptions(host.name, partition.preemptions, now)
    yield _predicates(host.name, partition.nodes.predicates.verdicts)
    if barrier is not None:
        yield from _steps(host.name, barrier)


def _one(partition: str, value: float) -> list[Sample]:
    return [((partition,), value)]


def _deciding(name: str, partition: Partition, cycles: Histogram) -> Iterator[Family]:
    what = "Decisions made: an ask placed, a node kept for one, placeholders swapped or given up, others asked to go."
    yield counter("yunishard_decisions_total", what, _LABELS, _one(name, partition.decided))
    what = (
        "Seconds spent on deciding; by the number of decisions it is what one takes. Worry above a few milliseconds "
        "for each, or if the rate is near 1: then the worker does nothing else."
    )
    yield counter("yunishard_deciding_seconds_total", what, _LABELS, _one(name, cycles.sum_s))
    what = "Asks that wait for a node. Worry if it grows while `yunishard_decisions_total` does not."
    waiting = sum([one.asks.count for one in partition.applications.values()])
    yield gauge("yunishard_asks_pending", what, _LABELS, _one(name, waiting))


def _outbox(host: PartitionHost) -> Iterator[Family]:
    outbox = host.channel.outbox
    what = (
        "Messages that the resource manager has not acknowledged. At 1024, or 16 MiB, nothing more is placed until it "
        "does: worry if it stays there."
    )
    yield gauge("yunishard_outbox_messages", what, _LABELS, _one(host.name, len(outbox)))
    what = "The same in bytes of their bodies."
    yield gauge("yunishard_outbox_bytes", what, _LABELS, _one(host.name, outbox.size))


def _preemptions(partition: str, preemptions: Preemptions, now: float) -> Iterator[Family]:
    yield counter(
        "yunishard_preemptions_total",
        "Times that others had to go: for a guarantee, for a required node, for a quota that was lowered. Worry if it "
        "goes on for long while nothing new comes.",
        (*_LABELS, "kind"),
        [((partition, kind), preemptions.made[kind]) for kind in ("guaranteed", "quota", "required-node")],
    )
    what = "Allocations that had to go, in all of these."
    yield counter("yunishard_preemption_victims_total", what, _LABELS, _one(partition, preemptions.victims))
    what = (
        "Attempts of an ask to make others go that came to nothing while the thrash guard protected some queue from "
        "it. A rate that stays up says that queues would fight for the same room."
    )
    yield counter("yunishard_preemptions_held_back_total", what, _LABELS, _one(partition, preemptions.held_back))
    what = "Pairs of queues of which one takes nothing from the other at present, as that one took from it a while ago."
    yield gauge("yunishard_truces", what, _LABELS, _one(partition, preemptions.cooldowns.in_force(now)))


def _predicates(partition: str, verdicts: Verdicts) -> Family:
    return counter(
        "yunishard_predicate_questions_total",
        "Questions to the resource manager about which ask may run where: put, answered in time or nearly, and given "
        "up as there was no answer within 0.2 s. Worry if the last one grows: such asks wait.",
        (*_LABELS, "outcome"),
        [
            ((partition, "asked"), verdicts.questions),
            ((partition, "answered"), verdicts.answers),
            ((partition, "unanswered"), verdicts.unanswered),
        ],
    )


def _steps(partition: str, barrier: OutboxBarrier) -> Iterator[Family]:
    what = "The number of the latest step, over the whole life of the journal: what came, and time that passed."
    yield counter("yunishard_journal_steps_total", what, _LABELS, _one(partition, barrier.last))
    what = (
        "Bytes of steps that the disk has not taken yet. At 16 MiB nothing more is decided: worry if it does not come "
        "back to 0."
    )
    yield gauge("yunishard_journal_unkept_bytes", what, _LABELS, _one(partition, barrier.pending_bytes))
    what = "Messages that wait for the disk before they are told."
    yield gauge("yunishard_journal_held_messages", what, _LABELS, _one(partition, barrier.held_messages))


# Journal --------------------------------------------------------------------------------------------------------------


def journal_families(
    partition: str,
    *,
    size_bytes: int,
    commits: Histogram,
    snapshot_age_s: float,
    snapshot_s: float,
    replayed_steps: int,
    recovery_s: float,
) -> Iterator[Family]:
    """The metrics of the partition's journal."""

    def one(name: str, what: str, value: float) -> Family:
        return gauge(f"yunishard_{name}", what, _LABELS, _one(partition, value))

    what = "What the journal takes on the disk with its snapshots, in bytes. Worry near the setting journal-max."
    yield one("journal_size_bytes", what, size_bytes)
    yield distribution(
        "yunishard_journal_commit_seconds",
        "Seconds that a transaction took until it was on the disk; what it has is told only then. Worry if most take "
        "more than 0.05: the disk is slow, and so is everything that is told.",
        _LABELS,
        [((partition,), commits)],
    )
    what = (
        "Seconds since the latest snapshot, or since the process began as long as it has taken none. One is due by "
        "what has come since, so a high age alone is no reason to worry."
    )
    yield one("journal_snapshot_age_seconds", what, round(snapshot_age_s, 3))
    what = "Seconds that this snapshot took, 0 for none. Worry near 60, where it fails."
    yield one("journal_snapshot_seconds", what, round(snapshot_s, 6))
    yield one("recovery_steps", "Steps that were played again when this process started.", replayed_steps)
    what = "Seconds that it took to go on from the journal when this process started, in which nothing was placed."
    yield one("recovery_seconds", what, round(recovery_s, 6))
