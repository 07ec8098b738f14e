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


def handle(books: PartitionState, request: NodeRequest) -> None:
    """Process each node. Created nodes are accepted or rejected; an action on an unknown node is only logged."""
    total = books.fleet.total
    for info in request.nodes:
        if info.action in (NODE_CREATE, NODE_CREATE_DRAIN):
            _create(books, info)
            continue
        node = books.fleet.get(info.node_id)
        if node is None:
            books.note(f"node {info.node_id}: unknown, action {info.action} has no effect")
            continue
        _change(books, node, info)
    if books.fleet.total != total:
        books.readiness.resized()


def _create(books: PartitionState, info: NodeInfo) -> None:
    events.schedulable(books, info.node_id, now=info.action == NODE_CREATE)
    problem = _problem(books, info)
    if problem:
        events.node_added(books, info.node_id, info.schedulable_resource or {})
        books.emit(RejectedNode(node_id=info.node_id, reason=problem))
        return
    total = books.fleet.total
    node = books.fleet.add(
        info.node_id,
        info.schedulable_resource or {},
        {**info.attributes, NODE_PARTITION: books.name},
        schedulable=info.action == NODE_CREATE,
    )
    events.cluster_resized(books, total)
    events.node_added(books, node.node_id, node.capacity)
    books.readiness.relieve()
    books.emit(AcceptedNode(node_id=node.node_id))


def _problem(books: PartitionState, info: NodeInfo) -> str:
    if books.retired:
        return f"partition {books.name} was removed: it cannot add a new node {info.node_id}"
    if not info.node_id:
        return "invalid node: it has no id"
    if negative := sorted(kind for kind, amount in (info.schedulable_resource or {}).items() if amount < 0):
        return f"invalid node: negative resources for {', '.join(negative)}"
    if books.fleet.get(info.node_id) is not None:
        return (
            "failure while adding new node, node rejected with error: \n"
            f"failed to add node {info.node_id} to partition {books.name}, error: "
            f"partition {books.name} has an existing node {info.node_id}, node name must be unique"
        )
    return node_objection(info, count=len(books.fleet))


def _change(books: PartitionState, node: Node, info: NodeInfo) -> None:
    match info.action:
        case action if action == NODE_UPDATE:
            _resize(books, node, info)
        case action if action in (NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE):
            set_schedulable(books, node, schedulable=action == NODE_DRAIN_TO_SCHEDULABLE)
        case action if action == NODE_DECOMMISSION:
            _decommission(books, node)
        case unknown:
            books.note(f"node {node.node_id}: unknown action {unknown} has no effect")


def set_schedulable(books: PartitionState, node: Node, *, schedulable: bool) -> None:
    """Set whether a node takes new allocations."""
    if node.schedulable != schedulable:
        books.fleet.set_schedulable(node, schedulable=schedulable)
        events.schedulable(books, node.node_id, now=schedulable)
        books.readiness.relieve()


def _resize(books: PartitionState, node: Node, info: NodeInfo) -> None:
    capacity = info.schedulable_resource
    if capacity is None:
        return
    if any(amount < 0 for amount in capacity.values()):
        books.note(f"node {node.node_id}: a negative capacity has no effect")
        return
    if equal(capacity, node.capacity):
        return
    total = books.fleet.total
    books.fleet.resize(node, capacity)
    books.happened(event_codes.NODE, node.node_id, event_codes.SET, event_codes.NODE_CAPACITY, resource=node.capacity)
    events.cluster_resized(books, total)
    reservations.node_resized(books, node)
    books.readiness.relieve()


def _decommission(books: PartitionState, node: Node) -> None:
    """Remove a node after ending everything on it; the RM receives all releases together."""
    events.schedulable(books, node.node_id, now=False)
    books.fleet.withdraw(node)
    reservations.vacate(books, node)
    released, replaced = _empty(books, node)
    for one in released:
        books.emit(one.release(books.name, f"Node {node.node_id} Removed"))
    for one in replaced:
        books.emit(one.announced())
    for key in node.foreign:
        del books.foreign[key]
    total = books.fleet.total
    books.fleet.remove(node)
    events.cluster_resized(books, total)
    events.node_gone(books, node.node_id)
    books.counters.decommissioned += 1


def _empty(books: PartitionState, node: Node) -> tuple[list[Allocation], list[Allocation]]:
    """End everything on a node: returns the releases and the real allocations that replaced a placeholder there. Of a
    swap in progress, the real ask runs if it is on another node and waits again if it is on this one.
    """
    released: list[Allocation] = []
    replaced: list[Allocation] = []
    for allocation in tuple(node.allocations.values()):
        application = books.applications[allocation.application_id]
        if allocation.key in application.swapping:
            unwind_swap(books, application, allocation)
            continue
        released.append(allocation)
        if allocation.partner is not None and allocation.partner.node_id != node.node_id:
            replaced.append(confirm_swap(books, application, allocation))
        else:
            end_allocation(books, application, allocation, termination_type=None)
    return released, replaced
