"""Node updates of the RM: create, resize, drain and decommission nodes."""

from common import event_codes
from common.names import NODE_PARTITION
from common.resources import equal
from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    AcceptedNode,
    NodeInfo,
    NodeRequest,
    RejectedNode,
)
from partition_worker.engine import events, reservations
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.allocation_updates import end_allocation
from partition_worker.engine.bounds import node_objection
from partition_worker.engine.gang_scheduling import confirm_swap, unwind_swap
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.state import PartitionState


def handle(state: PartitionState, request: NodeRequest) -> None:
    """Process each node. Created nodes are accepted or rejected; an action on an unknown node is only logged."""
    total = state.nodes.total
    for info in request.nodes:
        if info.action in (NODE_CREATE, NODE_CREATE_DRAIN):
            _create(state, info)
            continue
        node = state.nodes.get(info.node_id)
        if node is None:
            state.log_debug(f"node {info.node_id}: unknown, action {info.action} has no effect")
            continue
        _change(state, node, info)
    if state.nodes.total != total:
        state.readiness.resized()


def _create(state: PartitionState, info: NodeInfo) -> None:
    events.schedulable(state, info.node_id, now=info.action == NODE_CREATE)
    problem = _problem(state, info)
    if problem:
        events.node_added(state, info.node_id, info.schedulable_resource or {})
        state.emit(RejectedNode(node_id=info.node_id, reason=problem))
        return
    total = state.nodes.total
    node = state.nodes.add(
        info.node_id,
        info.schedulable_resource or {},
        {**info.attributes, NODE_PARTITION: state.name},
        schedulable=info.action == NODE_CREATE,
    )
    events.cluster_resized(state, total)
    events.node_added(state, node.node_id, node.capacity)
    state.readiness.retry_parked()
    state.emit(AcceptedNode(node_id=node.node_id))


def _problem(state: PartitionState, info: NodeInfo) -> str:
    if state.retired:
        return f"partition {state.name} was removed: it cannot add a new node {info.node_id}"
    if not info.node_id:
        return "invalid node: it has no id"
    if negative := sorted(kind for kind, amount in (info.schedulable_resource or {}).items() if amount < 0):
        return f"invalid node: negative resources for {', '.join(negative)}"
    if state.nodes.get(info.node_id) is not None:
        return (
            "failure while adding new node, node rejected with error: \n"
            f"failed to add node {info.node_id} to partition {state.name}, error: "
            f"partition {state.name} has an existing node {info.node_id}, node name must be unique"
        )
    return node_objection(info, count=len(state.nodes))


def _change(state: PartitionState, node: Node, info: NodeInfo) -> None:
    match info.action:
        case action if action == NODE_UPDATE:
            _resize(state, node, info)
        case action if action in (NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE):
            set_schedulable(state, node, schedulable=action == NODE_DRAIN_TO_SCHEDULABLE)
        case action if action == NODE_DECOMMISSION:
            _decommission(state, node)
        case unknown:
            state.log_debug(f"node {node.node_id}: unknown action {unknown} has no effect")


def set_schedulable(state: PartitionState, node: Node, *, schedulable: bool) -> None:
    """Set whether a node takes new allocations."""
    if node.schedulable != schedulable:
        state.nodes.set_schedulable(node, schedulable=schedulable)
        events.schedulable(state, node.node_id, now=schedulable)
        state.readiness.retry_parked()


def _resize(state: PartitionState, node: Node, info: NodeInfo) -> None:
    capacity = info.schedulable_resource
    if capacity is None:
        return
    if any(amount < 0 for amount in capacity.values()):
        state.log_debug(f"node {node.node_id}: a negative capacity has no effect")
        return
    if equal(capacity, node.capacity):
        return
    total = state.nodes.total
    state.nodes.resize(node, capacity)
    state.record_event(
        event_codes.NODE, node.node_id, event_codes.SET, event_codes.NODE_CAPACITY, resource=node.capacity
    )
    events.cluster_resized(state, total)
    reservations.node_resized(state, node)
    state.readiness.retry_parked()


def _decommission(state: PartitionState, node: Node) -> None:
    """Remove a node after ending everything on it; the RM receives all releases together."""
    events.schedulable(state, node.node_id, now=False)
    state.nodes.withdraw(node)
    reservations.vacate(state, node)
    released, replaced = _empty(state, node)
    for one in released:
        state.emit(one.release(state.name, f"Node {node.node_id} Removed"))
    for one in replaced:
        state.emit(one.announced())
    for key in node.foreign:
        del state.foreign[key]
    total = state.nodes.total
    state.nodes.remove(node)
    events.cluster_resized(state, total)
    events.node_gone(state, node.node_id)
    state.counters.decommissioned += 1


def _empty(state: PartitionState, node: Node) -> tuple[list[Allocation], list[Allocation]]:
    """End everything on a node: returns the releases and the real allocations that replaced a placeholder there. Of a
    swap in progress, the real ask runs if it is on another node and waits again if it is on this one.
    """
    released: list[Allocation] = []
    replaced: list[Allocation] = []
    for allocation in tuple(node.allocations.values()):
        application = state.applications[allocation.application_id]
        if allocation.key in application.swapping:
            unwind_swap(state, application, allocation)
            continue
        released.append(allocation)
        if allocation.partner is not None and allocation.partner.node_id != node.node_id:
            replaced.append(confirm_swap(state, application, allocation))
        else:
            end_allocation(state, application, allocation, termination_type=None)
    return released, replaced
