"""REST objects of a partition: one struct for each, with the API's keys, order and omissions.

A key that is always present has no default here. A key that is left out when empty has its empty value as default,
which encoding omits. Times are Unix nanoseconds unless the name has another unit; resources are base units.

Not here: building the objects from the engine (`partition_worker/views.py`), access (`webservice`).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from msgspec import Struct, field
from msgspec.json import Encoder

from yunishard.common.messages.kinds import Resources

NEVER_MS: Final = -62_135_596_800_000
"""The API's value of an unset time in milliseconds: the first of January of the year 1."""

PRIORITY_NONE: Final = -(2**31)
"""The priority of a queue or an application in which nothing is pending."""

DURATIONS_MAX: Final = 256
"""Cached texts of durations: thousands of queues have mostly the same ones."""

_PERCENT_MAX: Final = 2**31 - 1
_NS_PER_S: Final = 10**9
_encoder: Final = Encoder(order="deterministic")  # maps by key, objects in the order of their fields

Percentages = dict[str, int]
Texts = dict[str, str]


class View(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """An object of the REST API."""


# Partition ----------------------------------------------------------------------------------------------------------


class CapacityView(View, frozen=True, kw_only=True):
    """The total of all nodes, and the root queue's usage."""

    capacity: Resources = field(default_factory=dict)
    used_capacity: Resources = field(default_factory=dict)
    utilization: Percentages = field(default_factory=dict)


class NodeSortingView(View, frozen=True, kw_only=True):
    """The node sort policy. Whole weights should be int, which are encoded without a fraction."""

    type: str
    resource_weights: dict[str, int | float]


class PartitionView(View, frozen=True, kw_only=True):
    """One entry of `/partitions`."""

    cluster_id: str
    """RM id."""
    name: str
    capacity: CapacityView
    node_sorting_policy: NodeSortingView
    preemption_enabled: bool
    quota_preemption_enabled: bool
    total_nodes: int = 0
    applications: dict[str, int]
    """Number by state, and `total`, even if it is 0."""
    total_containers: int = 0
    """Allocations, with placeholders, without foreign ones."""
    state: str
    last_state_transition_time: int


class SilentPartitionView(PartitionView, frozen=True, kw_only=True, omit_defaults=False):
    """The entry of a partition that does not answer, with every key of the web UI."""

    capacity: CapacityView = CapacityView()
    node_sorting_policy: NodeSortingView = NodeSortingView(type="", resource_weights={})
    preemption_enabled: bool = False
    quota_preemption_enabled: bool = False
    applications: dict[str, int] = field(default_factory=lambda: {"total": 0})
    state: str = "Silent"
    last_state_transition_time: int = 0


# Queues -------------------------------------------------------------------------------------------------------------


class TemplateView(View, frozen=True, kw_only=True):
    """Initial settings of queues that placement creates below a queue."""

    max_applications: int = 0
    max_resource: Resources = field(default_factory=dict)
    guaranteed_resource: Resources = field(default_factory=dict)
    properties: Texts = field(default_factory=dict)


class MarkView(View, frozen=True, kw_only=True):
    """The user who stopped a queue or cordoned a node, the time, and the reason."""

    user: str = ""
    """Left out for callers who do not administer the queue, or do not see everything."""
    time: int
    reason: str = ""


class QueueView(View, frozen=True, kw_only=True):
    """A queue, with all below it if `children` was filled."""

    queuename: str
    """Full path."""
    status: str
    partition: str
    """The partition's name on the root of `/queues`, otherwise empty."""
    pending_resource: Resources = field(default_factory=dict)
    max_resource: Resources = field(default_factory=dict)
    guaranteed_resource: Resources = field(default_factory=dict)
    allocated_resource: Resources = field(default_factory=dict)
    preempting_resource: Resources = field(default_factory=dict)
    headroom: Resources = field(default_factory=dict)
    is_leaf: bool
    is_managed: bool
    properties: Texts = field(default_factory=dict)
    parent: str = ""
    template: TemplateView | None = None
    children: list["QueueView"] = field(default_factory=list)
    child_names: list[str] = field(default_factory=list)
    abs_used_capacity: Percentages = field(default_factory=dict)
    max_running_apps: int = 0
    running_apps: int = 0
    current_priority: int
    """The priority for the parent's order; PRIORITY_NONE if nothing is pending."""
    allocating_accepted_apps: list[str] = field(default_factory=list)
    sorting_policy: str
    priority_sorting: bool
    preemption_enabled: bool
    is_preemption_fence: bool
    preemption_delay: str
    quota_preemption_delay: str
    is_priority_fence: bool
    priority_offset: int = 0
    draining_since: int | None = None
    """Left out while the queue does not drain."""
    draining_applications: int | None = None
    """Applications in it and below it; left out while it does not drain."""
    stopped: MarkView | None = None
    """Left out unless an operator stopped it."""


# Applications -------------------------------------------------------------------------------------------------------


class LogEntryView(View, frozen=True, kw_only=True):
    """A reason why an ask could not be placed; equal messages are one entry."""

    message: str
    last_occurrence: int
    count: int
    code: str = ""
    """The reason code of a cause in the words of an explanation; empty for YuniKorn's messages."""


class AskView(View, frozen=True, kw_only=True):
    """A pending ask."""

    allocation_key: str
    allocation_tags: Texts = field(default_factory=dict)
    request_time: int = 0
    resource: Resources = field(default_factory=dict)
    priority: str
    """A decimal number, as text."""
    required_node_id: str = ""
    application_id: str = ""
    placeholder: bool = False
    task_group_name: str = ""
    allocation_log: list[LogEntryView] = field(default_factory=list)
    triggered_preemption: bool = False
    originator: bool = False
    scheduling_attempted: bool = False
    triggered_scale_up: bool = False


class AllocationView(View, frozen=True, kw_only=True):
    """An allocation of an application, as its application and its node show it."""

    allocation_key: str
    allocation_tags: Texts = field(default_factory=dict)
    request_time: int = 0
    """Time of its creation; of a replacement, of its placeholder's."""
    allocation_time: int = 0
    """Time of its creation, not of its placement."""
    allocation_delay: int = 0
    """`allocation_time` less `request_time`."""
    resource: Resources = field(default_factory=dict)
    priority: str
    """A decimal number, as text."""
    node_id: str = ""
    application_id: str = ""
    placeholder: bool = False
    placeholder_used: bool = False
    task_group_name: str = ""
    preempted: bool = False
    originator: bool = False


class StateView(View, frozen=True, kw_only=True):
    """A state that an application entered, with the time."""

    time: int
    application_state: str


class PlaceholderView(View, frozen=True, kw_only=True):
    """The results of the placeholders of a task group."""

    task_group_name: str = ""
    count: int = 0
    min_resource: Resources = field(default_factory=dict)
    replaced: int = 0
    timedout: int = 0


class HistoryView(View, frozen=True, kw_only=True):
    """Quantity times seconds of allocations that ended, by instance type."""

    resource_usage: dict[str, Resources] = field(default_factory=dict)
    preempted_resource: dict[str, Resources] = field(default_factory=dict)
    placeholder_resource: dict[str, Resources] = field(default_factory=dict)


class ApplicationView(View, frozen=True, kw_only=True):
    """An application with its asks and allocations."""

    application_id: str = field(name="applicationID")
    used_resource: Resources = field(default_factory=dict)
    """Without placeholders."""
    max_used_resource: Resources = field(default_factory=dict)
    pending_resource: Resources = field(default_factory=dict)
    """With placeholders."""
    partition: str
    queue_name: str
    submission_time: int = 0
    finished_time: int = 0
    requests: list[AskView] = field(default_factory=list)
    allocations: list[AllocationView] = field(default_factory=list)
    application_state: str
    user: str = ""
    groups: list[str] = field(default_factory=list)
    rejected_message: str = ""
    state_log: list[StateView] = field(default_factory=list)
    """In the order in which they were entered, without `New`."""
    placeholder_data: list[PlaceholderView] = field(default_factory=list)
    has_reserved: bool = False
    reservations: list[str] = field(default_factory=list)
    max_request_priority: int = 0
    """PRIORITY_NONE without pending asks."""
    start_time: int
    """Time of its latest start in milliseconds, or NEVER_MS."""
    resource_history: HistoryView
    backoff_deadline: str = ""
    """In the format of `format_rfc3339`."""


# Nodes --------------------------------------------------------------------------------------------------------------


class ForeignAllocationView(View, frozen=True, kw_only=True):
    """An allocation of another scheduler on a node."""

    allocation_key: str
    allocation_tags: Texts = field(default_factory=dict)
    allocation_time: int = 0
    resource: Resources = field(default_factory=dict)
    priority: str
    """A decimal number, as text."""
    node_id: str = ""
    preemptable: bool = False


class NodeView(View, frozen=True, kw_only=True):
    """A node with its allocations."""

    node_id: str = field(name="nodeID")
    host_name: str = ""
    rack_name: str = ""
    attributes: Texts = field(default_factory=dict)
    capacity: Resources = field(default_factory=dict)
    allocated: Resources = field(default_factory=dict)
    occupied: Resources = field(default_factory=dict)
    available: Resources = field(default_factory=dict)
    utilized: Percentages = field(default_factory=dict)
    allocations: list[AllocationView] = field(default_factory=list)
    foreign_allocations: list[ForeignAllocationView] = field(default_factory=list)
    schedulable: bool
    """False if the RM drains it, or an operator cordoned it."""
    is_reserved: bool
    reservations: list[str] = field(default_factory=list)
    cordoned: MarkView | None = None
    """Left out unless an operator cordoned it."""


# Users and groups ---------------------------------------------------------------------------------------------------


class UsageView(View, frozen=True, kw_only=True):
    """The usage and the limits of a user or group at a queue and below it."""

    queue_path: str
    resource_usage: Resources = field(default_factory=dict)
    running_applications: list[str] = field(default_factory=list)
    max_resources: Resources = field(default_factory=dict)
    max_applications: int = 0
    children: list["UsageView"] = field(default_factory=list)


class UserView(View, frozen=True, kw_only=True):
    """A user's usage; `groups` maps each application to the group that it is charged to."""

    user_name: str
    groups: Texts = field(default_factory=dict)
    queues: UsageView | None = None


class GroupView(View, frozen=True, kw_only=True):
    """A group's usage, and the applications that count as running for it."""

    group_name: str
    applications: list[str] = field(default_factory=list)
    queues: UsageView | None = None


# Tables -------------------------------------------------------------------------------------------------------------

Cell = str | int | float | bool | Resources | list[str] | None
"""A value in a table: an amount has each resource type; null is missing, such as no maximum, or hidden from the viewer.
"""


class TableView(View, frozen=True, kw_only=True):
    """A part of the rows of a table (`common/rest/catalogue.py`)."""

    columns: list[str]
    rows: list[list[Cell]]
    """In each row a value for each column."""
    total: int
    """Number of rows that match the filters, in this answer or not."""
    resources: list[str]
    """The resource types that occur in the partition."""


# Values -------------------------------------------------------------------------------------------------------------


def encode_view(view: View | Sequence[View]) -> bytes:
    """Encode an object, or a list of them: compact JSON and a newline."""
    return _encoder.encode(view) + b"\n"


def percentages(used: Mapping[str, int], capacity: Mapping[str, int]) -> Percentages:
    """Return the percentage of each type in both maps that is used.

    Computed in floating point and truncated, as YuniKorn does: 29 of 100 is 28.

    >>> percentages({"memory": 3, "vcore": 1, "pods": 1}, {"memory": 8, "vcore": 0})
    {'memory': 37, 'vcore': 100}
    """
    return {kind: _percentage(amount, capacity[kind]) for kind, amount in used.items() if kind in capacity}


def _percentage(used: int, capacity: int) -> int:
    if used <= 0:
        return 0
    if capacity <= 0:
        return 100
    return min(int(float(used) / float(capacity) * 100), _PERCENT_MAX)


@lru_cache(DURATIONS_MAX)
def format_duration(nanoseconds: int) -> str:
    """Format a duration in Go's notation.

    >>> [format_duration(ns) for ns in (0, 1_500_000, 90 * 10**9, 3600 * 10**9, 1_500_000_000)]
    ['0s', '1.5ms', '1m30s', '1h0m0s', '1.5s']
    """
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if rest < size * 1000:
            return f"{sign}{_decimal(rest, size)}{unit}"
    minutes, seconds_ns = divmod(rest, 60 * _NS_PER_S)
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{larger}{_decimal(seconds_ns, _NS_PER_S)}s"


def format_rfc3339(nanoseconds: int) -> str:
    """Format a time in UTC, with the decimals that it needs.

    >>> format_rfc3339(1_700_000_000_120_000_000)
    '2023-11-14T22:13:20.12Z'
    """
    whole, fraction = divmod(nanoseconds, _NS_PER_S)
    decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}{decimals}Z"


def _decimal(amount: int, size: int) -> str:
    """Return the amount divided by a power of ten, without trailing zeros."""
    whole, fraction = divmod(amount, size)
    if not fraction:
        return str(whole)
    digits = len(str(size)) - 1
    return f"{whole}." + f"{fraction:0{digits}d}".rstrip("0")


class FilterView(View, frozen=True, kw_only=True):
    """The filter of a rule: each list is names or one expression."""

    type: str
    """`allow` or `deny`."""
    user_list: list[str] = field(default_factory=list)
    group_list: list[str] = field(default_factory=list)
    user_exp: str = ""
    group_exp: str = ""


class RuleView(View, frozen=True, kw_only=True):
    """A placement rule, or the rule for its parent queue."""

    name: str
    parameters: Texts = field(default_factory=dict)
    filter: FilterView | None = None
    parent_rule: "RuleView | None" = None


class VictimView(View, frozen=True):
    """A preempted allocation."""

    allocation_key: str
    application_id: str = field(name="applicationID")
    queue_name: str
    node_id: str = field(name="nodeID")
    resource: Resources
    ran_seconds: int


class PreemptionView(View, frozen=True, kw_only=True):
    """One entry of `/preemptions`."""

    time: int
    kind: str
    """`guaranteed`, `required-node` or `quota`."""
    queue_name: str
    application_id: str = field(name="applicationID", default="")
    allocation_key: str = ""
    """Of the ask that caused the preemption; this, its application and its node are left out for a quota."""
    node_id: str = field(name="nodeID", default="")
    victim_count: int
    victims: list[VictimView]
    """The first ones."""
    resource: Resources
    lost: Resources
    """Amount times seconds."""


class BucketView(View, frozen=True, kw_only=True):
    """The nodes whose utilization is in the bucket's range."""

    bucket_name: str
    num_of_nodes: int = 0
    node_names: list[str] = field(default_factory=list)


class TypeUtilisationView(View, frozen=True, kw_only=True):
    """The utilization of nodes with a resource type; always all buckets, in ascending order."""

    type: str
    utilization: list[BucketView]


class UtilisationView(View, frozen=True, kw_only=True):
    """One entry of `/scheduler/node-utilizations`: a partition, with every resource type of its nodes."""

    cluster_id: str
    """RM id."""
    partition: str
    utilizations: list[TypeUtilisationView] = field(default_factory=list)


class SilentUtilisationView(UtilisationView, frozen=True, kw_only=True, omit_defaults=False):
    """The entry of a partition that does not answer, with an empty list."""
