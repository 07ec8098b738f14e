"""Node updates of the RM: create, resize, relabel, drain and decommission nodes.

An `UPDATE` with attributes replaces all attributes of the node, as the RM sends what it has and so can also remove one;
without attributes it leaves them, as RMs of the reference send none. Waiting asks are tried again, a reservation ends
if its node refuses the ask, and allocations stay.
"""

from collections.abc import Mapping
from typing import Final

from yunishard.common.messages import event_codes, rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.names import NODE_PARTITION
from yunishard.common.resources import equal
from yunishard.partition_worker.engine import events, ledger, reservations
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.allocation_updates import end_allocation
from yunishard.partition_worker.engine.amounts import find_types_objection
from yunishard.partition_worker.engine.gang_scheduling import unwind_swap
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.state import PartitionState, find_text_objection

NODES_MAX: Final = 100_000
"""Nodes of a partition."""


def handle(state: PartitionState, request: rm_messages.NodeRequest) -> None:
    """Process each node. Created nodes are accepted or rejected; an action on an unknown node is a logged warning."""
    total = state.nodes.total
    for info in request.nodes:
        node = state.nodes.get(info.node_id)
        if info.action in (rm_messages.NODE_CREATE, rm_messages.NODE_CREATE_DRAIN):
            _create(state, info)
        elif node is None:
            state.log_warning(f"node {info.node_id}: unknown, action {info.action} has no effect")
        elif info.action == rm_messages.NODE_UPDATE:
            _resize(state, node, info.schedulable_resource)
            if any(name != NODE_PARTITION for name in info.attributes):
                set_attributes(state, node, info.attributes)
        elif info.action in (rm_messages.NODE_DRAIN, rm_messages.NODE_DRAIN_TO_SCHEDULABLE):
            set_schedulable(state, node, schedulable=info.action == rm_messages.NODE_DRAIN_TO_SCHEDULABLE)
        elif info.action == rm_messages.NODE_DECOMMISSION:
            _decommission(state, node)
        else:
            state.log_debug(f"node {node.node_id}: unknown action {info.action} has no effect")
    if state.nodes.total != total:
        state.readiness.update_cluster_size()


def _create(state: PartitionState, info: rm_messages.NodeInfo) -> None:
    schedulable, capacity = info.action == rm_messages.NODE_CREATE, info.schedulable_resource or {}
    events.record_schedulable(state, info.node_id, schedulable=schedulable)
    problem = _find_objection(state, info)
    if not problem:
        total = state.nodes.total
        attributes = _list_attributes(state, info.attributes)
        capacity = state.nodes.add(info.node_id, capacity, attributes, schedulable=schedulable).capacity
        state.changes.nodes[info.node_id] = None
        events.record_cluster_size(state, total)
        state.readiness.retry_parked()
    message = "Node added to the scheduler"  # also for a rejected node, as the reference does
    code = event_codes.DETAILS_NONE
    state.record_event(event_codes.NODE, info.node_id, event_codes.ADD, code, resource=capacity, message=message)
    state.emit(
        rm_messages.RejectedNode(node_id=info.node_id, reason=problem)
        if problem
        else rm_messages.AcceptedNode(node_id=info.node_id)
    )


def _find_objection(state: PartitionState, info: rm_messages.NodeInfo) -> str:
    if state.retired:
        return f"partition {state.name} was removed: it cannot add a new node {info.node_id}"
    if not info.node_id:
        return "invalid node: it has no id"
    if state.nodes.get(info.node_id) is not None:
        return (
            "failure while adding new node, node rejected with error: \n"
            f"failed to add node {info.node_id} to partition {state.name}, error: "
            f"partition {state.name} has an existing node {info.node_id}, node name must be unique"
        )
    if len(state.nodes) >= NODES_MAX:
        return f"the partition has {NODES_MAX} nodes, it takes no more"
    capacity = info.schedulable_resource or {}
    return find_text_objection((info.node_id, *capacity), info.attributes) or _find_capacity_objection(capacity)


def _find_capacity_objection(capacity: Resources) -> str:
    negative = sorted(kind for kind, amount in capacity.items() if amount < 0)
    problem = f"invalid node: negative resources for {', '.join(negative)}" if negative else ""
    return problem or find_types_objection(capacity)


def set_schedulable(state: PartitionState, node: Node, *, schedulable: bool) -> None:
    """Set whether a node takes new allocations."""
    if node.schedulable != schedulable:
        state.nodes.set_schedulable(node, schedulable=schedulable)
        state.changes.nodes[node.node_id] = None
        events.record_schedulable(state, node.node_id, schedulable=schedulable)
        state.readiness.retry_parked()


def _resize(state: PartitionState, node: Node, capacity: Resources | None) -> None:
    if capacity is None or equal(capacity, node.capacity):
        return
    if objection := _find_capacity_objection(capacity):
        state.log_warning(f"node {node.node_id}: the new capacity has no effect: {objection}")
        return
    total = state.nodes.total
    state.nodes.resize(node, capacity)
    state.changes.nodes[node.node_id] = None
    detail = event_codes.NODE_CAPACITY
    state.record_event(event_codes.NODE, node.node_id, event_codes.SET, detail, resource=node.capacity)
    events.record_cluster_size(state, total)
    reservations.update_for_changed_node(state, node)
    state.readiness.retry_parked()


def set_attributes(state: PartitionState, node: Node, attributes: Mapping[str, str]) -> None:
    """Replace the attributes of a node; what predicates say about it may change."""
    new = _list_attributes(state, attributes)
    if new == node.attributes:
        return
    if objection := find_text_objection((node.node_id, *node.capacity), new):
        state.log_warning(f"node {node.node_id}: its new attributes have no effect: {objection}")
        return
    state.nodes.set_attributes(node, new)
    state.changes.nodes[node.node_id] = None
    reservations.update_for_changed_node(state, node)
    state.readiness.retry_parked()


def _list_attributes(state: PartitionState, attributes: Mapping[str, str]) -> dict[str, str]:
    return {**attributes, NODE_PARTITION: state.name}


def _decommission(state: PartitionState, node: Node) -> None:
    """Remove a node after ending everything on it; the RM receives all releases together."""
    events.record_schedulable(state, node.node_id, schedulable=False)
    state.nodes.set_schedulable(node, schedulable=False)
    reservations.cancel_on_node(state, node)
    released: list[Allocation] = []
    replaced: list[Allocation] = []
    for allocation in tuple(node.allocations.values()):
        application = state.applications[allocation.application_id]
        if allocation.key in application.swapping:  # a real ask on this node waits again
            unwind_swap(state, application, allocation)
            continue
        released.append(allocation)
        if allocation.partner is not None and allocation.partner.node_id != node.node_id:
            replaced.append(ledger.end_swap(state, application, allocation))  # one on another node runs
        else:
            end_allocation(state, application, allocation, termination_type=None)
    for one in released:
        state.emit(one.release(state.name, f"Node {node.node_id} Removed"))
    for one in replaced:
        state.emit(one.make_announcement())
    for key in node.foreign:
        del state.foreign[key]
        state.changes.foreign[key] = None
    remove_node(state, node)


def remove_node(state: PartitionState, node: Node) -> None:
    """Remove an empty node."""
    total = state.nodes.total
    state.nodes.remove(node)
    state.changes.nodes[node.node_id] = None
    events.record_cluster_size(state, total)
    message, detail = "Node removed from the scheduler", event_codes.NODE_DECOMISSION
    state.record_event(event_codes.NODE, node.node_id, event_codes.REMOVE, detail, message=message)
    state.counters.decommissioned += 1
