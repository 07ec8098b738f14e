"""The auditor: compute every sum of a partition again from its asks and allocations, and collect its health.

An `Auditor` checks the partition in small slices: a round looks at every application, node, queue, user and group, and
at the partition as a whole, each against its own parts between two steps. Objects added during a round are checked in
the next one. Tests check everything after each step, and the indexes as well (`tests/invariants.py`).

A slice has SLICE_ITEMS items, every SLICE_EVERY_S; that is less than 1 % of the time (`benchmarks/auditor.py`). An
object is checked in one piece, unless it has more than PORTION parts: then it takes several slices, and is left to the
next round if the partition changes in between. Rounds start `every_s` apart, if anything has changed. The health of a
partition are the nine checks of YuniKorn and the drifted sums. Drift is a defect of the scheduler: it is logged and
recorded as an event; nothing is repaired.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, TypeVar

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

_T = TypeVar("_T")

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

PORTION: Final = 5_000
"""Parts of one object that one slice adds up, in about 5 ms."""

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
            sums = _sum_application(state, health, application)
            yield from _compare(state, (event_codes.APP, "application", name), sums)
    for node in tuple(state.nodes):
        if state.nodes.get(node.node_id) is node:
            _collect_node_health(health, state, node)
            items = 1 + len(node.allocations) + len(node.foreign)
            yield from _compare(state, (event_codes.NODE, "node", node.node_id), _sum_node(node), items)
    for queue in state.tree:
        if state.tree.find(queue.path) is queue:
            yield from _compare(state, (event_codes.QUEUE, "queue", queue.path), _sum_queue(state, queue))
    for what, trackers in (("user", state.usage.users), ("group", state.usage.groups)):
        for tracker in tuple(trackers.by_name.values()):
            if trackers.by_name.get(tracker.name) is tracker:
                yield from _compare(state, (event_codes.USERGROUP, what, tracker.name), _sum_tracker(tracker))
    nodes, root = state.nodes, state.tree.root
    health.negative = sum(_has_negative(amount) for amount in (root.allocated, nodes.total))
    health.nodes, health.reservations = len(nodes), len(state.reservation_index.by_rank)
    yield from _compare(state, (event_codes.QUEUE, "partition", root.path), _sum_partition(state, health))


def _collect_node_health(health: WorkerHealth, state: PartitionState, node: Node) -> None:
    amounts = (node.allocated, node.available, node.capacity, node.occupied)
    _append(health.negative_nodes, [node.node_id] * sum(map(_has_negative, amounts)))
    if not equal(node.capacity, plus(plus(node.allocated, node.occupied), node.available)):
        _append(health.inconsistent_nodes, [node.node_id])
    orphans = (one for one in node.allocations.values() if not has_owner(state, one))
    _append(health.orphans_on_nodes, map(_describe, orphans))


Sum = tuple[str, Resources | int, Resources | int]
"""The name of a sum, the sum of its parts, and its value in the state."""


def _compare(
    state: PartitionState, what: tuple[int, str, str], sums: Iterable[Sum | int], items: int = 1
) -> Iterator[Checked]:
    """Compare the sums of an object, with the type of its events, its kind and its name. Between the sums, there are
    numbers of parts that were added up: after PORTION of them the slice may end.
    """
    kind, _, name = what
    drift: list[str] = []
    step = state.step_number
    for found in sums:
        if not isinstance(found, int):
            drift += _describe_drift(what, found)
            continue
        items += found
        if found >= PORTION:
            yield Checked(kind, name, items, [])
            items = 0
            if state.step_number != step:
                return
    yield Checked(kind, name, items, drift)


def _describe_drift(what: tuple[int, str, str], compared: Sum) -> list[str]:
    of, expected, found = compared
    if isinstance(expected, dict) and isinstance(found, dict) and equal(expected, found):
        return []
    return [] if expected == found else [f"{what[1]} {what[2]}, {of}: {found} where the sum is {expected}"]


def _split(parts: Iterable[_T]) -> Iterator[list[_T]]:
    every = list(parts)
    return (every[first : first + PORTION] for first in range(0, len(every), PORTION))


def _sum_application(state: PartitionState, health: WorkerHealth, application: Application) -> Iterator[Sum | int]:
    pending: Resources = {}
    allocated: tuple[Resources, Resources] = {}, {}
    for asks in _split(application.requests.values()):
        for one in asks:
            add_to(pending, one.resources)
        yield len(asks)
    for allocations in _split(application.allocations.values()):
        _append(health.orphans_of_applications, (_describe(one) for one in allocations if not is_on_node(state, one)))
        for one in allocations:
            add_to(allocated[one.placeholder], one.resources)
        yield len(allocations)
    yield "pending", pending, application.pending
    yield "allocated", allocated[False], application.allocated
    yield "allocated to placeholders", allocated[True], application.allocated_placeholder


def _sum_node(node: Node) -> Iterator[Sum | int]:
    yield "allocated", total_of(one.resources for one in node.allocations.values()), node.allocated
    yield "occupied", total_of(one.resources for one in node.foreign.values()), node.occupied
    yield "available", minus(minus(node.capacity, node.allocated), node.occupied), node.available


def _sum_queue(state: PartitionState, queue: Queue) -> Iterator[Sum | int]:
    """The parts are its children and applications."""
    children = queue.children.values()
    allocated, pending = total_of(one.allocated for one in children), total_of(one.pending for one in children)
    preempting, kept = total_of(one.preempting for one in children), total_of(one.kept for one in children)
    running, parts = sum(child.running for child in children), len(children)
    for application in [state.applications[name] for name in queue.applications]:
        add_to(allocated, application.charged)
        add_to(pending, application.pending)
        running += application.state in ACTIVE
        for reservation in application.reservations.values():
            add_to(kept, reservation.keeps)
        for allocations in _split(application.allocations.values()):
            for one in allocations:
                if one.is_leaving:
                    add_to(preempting, one.resources)
            parts += len(allocations)
            if parts >= PORTION:
                yield parts
                parts = 0
        parts += 1
    yield parts
    yield "allocated", allocated, queue.allocated
    yield "pending", pending, queue.pending
    yield "preempting", preempting, queue.preempting
    if queue.parent is not None:
        yield "kept", kept, queue.kept
    yield "running applications", running, queue.running


def _sum_tracker(tracker: Tracker) -> Iterator[Sum | int]:
    """The parts are the applications that are charged to the user or group."""
    used: dict[str, Resources] = {path: {} for path in tracker.levels}
    for accounts in _split(tracker.accounts.values()):
        for account in accounts:
            for queue in account.application.queue.ancestry():
                add_to(used.setdefault(queue.path, {}), account.application.charged)
        yield len(accounts)
    for path, expected in used.items():
        level = tracker.levels.get(path)
        yield f"used in {path}", expected, {} if level is None else level.used


def _sum_partition(state: PartitionState, health: WorkerHealth) -> Iterator[Sum | int]:
    nodes, capacity = state.nodes, Resources()
    owned = running = reserved = foreign = 0
    for applications in _split(state.applications.values()):
        for one in applications:
            owned += len(one.requests) + len(one.allocations) + len(one.swapping)
            running += len(one.allocations)
            reserved += len(one.reservations)
        yield len(applications)
    for some in _split(nodes):
        for node in some:
            foreign += len(node.foreign)
            add_to(capacity, node.capacity)
        yield len(some)
    health.inconsistent = not equal(nodes.total, capacity)
    yield "asks and allocations", owned, len(state.allocations)
    yield "running allocations", running, state.running_allocations
    yield "reservations", reserved, len(state.reservation_index.by_rank)
    yield "foreign allocations", foreign, len(state.foreign)
    yield "capacity", capacity, nodes.total
    yield "maximum", nodes.total, state.tree.root.maximum or {}
