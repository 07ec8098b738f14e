"""REST objects of events, of the history, and of changes by operators.

Not here: objects of the present state of a partition (`views.py`), building the objects.
"""

from typing import Annotated, Final, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

from yunishard.common.config.difference import Effect
from yunishard.common.config.problems import Problem
from yunishard.common.messages.kinds import Part, Resources
from yunishard.common.rest.views import HistoryView, MarkView, View


class AmountView(Struct, frozen=True, omit_defaults=True, gc=False):
    """A quantity, in base units."""

    value: int = 0


class EventResourceView(Struct, frozen=True, omit_defaults=True, gc=False):
    """The quantities of an event; often none."""

    resources: dict[str, AmountView] = field(default_factory=dict)


class EventView(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event, with the keys of the scheduler interface."""

    type: int = 0
    objectID: str = ""  # noqa: N815 - this and those below are keys of the API
    message: str = ""
    timestampNano: int = 0  # noqa: N815
    eventChangeType: int = 0  # noqa: N815
    eventChangeDetail: int = 0  # noqa: N815
    referenceID: str = ""  # noqa: N815
    resource: EventResourceView


class BatchView(Struct, frozen=True):
    """The identity of the event ring buffer, the range of its numbers, and the requested events; None if there are
    none.
    """

    InstanceUUID: str
    LowestID: int
    HighestID: int
    EventRecords: list[EventView] | None


class ApplicationsAtView(View, frozen=True, kw_only=True):
    """One entry of `/history/apps`."""

    timestamp: int = 0
    total_applications: str
    """Running applications, as a decimal number."""


class ContainersAtView(View, frozen=True, kw_only=True):
    """One entry of `/history/containers`."""

    timestamp: int = 0
    total_containers: str
    """Allocations minus releases since the partition's start, as a decimal number, which may be negative."""


class PastView(View, frozen=True, kw_only=True):
    """A row of the history of a partition."""

    partition: str
    """Full name, `<rm-id>_<name>`; the partition may have been removed."""
    rm_id: str = ""


class PastApplicationView(PastView, frozen=True, kw_only=True):
    """An application that has ended."""

    application_id: str = field(name="applicationID")
    queue_name: str
    user: str = ""
    groups: list[str] = field(default_factory=list)
    application_state: str
    submission_time: int = 0
    start_time: int = 0
    """Time of its latest start."""
    finished_time: int
    allocation_count: int = 0
    """Allocations in the history."""
    message: str = ""
    """The reason why it failed or was rejected."""
    resource_history: HistoryView


class PastAllocationView(PastView, frozen=True, kw_only=True):
    """An allocation that ran or runs."""

    allocation_key: str
    application_id: str = field(name="applicationID")
    queue_name: str = ""
    user: str = ""
    node_id: str = ""
    resource: Resources = field(default_factory=dict)
    start_time: int = 0
    """Time of its placement; left out if unknown."""
    finished_time: int = 0
    """Left out while it runs."""
    termination_type: str = ""
    """The termination type of the scheduler interface: `STOPPED_BY_RM`, `TIMEOUT`, `PREEMPTED_BY_SCHEDULER`,
    `PLACEHOLDER_REPLACED`; also `NODE_REMOVED`, and `UNKNOWN` if its end was not recorded.
    """


class PastQueueView(PastView, frozen=True, kw_only=True):
    """The usage of a queue with all below it from this time until its next row."""

    timestamp: int
    queue_name: str
    running_apps: int = 0
    allocated_resource: Resources = field(default_factory=dict)
    pending_resource: Resources = field(default_factory=dict)


class PastUserView(PastView, frozen=True, kw_only=True):
    """The usage of a user from this time until the next row."""

    timestamp: int
    user_name: str
    running_apps: int = 0
    resource_usage: Resources = field(default_factory=dict)


class PastGroupView(PastView, frozen=True, kw_only=True):
    """The usage of a group from this time until its next row."""

    timestamp: int
    group_name: str
    running_apps: int = 0
    resource_usage: Resources = field(default_factory=dict)


class GapView(PastView, frozen=True, kw_only=True):
    """A period with missing records."""

    what: str
    """`events`, the source of allocations, or `samples`, the source of usage."""
    since: int
    until: int
    missed: int | None = None
    """Number of missing records; left out if unknown."""
    reason: str


PastRow = PastApplicationView | PastAllocationView | PastQueueView | PastUserView | PastGroupView | GapView

_Row = TypeVar("_Row", bound=PastView)


class PastPageView(View, Generic[_Row], frozen=True, kw_only=True):
    """Rows of the history, the oldest first."""

    rows: list[_Row]
    next: str = ""
    """The `after` of the next page; left out on the last page."""


class KilledView(Struct, frozen=True, kw_only=True):
    """An application that was killed, with its state."""

    application_id: str = field(name="applicationID")
    partition: str
    state: str
    outcome: str = ""
    """A sentence about what has changed."""


class MovedView(Struct, frozen=True, kw_only=True):
    """An application that was moved to another queue."""

    application_id: str = field(name="applicationID")
    partition: str
    queue: str
    """Its full path."""
    outcome: str = ""
    """A sentence about what has changed."""


class QueueStateView(View, frozen=True, kw_only=True):
    """A queue that was stopped or started."""

    queue: str
    """Its full path."""
    partition: str
    state: str = ""
    """`Active`, `Draining` or `Stopped`; left out for a dynamic queue that does not exist at present."""
    stopped: MarkView | None = None
    """Left out unless an operator stopped it."""
    stopped_above: str = ""
    """The path of a stopped queue above it, which keeps it stopped, too."""
    outcome: str = ""
    """A sentence about what has changed."""


class EndedView(Struct, frozen=True, kw_only=True):
    """A resource manager whose session was ended."""

    rm: str
    partitions: list[str]
    """The partitions that end, by full name."""


NodeState = Literal["schedulable", "unschedulable", "cordoned", "gone"]
"""It takes new allocations; the RM drains it; an operator cordoned it; it is not registered."""


class NodeStateView(View, frozen=True, kw_only=True):
    """A node that was cordoned, uncordoned or drained, and what is on it."""

    node_id: str = field(name="nodeID")
    partition: str
    state: NodeState
    cordoned: MarkView | None = None
    """Left out unless an operator cordoned it."""
    running: int = 0
    """Allocations whose release a drain asks for; 0 after a drain, until more appear."""
    leaving: int = 0
    """Allocations whose release was asked for, and is not confirmed."""
    required: int = 0
    """Allocations that require this node, which a drain leaves there."""
    foreign: int = 0
    """Allocations of other schedulers, which a drain leaves there."""
    outcome: str = ""
    """A sentence about what has changed."""


class DecisionView(Part, frozen=True):
    """A scheduling decision."""

    kind: str
    """`allocate`, `reserve`, `replace`, `release` (placeholders that are too small) or `preempt`."""
    application_id: str
    allocation_key: str
    """Of the ask that the decision is for."""
    node_id: str
    """Empty if the decision chooses no node."""
    releases: list[str] = field(default_factory=list)
    """Keys of allocations that the RM has to release."""


class StepsView(Struct, frozen=True, kw_only=True):
    """The decisions of a request, and whether nothing is left to decide."""

    partition: str
    made: int
    idle: bool
    decisions: list[DecisionView]


class VersionView(Struct, frozen=True, kw_only=True):
    """One entry of an RM's configuration history; `at` in Unix nanoseconds."""

    version: int
    checksum: str
    at: int
    author: str
    origin: str
    current: bool


APPLICATIONS_MAX: Final = 2**63 - 1
"""The largest limit of running applications that a request may name; a larger one is refused."""


class LimitsView(Struct, frozen=True, kw_only=True):
    """Limits of a queue to change. Quantities are texts as in the configuration; null removes one."""

    max: dict[str, str | None] = {}
    """By resource type."""
    guaranteed: dict[str, str | None] = {}
    max_applications: Annotated[int, Meta(ge=0, le=APPLICATIONS_MAX)] | None = field(
        default=None, name="maxApplications"
    )
    """0 is unlimited; null leaves it as it is."""


class HostView(Struct, frozen=True, kw_only=True):
    """One host; `lastSeen` in Unix nanoseconds."""

    name: str
    state: Literal["ready", "draining", "drained", "lost"]
    draining: bool
    """Whether it gets no partitions, also while it is lost."""
    leader: bool
    """Whether its broker leads."""
    address: str
    """Where other hosts reach its broker; empty if they do not."""
    cores: int
    memory: int
    """Bytes."""
    release: str
    partitions: int
    """Partitions that it has now."""
    leaving: int
    """Those of them that move to another host."""
    lastSeen: int  # noqa: N815 - a key of the API
    refused: str = ""
    """The latest other machine that was refused as this host, as this one runs, within the last hour; empty if there
    was none.
    """


class HostsView(Struct, frozen=True, kw_only=True):
    """All hosts, by name."""

    hosts: list[HostView]
    rebalancing: bool
    """Whether partitions move until their numbers are even."""


class DifferenceView(Struct, frozen=True, kw_only=True):
    """One difference between two configurations (`common/config/difference.py`), also in words."""

    kind: str
    path: str
    before: str
    after: str
    text: str


class ImpactView(Struct, frozen=True, kw_only=True):
    """Differences of a configuration from the one in force, and its effects on running work."""

    checksum: str
    """Of the configuration in force that was compared."""
    differences: list[DifferenceView]
    difference_count: int = field(name="differenceCount")
    """Number of differences, in this answer or not."""
    effects: list[Effect]
    effect_count: int = field(name="effectCount")
    """Number of effects, in this answer or not."""
    incomplete: list[str]
    """Why effects may be missing: partitions that do not answer, or have too many queues or users."""


class ChangedView(Struct, frozen=True, kw_only=True):
    """A configuration change; `version` counts from 1 for each RM."""

    checksum: str
    version: int
    partitions: list[str]
    file: bool
    """Whether the change is written back to the watched file."""
    followers: list[str]
    """Ids of the other RMs that follow the file, and so receive the change."""
    warnings: list[Problem] = []
    """Warnings about settings that are probably unintended: at most 100, and one that counts the others."""


class LimitedView(ChangedView, frozen=True, kw_only=True):
    """The configuration change that gives a queue other limits."""

    queue: str
    """Its full path."""
    diff: str
    """The unified diff of the configuration's text; empty if the queue has these limits already."""
    base: str
    """The checksum of the configuration that the diff applies to. `checksum` is that of the new one."""
    dry_run: bool = field(name="dryRun")
    """Whether nothing was changed; then `version` is 0."""
