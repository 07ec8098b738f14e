"""Check every sum and index of a partition against its asks and allocations.

The auditor (`partition_worker/engine/auditor.py`) compares the sums, in production as well. This module adds the
indexes, the states of asks and placeholders, and entries that should be gone. Tests check all of it after each step.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from yunishard.common.messages.query_messages import WorkerHealth
from yunishard.common.messages.wire import NEVER
from yunishard.common.resources import is_zero
from yunishard.partition_worker.engine.application import ENDED, LINGER_S, Application, AppState
from yunishard.partition_worker.engine.auditor import check_objects, has_owner, is_on_node
from yunishard.partition_worker.engine.ledger import may_swap
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.outstanding_asks import count_reported
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import NOTHING_PENDING, Queue
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import Tracker


def check(state: PartitionState) -> None:
    """Verify that every sum and index agrees with the allocations.

    Raises: AssertionError: with all violations.
    """
    problems = find_violations(state)
    if problems:
        raise AssertionError(f"partition {state.name}: " + "; ".join(problems))


def find_violations(state: PartitionState) -> list[str]:
    """All violations, one sentence each."""
    return [problem for checked in check_objects(state, WorkerHealth()) for problem in checked.drift] + [
        *(problem for application in state.applications.values() for problem in _check_application(state, application)),
        *(problem for node in state.nodes for problem in _check_node(state, node)),
        *(problem for queue in state.tree for problem in _check_queue(state, queue)),
        *_check_reported_asks(state),
        *_check_cleanup(state),
        *(
            problem
            for user in state.usage.users.by_name.values()
            for problem in _check_tracker(state, f"user {user.name}", user)
        ),
        *(
            problem
            for group in state.usage.groups.by_name.values()
            for problem in _check_tracker(state, f"group {group.name}", group)
        ),
    ]


def _check_application(state: PartitionState, application: Application) -> Iterator[str]:
    yield from _check_content(state, application)
    yield from _check_gang(state, application)
    yield from _check_reservations(state, application)
    yield from _check_account(state, application)


def _check_content(state: PartitionState, application: Application) -> Iterator[str]:
    name = f"application {application.application_id}"
    if application.state in ENDED:
        yield f"{name} has ended ({application.state}) but is still listed"
    if application.application_id not in application.queue.applications:
        yield f"{name} is not in its queue {application.queue.path}"
    if {ask.key for ask in application.asks} != set(application.requests):
        yield f"{name}: its asks in order are not its asks by key"
    if application.state is AppState.STARTING and not application.queue.state_aware:
        yield f"{name} is Starting in a queue that is not aware of states"
    waits = application.state is AppState.COMPLETING and not is_zero(application.allocated_placeholder)
    if ("state" in application.alarms) != (application.state in LINGER_S) and not waits:
        yield f"{name} in state {application.state}: alarms are {list(application.alarms)}"
    free = any(one.placeholder and not (one.released or one.preempted) for one in application.allocations.values())
    has_resumed = any(state is AppState.RESUMING for _, state in application.state_log)
    # Once the gang timed out, placeholders that the RM sent before it knew have no timer, as in the reference.
    if free and application.state is AppState.ACCEPTED and not has_resumed and "placeholders" not in application.alarms:
        yield f"{name}: its placeholders never time out"
    for allocation in application.allocations.values():
        if not is_on_node(state, allocation):
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
        is_kept = one.ask.preemption_triggered, one in state.reservation_index.keeping
        if is_kept != (one.after_preemption,) * 2 or (one.after_preemption and not one.keeps):
            yield f"the room of the victims of {key}"
        if state.nodes.get(one.node.node_id) is not one.node or one.node.reservations.get(key) is not one:
            yield f"node {one.node.node_id} is gone, or not reserved for {key}"
        if application.queue.find_stopped() is not None:
            yield f"node {one.node.node_id} is kept for {key}, whose queue is stopped"
        if one.node.cordon is not None and not one.for_required_node:
            yield f"node {one.node.node_id} is cordoned, and kept for {key}"


def _check_node(state: PartitionState, node: Node) -> Iterator[str]:
    """Violations of one node."""
    name = f"node {node.node_id}"
    for key, allocation in node.allocations.items():
        if not has_owner(state, allocation):
            yield f"{name}: allocation {key} belongs to no application"
    if len(node.reservations) > 1 and not all(one.for_required_node for one in node.reservations.values()):
        yield f"{name} is kept for several asks of which one could run elsewhere"
    if any(_reservations_of(state, one).get(key) is not one for key, one in node.reservations.items()):
        yield f"{name} is reserved for asks without this reservation"
    if (state.nodes.index.key(node) is not None) != (node.is_open and not node.reservations):
        yield f"{name} is in the node index although no ask may get it, or the reverse"
    gives_way = bool(node.reservations) and not any(one.after_preemption for one in node.reservations.values())
    if (node in state.nodes.reserved) != (node.is_open and gives_way):
        yield f"{name} is in the index of reserved nodes although it takes nothing else, or the reverse"
    if node.cordon is not state.nodes.cordons.get(node.node_id):
        yield f"{name} has the cordon {node.cordon}, not that of its id"
    if any(state.foreign.get(key) is not node for key in node.foreign):
        yield "the index of foreign allocations is not that of the nodes"


def _reservations_of(state: PartitionState, one: Reservation) -> Mapping[str, Reservation]:
    application = state.applications.get(one.ask.application_id)
    return {} if application is None else application.reservations


def _check_queue(state: PartitionState, queue: Queue) -> Iterator[str]:
    """Violations of one queue, against its children and applications."""
    applications = {name: state.applications[name] for name in queue.applications}
    for what, members, tally in (
        ("applications", applications, queue.priorities),
        ("children", queue.children, queue.child_priorities),
    ):
        highest = max((one.priority for one in members.values()), default=NOTHING_PENDING)
        counted = tally.highest
        if highest != (NOTHING_PENDING if counted is None else counted):
            yield f"queue {queue.path}: highest priority of {what} {counted}, theirs is {highest}"
    is_enforced = state.config.preemption.is_quota_enabled
    if queue.quota_preemption_at and is_enforced and state.quota_check_at == NEVER:
        yield f"queue {queue.path} has a time for quota preemption, and no check is due"
    if queue.stop is not state.tree.stops.get(queue.path):
        yield f"queue {queue.path} has the stop {queue.stop}, not that of its path"
    if queue.draining != bool(queue.draining_since_ns):
        yield f"queue {queue.path} is {queue.state}, and drains since {queue.draining_since_ns}"
    allocating = [name for child in queue.children.values() for name in child.allocating]
    allocating += [name for name in applications if name in queue.allocating]
    if sorted(allocating) != sorted(queue.allocating):
        yield f"queue {queue.path}: {sorted(queue.allocating)} count as running, below it {sorted(allocating)} do"
    if queue.leaf and queue.template is not None:
        yield f"queue {queue.path} is a leaf and has a template"
    if not queue.managed and not queue.leaf and queue.parent is not None and queue.template != queue.parent.template:
        yield f"queue {queue.path} has another template than the queue above it, which it hands on"
    if state.tree.find(queue.path) is not queue or (
        queue.parent is not None and queue.parent.children.get(queue.name) is not queue
    ):
        yield f"queue {queue.path} is not at the place of its path"


def _check_cleanup(state: PartitionState) -> Iterator[str]:
    if state.cleanup_at == NEVER and state.tree.has_temporary():
        yield "there are dynamic or draining queues, and no removal of empty ones is scheduled"


def _check_reported_asks(state: PartitionState) -> Iterator[str]:
    """The counts of reported asks, but for applications of which asks changed since the last report."""
    if not isinstance(state, Partition) or state.readiness.reset_leaves:
        return
    outstanding, changed = state.outstanding, state.readiness.changed_asks
    alive = {one.rank: one for one in state.applications.values()}
    for rank in (
        {**outstanding._counted, **outstanding._unreported, **alive}.keys() - changed.keys() - state.usage.opened.keys()
    ):
        one = alive.get(rank)
        counted, is_unreported = (
            (None, False) if one is None else (count_reported(state, one), one.asks.told < len(one.requests))
        )
        if outstanding._counted.get(rank) != counted or (rank in outstanding._unreported) != is_unreported:
            is_listed = rank in outstanding._unreported
            yield (
                f"the reported asks of application {rank} are {counted}, unreported: {is_unreported}; counted are "
                f"{outstanding._counted.get(rank)}, unreported: {is_listed}"
            )


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
        tracker = trackers.by_name.get(whom)
        if tracker is None:
            yield f"{kind} {whom} is charged and not tracked"
        elif tracker.accounts.get(application.rank) is not account:
            yield f"{kind} {whom}: its accounts are not those of the applications"


def _check_tracker(state: PartitionState, what: str, tracker: Tracker) -> Iterator[str]:
    """Violations of the usage of one user or group, derived from the applications charged to it."""
    accounts = tracker.accounts.values()
    for one in accounts:
        if state.applications.get(one.application.application_id) is not one.application or (
            state.usage.accounts.get(one.application.rank) is not one
        ):
            yield f"{what}: its accounts are not those of the applications"
    counted: dict[str, list[str]] = {}
    for one in accounts:
        for queue in one.application.queue.ancestry():
            if one.counted:
                counted.setdefault(queue.path, []).append(one.application.application_id)
    charged = Counter(one.application.queue.path for one in accounts)
    for path, level in tracker.levels.items():
        where = f"{what} at {path}"
        if sorted(counted.get(path, ())) != sorted(level.applications):
            yield f"{where}: {sorted(level.applications)} count as running, others should"
        if level.charged != charged[path]:
            yield f"{where}: {level.charged} applications are charged here, others should be"
        if level.is_empty:
            yield f"{where}: nothing is there, and it is kept"
    if not tracker.levels:
        yield f"{what} has no queues, and is kept"
