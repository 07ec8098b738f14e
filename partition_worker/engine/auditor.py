"""The auditor: re-derive all sums of a running partition in small slices, and collect its health.

A round looks at every application, node, queue, user and group, and at the partition as a whole, each against its own
parts between two steps. Objects added during a round are checked in the next one.

A slice has SLICE_ITEMS items, every SLICE_EVERY_S; that is less than 1 % of the time (`benchmarks/auditor.py`). One
object is always checked in one piece. Rounds start `every_s` apart, if anything has changed. The health of a partition
are the nine checks of YuniKorn and the drifted sums. Drift is a defect of the scheduler: it is logged and recorded as
an event. `invariants.py` defines what must hold; nothing is repaired.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from common import event_codes
from common.messages import Resources
from common.resources import drop_zeros, equal, plus, text, total_of
from common.wire import NEVER
from partition_worker.engine import invariants
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.state import PartitionState

LISTED_MAX: Final = 100
"""Items listed for one check."""


class Health(Struct):
    """The findings of one round."""

    scheduling_errors: int = 0
    """Since the creation of the partition, so a failed check stays failed."""
    negative: int = 0
    """How many of the total capacity and the root's allocated resources are negative."""
    inconsistent: bool = False
    """Whether the total differs from the sum of the node capacities."""
    nodes: int = 0
    reservations: int = 0
    negative_nodes: list[str] = []
    """Each node once for each of its negative amounts."""
    inconsistent_nodes: list[str] = []
    orphans_on_nodes: list[str] = []
    """Allocations on a node that no application has."""
    orphans_of_applications: list[str] = []
    """Allocations of an application that are not on their node."""
    drift: list[str] = []
    """Sums that differ from their parts."""

    def look_at_node(self, state: PartitionState, node: Node) -> None:
        """Run the checks of one node."""
        for amount in (node.allocated, node.available, node.capacity, node.occupied):
            if _has_negative(amount):
                _list(self.negative_nodes, [node.node_id])
        if not equal(node.capacity, plus(plus(node.allocated, node.occupied), node.available)):
            _list(self.inconsistent_nodes, [node.node_id])
        _list(self.orphans_on_nodes, (_told(one) for one in node.allocations.values() if not _is_owned(state, one)))

    def look_at_application(self, state: PartitionState, application: Application) -> None:
        """Run the checks of one application."""
        for one in application.allocations.values():
            node = state.nodes.get(one.node_id)
            if node is None or node.allocations.get(one.key) is not one:
                _list(self.orphans_of_applications, [_told(one)])

    def look_at_partition(self, state: PartitionState) -> None:
        """Run the checks of the partition as a whole."""
        fleet, root = state.nodes, state.tree.root
        self.scheduling_errors = state.counters.errors
        self.negative = sum(_has_negative(amount) for amount in (root.allocated, fleet.total))
        self.inconsistent = not equal(fleet.total, total_of(node.capacity for node in fleet))
        self.nodes, self.reservations = len(fleet), len(state.reservation_index)

    def note_drift(self, problems: Iterable[str]) -> None:
        """Add sums that differ from their parts."""
        _list(self.drift, problems)


def _list(found: list[str], more: Iterable[str]) -> None:
    for one in more:
        if len(found) < LISTED_MAX:
            found.append(one)


def _has_negative(amount: Resources) -> bool:
    return any(value < 0 for value in amount.values())


def _is_owned(state: PartitionState, allocation: Allocation) -> bool:
    application = state.applications.get(allocation.application_id)
    if application is None:
        return False
    key = allocation.key
    return (application.allocations.get(key) or application.swapping.get(key)) is allocation


def _told(allocation: Allocation) -> str:
    amounts, allocated = text(drop_zeros(allocation.resources)), str(bool(allocation.node_id)).lower()
    return (
        f"allocationKey {allocation.key}, applicationID {allocation.application_id}, "
        f"Resource {amounts}, Allocated {allocated}"
    )


# Auditor --------------------------------------------------------------------------------------------------------------

SLICE_EVERY_S: Final = 0.1
SLICE_ITEMS: Final = 500
"""Asks, allocations, applications and queues checked in one slice; at least one object."""

TOLD_MAX: Final = 20
"""Drifts that are logged in one round; all are counted."""


class _Look(NamedTuple):
    """One checked object: its kind and name, its number of items, and its problems."""

    kind: int
    """The type of its events."""
    name: str
    items: int
    problems: list[str]


class Auditor:
    """Checks one partition, round after round."""

    def __init__(self, state: PartitionState) -> None:
        self.every_s = 0.0
        """Seconds between the starts of rounds; 0 disables the auditor."""
        self.deadline = NEVER
        """When the next slice is due, in Unix seconds."""
        self.rounds = 0
        self.drift = 0
        """Drifts found in all rounds; an existing drift counts in each."""
        self.health = Health()
        """The findings of the latest complete round."""
        self._began = state.now
        self._changed = False
        self._found = Health()
        self._round: Iterator[_Look] | None = None

    def expect(self, state: PartitionState) -> None:
        """The partition may have changed: schedule another round."""
        self._changed = True
        if self._round is None and self.deadline == NEVER and self.every_s > 0:
            self.deadline = max(state.now, self._began + self.every_s)

    def go_on(self, state: PartitionState) -> None:
        """Check the next slice of this round, or start a round."""
        if self._round is None:
            self._began, self._changed, self._found = state.now, False, Health()
            self._round = _looks(state, self._found)
        items = 0
        for look in self._round:
            self._take(state, look)
            items += look.items
            if items >= SLICE_ITEMS:
                self.deadline = state.now + SLICE_EVERY_S
                return
        self._end(state)

    def _take(self, state: PartitionState, look: _Look) -> None:
        for problem in look.problems:
            self.drift += 1
            self._found.note_drift([problem])
            if len(self._found.drift) <= TOLD_MAX:
                text = f"audit: {problem}"
                state.log_info(text)
                state.record_event(look.kind, look.name, event_codes.NONE, event_codes.DETAILS_NONE, message=text)

    def _end(self, state: PartitionState) -> None:
        self.health, self._round, self.deadline = self._found, None, NEVER
        self.rounds += 1
        if self._changed:
            self.expect(state)


def _looks(state: PartitionState, found: Health) -> Iterator[_Look]:
    """Check every object that exists when its kind is listed and still exists at its turn."""
    for name in tuple(state.applications):
        application = state.applications.get(name)
        if application is not None:
            found.look_at_application(state, application)
            problems = list(invariants.of_application(state, application))
            yield _Look(event_codes.APP, name, 1 + len(application.requests) + len(application.allocations), problems)
    for node in tuple(state.nodes):
        if state.nodes.get(node.node_id) is node:
            found.look_at_node(state, node)
            problems = list(invariants.of_node(state, node))
            yield _Look(event_codes.NODE, node.node_id, 1 + len(node.allocations) + len(node.foreign), problems)
    for queue in state.tree:
        if state.tree.find(queue.path) is queue:
            items = 1 + len(queue.children) + len(queue.applications)
            yield _Look(event_codes.QUEUE, queue.path, items, list(invariants.of_queue(state, queue)))
    for kind, trackers in (("user", state.usage.users), ("group", state.usage.groups)):
        for tracker in tuple(trackers):
            if trackers.find(tracker.name) is tracker:
                problems = list(invariants.of_tracker(state, kind, tracker))
                items = len(tracker.levels) + len(tracker.accounts)
                yield _Look(event_codes.USERGROUP, tracker.name, items, problems)
    found.look_at_partition(state)
    items = len(state.applications) + len(state.nodes)
    yield _Look(event_codes.QUEUE, state.tree.root.path, items, list(invariants.of_partition(state)))
