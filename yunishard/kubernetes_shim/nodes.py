"""Nodes and the pods of other schedulers on them, as the core has to see them.

A node joins drained, then everything that runs on it is reported, then it takes new pods: so the core never allocates
what is in use. A node that is cordoned or not ready stays drained. That costs no predicate, and a drained node still
takes the pods of DaemonSets, which require it.

Not here: which pods may run where (`predicates`), the full report (`shim.py`).
"""

from typing import Final

from yunishard.common.messages import rm_messages
from yunishard.common.messages.rm_messages import Allocation, AllocationRelease, NodeInfo
from yunishard.common.names import NODE_PARTITION
from yunishard.kubernetes_shim.objects import Node, Pod
from yunishard.kubernetes_shim.pods import build_tags, compute_resources, find_foreign_kind
from yunishard.kubernetes_shim.quantities import convert_quantities
from yunishard.kubernetes_shim.state import ForeignPod, NodeRecord, ShimState, TaskState
from yunishard.kubernetes_shim.tags import describe_node
from yunishard.kubernetes_shim.tasks import report_bound, reset_task

RACK: Final = "/rack-default"
"""The rack of every node, which YuniKorn's core requires."""


def read_node(node: Node, instance_type_label: str) -> NodeRecord:
    """Return what the core needs of a node.

    Raises:
        QuantityError: the node has text that is not a quantity.
    """
    labels = node.metadata.labels
    attributes = {key: value for key, value in describe_node(node).items() if key != NODE_PARTITION}
    attributes |= {"si.io/hostname": node.metadata.name, "si.io/rackname": RACK}
    if instance_type_label in labels:
        attributes["si/instance-type"] = labels[instance_type_label]
    is_ready = all(one.status == "True" for one in node.status.conditions if one.type == "Ready")
    return NodeRecord(
        uid=node.metadata.uid,
        attributes=attributes,
        resources=convert_quantities(node.status.allocatable),
        is_schedulable=is_ready and not node.spec.unschedulable,
    )


def build_node(name: str, record: NodeRecord, action: int) -> NodeInfo:
    """Return a node with everything that the core needs to create it."""
    return NodeInfo(node_id=name, action=action, attributes=record.attributes, schedulable_resource=record.resources)


def set_node(state: ShimState, node: Node) -> None:
    """Handle a node that is new or has changed."""
    name = node.metadata.name
    record = read_node(node, state.settings.instance_type_label)
    known = state.nodes.get(name)
    state.nodes[name] = record
    if not state.is_started:
        return
    if known is None or not known.is_in_core:
        _join(state, name, record)
        return
    record.is_in_core = True
    changes = NodeInfo(
        node_id=name,
        action=rm_messages.NODE_UPDATE,
        attributes=record.attributes if record.attributes != known.attributes else {},
        schedulable_resource=record.resources if record.resources != known.resources else None,
    )
    if changes.attributes or changes.schedulable_resource is not None:
        state.outbox.send_node(changes)
    if record.is_schedulable != known.is_schedulable:
        _send_schedulable(state, name, is_schedulable=record.is_schedulable)


def _send_schedulable(state: ShimState, name: str, *, is_schedulable: bool) -> None:
    action = rm_messages.NODE_DRAIN_TO_SCHEDULABLE if is_schedulable else rm_messages.NODE_DRAIN
    state.outbox.send_node(NodeInfo(node_id=name, action=action))


def _join(state: ShimState, name: str, record: NodeRecord) -> None:
    """Create a node in the core, and report what runs there."""
    record.is_in_core = True
    state.outbox.send_node(build_node(name, record, rm_messages.NODE_CREATE_DRAIN))
    for foreign in state.foreign.values():
        if foreign.allocation.node_id == name:
            foreign.is_in_core = True
            state.outbox.send_allocation(foreign.allocation)
    for task in state.tasks.values():
        if task.used_node == name:
            report_bound(state, task, name)
    if record.is_schedulable:
        _send_schedulable(state, name, is_schedulable=True)


def remove_node(state: ShimState, name: str) -> None:
    """Handle a node that is gone: the core releases what it has there, which is reported if the node returns."""
    record = state.nodes.pop(name, None)
    if record is None or not record.is_in_core:
        return
    state.outbox.send_node(NodeInfo(node_id=name, action=rm_messages.NODE_DECOMMISSION))
    state.emit_node_event(name, record.uid, "NodeDeleted", f"node {name} is deleted from the scheduler")
    for foreign in state.foreign.values():
        if foreign.allocation.node_id == name:
            foreign.is_in_core = False
    for task in state.tasks.values():
        if task.used_node == name:
            is_confirmed = task.state in (TaskState.ALLOCATED, TaskState.BOUND) and not task.is_unconfirmed
            task.releases_due += task.is_in_core and is_confirmed  # otherwise when its answer arrives
            task.is_in_core = False
            if task.state is TaskState.ALLOCATED:
                reset_task(state, task)


def handle_node_response(state: ShimState, news: rm_messages.NodeResponse) -> None:
    """Handle which nodes the core accepted. A rejected one is sent again when it changes."""
    for accepted in news.accepted:
        if known := state.nodes.get(accepted.node_id):
            note = f"node {accepted.node_id} is accepted by the scheduler"
            state.emit_node_event(accepted.node_id, known.uid, "NodeAccepted", note)
    for rejected in news.rejected:
        if known := state.nodes.get(rejected.node_id):
            known.is_in_core = False
            note = f"node {rejected.node_id} is rejected by the scheduler: {rejected.reason}"
            state.emit_node_event(rejected.node_id, known.uid, "NodeRejected", note)


# Foreign pods ---------------------------------------------------------------------------------------------------------


def set_foreign(state: ShimState, pod: Pod) -> None:
    """Handle a pod of another scheduler that is new or has changed: it counts from when it has a node until it ends."""
    uid, node = pod.metadata.uid, pod.spec.node_name
    known = state.foreign.get(uid)
    if not node:
        remove_foreign(state, uid)
        return
    allocation = Allocation(
        allocation_key=uid,
        node_id=node,
        resource_per_alloc=compute_resources(pod),
        priority=pod.spec.priority or 0,
        allocation_tags={**build_tags(pod), "foreign": find_foreign_kind(pod)},
    )
    if known is not None and known.allocation.resource_per_alloc == allocation.resource_per_alloc:
        return
    state.foreign[uid] = foreign = ForeignPod(allocation)
    if state.is_started and state.has_node(node):
        foreign.is_in_core = True
        state.outbox.send_allocation(allocation)


def remove_foreign(state: ShimState, uid: str) -> None:
    """Handle a pod of another scheduler that is gone or has ended."""
    known = state.foreign.pop(uid, None)
    if known is not None and known.is_in_core:
        release = AllocationRelease(allocation_key=uid, termination_type=rm_messages.STOPPED_BY_RM)
        state.outbox.send_release(release)
