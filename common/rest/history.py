"""What the REST API shows of the past: how many ran at which minute, applications that have ended, allocations, usage.

Times are Unix nanoseconds and left out where there is none. Not here: keeping it (`webservice/history/`).
"""

from typing import Generic, TypeVar

from msgspec import field

from common.messages import Resources
from common.rest.partition import HistoryView, View


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
