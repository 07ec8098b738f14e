"""Events as the REST API shows them, with the keys of the scheduler interface.

Not here: filling them (`partition_worker/events.py`).
"""

from typing import Generic, TypeVar

from msgspec import Struct, field

from common.config.problems import Problem
from common.messages import Part, Resources
from common.rest_views import HistoryView, View


class AmountView(Struct, frozen=True, omit_defaults=True, gc=False):
    """A quantity, in base units."""

    value: int = 0


class EventResourceView(Struct, frozen=True, omit_defaults=True, gc=False):
    """What an event is about, in quantities; often nothing."""

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
    """Which history it is, the numbers of the events that are there, and those asked for; None if there are none."""

    InstanceUUID: str
    LowestID: int
    HighestID: int
    EventRecords: list[EventView] | None


class ApplicationsAtView(View, frozen=True, kw_only=True):
    """One entry of `/history/apps`."""

    timestamp: int = 0
    total_applications: str
    """Those that ran, as a decimal number."""


class ContainersAtView(View, frozen=True, kw_only=True):
    """One entry of `/history/containers`."""

    timestamp: int = 0
    total_containers: str
    """Those allocated less those released since the partition began, as a decimal number, maybe negative."""


class PastView(View, frozen=True, kw_only=True):
    """Whose a row of the history is."""

    partition: str
    """Full name, `<rm-id>_<name>`; it need not exist any more."""
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
    """When it last began to run."""
    finished_time: int
    allocation_count: int = 0
    """Allocations that the history knows of."""
    message: str = ""
    """Why it failed or was rejected."""
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
    """When it got its node; left out if that is not known."""
    finished_time: int = 0
    """Left out while it runs."""
    termination_type: str = ""
    """How it ended, in the scheduler interface's words: `STOPPED_BY_RM`, `TIMEOUT`, `PREEMPTED_BY_SCHEDULER`,
    `PLACEHOLDER_REPLACED`; besides `NODE_REMOVED`, and `UNKNOWN` where nobody saw it end.
    """


class PastQueueView(PastView, frozen=True, kw_only=True):
    """What a queue with all below it had from this time on, until its next row."""

    timestamp: int
    queue_name: str
    running_apps: int = 0
    allocated_resource: Resources = field(default_factory=dict)
    pending_resource: Resources = field(default_factory=dict)


class PastUserView(PastView, frozen=True, kw_only=True):
    """What a user had from this time on, until the next row."""

    timestamp: int
    user_name: str
    running_apps: int = 0
    resource_usage: Resources = field(default_factory=dict)


class PastGroupView(PastView, frozen=True, kw_only=True):
    """What a group had from this time on, until its next row."""

    timestamp: int
    group_name: str
    running_apps: int = 0
    resource_usage: Resources = field(default_factory=dict)


class GapView(PastView, frozen=True, kw_only=True):
    """A time of which something is not known."""

    what: str
    """`events`, of which allocations are made, or `samples`, of which usage is."""
    since: int
    until: int
    missed: int | None = None
    """How many; left out if nobody knows."""
    reason: str


PastRow = PastApplicationView | PastAllocationView | PastQueueView | PastUserView | PastGroupView | GapView

_Row = TypeVar("_Row", bound=PastView)


class PastPageView(View, Generic[_Row], frozen=True, kw_only=True):
    """Rows of the history, the oldest first."""

    rows: list[_Row]
    next: str = ""
    """With which `after` the list goes on; left out at its end."""


class KilledView(Struct, frozen=True, kw_only=True):
    """An application that was ended, and its state now."""

    application_id: str = field(name="applicationID")
    partition: str
    state: str


class MovedView(Struct, frozen=True, kw_only=True):
    """An application that goes on in another queue."""

    application_id: str = field(name="applicationID")
    partition: str
    queue: str
    """Its full path."""


class DecisionView(Part, frozen=True):
    """A decision as people read it."""

    kind: str
    """`allocate`, `reserve`, `replace`, `release` (placeholders that are too small) or `preempt`."""
    application_id: str
    allocation_key: str
    """Of the ask that gets something by it."""
    node_id: str
    """Empty if no node is chosen by it."""
    releases: list[str] = field(default_factory=list)
    """Keys that the RM is asked to let go."""


class StepsView(Struct, frozen=True, kw_only=True):
    """The decisions that were made, and whether nothing is left to decide."""

    partition: str
    made: int
    idle: bool
    decisions: list[DecisionView]


class VersionView(Struct, frozen=True, kw_only=True):
    """One entry of the history of a resource manager; `at` in Unix nanoseconds."""

    version: int
    checksum: str
    at: int
    author: str
    origin: str
    current: bool


class ChangedView(Struct, frozen=True, kw_only=True):
    """A change that was made; `version` counts from 1 for each resource manager."""

    checksum: str
    version: int
    partitions: list[str]
    file: bool
    """Whether the change is written back to the watched file."""
    followers: list[str]
    """Ids of the other resource managers that follow the file, and so the change."""
    warnings: list[Problem] = []
    """What is allowed in this configuration and probably not meant, at most 100 and one that counts the others."""
