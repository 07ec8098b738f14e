"""The actions of the shim: messages to the core, and writes to the API server.

The machine (`shim.py`) returns actions in the order in which they were decided, and never waits for one. The driver
executes them and reports the outcome of each write to the API server by `Shim.handle_outcome(action, failure, now)`;
failure is None if it succeeded. Of the messages to the core, `SendReport` and `SendConfiguration` have an outcome.

Rules for the driver:

- Messages to the core are sent in order. A `SendReport` replaces those before it that are not sent yet, as it contains
  everything; the messages after it wait for its end.
- Writes to the API server run side by side. Those of one object (same kind, namespace and name) run in order.
- A write that failed is final, except for deletions, which the machine repeats: the client has repeated the request.

Not here: how they are executed (`driver.py`), why (`shim.py` and its parts).
"""

from typing import Final, Literal

from msgspec import Struct, field

from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    NodeInfo,
    RemoveApplicationRequest,
)
from yunishard.kubernetes_shim.objects import Kind, PersistentVolume, PersistentVolumeClaim


class Failure(Struct, frozen=True):
    """Why an action did not succeed; the driver makes it from the exception of the client or of the SDK."""

    status: int = 0
    """The HTTP status; 0 for a message to the core."""
    message: str = ""


NOT_FOUND: Final = 404
CONFLICT: Final = 409
SERVER_ERROR: Final = 500


# To the core ----------------------------------------------------------------------------------------------------------


class SendNodes(Struct, frozen=True):
    """Create, change or remove nodes: `ResourceManager.update_nodes`."""

    nodes: list[NodeInfo]


class SendApplications(Struct, frozen=True):
    """Submit and remove applications: `ResourceManager.update_applications`."""

    new: list[AddApplicationRequest] = field(default_factory=list)
    remove: list[RemoveApplicationRequest] = field(default_factory=list)


class SendAllocations(Struct, frozen=True):
    """Send asks and running allocations, then releases: `ResourceManager.update_allocations`."""

    allocations: list[Allocation] = field(default_factory=list)
    releases: list[AllocationRelease] = field(default_factory=list)


class SendConfiguration(Struct, frozen=True):
    """Change the configuration of the core: `ResourceManager.update_configuration`. It has an outcome."""

    text: str
    extra_config: dict[str, str] = field(default_factory=dict)


class SendReport(Struct, frozen=True):
    """Report the complete state, in a block of `ResourceManager.resync`: nodes, applications, then allocations.

    Its outcome is reported when the block has ended. The machine sends nothing to the core before that.
    """

    reason: str
    nodes: list[NodeInfo] = field(default_factory=list)
    applications: list[AddApplicationRequest] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)


# To the API server ----------------------------------------------------------------------------------------------------


class CreatePod(Struct, frozen=True, kw_only=True):
    """Create a placeholder pod."""

    namespace: str
    name: str
    body: dict[str, object]
    application_id: str


class DeletePod(Struct, frozen=True, kw_only=True):
    """Delete a pod if it still has this uid, with the grace period of the pod itself."""

    namespace: str
    name: str
    uid: str


class BindPod(Struct, frozen=True, kw_only=True):
    """Bind a pod to a node, if it still has this uid."""

    namespace: str
    name: str
    uid: str
    node: str


class PatchPodStatus(Struct, frozen=True, kw_only=True):
    """Change the status of a pod, as a strategic merge patch of the subresource `status`.

    The patch has the uid in its metadata, so that the API server refuses it for a new pod of the same name.
    """

    namespace: str
    name: str
    uid: str
    status: dict[str, str] = field(default_factory=dict)
    """Fields of the status itself, such as the phase."""
    condition: dict[str, str] = field(default_factory=dict)
    """One condition; conditions of other types stay as they are."""
    is_transition: bool = False
    """Whether the pod did not have this condition with the same status: then the driver adds the present time."""


class PatchVolume(Struct, frozen=True, kw_only=True):
    """Change a persistent volume or a claim, as a merge patch. It has the resource version, so it fails if the object
    has changed.
    """

    kind: Kind[PersistentVolume] | Kind[PersistentVolumeClaim]
    namespace: str
    name: str
    body: dict[str, object]
    uid: str
    """Of the pod that needs the volume."""


class EmitEvent(Struct, frozen=True, kw_only=True):
    """Record an event (`events.k8s.io/v1`, controller `yunikorn`) on an object. It has no outcome: it may be lost."""

    kind: str
    """`Pod` or `Node`."""
    namespace: str
    """Of the object; empty for a node."""
    name: str
    uid: str
    reason: str
    action: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"


class LogProblem(Struct, frozen=True):
    """Write a warning to the log: something that an operator has to correct, and that belongs to no pod or node."""

    text: str


CoreAction = SendNodes | SendApplications | SendAllocations | SendConfiguration | SendReport
"""Executed in order."""

WriteAction = CreatePod | DeletePod | BindPod | PatchPodStatus | PatchVolume
"""Executed side by side, with an outcome."""

Action = CoreAction | WriteAction | EmitEvent | LogProblem


# Collecting them ------------------------------------------------------------------------------------------------------


class Outbox:
    """Collects actions in their order; items to the core that follow each other are sent in one message.

    While a full report is in progress, messages to the core are held: they follow it, or are replaced by the next one.
    """

    def __init__(self) -> None:
        self.report: SendReport | None = None
        """The full report in progress."""
        self._core: list[CoreAction] = []
        self._others: list[Action] = []

    def take(self) -> list[Action]:
        """Return the actions to execute now, messages to the core first."""
        core: list[CoreAction] = []
        if self.report is None:
            core, self._core = self._core, []
        taken, self._others = [*core, *self._others], []
        return taken

    def write(self, action: WriteAction | EmitEvent | LogProblem) -> None:
        self._others.append(action)

    def send_node(self, node: NodeInfo) -> None:
        last = self._core[-1] if self._core else None
        if isinstance(last, SendNodes):
            last.nodes.append(node)
        else:
            self._core.append(SendNodes([node]))

    def add_application(self, request: AddApplicationRequest) -> None:
        last = self._core[-1] if self._core else None
        if isinstance(last, SendApplications) and not last.remove:  # the core handles the new ones first
            last.new.append(request)
        else:
            self._core.append(SendApplications(new=[request]))

    def remove_application(self, request: RemoveApplicationRequest) -> None:
        last = self._core[-1] if self._core else None
        if isinstance(last, SendApplications):
            last.remove.append(request)
        else:
            self._core.append(SendApplications(remove=[request]))

    def send_allocation(self, allocation: Allocation) -> None:
        last = self._core[-1] if self._core else None
        if isinstance(last, SendAllocations) and not last.releases:  # the core handles the releases last
            last.allocations.append(allocation)
        else:
            self._core.append(SendAllocations([allocation]))

    def send_release(self, release: AllocationRelease) -> None:
        last = self._core[-1] if self._core else None
        if isinstance(last, SendAllocations):
            last.releases.append(release)
        else:
            self._core.append(SendAllocations(releases=[release]))

    def send_configuration(self, action: SendConfiguration) -> None:
        self._core.append(action)

    def begin_report(self, report: SendReport) -> None:
        """Send a full report. It replaces all messages to the core that were not taken, except for configurations."""
        self._core = [one for one in self._core if isinstance(one, SendConfiguration)]
        self._others.append(report)
        self.report = report

    def end_report(self) -> None:
        """Let the messages follow that were held during the report."""
        self.report = None
