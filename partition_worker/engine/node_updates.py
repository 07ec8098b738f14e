"""What an RM's word about nodes does to the partition.

Not here: the order of nodes (`nodes/fleet.py`).
"""

from common.messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    AcceptedNode,
    AllocationRelease,
    NodeInfo,
    NodeRequest,
    RejectedNode,
)
from common.names import NODE_PARTITION
from common.resources import equal
from partition_worker.engine import ledger, lifecycle
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import Node


def handle(books: Books, request: NodeRequest) -> None:
    """Each node by itself; created ones are answered, anything about an unknown node is only noted."""
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


def _create(books: Books, info: NodeInfo) -> None:
    problem = _problem(books, info)
    if problem:
        books.emit(RejectedNode(node_id=info.node_id, reason=problem))
        return
    node = books.fleet.add(
        info.node_id,
        info.schedulable_resource or {},
        {**info.attributes, NODE_PARTITION: books.name},
        schedulable=info.action == NODE_CREATE,
    )
    books.readiness.relieve()
    books.emit(AcceptedNode(node_id=node.node_id))


def _problem(books: Books, info: NodeInfo) -> str:
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
    return ""


def _change(books: Books, node: Node, info: NodeInfo) -> None:
    match info.action:
        case action if action == NODE_UPDATE:
            _resize(books, node, info)
        case action if action in (NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE):
            _set_schedulable(books, node, schedulable=action == NODE_DRAIN_TO_SCHEDULABLE)
        case action if action == NODE_DECOMMISSION:
            _decommission(books, node)
        case unknown:
            books.note(f"node {node.node_id}: unknown action {unknown} has no effect")


def _set_schedulable(books: Books, node: Node, *, schedulable: bool) -> None:
    if node.schedulable != schedulable:
        books.fleet.set_schedulable(node, schedulable=schedulable)
        books.readiness.relieve()


def _resize(books: Books, node: Node, info: NodeInfo) -> None:
    capacity = info.schedulable_resource
    if capacity is None:
        return
    if any(amount < 0 for amount in capacity.values()):
        books.note(f"node {node.node_id}: a negative capacity has no effect")
        return
    if equal(capacity, node.capacity):
        return
    books.fleet.resize(node, capacity)
    books.readiness.relieve()


def _decommission(books: Books, node: Node) -> None:
    """The node goes, after everything on it has ended; the RM hears of what ended in one list."""
    books.fleet.withdraw(node)
    released: list[AllocationRelease] = []
    for allocation in tuple(node.allocations.values()):
        application = allocation.application
        assert application is not None, allocation.key
        ledger.remove_allocation(books, application, allocation)
        application.queue.released += 1
        lifecycle.complete_if_done(books, application)
        released.append(allocation.released(books.name, f"Node {node.node_id} Removed"))
    for release in released:
        books.emit(release)
    for key in node.foreign:
        del books.foreign[key]
    books.fleet.remove(node)
    books.counters.decommissioned += 1
