"""An allocation: first an ask without a node, then something that runs on one. One object for its whole life.

Not here: who has it (`application.py`) and what it costs whom (`ledger.py`).
"""

import math
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Final

from common import rm_messages
from common.messages import INT64_MAX, Resources
from partition_worker.engine.ask_shapes import Need, Needs, shape_of

if TYPE_CHECKING:
    from partition_worker.engine.applications.application import Application
    from partition_worker.engine.applications.asks import Group
    from partition_worker.engine.applications.reservation import Reservation
    from partition_worker.engine.ask_shapes import Constraint

CREATION_TIME: Final = "creationTime"
REQUIRED_NODE: Final = "yunikorn.apache.org/requiredNode"
FOREIGN: Final = "foreign"
NO_TAGS: Final[dict[str, str]] = {}
"""Those of everything that has none."""


@dataclass(slots=True, eq=False)
class Allocation:
    """An ask, a running allocation, or (without an application) a foreign allocation."""

    key: str
    application: "Application | None"
    """None for a foreign allocation."""
    resources: Resources
    created_ns: int
    priority: int = 0
    node_id: str = ""
    """Empty while it waits for a node."""
    tags: dict[str, str] = field(default_factory=dict)
    task_group: str = ""
    placeholder: bool = False
    originator: bool = False
    preemption_policy: rm_messages.PreemptionPolicy | None = None
    bound_ns: int = 0
    rank: int = 0
    """Set by the application's pending asks: order among asks of equal priority and creation time."""
    need: Need = field(init=False)
    """What it needs of queues and nodes: the amounts, the only node that will do, if any, and its constraint."""
    constraint: "Constraint | None" = None
    """What else it demands of a node."""
    known_need: InitVar[Need | None] = None
    """What it needs, where that is known already."""
    group: "Group | None" = None
    """Among which asks it waits; None when it does not."""
    held: bool = False
    """Whether it waits for a placeholder of its task group instead of a node."""
    reservation: "Reservation | None" = None
    """The node that is kept for it while it waits."""
    recovered: bool = False
    """Whether an RM reported it with its node, and it never was an ask of ours."""
    released: bool = False
    """Whether the RM was asked to let it go, a placeholder or with its gang, and has not confirmed that yet; never
    with `preempted`.
    """
    preempted: bool = False
    """Whether the RM was asked to let it go for the sake of somebody else, and has not confirmed that yet."""
    partner: "Allocation | None" = None
    """The other one of a swap under way: of a placeholder the ask that takes its place, and the other way round."""
    placeholder_used: bool = False
    """Whether it took the place of a placeholder."""
    placeholder_created_ns: int = 0
    """When the placeholder was created whose place it took."""
    preemption_triggered: bool = False
    """Whether others were asked to make room for it; that is done once for an ask."""
    scale_up_told: bool = False
    """Whether the RM was told that only a larger cluster would help."""
    lacks_quota: bool = False
    """Whether the history says that its user or group has no room for it."""
    lacks_queue_room: bool = False
    """Whether the history says that its queues have no room for it."""
    unschedulable_told_at: float = -math.inf
    """When the history was last told why no node would take it, in Unix seconds."""
    no_victim_told_at: float = -math.inf
    """When the history was last told that nobody can make room for it, in Unix seconds."""

    def __post_init__(self, known_need: Need | None) -> None:
        if known_need is None:
            self.resize(self.resources)
        else:
            self.need = known_need

    def resize(self, resources: Resources) -> None:
        """Ask for, or use, other amounts. Not while it is among pending asks, which are grouped by need."""
        self.resources = resources
        self.need = Need(shape_of(resources), self.tags.get(REQUIRED_NODE, ""), self.constraint)

    def resemble(self, other: "Allocation") -> None:
        """Share the amounts with another one that needs the same: they are kept once for thousands of equal asks."""
        self.resources, self.need = other.resources, other.need

    @property
    def may_be_victim(self) -> bool:
        """Whether it agreed to be preempted; others are only taken when nothing else helps."""
        return self.preemption_policy is not None and self.preemption_policy.allow_preempt_self

    @property
    def may_preempt(self) -> bool:
        """Whether others may be asked to make room for it."""
        return self.preemption_policy is not None and self.preemption_policy.allow_preempt_other

    @property
    def application_id(self) -> str:
        """Empty for a foreign allocation."""
        return self.application.application_id if self.application else ""

    def announced(self) -> rm_messages.Allocation:
        """As the RM is told of it: only what it needs to act."""
        return rm_messages.Allocation(
            allocation_key=self.key,
            application_id=self.application_id,
            node_id=self.node_id,
            resource_per_alloc=self.resources,
            task_group_name=self.task_group,
            placeholder=self.placeholder,
            originator=self.originator,
            preemption_policy=self.preemption_policy,
        )

    def release(
        self, partition: str, reason: str, termination_type: int = rm_messages.STOPPED_BY_RM
    ) -> rm_messages.AllocationRelease:
        """As the RM is told that it is gone, or has to go; `partition` is the normalised name."""
        return rm_messages.AllocationRelease(
            partition_name=partition,
            application_id=self.application_id,
            allocation_key=self.key,
            termination_type=termination_type,
            message=reason,
        )


def from_message(
    message: rm_messages.Allocation,
    application: "Application | None",
    *,
    stamp_ns: int,
    needs: Needs,
    constraint: "Constraint | None" = None,
) -> Allocation:
    """The allocation that a message describes; `stamp_ns` is its creation time unless a tag says
    otherwise; what `needs` knows is shared with others.
    """
    tags = message.allocation_tags or NO_TAGS
    resources, need = needs.of(message.resource_per_alloc)
    special = constraint is not None or REQUIRED_NODE in tags
    tag = tags.get(CREATION_TIME, "")
    created_ns = int(tag) * 1_000_000_000 if tag.isascii() and tag.isdecimal() and len(tag) < 12 else stamp_ns
    return Allocation(
        key=message.allocation_key,
        application=application,
        resources=resources,
        created_ns=min(created_ns, INT64_MAX),
        priority=message.priority,
        tags=tags,
        task_group=message.task_group_name,
        placeholder=message.placeholder,
        originator=message.originator,
        preemption_policy=message.preemption_policy,
        constraint=constraint,
        known_need=None if special else need,
    )
