"""An allocation: first an ask without a node, then something that runs on one. One object for its whole life.

Not here: who has it (`application.py`) and what it costs whom (`ledger.py`).
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from common import messages
from common.messages import Resources
from partition_worker.engine.needs import Need, shape_of

if TYPE_CHECKING:
    from partition_worker.engine.applications.application import Application

CREATION_TIME: Final = "creationTime"
REQUIRED_NODE: Final = "yunikorn.apache.org/requiredNode"
FOREIGN: Final = "foreign"


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
    preemption_policy: messages.PreemptionPolicy | None = None
    bound_ns: int = 0
    rank: int = 0
    """Set by the application's pending asks: order among asks of equal priority and creation time."""
    need: Need = field(init=False)
    """What it needs of queues and nodes: the amounts, and the only node that will do, if any."""

    def __post_init__(self) -> None:
        self.resize(self.resources)

    def resize(self, resources: Resources) -> None:
        """Ask for, or use, other amounts. Not while it is among pending asks, which are grouped by need."""
        self.resources = resources
        self.need = Need(shape_of(resources), self.tags.get(REQUIRED_NODE, ""))

    @property
    def application_id(self) -> str:
        """Empty for a foreign allocation."""
        return self.application.application_id if self.application else ""

    def announced(self) -> messages.Allocation:
        """As the RM is told of it: only what it needs to act."""
        return messages.Allocation(
            allocation_key=self.key,
            application_id=self.application_id,
            node_id=self.node_id,
            resource_per_alloc=self.resources,
            task_group_name=self.task_group,
            placeholder=self.placeholder,
            originator=self.originator,
            preemption_policy=self.preemption_policy,
        )

    def released(self, partition: str, reason: str) -> messages.AllocationRelease:
        """As the RM is told that it is gone; `partition` is the normalised name."""
        return messages.AllocationRelease(
            partition_name=partition,
            application_id=self.application_id,
            allocation_key=self.key,
            termination_type=messages.STOPPED_BY_RM,
            message=reason,
        )


def from_message(message: messages.Allocation, application: "Application | None", *, stamp_ns: int) -> Allocation:
    """The allocation that a message describes; `stamp_ns` is its creation time unless a tag in the past says
    otherwise.
    """
    tag = message.allocation_tags.get(CREATION_TIME, "")
    created_ns = int(tag) * 1_000_000_000 if tag.isascii() and tag.isdecimal() and len(tag) < 12 else stamp_ns
    return Allocation(
        key=message.allocation_key,
        application=application,
        resources=dict(message.resource_per_alloc),
        created_ns=min(created_ns, stamp_ns),
        priority=message.priority,
        tags=message.allocation_tags,
        task_group=message.task_group_name,
        placeholder=message.placeholder,
        originator=message.originator,
        preemption_policy=message.preemption_policy,
    )
