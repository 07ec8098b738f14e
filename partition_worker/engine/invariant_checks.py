"""The auditor: re-derive every sum and index of a partition from its asks and allocations, and collect its health.

Tests and simulations call `check` after each step. In production an `Auditor` checks the partition in small slices: a
round looks at every application, node, queue, user and group, and at the partition as a whole, each against its own
parts between two steps. Objects added during a round are checked in the next one.

A slice has SLICE_ITEMS items, every SLICE_EVERY_S; that is less than 1 % of the time (`benchmarks/auditor.py`). One
object is always checked in one piece. Rounds start `every_s` apart, if anything has changed. The health of a partition
are the nine checks of YuniKorn and the drifted sums. Drift is a defect of the scheduler: it is logged and recorded as
an event; nothing is repaired.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct

from common import event_codes
from common.messages import Resources
from common.resources import add_to, drop_zeros, equal, is_zero, minus, plus, text, total_of
from common.wire import NEVER
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import ACTIVE, ENDED, LINGER_S, Application, AppState
from partition_worker.engine.ledger import may_swap
from partition_worker.engine.nodes.node import Node, Reservation
from partition_worker.engine.queues.queue import NOTHING_PENDING, Queue
from partition_worker.engine.state import PartitionState
from partition_worker.engine.user_limits import Tracker

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

    def check_node(self, state: PartitionState, node: Node) -> None:
        """Run the checks of one node."""
        amounts = (node.allocated, node.available, node.capacity, node.occupied)
        _append(self.negative_nodes, [node.node_id] * sum(map(_has_negative, amounts)))
        if not equal(node.capacity, plus(plus(node.allocated, node.occupied), node.available)):
            _append(self.inconsistent_nodes, [node.node_id])
        _append(
            self.orphans_on_nodes, [_describe(one) for one in node.allocations.values() if not _has_owner(state, one)]
        )

    def check_application(self, state: PartitionState, application: Application) -> None:
        """Run the checks of one application."""
        orphans = [one for one in application.allocations.values() if not _is_on_node(state, one)]
        _append(self.orphans_of_applications, map(_describe, orphans))

    def check_partition(self, state: PartitionState) -> None:
        """Run the checks of the partition as a whole."""
        nodes, root = state.nodes, state.tree.root
        self.scheduling_errors = state.counters.errors
        self.negative = sum(_has_negative(amount) for amount in (root.allocated, nodes.total))
        self.inconsistent = not equal(nodes.total, total_of(node.capacity for node in nodes))
        self.nodes, self.reservations = len(nodes), len(state.reservation_index)


def _append(found: list[str], more: Iterable[str]) -> None:
    found.extend(islice(more, LISTED_MAX - len(found)))


def _has_negative(amount: Resources) -> bool:
    return any(value < 0 for value in amount.values())


def _has_owner(state: PartitionState, allocation: Allocation) -> bool:
    """Whether the application of an allocation on a node has it."""
    owner, key = state.applications.get(allocation.application_id), allocation.key
    return owner is not None and (owner.allocations.get(key) or owner.swapping.get(key)) is allocation


def _is_on_node(state: PartitionState, allocation: Allocation) -> bool:
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
        self.has_changes = False
        """Whether the partition may have changed since the latest round started."""
        self._found = Health()
        self._round: Iterator[_Look] | None = None

    def schedule_round(self, state: PartitionState) -> None:
        """Schedule a round, unless the auditor is disabled; none may be scheduled or in progress."""
        if self.every_s > 0:
            self.deadline = max(state.now, self._began + self.every_s)

    def check_slice(self, state: PartitionState) -> None:
        """Check the next slice of this round, or start a round."""
        if self._round is None:
            self._began, self.has_changes, self._found = state.now, False, Health()
            self._round = _check_objects(state, self._found)
        items = 0
        for look in self._round:
            self._record_drift(state, look)
            items += look.items
            if items >= SLICE_ITEMS:
                self.deadline = state.now + SLICE_EVERY_S
                return
        self.health, self._round, self.deadline = self._found, None, NEVER
        self.rounds += 1
        if self.has_changes:
            self.schedule_round(state)

    def _record_drift(self, state: PartitionState, look: _Look) -> None:
        for problem in look.problems:
            self.drift += 1
            _append(self._found.drift, [problem])
            if len(self._found.drift) <= TOLD_MAX:
                message = f"audit: {problem}"
                state.log_info(message)
                state.record_event(look.kind, look.name, event_codes.NONE, event_codes.DETAILS_NONE, message=message)


def _check_objects(state: PartitionState, health: Health | None = None) -> Iterator[_Look]:
    """Check every object that exists when its kind is listed and still exists at its turn."""
    for name, application in tuple(state.applications.items()):
        if state.applications.get(name) is application:
            if health is not None:
                health.check_application(state, application)
            items = 1 + len(application.requests) + len(application.allocations)
            yield _Look(event_codes.APP, name, items, list(_check_application(state, application)))
    for node in tuple(state.nodes):
        if state.nodes.get(node.node_id) is node:
            if health is not None:
                health.check_node(state, node)
            items = 1 + len(node.allocations) + len(node.foreign)
            yield _Look(event_codes.NODE, node.node_id, items, list(_check_node(state, node)))
    for queue in state.tree:
        if state.tree.find(queue.path) is queue:
            items = 1 + len(queue.children) + len(queue.applications)
            yield _Look(event_codes.QUEUE, queue.path, items, list(_check_queue(state, queue)))
    for kind, trackers in (("user", state.usage.users), ("group", state.usage.groups)):
        for tracker in tuple(trackers):
            if trackers.find(tracker.name) is tracker:
                items = len(tracker.levels) + len(tracker.accounts)
                yield _Look(event_codes.USERGROUP, tracker.name, items, list(_check_tracker(state, kind, tracker)))
    if health is not None:
        health.check_partition(state)
    items = len(state.applications) + len(state.nodes)
    yield _Look(event_codes.QUEUE, state.tree.root.path, items, list(_check_partition(state)))


# Invariants -----------------------------------------------------------------------------------------------------------


def check(state: PartitionState) -> None:
    """Verify that every sum and index agrees with the allocations.

    Raises: AssertionError: with all violations.
    """
    problems = find_violations(state)
    if problems:
        raise AssertionError(f"partition {state.name}: " + "; ".join(problems))


def find_violations(state: PartitionState) -> list[str]:
    """All violations, one sentence each."""
    return [problem for look in _check_objects(state) for problem in look.problems]


def _check_application(state: PartitionState, application: Application) -> Iterator[str]:
    """Violations of one application, its asks and allocations."""
    yield from _check_content(state, application)
    yield from _check_gang(state, application)
    yield from _check_reservations(state, application)
    yield from _check_account(state, application)


def _compare(what: str, expected: Resources, found: Resources) -> Iterator[str]:
    if not equal(expected, found):
        yield f"{what}: {drop_zeros(found)} where the sum is {drop_zeros(expected)}"


def _check_content(state: PartitionState, application: Application) -> Iterator[str]:
    name = f"application {application.application_id}"
    if application.state in ENDED:
        yield f"{name} has ended ({application.state}) but is still listed"
    if application.application_id not in application.queue.applications:
        yield f"{name} is not in its queue {application.queue.path}"
    yield from _compare(
        f"{name} pending", total_of(a.resources for a in application.requests.values()), application.pending
    )
    for what, placeholder, total in (
        ("allocated", False, application.allocated),
        ("allocated to placeholders", True, application.allocated_placeholder),
    ):
        having = (one for one in application.allocations.values() if one.placeholder == placeholder)
        yield from _compare(f"{name} {what}", total_of(one.resources for one in having), total)
    if {ask.key for ask in application.asks} != set(application.requests):
        yield f"{name}: its asks in order are not its asks by key"
    if application.state is AppState.STARTING and not application.queue.state_aware:
        yield f"{name} is Starting in a queue that is not aware of states"
    waits = application.state is AppState.COMPLETING and not is_zero(application.allocated_placeholder)
    if ("state" in application.alarms) != (application.state in LINGER_S) and not waits:
        yield f"{name} in state {application.state}: alarms are {application.alarms}"
    for allocation in application.allocations.values():
        if not _is_on_node(state, allocation):
            yield f"{name}: allocation {allocation.key} is not on its node {allocation.node_id!r}"


def _check_gang(state: PartitionState, application: Application) -> Iterator[str]:
    """Violations of placeholders, held asks, and swaps in progress."""
    name = f"application {application.application_id}"
    for ask in application.requests.values():
        if ask.held != application.must_hold(ask) or ask.node_id or ask.partner:
            yield f"{name}: ask {ask.key} is not held as it should be, or has a node"
    for one in application.allocations.values():
        if one.released and one.preempted:
            yield f"{name}: the RM was asked for {one.key} twice"
        if one.partner and (one.partner.partner is not one or application.swapping.get(one.partner.key) is None):
            yield f"{name}: nothing takes the place of placeholder {one.key}"
    for key, ask in application.swapping.items():
        placeholder = ask.partner
        if placeholder is None or not placeholder.released or placeholder.key not in application.allocations:
            yield f"{name}: {key} has no placeholder to replace"
            continue
        node = state.nodes.get(ask.node_id)
        if node is None or (key in node.allocations) != (ask.node_id != placeholder.node_id):
            yield f"{name}: {key} is not where it should be until it has replaced {placeholder.key}"
    for group in application.task_groups.values():
        every = [*application.requests.values(), *application.allocations.values()]
        alive = [one for one in every if one.placeholder and one.task_group == group.name]
        free = {one.key for one in alive if one.node_id and not one.released and not one.preempted}
        waiting = sum(ask.held and ask.task_group == group.name for ask in application.requests.values())
        if group.outstanding != len(alive) or set(group.free) != free or group.waiting != waiting:
            yield f"{name}: task group {group} where {len(alive)} placeholders are, {free} free, and {waiting} wait"
    if may_swap(application) and application not in state.swap_candidates:
        yield f"{name} is no swap candidate although it has something to swap"


def _check_reservations(state: PartitionState, application: Application) -> Iterator[str]:
    """Violations of its reservations."""
    for key, one in application.reservations.items():
        if application.requests.get(key) is not one.ask or not one.ask.reserved:
            yield f"application {application.application_id}: a node is kept for {key}, which does not ask for one"
        if state.nodes.get(one.node.node_id) is not one.node or one.node.reservations.get(key) is not one:
            yield f"node {one.node.node_id} is gone, or not reserved for {key}"


def _check_node(state: PartitionState, node: Node) -> Iterator[str]:
    """Violations of one node."""
    name = f"node {node.node_id}"
    yield from _compare(f"{name} allocated", total_of(a.resources for a in node.allocations.values()), node.allocated)
    yield from _compare(f"{name} occupied", total_of(a.resources for a in node.foreign.values()), node.occupied)
    yield from _compare(f"{name} available", minus(minus(node.capacity, node.allocated), node.occupied), node.available)
    for key, allocation in node.allocations.items():
        if not _has_owner(state, allocation):
            yield f"{name}: allocation {key} belongs to no application"
    if len(node.reservations) > 1 and not all(one.for_required_node for one in node.reservations.values()):
        yield f"{name} is kept for several asks of which one could run elsewhere"
    if any(_reservations_of(state, one).get(key) is not one for key, one in node.reservations.items()):
        yield f"{name} is reserved for asks without this reservation"
    if (state.nodes.index.key(node) is not None) != (node.schedulable and not node.reservations):
        yield f"{name} is in the node index although no ask may get it, or the reverse"
    if any(state.foreign.get(key) is not node for key in node.foreign):
        yield "the index of foreign allocations is not that of the nodes"


def _reservations_of(state: PartitionState, one: Reservation) -> Mapping[str, Reservation]:
    application = state.applications.get(one.ask.application_id)
    return {} if application is None else application.reservations


def _check_queue(state: PartitionState, queue: Queue) -> Iterator[str]:
    """Violations of one queue, against its children and applications."""
    applications = {name: state.applications[name] for name in queue.applications}
    below: list[Queue | Application] = [*queue.children.values(), *applications.values()]
    charged = [child.allocated for child in queue.children.values()]
    charged += [application.charged for application in applications.values()]
    yield from _compare(f"queue {queue.path} allocated", total_of(charged), queue.allocated)
    yield from _compare(f"queue {queue.path} pending", total_of(one.pending for one in below), queue.pending)
    running = sum(application.state in ACTIVE for application in applications.values())
    running += sum(child.running for child in queue.children.values())
    if running != queue.running:
        yield f"queue {queue.path}: {queue.running} running where {running} are"
    for what, members, tally in (
        ("applications", applications, queue.priorities),
        ("children", queue.children, queue.child_priorities),
    ):
        highest = max((one.priority for one in members.values()), default=NOTHING_PENDING)
        counted = tally.highest
        if highest != (NOTHING_PENDING if counted is None else counted):
            yield f"queue {queue.path}: highest priority of {what} {counted}, theirs is {highest}"
    going = [child.preempting for child in queue.children.values()]
    for application in applications.values():
        going += [one.resources for one in application.allocations.values() if one.preempted]
    yield from _compare(f"queue {queue.path} preempting", total_of(going), queue.preempting)
    if queue.quota_preemption_at and (
        not queue.managed or (state.config.preemption.is_quota_enabled and state.quota_check_at == NEVER)
    ):
        yield f"queue {queue.path} has a time for quota preemption, and no check is due"
    if queue.draining != bool(queue.draining_since_ns):
        yield f"queue {queue.path} is {queue.state}, and drains since {queue.draining_since_ns}"
    yield from _check_kept_room(queue, applications)
    if queue.leaf and queue.template is not None:
        yield f"queue {queue.path} is a leaf and has a template"
    if not queue.managed and not queue.leaf and queue.parent is not None and queue.template != queue.parent.template:
        yield f"queue {queue.path} has another template than the queue above it, which it hands on"
    if state.tree.find(queue.path) is not queue or (
        queue.parent is not None and queue.parent.children.get(queue.name) is not queue
    ):
        yield f"queue {queue.path} is not at the place of its path"


def _check_kept_room(queue: Queue, applications: Mapping[str, Application]) -> Iterator[str]:
    """Violations of the room kept for asks, and of accepted applications that count as running."""
    kept = [child.kept for child in queue.children.values()]
    allocating = [name for child in queue.children.values() for name in child.allocating]
    for name, application in applications.items():
        kept += [one.keeps for one in application.reservations.values()]
        allocating += [name] if name in queue.allocating else []
    if queue.parent is not None:
        yield from _compare(f"queue {queue.path} kept", total_of(kept), queue.kept)
    if sorted(allocating) != sorted(queue.allocating):
        yield f"queue {queue.path}: {sorted(queue.allocating)} count as running, below it {sorted(allocating)} do"


def _check_partition(state: PartitionState) -> Iterator[str]:
    """Violations of the totals and indexes. Each object's own index entry is checked with the object; this checks that
    there are no others.
    """
    applications = state.applications.values()
    if sum(len(one.requests) + len(one.allocations) + len(one.swapping) for one in applications) != len(
        state.allocations
    ):
        yield "the index of keys is not that of the applications"
    if sum(len(one.allocations) for one in applications) != state.running_allocations:
        yield f"{state.running_allocations} allocations counted, the applications have others"
    yield from _compare("total", total_of(node.capacity for node in state.nodes), state.nodes.total)
    yield from _compare("root maximum", state.nodes.total, state.tree.root.maximum or {})
    if sum(len(one.reservations) for one in applications) != len(state.reservation_index):
        yield "nodes are kept for asks that no application has"
    if sum(len(node.foreign) for node in state.nodes) != len(state.foreign):
        yield "the index of foreign allocations is not that of the nodes"


def _check_account(state: PartitionState, application: Application) -> Iterator[str]:
    """Violations of the account that charges its user and group."""
    name = f"application {application.application_id}"
    for owned in (application.requests, application.allocations, application.swapping):
        if any(state.allocations.get(key) is not one for key, one in owned.items()):
            yield f"the index of keys is not that of the applications: {name}"
    account = state.usage.accounts.get(application.rank)
    if account is None:
        if application.allocations:
            yield f"{name} has no usage account"
        return
    if not is_zero(application.allocated) and not account.counted:
        yield f"{name} has something and does not count as running"
    charged = [("user", application.user.name, state.usage.users)]
    if account.group_name is not None:
        charged.append(("group", account.group_name, state.usage.groups))
    for kind, whom, trackers in charged:
        tracker = trackers.find(whom)
        if tracker is None:
            yield f"{kind} {whom} is charged and not tracked"
        elif tracker.accounts.get(application.rank) is not account:
            yield f"{kind} {whom}: its accounts are not those of the applications"


def _check_tracker(state: PartitionState, kind: str, tracker: Tracker) -> Iterator[str]:
    """Violations of the usage of one user or group, derived from the applications charged to it."""
    what = f"{kind} {tracker.name}"
    accounts = tracker.accounts.values()
    for one in accounts:
        if state.applications.get(one.application.application_id) is not one.application or (
            state.usage.accounts.get(one.application.rank) is not one
        ):
            yield f"{what}: its accounts are not those of the applications"
    used: dict[str, Resources] = {}
    counted: dict[str, list[str]] = {}
    for one in accounts:
        for queue in one.application.queue.ancestry():
            add_to(used.setdefault(queue.path, {}), one.application.charged)
            if one.counted:
                counted.setdefault(queue.path, []).append(one.application.application_id)
    charged = Counter(one.application.queue.path for one in accounts)
    for path, level in tracker.levels.items():
        where = f"{what} at {path}"
        yield from _compare(where, used.pop(path, {}), level.used)
        if sorted(counted.get(path, ())) != sorted(level.applications):
            yield f"{where}: {sorted(level.applications)} count as running, others should"
        if level.charged != charged[path]:
            yield f"{where}: {level.charged} applications are charged here, others should be"
        if level.is_empty:
            yield f"{where}: nothing is there, and it is kept"
    if used:
        yield f"{what} is charged at queues that are not tracked: {sorted(used)}"
    if not tracker.levels:
        yield f"{what} has no queues, and is kept"
