"""What a health check finds in a partition: the nine checks that YuniKorn has, and sums that drifted.

Filled object by object while the auditor goes round (`auditor.py`). Not here: how the checks of all partitions become
one answer (`webservice/health.py`).
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from common.messages import Resources
from common.resources import equal, plus, pruned, text, total_of
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import Node

LISTED_MAX: Final = 100
"""Things that are listed for one check; what is wrong with more is likely to be the same."""


class Health(Struct):
    """What was found in one round."""

    scheduling_errors: int = 0
    """Since the partition began, so that a check that failed stays failed."""
    negative: int = 0
    """How many of what the partition has, and has allocated, are negative."""
    inconsistent: bool = False
    """Whether the partition does not have what its nodes have."""
    nodes: int = 0
    reservations: int = 0
    negative_nodes: list[str] = []
    """A node is listed once for each of its amounts that is negative."""
    inconsistent_nodes: list[str] = []
    orphans_on_nodes: list[str] = []
    """Allocations that are on a node and belong to no application."""
    orphans_of_applications: list[str] = []
    """Allocations of an application that are not on their node."""
    drift: list[str] = []
    """What else does not agree with what it is made of."""

    def look_at_node(self, books: Books, node: Node) -> None:
        """The checks of one node."""
        for amount in (node.allocated, node.available, node.capacity, node.occupied):
            if _has_negative(amount):
                _list(self.negative_nodes, [node.node_id])
        if not equal(node.capacity, plus(plus(node.allocated, node.occupied), node.available)):
            _list(self.inconsistent_nodes, [node.node_id])
        _list(self.orphans_on_nodes, (_told(one) for one in node.allocations.values() if not _is_owned(books, one)))

    def look_at_application(self, books: Books, application: Application) -> None:
        """The checks of one application."""
        for one in application.allocations.values():
            node = books.fleet.get(one.node_id)
            if node is None or node.allocations.get(one.key) is not one:
                _list(self.orphans_of_applications, [_told(one)])

    def look_at_partition(self, books: Books) -> None:
        """The checks of the partition as a whole."""
        fleet, root = books.fleet, books.tree.root
        self.scheduling_errors = books.counters.errors
        self.negative = sum(_has_negative(amount) for amount in (root.allocated, fleet.total))
        self.inconsistent = not equal(fleet.total, total_of(node.capacity for node in fleet))
        self.nodes, self.reservations = len(fleet), len(books.reserved)

    def note_drift(self, problems: Iterable[str]) -> None:
        """Something does not agree with what it is made of."""
        _list(self.drift, problems)


def _list(found: list[str], more: Iterable[str]) -> None:
    for one in more:
        if len(found) < LISTED_MAX:
            found.append(one)


def _has_negative(amount: Resources) -> bool:
    return any(value < 0 for value in amount.values())


def _is_owned(books: Books, allocation: Allocation) -> bool:
    application = books.applications.get(allocation.application_id)
    if application is None:
        return False
    key = allocation.key
    return (application.allocations.get(key) or application.swapping.get(key)) is allocation


def _told(allocation: Allocation) -> str:
    amounts, allocated = text(pruned(allocation.resources)), str(bool(allocation.node_id)).lower()
    return (
        f"allocationKey {allocation.key}, applicationID {allocation.application_id}, "
        f"Resource {amounts}, Allocated {allocated}"
    )
