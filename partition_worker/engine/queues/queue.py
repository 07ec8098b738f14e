"""A queue: its settings, what is charged to it, and what below it is ready to be scheduled.

The same class for parents and leaves, as a configuration may turn one into the other. Charging lies in `headroom.py`,
keys and shares in `fairness.py`, edges and lookup in `tree.py`; here are only the fields and what is always true of
them.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from common.acl import Acl
from common.messages import Resources
from common.names import RECOVERY_QUEUE
from common.resources import Limit
from partition_worker.engine.ask_shapes import Need
from partition_worker.engine.order import Order
from partition_worker.engine.queues.policies import Policies
from partition_worker.engine.queues.tally import Tally
from partition_worker.engine.user_resolution import User

if TYPE_CHECKING:
    from partition_worker.engine.application_states import AppState

QueueState = Literal["Active", "Draining", "Stopped"]

NOTHING_PENDING: Final = -(2**31)
"""The priority of a queue or application that asks for nothing."""


class Tried(NamedTuple):
    """An attempt in vain."""

    at: float
    """Unix seconds."""
    tags: dict[str, str]
    """Of the ask, if it demands something of a node, which can be read from them again."""


@dataclass(frozen=True, slots=True)
class Template:
    """What a new dynamic leaf starts with."""

    max_applications: int
    properties: dict[str, str]
    maximum: Limit | None
    guaranteed: Resources | None


@dataclass(slots=True, eq=False)
class Queue:
    """One queue. Its sums are always those over its children and its own applications.

    A leaf has no children and a parent no applications, but for a while after a configuration turned one into the
    other: what was there before stays until it ends.
    """

    path: str
    """Lower case, dotted, beginning with `root`."""
    parent: "Queue | None"
    rank: int
    """In order of creation; breaks ties between queues that are equally deserving."""
    leaf: bool
    managed: bool
    """From the configuration; otherwise placement created it."""
    state: QueueState = "Active"
    draining_since_ns: int = 0
    """When it began to drain, Unix nanoseconds; 0 while it does not."""
    draining_told_ns: int = 0
    """When the log was last told that it drains; 0 while it does not."""
    maximum: Limit | None = None
    """None is no maximum. The root's is the size of the cluster, and there a type that is missing is 0."""
    guaranteed: Resources | None = None
    once_limited: dict[str, None] = field(default_factory=dict)
    """Types that its maximum has, or ever had."""
    once_guaranteed: dict[str, None] = field(default_factory=dict)
    """The same of what is guaranteed."""
    properties: dict[str, str] = field(default_factory=dict)
    policies: Policies = field(default_factory=Policies)
    template: Template | None = None
    submit_acl: Acl = field(default_factory=Acl)
    admin_acl: Acl = field(default_factory=Acl)
    admin_text: str = ""
    """The administrators as the configuration names them, for people."""
    max_applications: int = 0
    """Applications that may run at once in the subtree; 0 is no limit."""

    allocated: Resources = field(default_factory=dict)
    """All allocations of all applications below, foreign ones never."""
    pending: Resources = field(default_factory=dict)
    """All asks below that have no node yet."""
    preempting: Resources = field(default_factory=dict)
    """Of `allocated` what the RM was asked to let go for somebody else and has not confirmed."""
    kept: Resources = field(default_factory=dict)
    """What is kept for asks below for which somebody was preempted: nobody else below gets it."""
    lacking: Resources = field(default_factory=dict)
    """How far preemptions pushed it below what it guarantees, when it last lost something (`setbacks.py`)."""
    quota_preemption_at: float = 0.0
    """When it is brought down to its maximum, which it exceeds, as a Unix time; 0 is never (`quota_timing.py`)."""
    running: int = 0
    """Applications below that are Starting or Running."""
    preemption_window: float = 0.0
    """When asks of this leaf first looked for victims, of the attempts that are counted together; Unix seconds."""
    preemption_attempts: int = 0
    """How often, since then, or would have if there were no limit."""
    preemption_tried: dict[tuple[Need, int], Tried] = field(default_factory=dict)
    """The last time that asks of this leaf with this need and priority looked for victims, and there were none."""
    allocating: dict[str, None] = field(default_factory=dict)
    """Ids of applications below that got something and are still Accepted: they count as running for the limit."""
    priorities: Tally = field(default_factory=Tally)
    """The highest ask priority of each of its applications that asks."""
    child_priorities: Tally = field(default_factory=Tally)
    """What each of its children that asks shows."""
    fair_maximum: Limit = field(default_factory=dict)
    """What shares are relative to where nothing is guaranteed; kept by `fairness.refresh_fair_maximum`."""

    children: dict[str, "Queue"] = field(default_factory=dict)
    """By the last part of the path."""
    applications: dict[str, None] = field(default_factory=dict)
    """Ids of its applications, in order of arrival. Those of a parent get nothing new."""
    ready_children: "Order[Queue]" = field(default_factory=Order)
    """Children with something pending that may succeed, the most deserving first."""

    reached: "Counter[AppState]" = field(default_factory=Counter)
    """How often an application of its own entered this state; refused are those that asked for this queue."""
    bound: int = 0
    """Allocations of its own applications that an RM reported with a node: placed by the RM, not by us."""
    released: int = 0
    """Allocations of its own applications that an RM released or that went with their node."""
    _ancestry: "tuple[Queue, ...]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._ancestry = (self,) if self.parent is None else (self, *self.parent.ancestry())

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def draining(self) -> bool:
        return self.state == "Draining"

    @property
    def state_aware(self) -> bool:
        """Whether it lets one application at a time begin to run (`engine/readiness/turns.py`)."""
        return self.policies.application_sort == "stateaware"

    @property
    def priority(self) -> int:
        """The priority that its parent sees. A parent shows what its children show: applications that it still has
        from when it was a leaf get nothing.
        """
        highest = self.child_priorities.highest
        if self.leaf:
            own = self.priorities.highest
            highest = own if highest is None else highest if own is None else max(own, highest)
        if highest is None or highest == NOTHING_PENDING:
            return NOTHING_PENDING
        policies = self.policies
        if policies.priority_fence:
            return policies.priority_offset
        if policies.priority_offset:
            return max(-(2**31), min(2**31 - 1, highest + policies.priority_offset))
        return highest

    @property
    def population(self) -> int:
        """How many applications are in it, with all below it."""
        return len(self.applications) + sum(child.population for child in self.children.values())

    def entitle(self, *, maximum: Limit | None, guaranteed: Resources | None) -> None:
        """It may have this much from now on, and is guaranteed this much. Sums and orders are not touched."""
        self.maximum, self.guaranteed = maximum, guaranteed
        self.once_limited.update(dict.fromkeys(maximum or ()))
        self.once_guaranteed.update(dict.fromkeys(guaranteed or ()))

    def ancestry(self) -> "tuple[Queue, ...]":
        """Itself, then each parent up to the root: a queue never goes to another parent."""
        return self._ancestry

    def admits_submission(self, user: User) -> bool:
        """Whether the user may submit here: by an ACL of this queue or of any above it."""
        if self.path == RECOVERY_QUEUE:
            return False
        return any(
            level.submit_acl.allows(user.name, user.groups) or level.admin_acl.allows(user.name, user.groups)
            for level in self.ancestry()
        )

    def admits_administration(self, user: User) -> bool:
        """Whether the user may act on what is in here: by an admin ACL of this queue or of any above it."""
        return any(level.admin_acl.allows(user.name, user.groups) for level in self.ancestry())
