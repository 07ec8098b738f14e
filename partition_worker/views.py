"""Build the JSON views of a partition for REST: queues, applications, nodes, users, preemptions, placement rules.

`common/rest/views.py` defines the views; `redaction.py` removes what a viewer may not see.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import Limit, decode_sum, drop_zeros, saturate
from yunishard.common.rest import views
from yunishard.common.rest.records import NodeState, NodeStateView
from yunishard.partition_worker.engine.allocation import FOREIGN, Allocation, AskGroup
from yunishard.partition_worker.engine.application import Application, AppState, History, Use
from yunishard.partition_worker.engine.attempt_log import list_messages
from yunishard.partition_worker.engine.durable_records import (
    OperatorMark,
    PreemptionRecord,
    RejectionRecord,
    Template,
    VictimRecord,
)
from yunishard.partition_worker.engine.explain.causes import DescribeCause, describe_cause
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.operator_marks import count_on_node
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.preemption_log import ENTRIES_MAX
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState


def drop_zeros_saturated(amounts: Resources) -> Resources:
    """The amounts other than 0, within the range of the API."""
    if not any(amounts.values()):  # what is pending mostly is
        return {}
    return saturate(drop_zeros(amounts) if 0 in amounts.values() else amounts)


def build_partition_view(partition: Partition, rm: str, name: str) -> views.PartitionView:
    """An entry of the list of partitions; `name` is the name in the query."""
    root, fleet = partition.tree.root, partition.nodes
    states = Counter([one.state for one in (*partition.applications.values(), *partition.ended.values())])
    states[AppState.REJECTED] += len(partition.rejections)
    counts = {str(state): number for state, number in sorted(states.items()) if number}
    return views.PartitionView(
        cluster_id=rm,
        name=name,
        capacity=views.CapacityView(
            capacity=saturate(fleet.total),
            used_capacity=drop_zeros_saturated(root.allocated),
            utilization=views.percentages(root.allocated, fleet.total),
        ),
        node_sorting_policy=views.NodeSortingView(
            type=fleet.policy,
            resource_weights={kind: int(w) if w == w // 1 else w for kind, w in sorted(fleet.weights.items())},
        ),
        preemption_enabled=partition.config.preemption.is_enabled,
        quota_preemption_enabled=partition.config.preemption.is_quota_enabled,
        total_nodes=len(fleet),
        applications={**counts, "total": sum(counts.values())},
        total_containers=partition.running_allocations,
        state="Active",
        last_state_transition_time=partition.created_ns,
    )


def build_queue_view(
    one: Queue,
    room: Limit | None,
    children: list[Queue],
    below: list[views.QueueView],
    *,
    allocating: list[str],
    partition: str,
) -> views.QueueView:
    """A queue with the names of `children` and the views `below`. Values that never change in place are not copied:
    there are thousands of queues, and the partition does not schedule meanwhile.
    """
    policies, maximum, allocated = one.policies, one.maximum or {}, one.allocated
    return views.QueueView(
        queuename=one.path,
        status=one.status,
        partition=partition,
        pending_resource=drop_zeros_saturated(one.pending),
        max_resource=maximum if one.parent else saturate(maximum),  # what is configured is within 64 bits
        guaranteed_resource=one.guaranteed or {},
        allocated_resource=drop_zeros_saturated(allocated),
        preempting_resource=drop_zeros_saturated(one.preempting),
        headroom=saturate(room) if room else {},
        is_leaf=one.leaf,
        is_managed=one.managed,
        properties=one.properties,
        parent=one.parent.path if one.parent else "",
        template=_template(one.template),
        children=below,
        child_names=[child.path for child in children],
        abs_used_capacity=views.percentages(allocated, maximum) if maximum else {},
        max_running_apps=one.max_applications,
        running_apps=one.running,
        current_priority=one.priority,
        allocating_accepted_apps=allocating,
        sorting_policy=policies.application_sort if one.leaf else "fair",
        priority_sorting=policies.priority_sort,
        preemption_enabled=policies.preemption != "disabled",
        is_preemption_fence=policies.preemption == "fence",
        preemption_delay=_delay(policies.preemption_delay_s),
        quota_preemption_delay=_delay(policies.quota_preemption_delay_s),
        is_priority_fence=policies.priority_fence,
        priority_offset=policies.priority_offset,
        draining_since=one.draining_since_ns or None,
        draining_applications=one.population if one.draining else None,
        stopped=build_mark_view(one.stop),
    )


def build_mark_view(mark: OperatorMark | None) -> views.MarkView | None:
    """The view of the mark of a stopped queue or cordoned node; None if it has none."""
    return None if mark is None else views.MarkView(user=mark.user, time=mark.at_ns, reason=mark.reason)


@lru_cache(64)  # most queues have the same
def _delay(seconds: float) -> str:
    return views.format_duration(round(seconds * 1e9))


def _template(template: Template | None) -> views.TemplateView | None:
    if template is None:
        return None
    return views.TemplateView(
        max_applications=template.max_applications,
        max_resource=saturate(template.maximum or {}),
        guaranteed_resource=saturate(template.guaranteed or {}),
        properties=dict(template.properties),
    )


def build_application_view(
    application: Application, partition: str, describe: DescribeCause = describe_cause
) -> views.ApplicationView:
    """An application that was accepted, whether or not it has ended."""
    logs: dict[AskGroup, list[views.LogEntryView]] = {}
    asks, allocations = application.requests, application.allocations
    return _build_application(
        application,
        partition,
        [_ask(asks[key], logs, describe) for key in sorted(asks)] if asks else [],
        [_allocation(allocations[key]) for key in sorted(allocations)] if allocations else [],
    )


_ASK_MARK: Final = views.AskView(allocation_key="", priority="")
_ALLOCATION_MARK: Final = views.AllocationView(allocation_key="", priority="")

PIECE_MAX: Final = 500
"""Asks or allocations in one piece of an encoded application."""


def encode_application(
    application: Application, partition: str, describe: DescribeCause
) -> Iterator[tuple[bytes, int]]:
    """Yield the view of an application in pieces, and how many asks and allocations each piece costs. The asks and
    allocations are those of the moment when the first piece is requested.
    """
    asks, allocations = list(application.requests.values()), list(application.allocations.values())
    marks = [_ASK_MARK] if asks else [], [_ALLOCATION_MARK] if allocations else []
    document = views.encode_view(_build_application(application, partition, *marks))
    logs: dict[AskGroup, list[views.LogEntryView]] = {}
    build_ask, build_allocation = partial(_ask, logs=logs, describe=describe), _allocation
    for mark, found, build in ((_ASK_MARK, asks, build_ask), (_ALLOCATION_MARK, allocations, build_allocation)):
        if found:
            before, _, document = document.partition(views.encode_view(mark)[:-1])
            yield before, 1
            yield from _encode_items(found, build)
    yield document[:-1], 1


def _encode_items(found: list[Allocation], build: Callable[[Allocation], views.View]) -> Iterator[tuple[bytes, int]]:
    """Yield views of asks or allocations in the order of their keys. Each piece is sorted by itself, as to sort all at
    once may take a tenth of a second.
    """
    by_key = attrgetter("key")
    pieces = [found[first : first + PIECE_MAX] for first in range(0, len(found), PIECE_MAX)]
    for piece in pieces:
        piece.sort(key=by_key)
        yield b"", len(piece) // 8
    in_order, is_first = merge(*pieces, key=by_key), True
    while some := [build(one) for one in islice(in_order, PIECE_MAX)]:
        encoded = views.encode_view(some)[1:-2]
        yield (encoded if is_first else b"," + encoded), len(some)
        is_first = False


def _build_application(
    application: Application, partition: str, asks: list[views.AskView], allocations: list[views.AllocationView]
) -> views.ApplicationView:
    history: History = {} if application.finished_ns else application.history  # YuniKorn has none for ended ones
    return views.ApplicationView(
        application_id=application.application_id,
        used_resource=drop_zeros_saturated(application.allocated),
        max_used_resource=saturate(application.max_allocated),
        pending_resource=drop_zeros_saturated(application.pending),
        partition=partition,
        queue_name=application.queue.path,
        submission_time=application.submitted_ns,
        finished_time=application.finished_ns,
        requests=asks,
        allocations=allocations,
        application_state=application.state,
        user=application.user.name,
        groups=list(application.user.groups),
        state_log=[views.StateView(time=at_ns, application_state=state) for at_ns, state in application.state_log],
        placeholder_data=[
            views.PlaceholderView(
                task_group_name=group.name,
                count=group.count,
                min_resource=saturate(group.minimum),
                replaced=group.replaced,
                timedout=group.timed_out,
            )
            for _, group in sorted(application.task_groups.items())
        ],
        has_reserved=bool(application.reservations),
        reservations=sorted(application.reservations) if application.reservations else [],
        max_request_priority=application.priority,
        start_time=application.started_ns // 1_000_000 if application.started_ns else views.NEVER_MS,
        resource_history=views.HistoryView(
            resource_usage=used_resources(history, Use.REAL),
            preempted_resource=used_resources(history, Use.PREEMPTED),
            placeholder_resource=used_resources(history, Use.PLACEHOLDER),
        ),
        backoff_deadline=views.format_rfc3339(int(application.back_off_until * 1e9))
        if application.back_off_until
        else "",
    )


def used_resources(history: History, use: Use) -> dict[str, Resources]:
    """Amounts times seconds, by instance type."""
    return {kind: saturate(amounts) for (one, kind), amounts in history.items() if one is use}


def build_rejection_view(rejection: RejectionRecord, partition: str) -> views.ApplicationView:
    """An application that was rejected."""
    return views.ApplicationView(
        application_id=rejection.application_id,
        partition=partition,
        queue_name=rejection.queue_name,
        submission_time=rejection.at_ns,
        finished_time=rejection.at_ns,
        application_state=AppState.REJECTED,
        user=rejection.user,
        groups=list(rejection.groups),
        rejected_message=rejection.reason,
        state_log=[views.StateView(time=rejection.at_ns, application_state=AppState.REJECTED)],
        max_request_priority=views.PRIORITY_NONE,
        start_time=views.NEVER_MS,
        resource_history=views.HistoryView(),
    )


def build_allocation_log(group: AskGroup, describe: DescribeCause) -> list[views.LogEntryView]:
    """The reasons why asks of a group were not placed: YuniKorn's messages, then the causes with their figures."""
    found = [(message, entry, "") for message, entry in list_messages(group.log).items()]
    for code, entry in group.log.items():
        if entry.cause is not None:
            found.append((describe(group, entry.cause).text, entry, code))
    return [
        views.LogEntryView(message=message, last_occurrence=int(entry.last * 1e9), count=entry.times, code=code)
        for message, entry, code in found
    ]


def _ask(ask: Allocation, logs: dict[AskGroup, list[views.LogEntryView]], describe: DescribeCause) -> views.AskView:
    """A pending ask; `logs` has the log of each group, which its asks share."""
    group = ask.group
    if group is not None and group not in logs:
        logs[group] = build_allocation_log(group, describe)
    return views.AskView(
        allocation_key=ask.key,
        allocation_tags=ask.tags,
        request_time=ask.created_ns,
        resource=ask.resources,
        priority=str(ask.priority),
        required_node_id=ask.shape.required_node,
        application_id=ask.application_id,
        placeholder=ask.placeholder,
        task_group_name=ask.task_group,
        allocation_log=[] if group is None else logs[group],
        triggered_preemption=ask.preemption_triggered,
        originator=ask.originator,
        scheduling_attempted=ask.group is not None and ask.group.attempted,
        triggered_scale_up=ask.scale_up_told,
    )


def _allocation(allocation: Allocation) -> views.AllocationView:
    asked_ns = allocation.placeholder_created_ns if allocation.placeholder_used else allocation.created_ns
    return views.AllocationView(
        allocation_key=allocation.key,
        allocation_tags=allocation.tags,
        request_time=asked_ns,
        allocation_time=allocation.created_ns,
        allocation_delay=allocation.created_ns - asked_ns,
        resource=allocation.resources,
        priority=str(allocation.priority),
        node_id=allocation.node_id,
        application_id=allocation.application_id,
        placeholder=allocation.placeholder,
        placeholder_used=allocation.placeholder_used,
        task_group_name=allocation.task_group,
        preempted=allocation.preempted,
        originator=allocation.originator,
    )


def _foreign(allocation: Allocation) -> views.ForeignAllocationView:
    return views.ForeignAllocationView(
        allocation_key=allocation.key,
        allocation_tags=allocation.tags,
        allocation_time=allocation.created_ns,
        resource=allocation.resources,
        priority=str(allocation.priority),
        node_id=allocation.node_id,
        preemptable=allocation.tags.get(FOREIGN) != "static",
    )


def build_node_view(node: Node) -> views.NodeView:
    """A node with its allocations."""
    return views.NodeView(
        node_id=node.node_id,
        host_name=node.attribute("hostname"),
        rack_name=node.attribute("rackname"),
        attributes=node.attributes,
        capacity=saturate(node.capacity),
        allocated=drop_zeros_saturated(node.allocated),
        occupied=drop_zeros_saturated(node.occupied),
        available=drop_zeros_saturated(node.available),
        utilized=views.percentages(node.allocated, node.capacity),
        allocations=[_allocation(one) for one in sorted(node.allocations.values(), key=lambda one: one.key)],
        foreign_allocations=[_foreign(one) for one in sorted(node.foreign.values(), key=lambda one: one.key)],
        schedulable=node.is_open,
        is_reserved=bool(node.reservations),
        reservations=sorted(node.reservations),
        cordoned=build_mark_view(node.cordon),
    )


def describe_node_state(node: Node) -> NodeState:
    """Whether the node takes new allocations, or who keeps them from it."""
    if node.cordon is not None:
        return "cordoned"
    return "schedulable" if node.schedulable else "unschedulable"


def build_node_state(partition: PartitionState, node_id: str, name: str) -> NodeStateView:
    """The state of a node, which may be gone, and what a drain has left on it."""
    node, mark = partition.nodes.get(node_id), build_mark_view(partition.nodes.cordons.get(node_id))
    if node is None:
        return NodeStateView(node_id=node_id, partition=name, state="gone", cordoned=mark)
    counts = count_on_node(node)
    return NodeStateView(
        node_id=node_id,
        partition=name,
        state=describe_node_state(node),
        cordoned=mark,
        running=counts.running,
        leaving=counts.leaving,
        required=counts.required,
        foreign=counts.foreign,
    )


# Preemptions ----------------------------------------------------------------------------------------------------------


def index_preemptions(entries: Iterable[PreemptionRecord]) -> dict[str, PreemptionRecord]:
    """Index the entries by keys that sort the newest first. Entries of the same time are numbered from the oldest, so
    that newer ones change no key.
    """
    numbers = Counter[int]()
    keyed: list[tuple[str, PreemptionRecord]] = []
    for entry in reversed(tuple(entries)):
        at_ns = int(entry.at * 1e9)
        keyed.append((f"{2**63 - 1 - at_ns:019d}-{ENTRIES_MAX - numbers[at_ns]:04d}", entry))
        numbers[at_ns] += 1
    return dict(reversed(keyed))


def build_preemption_view(entry: PreemptionRecord) -> views.PreemptionView:
    """An entry with its victims."""
    return views.PreemptionView(
        time=int(entry.at * 1e9),
        kind=entry.reason,
        queue_name=entry.queue,
        application_id=entry.application_id,
        allocation_key=entry.ask_key,
        node_id=entry.node_id,
        victim_count=entry.victim_count,
        victims=[_victim(one) for one in entry.victims],
        resource=saturate(decode_sum(entry.resources)),
        lost=saturate(decode_sum(entry.lost)),
    )


def _victim(one: VictimRecord) -> views.VictimView:
    resources = saturate(one.resources)
    return views.VictimView(one.key, one.application_id, one.queue, one.node_id, resources, one.ran_s)


# Node utilisation -----------------------------------------------------------------------------------------------------

_BUCKETS: Final = [f"{percent}-{percent + 10}%" for percent in range(0, 100, 10)]


def build_utilisation_view(nodes: Iterable[Node], rm: str, name: str) -> views.UtilisationView:
    """All nodes by utilization, for each resource type."""
    found = defaultdict[str, list[list[str]]](lambda: [[] for _ in _BUCKETS])
    for node in nodes:
        used = views.percentages(node.allocated, node.capacity)
        for kind in node.capacity:
            found[kind][bucket(used.get(kind, 0))].append(node.node_id)
    types = [
        views.TypeUtilisationView(
            type=kind,
            utilization=[
                views.BucketView(bucket_name=bucket_name, num_of_nodes=len(names), node_names=sorted(names))
                for bucket_name, names in zip(_BUCKETS, buckets, strict=True)
            ],
        )
        for kind, buckets in sorted(found.items())
    ]
    return views.UtilisationView(cluster_id=rm, partition=name, utilizations=types)


def bucket(percent: int) -> int:
    """The index of the bucket for this utilization. A bucket includes its upper bound, the first one its lower bound,
    too; a node with more than its capacity is in the last one.

    >>> [bucket(percent) for percent in (0, 10, 11, 100, 250)]
    [0, 0, 1, 9, 9]
    """
    return min(max(-(-percent // 10) - 1, 0), len(_BUCKETS) - 1)
