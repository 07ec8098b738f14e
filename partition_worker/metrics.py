"""The partition's metrics: YuniKorn's metric families with its names and meanings, and this project's own.

The web service renders the families of all partitions. As in YuniKorn, a labelled series appears when it is first used,
except for series that YuniKorn's periodic checks create soon after a start: these exist at once.

Two differences are intended. Nodes are sorted into usage ranges when metrics are requested, not every second, and a
partition without nodes has no ranges. And only whole scheduling cycles are timed: the engine reads no clock, so the
histograms of steps within a cycle stay empty.

The samples of each queue are cached while they do not change: with thousands of queues, computing all of them takes a
tenth of a second, during which the worker does not schedule.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from yunishard.common.process.metrics import (
    BOUNDS_S,
    Distribution,
    EncodedFamily,
    Family,
    Histogram,
    Sample,
    encode_samples,
    join_samples,
    report_journal_stuck,
)
from yunishard.partition_worker.engine.amounts import name_types
from yunishard.partition_worker.engine.application import ENDED, Application, AppState
from yunishard.partition_worker.engine.explain.checks import count_waiting_asks
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.rm_channel import OutboxBarrier

# Cached samples -------------------------------------------------------------------------------------------------------

_COUNTED_ENDS: Final = (AppState.COMPLETED, AppState.FAILED, AppState.REJECTED)

RANGES: Final = ("[0,10%]", *(f"({tens}0%,{tens + 1}0%]" for tens in range(1, 10)))


class SampleCache:
    """The encoded samples of each queue at the last request."""

    def __init__(self) -> None:
        self._queues: dict[Queue, tuple[object, bytes, bytes]] = {}
        """By queue: the values from which its samples were computed, its applications and its resources."""

    def encode_queues(
        self, queues: Iterable[Queue], alive: Mapping[str, Application]
    ) -> tuple[list[bytes], list[bytes]]:
        """Return each queue's encoded samples of applications and of resources; computes only those that changed."""
        found: dict[Queue, tuple[object, bytes, bytes]] = {}
        for queue in queues:
            values, known = _read_values(queue), self._queues.get(queue)
            if known is None or known[0] != values:
                applications = encode_samples(list(_application_samples(queue, alive)))
                known = (values, applications, encode_samples(list(_resource_samples(queue))))
            found[queue] = known
        self._queues = found
        return [one for _, one, _ in found.values()], [one for _, _, one in found.values()]


def _read_values(queue: Queue) -> object:
    """Everything that the queue's samples depend on. Limits are replaced, not changed in place, and each state change
    of an application is counted.
    """
    return (
        (list(queue.allocated_sum), list(queue.pending_sum), dict(queue.preempting)),
        (queue.allocated_types, queue.pending_types),
        (queue.guaranteed, queue.maximum, len(queue.once_guaranteed), len(queue.once_limited)),
        (_has_application_limit(queue), queue.max_applications),
        (list(queue.applications), dict(queue.reached)),
    )


def _application_samples(queue: Queue, alive: Mapping[str, Application]) -> Iterator[Sample]:
    reached = queue.reached
    if not reached and not queue.applications:  # applications that were moved here are counted in their first queue
        return
    now = Counter([alive[name].state for name in queue.applications])
    for state in AppState:
        if state not in ENDED and (reached[state] or now[state]):
            yield (queue.path, state.lower()), now[state]
    for state in _COUNTED_ENDS:
        if reached[state]:
            yield (queue.path, state.lower()), reached[state]


def _resource_samples(queue: Queue) -> Iterator[Sample]:
    for state, amounts in (
        ("guaranteed", {**dict.fromkeys(queue.once_guaranteed, 0), **(queue.guaranteed or {})}),
        ("max", {**dict.fromkeys(queue.once_limited, 0), **(queue.maximum or {})}),
        ("allocated", name_types(queue.allocated_sum, queue.allocated_types)),
        ("pending", name_types(queue.pending_sum, queue.pending_types)),
        ("preempting", queue.preempting),
    ):
        for kind, amount in sorted(amounts.items()):
            yield (queue.path, state, kind), amount
    if _has_application_limit(queue):
        yield (queue.path, "maxRunningApps", "apps"), queue.max_applications


def _has_application_limit(queue: Queue) -> bool:
    """Whether the configuration, or the template of a dynamic leaf, can set the maximum of running applications here,
    if only to unlimited.
    """
    if queue.managed or queue.max_applications:
        return True
    return queue.leaf and queue.parent is not None and queue.parent.template is not None


# YuniKorn's metrics ---------------------------------------------------------------------------------------------------

_Kind = Literal["counter", "gauge"]


def collect_yunikorn_families(
    partition: Partition, cycles: Histogram, memo: SampleCache | None = None
) -> list[Family | EncodedFamily]:
    """Return the families with YuniKorn's names; `cycles` are the durations of scheduling cycles."""
    memo = memo or SampleCache()
    return [
        *_scheduler(partition),
        *_durations(cycles),
        *_node_usage(partition.nodes),
        *_queues(partition, memo),
        *_containers(partition),
    ]


# The partition as a whole --------------------------------------------------------------------------------------------


def _scheduler(partition: Partition) -> Iterator[Family]:
    counters = partition.counters
    yield _labelled(
        "yunikorn_scheduler_container_allocation_attempt_total",
        "counter",
        "Allocations announced to and releases confirmed for resource managers, rejected asks, and internal errors.",
        "state",
        {"allocated": counters.allocated, "released": counters.released, "error": counters.errors.total}
        | _used({"rejected": counters.rejected}),
    )
    submitted = {
        "new": counters.submitted - counters.refused,
        "accepted": counters.entries(AppState.ACCEPTED),
        "rejected": counters.refused,
    }
    yield _labelled(
        "yunikorn_scheduler_application_submission_total",
        "counter",
        "Applications put into a queue (new), that got their first ask (accepted), or were rejected (rejected).",
        "result",
        _used(submitted),
    )
    states = Counter([application.state for application in partition.applications.values()])
    live = (AppState.STARTING, AppState.RESUMING, AppState.FAILING, AppState.COMPLETING)
    yield _labelled(
        "yunikorn_scheduler_application_total",
        "gauge",
        "Applications in this state now; the counts of completed and failed ones only grow.",
        "state",
        {"running": states[AppState.RUNNING]}
        | {state.lower(): states[state] for state in live if counters.entries(state)}
        | _used({"completed": counters.entries(AppState.COMPLETED), "failed": counters.entries(AppState.FAILED)}),
    )
    draining = sum(not node.is_open for node in partition.nodes)
    yield _labelled(
        "yunikorn_scheduler_node",
        "gauge",
        "Registered nodes (active), nodes without new allocations (draining), removed nodes (decommissioned), and "
        "nodes registered for a partition that does not exist (failed).",
        "state",
        {"active": len(partition.nodes), "draining": draining, "decommissioned": counters.decommissioned},
    )


def _labelled(name: str, kind: _Kind, help_text: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(name, kind, help_text, (label,), [((value,), number) for value, number in values.items()])


def _used(counts: Mapping[str, float]) -> dict[str, float]:
    """The counts that are not 0."""
    return {value: count for value, count in counts.items() if count}


def _durations(cycles: Histogram) -> Iterator[Family]:
    """A worker has one partition, so a cycle over all partitions is a cycle over this one."""
    measured: list[Distribution] = [((), cycles.counts, cycles.sum_s)]
    nothing = Histogram()
    levels = ("app", "queue") if any(cycles.counts) else ()
    sorting: list[Distribution] = [((level,), nothing.counts, nothing.sum_s) for level in levels]
    never: list[Distribution] = [((), nothing.counts, nothing.sum_s)]
    cycle = "Seconds that a scheduling cycle took: timers, decisions (up to a few hundred) and their messages."
    not_timed = "Seconds to {}; not timed, always empty."
    for name, help_text, labels, distributions in (
        ("scheduling_latency", cycle, (), measured),
        ("scheduling_cycle", cycle, (), measured),
        ("node_sorting_latency", "Empty: applications and queues are kept in order.", ("level",), sorting),
        ("trynode_latency", not_timed.format("put an ask on a node"), (), never),
        ("trynode_evaluation", not_timed.format("find a node for an ask"), (), never),
        ("trypreemption_latency", not_timed.format("search for victims"), (), never),
    ):
        full_name = f"yunikorn_scheduler_{name}_milliseconds"
        yield Family(full_name, "histogram", help_text, labels, [], BOUNDS_S, distributions)


def _node_usage(nodes: Iterable[Node]) -> Iterator[Family]:
    """For each resource type, the number of nodes in each usage range; nodes without this type are not counted."""
    ranges: dict[str, list[int]] = defaultdict(lambda: [0] * len(RANGES))
    for node in nodes:
        used = node.allocated
        for kind, amount in node.capacity.items():
            index = -(-used.get(kind, 0) * 10 // amount) - 1  # a range includes its upper bound
            ranges[kind][min(max(index, 0), len(RANGES) - 1)] += 1
    for name, kind in _distinct(ranges):
        yield _labelled(
            f"yunikorn_scheduler_{name}_node_usage_total",
            "gauge",
            f"Nodes by how much of their {kind} is allocated.",
            "range",
            dict(zip(RANGES, ranges[kind], strict=True)),
        )


def _distinct(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each name as a part of a metric's name, and the name itself; of names with the same part, only the first."""
    taken: set[str] = set()
    for name in sorted(names):
        part = sanitize(name)
        if part not in taken:
            taken.add(part)
            yield part, name


def sanitize(name: str) -> str:
    """Turn a name into a part of a metric's name.

    >>> sanitize("root.@recovery@"), sanitize("nvidia.com/gpu"), sanitize("2nd")
    ('root__recovery_', 'nvidia_com_gpu', '_2nd')
    """
    part = re.sub(r"[^A-Za-z0-9_:]", "_", name)
    return f"_{part}" if part[:1].isdigit() else part


# Queues --------------------------------------------------------------------------------------------------------------


def _queues(partition: Partition, memo: SampleCache) -> Iterator[Family | EncodedFamily]:
    """The counters of ended applications outlive their queue, but its series do not: they continue if it is created
    again.
    """
    reached = partition.counters.reached
    applications, resources = memo.encode_queues(partition.tree, partition.applications)
    samples: list[Sample] = []
    if homeless := reached["", AppState.REJECTED]:
        samples.append((("", "rejected"), homeless))
    yield EncodedFamily(
        "yunikorn_queue_app",
        "gauge",
        "Applications of the queue itself, by state; the counts of completed, failed and rejected ones only grow.",
        ("queue", "state"),
        join_samples([*applications, encode_samples(samples)]),
    )
    yield Family(
        "yunikorn_queue_app_total",
        "counter",
        "Applications that ended in the queue or were rejected there, also in an earlier queue of the same path.",
        ("queue", "state"),
        [
            ((path, state.lower()), count)
            for (path, state), count in reached.items()
            if state in _COUNTED_ENDS and (not path or partition.tree.find(path) is not None)
        ],
    )
    yield EncodedFamily(
        "yunikorn_queue_resource",
        "gauge",
        "Resources of the queue in base units: guaranteed, maximum, allocated, pending, and being preempted; and its "
        "maximum of running applications, 0 for unlimited.",
        ("queue", "state", "resource"),
        join_samples(resources),
    )


def _containers(partition: Partition) -> Iterator[Family]:
    """A family for each queue: a counter by kind, but not by name."""
    queues = {queue.path: queue for queue in partition.tree if queue.bound or queue.released}
    for name, path in _distinct(queues):
        yield _labelled(
            f"yunikorn_{name}_queue_container",
            "counter",
            "Allocations in the queue that a resource manager placed itself (allocated), and those that it released "
            "or that were removed with their node (released).",
            "state",
            _used({"allocated": queues[path].bound, "released": queues[path].released}),
        )


# Own metrics ----------------------------------------------------------------------------------------------------------

_HELP: Final[Mapping[str, str]] = {
    "asks_pending": "Asks that wait for a node. Investigate growth while `yunishard_decisions_total` stands still.",
    "audit_drift_total": "Sums that differed from the allocations, per round. Investigate any: it is a defect.",
    "audit_rounds_total": "Times that every sum was computed again from the allocations. Investigate if it stands "
    "still.",
    "deciding_seconds_total": "Seconds spent on scheduling; divided by the decisions, the time of one. Investigate "
    "values above a few milliseconds, or a rate near 1: then the worker does nothing else.",
    "decisions_total": "Scheduling decisions: allocations, reservations, placeholder swaps and releases, preemptions.",
    "journal_held_messages": "Messages that are held until the journal steps before them are durable.",
    "journal_snapshot_age_seconds": "Seconds since the latest snapshot, or since the process started if it took none. "
    "Snapshots depend on the amount of changes, so a high age alone is normal.",
    "journal_snapshot_seconds": "Seconds that this snapshot took, 0 for none. Investigate values near 60, the limit.",
    "journal_size_bytes": "Bytes of the journal and its snapshots on the disk. Investigate near the setting "
    "journal-max.",
    "journal_steps_total": "Number of the latest step since the journal was created: messages and ticks that "
    "changed something.",
    "journal_unkept_bytes": "Bytes of steps that are not durable yet. At 16 MiB scheduling stops: investigate if it "
    "does not return to 0.",
    "outbox_bytes": "Bytes of the messages in `yunishard_outbox_messages`.",
    "outbox_messages": "Messages that the resource manager has not acknowledged. At 1024, or 16 MiB, scheduling stops "
    "until it does: investigate if it stays there.",
    "poison_messages_total": "Messages that were quarantined because they ended the worker twice. Investigate any: the "
    "log names the file of each.",
    "preemption_victims_total": "Allocations that were preempted.",
    "predicate_questions_total": "Predicate requests to the resource manager: sent, answered, and without an answer "
    "within 0.2 s. Investigate if the last one grows: such asks wait.",
    "preemptions_held_back_total": "Preemption attempts that failed while a cooldown protected a queue. A rate that "
    "stays up shows queues that compete for the same resources.",
    "preemptions_total": "Preemptions: for a guarantee, for a required node, for a quota that was lowered. Investigate "
    "a rate that stays up without new applications.",
    "queue_draining_seconds": "Seconds since the queue left the configuration; it waits for its applications to end. "
    "Investigate a queue that stays: an application in it hangs.",
    "recovery_seconds": "Seconds that the recovery took when this process started; nothing was scheduled meanwhile.",
    "recovery_steps": "Journal steps after the snapshot that were read when this process started.",
    "releases_ignored_total": "Releases by the resource manager without an effect, as the partition has no such "
    "application, ask or allocation. A few are normal, as both sides may end the same allocation. Investigate a rate "
    "that stays up: releases may go to the wrong partition.",
    "rm_errors_total": "Rejected asks and allocations that a correct resource manager does not send, by cause: the "
    "application is unknown or has ended, the node is unknown, there are no resources, or negative ones. Investigate a "
    "rate that stays up.",
    "syncing": "Whether scheduling waits for a state sync of the resource manager. Investigate if it takes minutes.",
    "waiting_asks": "Asks that wait, by the reason that `yunishard explain` gives; `uncounted` beyond 20,000 groups of "
    "equal asks. A reason without asks has no series. Investigate the reason that grows.",
    "truces": "Pairs of queues with a preemption cooldown: one of them does not preempt the other at present.",
}
"""Help texts by name without `yunishard_`."""


def build_single_families(partition: str, values: Mapping[str, float]) -> list[Family]:
    """Build families with one sample from values by name without `yunishard_`."""
    return [_build_family(partition, name, {"": value}) for name, value in values.items()]


def _build_family(partition: str, name: str, values: Mapping[str, float], label: str = "") -> Family:
    """Build a family from values by label; without a label there is one value."""
    kind: _Kind = "counter" if name.endswith("_total") else "gauge"
    labels = ("partition", label) if label else ("partition",)
    samples: list[Sample] = [((partition, key) if label else (partition,), one) for key, one in values.items()]
    return Family(f"yunishard_{name}", kind, _HELP[name], labels, samples)


def collect_worker_families(
    host: PartitionHost, partition: Partition, cycles: Histogram, barrier: OutboxBarrier, now: float
) -> Iterator[Family]:
    """Return the families of the worker; `now` is in Unix seconds."""
    outbox, preemptions, verdicts = host.channel.outbox, partition.preemptions, partition.nodes.predicates.verdicts
    values = {
        "decisions_total": partition.decided,
        "deciding_seconds_total": cycles.sum_s,
        "asks_pending": sum([len(one.requests) for one in partition.applications.values()]),
        "poison_messages_total": host.poisons,
        "outbox_messages": len(outbox),
        "outbox_bytes": outbox.size,
        "releases_ignored_total": host.releases_ignored,
        "preemption_victims_total": preemptions.victims,
        "preemptions_held_back_total": preemptions.held_back,
        "truces": preemptions.cooldowns.count_fresh(now),
        "audit_rounds_total": partition.auditor.rounds,
        "audit_drift_total": partition.auditor.drift,
        "syncing": int(partition.report is not None),
    }
    if barrier.journalled:
        values |= {
            "journal_steps_total": barrier.last,
            "journal_unkept_bytes": barrier.pending_bytes,
            "journal_held_messages": len(barrier.held),
        }
    yield from build_single_families(host.name, values)
    made = {kind: preemptions.made[kind] for kind in ("guaranteed", "quota", "required-node")}
    yield _build_family(host.name, "preemptions_total", made, "kind")
    errors = {cause.value: count for cause, count in partition.counters.errors.counts.items()}
    yield _build_family(host.name, "rm_errors_total", errors, "cause")
    outcomes = {"asked": verdicts.questions, "answered": verdicts.answers, "unanswered": verdicts.unanswered}
    yield _build_family(host.name, "predicate_questions_total", outcomes, "outcome")
    yield _build_family(host.name, "waiting_asks", count_waiting_asks(partition, now), "reason")
    draining = (queue for queue in partition.tree if queue.draining)
    waited = {queue.path: max(0.0, now - queue.draining_since_ns / 1e9) for queue in draining}
    yield _build_family(host.name, "queue_draining_seconds", waited, "queue")
    yield report_journal_stuck(host.name, is_stuck=bool(barrier.problem))
