"""The state of the shim, which the functions of `tasks.py`, `applications.py`, `gangs.py`, `nodes.py` change.

Applications and tasks follow tables of transitions; a transition that is not in its table is a defect of the shim, and
raises. `PartitionState` of the core has the same shape: one state, and modules of functions on it.

Not here: which call does what (`shim.py`).
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Final, Literal

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import AddApplicationRequest, Allocation, AllocationRelease
from yunishard.kubernetes_shim.actions import DeletePod, EmitEvent, Outbox
from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.objects import Namespace, Pod, PriorityClass
from yunishard.kubernetes_shim.predicates.records import ClaimKey
from yunishard.kubernetes_shim.predicates.volume_objects import VolumePlan
from yunishard.kubernetes_shim.settings import Settings
from yunishard.kubernetes_shim.tags import Scope
from yunishard.kubernetes_shim.task_groups import TaskGroup

GANG_SCHEDULING: Final = "GangScheduling"
"""The reason of all events about gangs."""


class TaskState(StrEnum):
    """The state of a task, which is a pod that the shim schedules."""

    NEW = "New"
    """Not sent to the core: the application is not ready for it, or a claim of it is missing."""
    SCHEDULING = "Scheduling"
    """The core has the ask, or the allocation of a pod that has a node already."""
    ALLOCATED = "Allocated"
    """The core has chosen a node; volumes and pod are being bound."""
    BOUND = "Bound"
    """The pod has its node."""
    FAILED = "Failed"
    """The core refused it, or its application failed; it remains until its pod ends."""


TASK_TRANSITIONS: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    TaskState.NEW: frozenset({TaskState.SCHEDULING, TaskState.FAILED}),
    TaskState.SCHEDULING: frozenset(TaskState),
    TaskState.ALLOCATED: frozenset(TaskState),
    TaskState.BOUND: frozenset({TaskState.SCHEDULING, TaskState.BOUND, TaskState.FAILED}),
    TaskState.FAILED: frozenset({TaskState.SCHEDULING, TaskState.FAILED}),
}
"""A task ends from every state, when its pod is gone or has ended, and is then discarded. From `Scheduling` and
`Allocated` it returns to `New` when the core has discarded it. A failed task is sent again only with a node, which its
pod got from another scheduler, or which the core did not have.
"""


@dataclass(slots=True, eq=False)
class Task:
    """A pod that the shim schedules."""

    pod: Pod
    application_id: str
    rank: tuple[str, int]
    """Time of creation, then arrival: the order in which tasks are sent to the core."""
    resources: Resources
    is_placeholder: bool
    task_group: str
    state: TaskState = TaskState.NEW
    node: str = ""
    """The node that the core chose, or that the pod has."""
    is_in_core: bool = False
    """Whether the core has the ask or allocation, so that it has to be released."""
    scope: Scope = Scope.NONE
    """The scope of the ask that was sent last."""
    termination: int = 0
    """Why the core wants it to end, to be repeated in the release; 0 if it does not."""
    reason: str = ""
    """The reason of the last condition `PodScheduled` that was written."""
    writes: int = 0
    """Status patches without an outcome: binding waits for them, as it changes the same condition."""
    releases_due: int = 0
    """Releases by the core that are on their way because the node went, which the task follows already."""
    is_unconfirmed: bool = False
    """Whether the allocation was reported to the core, and its answer is on the way."""
    is_deleting: bool = False
    """Whether the deletion of the pod was requested."""
    was_returned: bool = False
    """Whether an allocation could not be bound. An answer of the core from before may look like a new allocation."""
    is_binding: bool = False
    """Whether the outcome of a binding is awaited."""
    plan: VolumePlan | None = None
    """Volumes that are being bound."""
    deadline: float = 0.0
    """When binding of volumes is given up."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def used_node(self) -> str:
        """The node whose resources the pod uses, or is about to use; empty if there is none."""
        is_placed = self.state in (TaskState.ALLOCATED, TaskState.BOUND)
        return self.pod.spec.node_name or (self.node if is_placed else "")

    def enter(self, state: TaskState) -> None:
        """Change the state; a transition that is not in the table raises."""
        if state not in TASK_TRANSITIONS[self.state]:
            raise AssertionError(f"task {self.uid}: {state} cannot follow {self.state}")
        self.state = state


class ApplicationState(StrEnum):
    """The state of an application in the shim, which is not that in the core."""

    NEW = "New"
    """Not sent to the core."""
    SUBMITTED = "Submitted"
    ACCEPTED = "Accepted"
    RESERVING = "Reserving"
    """Only placeholders are asked for."""
    RESUMING = "Resuming"
    """The gang timed out: placeholders end, then it runs as an ordinary application."""
    RUNNING = "Running"
    """All tasks are asked for."""
    FAILING = "Failing"
    FAILED = "Failed"
    """Refused or failed; it is discarded when its last task has ended."""


_State = ApplicationState
APPLICATION_TRANSITIONS: Final[Mapping[_State, frozenset[_State]]] = {
    _State.NEW: frozenset({_State.SUBMITTED}),
    _State.SUBMITTED: frozenset({_State.NEW, _State.ACCEPTED, _State.FAILING, _State.FAILED}),
    _State.ACCEPTED: frozenset({_State.NEW, _State.RESERVING, _State.RUNNING, _State.FAILING, _State.FAILED}),
    _State.RESERVING: frozenset({_State.NEW, _State.RUNNING, _State.RESUMING, _State.FAILING, _State.FAILED}),
    _State.RESUMING: frozenset({_State.NEW, _State.RUNNING, _State.FAILING, _State.FAILED}),
    _State.RUNNING: frozenset({_State.NEW, _State.FAILING, _State.FAILED}),
    _State.FAILING: frozenset({_State.FAILED}),
    _State.FAILED: frozenset({_State.NEW}),
}
"""`New` follows when the core completed the application while pods arrived: it is submitted again."""


@dataclass(slots=True, eq=False)
class Application:
    """The pods of one owner with one application id, as far as they have not ended."""

    application_id: str
    name: str
    """The id that its pods name: another one if that was in use for pods of another owner."""
    owner: str
    namespace: str
    request: AddApplicationRequest
    """As submitted, made from the first pod."""
    task_groups: list[TaskGroup]
    """Empty for an application without gang scheduling, also once it has given up its gang."""
    state: ApplicationState = ApplicationState.NEW
    originator: str = ""
    """The uid of the first real pod, which owns the placeholders."""
    creating: dict[str, str] = field(default_factory=dict)
    """Placeholders whose creation was requested, and that were not seen yet: name to task group."""
    created: int = 0
    """How many placeholders were requested."""
    tasks: dict[str, Task] = field(default_factory=dict)
    placeholders: dict[str, Task] = field(default_factory=dict)
    """All and only the tasks that are placeholders."""
    new: dict[str, Task] = field(default_factory=dict)
    """All and only the real tasks in state `New`."""
    new_placeholders: dict[str, Task] = field(default_factory=dict)
    """All and only the placeholders in state `New`."""
    failed: int = 0
    """Number of real tasks in state `Failed`."""
    bound: Counter[str] = field(default_factory=Counter)
    """Number of bound placeholders by task group."""
    was_asked: bool = False
    """Whether the core had an ask or allocation of it, so that the core completes it when nothing is left."""

    @property
    def real_tasks(self) -> list[Task]:
        return [one for one in self.tasks.values() if not one.is_placeholder]

    def add(self, task: Task) -> None:
        """Add a new task."""
        self.tasks[task.uid] = task
        if task.is_placeholder:
            self.placeholders[task.uid] = task
        self.count(task)

    def remove(self, task: Task) -> None:
        """Remove a task that has ended."""
        self.discount(task)
        del self.tasks[task.uid]
        self.placeholders.pop(task.uid, None)

    def count(self, task: Task) -> None:
        """Note the state that a task has entered."""
        if task.state is TaskState.NEW:
            (self.new_placeholders if task.is_placeholder else self.new)[task.uid] = task
        elif task.state is TaskState.FAILED:
            self.failed += not task.is_placeholder
        elif task.state is TaskState.BOUND and task.is_placeholder:
            self.bound[task.task_group] += 1

    def discount(self, task: Task) -> None:
        """Note that a task leaves its state."""
        if task.state is TaskState.NEW:
            del (self.new_placeholders if task.is_placeholder else self.new)[task.uid]
        elif task.state is TaskState.FAILED:
            self.failed -= not task.is_placeholder
        elif task.state is TaskState.BOUND and task.is_placeholder:
            self.bound[task.task_group] -= 1

    def enter(self, state: ApplicationState) -> None:
        """Change the state; a transition that is not in the table raises."""
        if state not in APPLICATION_TRANSITIONS[self.state]:
            raise AssertionError(f"application {self.application_id}: {state} cannot follow {self.state}")
        self.state = state


@dataclass(slots=True, eq=False)
class NodeRecord:
    """A node as it was sent to the core."""

    uid: str
    attributes: dict[str, str]
    resources: Resources
    is_schedulable: bool
    is_in_core: bool = False


@dataclass(slots=True, eq=False)
class ForeignPod:
    """A pod of another scheduler, which only takes resources of its node."""

    allocation: Allocation
    is_in_core: bool = False


Unseen = ClaimKey | Literal["pods", "drivers"]
"""A part of the cluster that the core does not see: a claim with its volume; a storage class, in the empty namespace,
with its free volumes and capacity; the labels of pods and namespaces; the drivers of volumes, limits and attachments.
"""


class ShimState:
    """Everything that the shim stores."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cluster: Final = Cluster()
        self.outbox: Final = Outbox()
        self.now = 0.0
        """The time of the present call."""
        self.is_started = False
        """Whether all objects were listed and a session with the core exists: only then something is sent."""
        self.applications: Final[dict[str, Application]] = {}
        self.tasks: Final[dict[str, Task]] = {}
        """By uid, which is the allocation key."""
        self.nodes: Final[dict[str, NodeRecord]] = {}
        self.foreign: Final[dict[str, ForeignPod]] = {}
        """By uid."""
        self.gated: Final[dict[str, None]] = {}
        """Uids of pods with scheduling gates, which have had their event."""
        self.namespaces: Final[dict[str, Namespace]] = {}
        self.priority_classes: Final[dict[str, PriorityClass]] = {}
        self.blocked: Final[dict[str, Task]] = {}
        """Tasks of which a claim does not exist, or is being deleted."""
        self.binding_volumes: Final[dict[str, Task]] = {}
        """Tasks that have a plan."""
        self.asked: Final[dict[str, Task]] = {}
        """Tasks whose asks wait in the core, by uid."""
        self.refused: Final[dict[str, Task]] = {}
        """Those of them that a predicate has refused since they were sent."""
        self.unseen: set[Unseen] = set()
        """Changes since they were refused."""
        self.repeat_due = float("inf")
        """When refused asks are sent again."""
        self.changed: dict[str, None] = {}
        """Applications that may be able to enter another state."""
        self.report_due = float("inf")
        """When a report that failed is repeated."""
        self._arrivals: Final = count()
        self.deletions: deque[tuple[float, DeletePod]] = deque()
        """Deletions that failed, by the time of the next attempt."""

    # Order ----------------------------------------------------------------------------------------------------------

    def rank(self, pod: Pod) -> tuple[str, int]:
        """Return the place of a new pod among the others."""
        return pod.metadata.creation_timestamp, next(self._arrivals)

    @property
    def next_deadline(self) -> float:
        """The first time at which something is due."""
        waits = [task.deadline for task in self.binding_volumes.values()]
        if self.deletions:
            waits.append(self.deletions[0][0])
        return min([self.report_due, self.repeat_due, *waits])

    # Sending --------------------------------------------------------------------------------------------------------

    def has_node(self, name: str) -> bool:
        """Whether the core has the node."""
        return name in self.nodes and self.nodes[name].is_in_core

    def list_orphans(self) -> list[str]:
        """Return the uids of pods on nodes that the core does not have, which are reported when it has them."""
        placed = {uid: one.allocation.node_id for uid, one in self.foreign.items()}
        placed |= {uid: one.used_node for uid, one in self.tasks.items() if one.used_node}
        return [uid for uid, node in placed.items() if not self.has_node(node)]

    def release(self, task: Task, termination: int) -> None:
        """Release the ask or allocation of a task, if the core has it."""
        if task.is_in_core:
            task.is_in_core = False
            self.send_release(task.application_id, task.uid, termination)

    def send_release(self, application_id: str, key: str, termination: int) -> None:
        """Release an ask or allocation, also one of a pod that is gone."""
        release = AllocationRelease(application_id=application_id, allocation_key=key, termination_type=termination)
        self.outbox.send_release(release)

    def emit_pod_event(
        self, pod: Pod, action: str, note: str, *, reason: str = "", kind: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        """Record an event on a pod. The reason is the action, unless it has another one."""
        meta = pod.metadata
        self.outbox.write(
            EmitEvent(
                kind="Pod",
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                reason=reason or action,
                action=action,
                note=note,
                type=kind,
            )
        )

    def emit_gang_event(
        self, application: "Application", action: str, note: str, *, kind: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        """Record an event about a gang, on the originator of the application."""
        task = self.tasks.get(application.originator)
        if task is not None:
            self.emit_pod_event(task.pod, action, note, reason=GANG_SCHEDULING, kind=kind)

    def emit_node_event(self, name: str, uid: str, action: str, note: str) -> None:
        """Record an event on a node."""
        self.outbox.write(
            EmitEvent(kind="Node", namespace="", name=name, uid=uid, reason=action, action=action, note=note)
        )
