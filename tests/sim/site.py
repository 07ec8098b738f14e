"""What one RM has in one partition, as it knows itself: its nodes, applications and pods, and what it heard of them.

This is the truth of the simulation: a *pod* is an ask or what runs because of it. An RM reports from it, and the
auditor compares with it everything that the RM hears. It outlives the RM's process, as a cluster does.

Not here: what is done next (`workload.py`), what may be heard (`auditor.py`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from yunishard.common.messages.kinds import Command, Resources
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    PreemptionPolicy,
    UserGroupInformation,
)
from yunishard.common.names import NODE_PARTITION

FORCED_TAG: Final = "application.create.force"
FOREIGN: Final = "foreign"
"""The tag of what runs on a node without having been asked of us."""


class Phase(StrEnum):
    """Where a pod is in its life; what is over is not kept as a pod."""

    ASKED = "asked"  # the RM wants a node for it
    BOUND = "bound"  # it has one, as the RM was told
    LEAVING = "leaving"  # the core wants it gone: the RM deletes it, and confirms that
    RELEASING = "releasing"  # the RM has deleted it and said so; the core answers
    WITHDRAWN = "withdrawn"  # the RM no longer wants a node; if the core has one already, both say so


HOLDING: Final = frozenset({Phase.BOUND, Phase.LEAVING})
"""Phases in which a pod uses its node."""


@dataclass(slots=True)
class Pod:
    """An ask, and what runs because of it."""

    key: str
    application: str
    resources: Resources
    phase: Phase = Phase.ASKED
    node: str = ""
    group: str = ""
    placeholder: bool = False
    priority: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    preempts: bool = False
    echoes: int = 0
    """How often the RM may hear of its allocation once more, since it has reported it as running."""
    crossed: bool = False
    """Whether the RM has given its node back to have it placed again, so that older news of it may still come."""
    leaves_as: int = 0
    """The type of the release that the core asked for."""
    hint_echo: bool = False
    """Whether an older hint may still come, as the RM has reported the ask once more."""
    hinted: bool = False
    """Whether the RM was told that only a larger cluster would help."""

    def message(self, partition: str) -> Allocation:
        """As the RM reports it."""
        return Allocation(
            allocation_key=self.key,
            application_id=self.application,
            partition_name=partition,
            resource_per_alloc=self.resources,
            node_id=self.node if self.phase in HOLDING else "",
            priority=self.priority,
            allocation_tags=self.tags,
            task_group_name=self.group,
            placeholder=self.placeholder,
            preemption_policy=PreemptionPolicy(allow_preempt_self=True, allow_preempt_other=self.preempts),
        )


@dataclass(slots=True)
class Application:
    """As it was submitted, and the last state that the RM has heard of."""

    submission: AddApplicationRequest
    state: str = "sent"
    gang: bool = False
    removed: bool = False
    """Whether the RM has removed it."""

    @property
    def application_id(self) -> str:
        return self.submission.application_id

    def force(self) -> None:
        """It runs already, so that its RM insists on it."""
        self.submission = replace(self.submission, tags={**self.submission.tags, FORCED_TAG: "true"})


@dataclass(slots=True)
class Node:
    """A machine of the RM's."""

    capacity: Resources
    schedulable: bool = True
    accepted: bool = False
    gone: bool = False
    """Whether the RM has removed it; pods of it last until the core has said so."""
    largest: Resources = field(default_factory=dict)
    """The most that it ever had, per type: what was decided before the RM's word arrived is judged by that."""
    foreign: dict[str, Resources] = field(default_factory=dict)

    def resize(self, capacity: Resources) -> None:
        self.capacity = capacity
        kinds = {**self.largest, **capacity}
        self.largest = {kind: max(self.largest.get(kind, 0), capacity.get(kind, 0)) for kind in kinds}

    @property
    def attributes(self) -> dict[str, str]:
        """Its label changes with its size."""
        return {"size": str(self.capacity.get("vcore", 0))}


@dataclass(slots=True)
class Site:
    """One partition, from the RM's side. `partition` is the normalised name."""

    partition: str
    born: tuple[str, int] = ("", 0)
    """The session and the life in which the partition was new to the RM."""
    nodes: dict[str, Node] = field(default_factory=dict)
    applications: dict[str, Application] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """Keys of pods that are over, and why."""
    loose: dict[str, str] = field(default_factory=dict)
    """Keys of those among them of which older news may still come: `any`, or only a `release`."""
    ended_nodes: dict[str, None] = field(default_factory=dict)
    """Names of nodes that the RM has no more, of which older news may still come."""
    ended_applications: dict[str, str] = field(default_factory=dict)
    dying: bool = False
    """Whether the partition has left the configuration."""
    syncing: bool = False
    """Whether a report is not answered yet."""
    mentioned: set[str] = field(default_factory=set)
    """What the last report has: `node/…`, `application/…`, `allocation/…`."""

    def end(self, key: str, why: str, *, loose: str = "") -> None:
        """A pod is over. If the RM may still hear of it once more because of a report, it may."""
        pod = self.pods.pop(key, None)
        if pod is not None:
            self.ended[key] = why
            loose = "any" if pod.echoes else loose
            if loose:
                self.loose[key] = loose

    def end_node(self, name: str) -> None:
        """A node is gone, as far as the RM knows."""
        del self.nodes[name]
        self.ended_nodes[name] = None

    def end_application(self, name: str, why: str) -> None:
        if self.applications.pop(name, None) is not None:
            self.ended_applications[name] = why

    def clear(self, why: str) -> None:
        """Everything is over, as the RM wants it."""
        for key in list(self.pods):
            self.end(key, why, loose="any")
        for name in list(self.applications):
            self.end_application(name, why)
        for name in list(self.nodes):
            self.end_node(name)

    def used(self, node: str) -> Resources:
        """What the pods of a node use of it."""
        total: Resources = {}
        for pod in self.pods.values():
            if pod.node == node and pod.phase in HOLDING:
                for kind, amount in pod.resources.items():
                    total[kind] = total.get(kind, 0) + amount
        return total

    # Reports --------------------------------------------------------------------------------------------------------

    def forget_transitions(self) -> None:
        """Before a report: what the RM has deleted already is over, and so is what was on nodes that went."""
        for pod in list(self.pods.values()):
            node = self.nodes.get(pod.node) if pod.node else None
            if pod.phase in (Phase.RELEASING, Phase.WITHDRAWN, Phase.LEAVING):
                self.end(pod.key, f"{pod.phase} before a report", loose="any")
            elif pod.phase is Phase.BOUND and (node is None or node.gone):
                self.end(pod.key, "its node went before a report", loose="any")
        for name in [name for name, node in self.nodes.items() if node.gone]:
            self.end_node(name)
        for application in list(self.applications.values()):
            if application.removed or application.state in ("Failing", "Failed", "Completed"):
                self.end_application(application.application_id, "before a report")
        for pod in list(self.pods.values()):
            if pod.application not in self.applications:
                self.end(pod.key, "its application ended before a report", loose="any")

    def report(self) -> list[Command]:
        """All that the RM has, as updates; `forget_transitions` comes first."""
        infos = [node_info(self.partition, name, node) for name, node in self.nodes.items()]
        allocations = []
        for name, node in self.nodes.items():
            allocations += [foreign(self.partition, key, name, amount) for key, amount in node.foreign.items()]
        running = [pod for pod in self.pods.values() if pod.phase is Phase.BOUND]
        asked = [pod for pod in self.pods.values() if pod.phase is Phase.ASKED]
        holders = {pod.application for pod in running}
        for application in self.applications.values():
            application.state = "sent"
            if application.application_id in holders:
                application.force()
        for pod in asked:
            pod.hinted, pod.hint_echo = False, True
        for pod in (*running, *asked):  # what the core has placed and the RM has not heard of, it is told once more
            pod.echoes = 1
        allocations += [pod.message(self.partition) for pod in (*running, *asked)]
        self.mentioned = {f"node/{name}" for name in self.nodes}
        self.mentioned |= {f"application/{name}" for name in self.applications}
        self.mentioned |= {f"allocation/{one.allocation_key}" for one in allocations}
        commands: list[Command] = []
        if infos:
            commands.append(NodeRequest(nodes=infos))
        if self.applications:
            commands.append(ApplicationRequest(new=[one.submission for one in self.applications.values()]))
        if allocations:
            commands.append(AllocationRequest(allocations=allocations))
        return commands


def node_info(partition: str, name: str, node: Node) -> NodeInfo:
    """A node as it joins."""
    return NodeInfo(
        node_id=name,
        action=NODE_CREATE if node.schedulable else NODE_CREATE_DRAIN,
        attributes={NODE_PARTITION: partition, **node.attributes},
        schedulable_resource=node.capacity,
    )


def foreign(partition: str, key: str, node: str, resources: Resources) -> Allocation:
    """Something that runs on a node and that nobody asked us for."""
    return Allocation(
        allocation_key=key,
        partition_name=partition,
        node_id=node,
        resource_per_alloc=resources,
        allocation_tags={FOREIGN: "default"},
    )


def submission(
    partition: str, name: str, queue: str, user: str, *, groups: tuple[str, ...] = (), gang: bool = False
) -> AddApplicationRequest:
    """An application as it is submitted."""
    return AddApplicationRequest(
        application_id=name,
        queue_name=queue,
        partition_name=partition,
        ugi=UserGroupInformation(user=user, groups=list(groups)),
        placeholder_ask={"vcore": 3000} if gang else {},
        execution_timeout_milli_seconds=8000 if gang else 0,
    )
