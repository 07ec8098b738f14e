"""The auditor: compute every sum of a partition again from its asks and allocations, and collect its health.

An `Auditor` checks the partition in small slices: a round looks at every application, node, queue, user and group, and
at the partition as a whole, each against its own parts between two steps. Objects added during a round are checked in
the next one. Tests check everything after each step, and the indexes as well (`tests/invariants.py`).

A slice has SLICE_ITEMS items, every SLICE_EVERY_S; that is less than 1 % of the time (`benchmarks/auditor.py`). One
object is always checked in one piece. Rounds start `every_s` apart, if anything has changed. The health of a partition
are the nine checks of YuniKorn and the drifted sums. Drift is a defect of the scheduler: it is logged and recorded as
an event; nothing is repaired.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from yunishard.common.messages import event_codes
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.query_messages import WorkerHealth
from yunishard.common.messages.wire import NEVER
from yunishard.common.resources import add_to, drop_zeros, equal, minus, plus, text, total_of
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import ACTIVE, Application
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import Tracker

LISTED_MAX: Final = 100
"""Items listed for one check."""


def _append(found: list[str], more: Iterable[str]) -> None:
    found.extend(islice(more, LISTED_MAX - len(found)))


def _has_negative(amount: Resources) -> bool:
    return any(value < 0 for value in amount.values())


def has_owner(state: PartitionState, allocation: Allocation) -> bool:
    """Whether the application of an allocation on a node has it."""
    owner, key = state.applications.get(allocation.application_id), allocation.key
    return owner is not None and (owner.allocations.get(key) or owner.swapping.get(key)) is allocation


def is_on_node(state: PartitionState, allocation: Allocation) -> bool:
    """Whether the node of an allocation has it."""
    node = state.nodes.get(allocation.node_id)
    return node is not None and node.allocations.get(allocation.key) is allocation


def _describe(allocation: Allocation) -> str:
    amounts, allocated = text(drop_zeros(allocation.resources)), str(bool(allocation.node_id)).lower()
    return (
        f"allocationKey {allocation.key}, applicationID {allocation.application_id}, "
        f"Resource {amounts}, Allocated {allocated}"
    )


# Auditor --------------------------------------------------------------------------------------------------------------

SLICE_EVERY_S: Final = 0.1
SLICE_ITEMS: Final = 500
"""Asks, allocations, applications and queues checked in one slice; at least one object."""

LOGGED_MAX: Final = 20
"""Drifts that are logged in one round; all are counted."""


class Checked(NamedTuple):
    """A checked object."""

    kind: int
    """The type of its events."""
    name: str
    items: int
    drift: list[str]


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
        self.health = WorkerHealth()
        """The findings of the latest complete round."""
        self._began = state.now
        self.has_changes = False
        """Whether the partition may have changed since the latest round started."""
        self._found = WorkerHealth()
        self._round: Iterator[Checked] | None = None

    def schedule_round(self, state: PartitionState) -> None:
        """Schedule a round, unless the auditor is disabled; none may be scheduled or in progress."""
        if self.every_s > 0:
            self.deadline = max(state.now, self._began + self.every_s)

    def check_slice(self, state: PartitionState) -> None:
        """Check the next slice of this round, or start a round."""
        if self._round is None:
            self._began, self.has_changes, self._found = state.now, False, WorkerHealth()
            self._round = check_objects(state, self._found)
        items = 0
        for checked in self._round:
            for problem in checked.drift:
                self._record_drift(state, checked, problem)
            items += checked.items
            if items >= SLICE_ITEMS:
                self.deadline = state.now + SLICE_EVERY_S
                return
        self.health, self._round, self.deadline = self._found, None, NEVER
        self.rounds += 1
        if self.has_changes:
            self.schedule_round(state)

    def _record_drift(self, state: PartitionState, checked: Checked, problem: str) -> None:
        self.drift += 1
        _append(self._found.drift, [problem])
        if len(self._found.drift) <= LOGGED_MAX:
            message = f"audit: {problem}"
            state.log_info(message)
            state.record_event(checked.kind, checked.name, event_codes.NONE, event_codes.DETAILS_NONE, message=message)


def check_objects(state: PartitionState, health: WorkerHealth) -> Iterator[Checked]:
    """Check every object that exists when its kind is listed and still exists at its turn."""
    for name, application in tuple(state.applications.items()):
        if state.applications.get(name) is application:
            orphans = (one for one in application.allocations.values() if not is_on_node(state, one))
            _append(health.orphans_of_applications, map(_describe, orphans))
            items = 1 + len(application.requests) + len(application.allocations)
            yield _compare(event_codes.APP, "application", name, items, _sum_application(application))
    for node in tuple(state.nodes):
        if state.nodes.get(node.node_id) is node:
            _collect_node_health(health, state, node)
            items = 1 + len(node.allocations) + len(node.foreign)
            yield _compare(event_codes.NODE, "node", node.node_id, items, _sum_node(node))
    for queue in state.tree:
        if state.tree.find(queue.path) is queue:
            items = 1 + len(queue.children) + len(queue.applications)
            yield _compare(event_codes.QUEUE, "queue", queue.path, items, _sum_queue(state, queue))
    for what, trackers in (("user", state.usage.users), ("group", state.usage.groups)):
        for tracker in tuple(trackers.by_name.values()):
            if trackers.by_name.get(tracker.name) is tracker:
                items = len(tracker.levels) + len(tracker.accounts)
                yield _compare(event_codes.USERGROUP, what, tracker.name, items, _sum_tracker(tracker))
    nodes, root = state.nodes, state.tree.root
    health.negative = sum(_has_negative(amount) for amount in (root.allocated, nodes.total))
    health.inconsistent = not equal(nodes.total, total_of(node.capacity for node in nodes))
    health.nodes, health.reservations = len(nodes), len(state.reservation_index.by_rank)
    items = len(state.applications) + len(state.nodes)
    yield _compare(event_codes.QUEUE, "partition", state.tree.root.path, items, _sum_partition(state))


def _collect_node_health(health: WorkerHealth, state: PartitionState, node: Node) -> None:
    amounts = (node.allocated, node.available, node.capacity, node.occupied)
    _append(health.negative_nodes, [node.node_id] * sum(map(_has_negative, amounts)))
    if not equal(node.capacity, plus(plus(node.allocated, node.occupied), node.available)):
        _append(health.inconsistent_nodes, [node.node_id])
    orphans = (one for one in node.allocations.values() if not has_owner(state, one))
    _append(health.orphans_on_nodes, map(_describe, orphans))


Sum = tuple[str, Resources | int, Resources | int]
"""The name of a sum, the sum of its parts, and its value in the state."""


def _compare(kind: int, what: str, name: str, items: int, sums: Iterable[Sum]) -> Checked:
    drift = []
    for of, expected, found in sums:
        if isinstance(expected, dict) and isinstance(found, dict):
            is_right = equal(expected, found)
        else:
            is_right = expected == found
        if not is_right:
            drift.append(f"{what} {name}, {of}: {found} where the sum is {expected}")
    return Checked(kind, name, items, drift)


def _sum_application(application: Application) -> Iterator[Sum]:
    allocations = application.allocations.values()
    placeholders = [one.resources for one in allocations if one.placeholder]
    yield "pending", total_of(one.resources for one in application.requests.values()), application.pending
    yield "allocated", total_of(one.resources for one in allocations if not one.placeholder), application.allocated
    yield "allocated to placeholders", total_of(placeholders), application.allocated_placeholder


def _sum_node(node: Node) -> Iterator[Sum]:
    yield "allocated", total_of(one.resources for one in node.allocations.values()), node.allocated
    yield "occupied", total_of(one.resources for one in node.foreign.values()), node.occupied
    yield "available", minus(minus(node.capacity, node.allocated), node.occupied), node.available


def _sum_queue(state: PartitionState, queue: Queue) -> Iterator[Sum]:
    """The parts are its children and applications."""
    children, applications = queue.children.values(), [state.applications[name] for name in queue.applications]
    preempting = [child.preempting for child in children]
    kept = [child.kept for child in children]
    for one in applications:
        preempting += [allocation.resources for allocation in one.allocations.values() if allocation.is_leaving]
        kept += [reservation.keeps for reservation in one.reservations.values()]
    charged = [*(child.allocated for child in children), *(one.charged for one in applications)]
    yield "allocated", total_of(charged), queue.allocated
    pending = [*(child.pending for child in children), *(one.pending for one in applications)]
    yield "pending", total_of(pending), queue.pending
    yield "preempting", total_of(preempting), queue.preempting
    if queue.parent is not None:
        yield "kept", total_of(kept), queue.kept
    running = sum(child.running for child in children) + sum(one.state in ACTIVE for one in applications)
    yield "running applications", running, queue.running


def _sum_tracker(tracker: Tracker) -> Iterator[Sum]:
    """The parts are the applications that are charged to the user or group."""
    used: dict[str, Resources] = {path: {} for path in tracker.levels}
    for account in tracker.accounts.values():
        for queue in account.application.queue.ancestry():
            add_to(used.setdefault(queue.path, {}), account.application.charged)
    for path, expected in used.items():
        level = tracker.levels.get(path)
        yield f"used in {path}", expected, {} if level is None else level.used


def _sum_partition(state: PartitionState) -> Iterator[Sum]:
    applications, nodes = state.applications.values(), state.nodes
    owned = sum(len(one.requests) + len(one.allocations) + len(one.swapping) for one in applications)
    yield "asks and allocations", owned, len(state.allocations)
    yield "running allocations", sum(len(one.allocations) for one in applications), state.running_allocations
    yield "reservations", sum(len(one.reservations) for one in applications), len(state.reservation_index.by_rank)
    yield "foreign allocations", sum(len(node.foreign) for node in nodes), len(state.foreign)
    yield "capacity", total_of(node.capacity for node in nodes), nodes.total
    yield "maximum", nodes.total, state.tree.root.maximum or {}
