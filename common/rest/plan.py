"""Plans of a change: what a request asks for, what the worker applies to a copy of its partition, and the report.

    PlanRequestView   the body of POST .../plan: changes in words of a configuration, `4` vcore and `16Gi`
    PlanOrder         what the web service sends to the worker: valid configurations, amounts in base units
    PlanView          the report: the present course of events (`baseline`) next to the planned one

Times are Unix nanoseconds, 0 for "not within the horizon"; amounts are base units. Codes are those of
`common/messages/reasons.py`.

Not here: making plans (`partition_worker/planning.py`), drawing them (`yunishard/cli/commands/plan.py`).
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages.kinds import Resources
from yunishard.common.rest.explain import ExplanationView
from yunishard.common.rest.views import View

RUN_TIME_TAG: Final = "yunishard/runTime"
"""The tag of an ask with the time that it is expected to run, `90s` or `1h30m`; as a tag of an application, that of its
asks without one. Only plans read it.
"""

CHANGES_MAX: Final = 16
"""Changes in one plan; a request with more is refused."""

HORIZON_S: Final = 3600.0
"""Seconds that a plan looks ahead without another wish."""

HORIZON_MAX_S: Final = 30 * 86_400.0
"""The farthest horizon in seconds; a request for a farther one is refused."""

NODES_MAX: Final = 10_000
"""Nodes that one change adds; a request for more is refused."""

TASKS_MAX: Final = 10_000
"""Tasks of a planned job; a request for more is refused."""

ChangeKind = Literal["config", "limit-queue", "drain-node", "remove-node", "add-nodes", "submit"]
Verdict = Literal["now", "later", "partly", "never", "rejected"]
"""When a planned job runs: at once, once others have ended, some of its tasks, not within the horizon, not at all."""


# The request ----------------------------------------------------------------------------------------------------------


class JobView(View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is not submitted, with equal tasks."""

    id: str = ""
    """The ID of its application; `planned-job` if not set."""
    queue: str = ""
    user: str = ""
    """The caller, if not set."""
    groups: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    """Of the application."""
    task_tags: dict[str, str] = field(default_factory=dict)
    """Of each ask."""
    resources: dict[str, str | int]
    """Of one task, as in a configuration."""
    tasks: Annotated[int, Meta(ge=1, le=TASKS_MAX)] = 1
    run_time: str = ""
    """How long a task runs, as in `90s`; without it the tag of the tasks or of the application counts."""
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    gang: bool = False
    """Whether all tasks have to start together."""


class PlannedChangeView(View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change to plan; which other keys count depends on `kind`."""

    kind: ChangeKind
    config: str = ""
    """The whole configuration as YAML, for `config`."""
    queue: str = ""
    """The full path, for `limit-queue`."""
    max: dict[str, str | None] = field(default_factory=dict)
    guaranteed: dict[str, str | None] = field(default_factory=dict)
    max_applications: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    node: str = ""
    """The node that is drained or removed."""
    count: Annotated[int, Meta(ge=1, le=NODES_MAX)] = 1
    """The number of new nodes."""
    resources: dict[str, str | int] = field(default_factory=dict)
    """The size of each new node, as in a configuration."""
    attributes: dict[str, str] = field(default_factory=dict)
    """The attributes of each new node."""
    job: JobView | None = None


class PlanRequestView(View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes that are planned together, in this order. Without one, the report is what happens without a change."""

    changes: Annotated[list[PlannedChangeView], Meta(max_length=CHANGES_MAX)] = field(default_factory=list)
    horizon: Annotated[float, Meta(ge=0, le=HORIZON_MAX_S)] = HORIZON_S
    """How many seconds to look ahead."""


# What the worker gets -------------------------------------------------------------------------------------------------


class ConfigChange(Struct, frozen=True, tag="config"):
    """The partition gets this configuration; None removes it."""

    config: PartitionConfig | None
    text: str


class NodeDrain(Struct, frozen=True, tag="drain-node"):
    """An operator drains a node."""

    node: str


class NodeRemoval(Struct, frozen=True, tag="remove-node"):
    """The RM removes a node."""

    node: str


class NewNodes(Struct, frozen=True, tag="add-nodes"):
    """The RM adds equal nodes."""

    count: int
    resources: Resources
    attributes: dict[str, str]


class NewJob(Struct, frozen=True, tag="submit"):
    """The RM submits an application with equal tasks."""

    id: str
    queue: str
    user: str
    groups: list[str]
    tags: dict[str, str]
    task_tags: dict[str, str]
    resources: Resources
    tasks: int
    run_s: float | None
    priority: int
    gang: bool


PlannedChange = ConfigChange | NodeDrain | NodeRemoval | NewNodes | NewJob


class PlanOrder(Struct, frozen=True):
    """The changes and the horizon of a plan."""

    changes: list[PlannedChange]
    horizon_s: float = HORIZON_S


# The report -----------------------------------------------------------------------------------------------------------


class CourseView(View, frozen=True, kw_only=True):
    """Totals of one course of events up to the horizon, of all asks and allocations."""

    started: int = 0
    """Asks that get a node; one that is evicted and starts again counts once."""
    ended: int = 0
    """Allocations whose run time ends."""
    evicted: int = 0
    """Allocations that the core ends."""
    rejected: int = 0
    """Applications and asks that are refused, or withdrawn as their application fails."""
    waiting: int = 0
    """Asks that wait at the end."""
    running: int = 0
    """Allocations at the end."""


class PlannedApplicationView(View, frozen=True, kw_only=True):
    """An application whose asks wait now, start or wait in one of the courses, or that loses allocations."""

    application: str
    queue: str
    user: str
    waiting_before: int = 0
    """Asks that wait now."""
    started: int = 0
    started_baseline: int = 0
    waiting: int = 0
    """Asks that wait at the end."""
    waiting_baseline: int = 0
    evicted: int = 0
    evicted_baseline: int = 0
    first_start: int = 0
    first_start_baseline: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """The number of asks that wait at the end, by code."""
    text: str = ""
    """Why they wait, in words; only for the first applications."""
    rejected: str = ""
    """Why the application, or one of its asks, is refused."""


class PlannedAskView(View, frozen=True, kw_only=True):
    """An ask that starts in one of the courses, with its expected start."""

    ask: str
    application: str
    queue: str
    user: str
    at: int = 0
    node: str = ""
    at_baseline: int = 0
    node_baseline: str = ""


class PlannedEvictionView(View, frozen=True, kw_only=True):
    """An allocation that the core ends in the planned course."""

    allocation: str
    application: str
    queue: str
    user: str
    node: str
    at: int
    reason: str
    by_queue: str = ""
    """The queue that gets the room; empty if it is not for one."""
    in_baseline: bool = False
    """Whether it is evicted without the change, too."""
    again_at: int = 0
    """When its task, which the RM asks for again, gets another node."""
    again_node: str = ""


class PlannedExcessView(View, frozen=True, kw_only=True):
    """A queue above its maximum, or a user or group above a limit, in the planned course."""

    queue: str
    user: str = ""
    group: str = ""
    resource: str = ""
    """Empty for running applications."""
    maximum: int
    used: int
    """Right after the change."""
    used_at_end: int
    is_new: bool = False
    """Whether it is within its maximum without the change."""


class PlannedUseView(View, frozen=True, kw_only=True):
    """The use of a resource type of all nodes."""

    resource: str
    capacity_before: int
    used_before: int
    """Now, before anything happens."""
    used_baseline: int
    """At the end, without the change."""
    capacity: int
    used: int
    """At the end, with the change."""


class AwaitedReleaseView(View, frozen=True, kw_only=True):
    """An allocation whose end makes room for a planned job."""

    allocation: str
    application: str
    node: str
    at: int


class PlannedJobView(View, frozen=True, kw_only=True):
    """When a planned job runs, or why it does not."""

    application: str
    verdict: Verdict
    text: str
    """One or two sentences for users."""
    queue: str = ""
    """Where it is placed."""
    tasks: int
    started: int = 0
    first_start: int = 0
    last_start: int = 0
    """When the last of its tasks that start does."""
    after: list[AwaitedReleaseView] = field(default_factory=list)
    """The last releases that its first later task waits for."""
    explanation: ExplanationView | None = None
    """Why it does not run at once, as for an application that waits."""


class PlanView(View, frozen=True, kw_only=True):
    """The report of a plan. Nothing was changed."""

    partition: str
    changes: list[str]
    """The planned changes in words."""
    summary: list[str] = field(default_factory=list)
    """Their effects in sentences: the planned jobs, then who is evicted, starts, waits and exceeds a maximum."""
    at: int
    """The time of the state that the plan starts with."""
    horizon: float
    """Seconds that it looks ahead."""
    baseline: CourseView
    planned: CourseView
    jobs: list[PlannedJobView] = field(default_factory=list)
    evictions: list[PlannedEvictionView] = field(default_factory=list)
    applications: list[PlannedApplicationView] = field(default_factory=list)
    """Those that the change affects first."""
    asks: list[PlannedAskView] = field(default_factory=list)
    excesses: list[PlannedExcessView] = field(default_factory=list)
    utilisation: list[PlannedUseView] = field(default_factory=list)
    hidden: int = 0
    """Applications that the caller may not see; their asks count in the totals only."""
    assumptions: list[str] = field(default_factory=list)
    """Texts about conditions that the plan assumes."""
    incomplete: list[str] = field(default_factory=list)
    """Texts about parts that are left out, with the reason."""
