"""The dumb search: what an idle partition should have done, found by looking at every ask, queue and node.

The state machine asks after everything was decided. It takes the books as they are (`check` says whether they are
right) and shares no order, index or memory with the engine. Not here: in which order things are decided
(`plain_scheduler.py`).
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import total_of
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import ACTIVE, Application, AppState
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_limits import Allowance, QueueLimits, group_of, limits_of

RESERVE_AFTER_S = 2.0
RESERVES_AT_MOST_S = 7200.0


def missed(state: PartitionState) -> list[str]:
    """What could be decided now, a sentence each."""
    if state.tree.root.maximum is None:
        return []  # without nodes
    return [text for application in state.applications.values() for text in _missed(state, application)]


def _missed(state: PartitionState, application: Application) -> Iterator[str]:
    if any(level.path in state.tree.stops for level in application.queue.ancestry()):
        return
    for ask, placeholder in replaceable(application):
        yield f"{ask} and placeholder {placeholder} have to do with each other"
    if not application.queue.leaf or not may_run(state, application):
        return  # it was a leaf when the application came; or too many others run
    for ask in application.requests.values():
        if waits_for_placeholder(application, ask) or not has_quota(state, application, ask):
            continue
        if not ask.reserved and state.now < application.back_off_until:
            continue
        nodes = [node for node in state.nodes if is_open(state, node, ask) and state.nodes.is_accepted(ask.shape, node)]
        free = [node for node in nodes if not node.reservations or ask.shape.required_node]
        if any(fits(node.available, ask.resources) for node in nodes):
            yield f"{ask.key} could be placed"
        elif not ask.reserved and not _has_share(state, application) and _may_reserve(state, ask, free):
            yield f"a node could be reserved for {ask.key}"


def may_run(state: PartitionState, application: Application) -> bool:
    if application.state is not AppState.ACCEPTED:
        return True
    return not any(is_full(state, level, application) for level in application.queue.ancestry()) and not any(
        application.application_id not in running and 0 < limit.applications <= len(running)
        for limit, _, running, _, _ in bounds(state, application)
    )


def has_quota(state: PartitionState, application: Application, ask: Allocation) -> bool:
    return all(_has_room(level, ask, application) for level in application.queue.ancestry()) and all(
        value <= 0 or used.get(kind, 0) + value <= limit.resources.get(kind, used.get(kind, 0) + value)
        for limit, used, *_ in bounds(state, application)
        for kind, value in ask.resources.items()
    )


def is_open(state: PartitionState, node: Node, ask: Allocation) -> bool:
    """Whether the ask may be placed on this node as soon as it has room."""
    if ask.reserved and state.applications[ask.application_id].reservations[ask.key].node is node:
        return True
    others = list(node.reservations.values())
    if ask.shape.required_node:
        free = not any(one.after_preemption or one.for_required_node for one in others)
        return free and ask.shape.required_node == node.node_id
    is_open = node.schedulable and node.node_id not in state.nodes.cordons
    return is_open and all(not one.after_preemption and outranks(state, ask, one.ask) for one in others)


def outranks(state: PartitionState, ask: Allocation, other: Allocation) -> bool:
    """Whether an ask has a higher priority than another one where their queues meet."""
    seen: list[dict[str, int]] = []
    for one in (ask, other):
        priority, at = one.priority, {}
        for level in state.applications[one.application_id].queue.ancestry():
            at[level.path] = priority
            priority = level.policies.priority_offset + (0 if level.policies.priority_fence else priority)
        seen.append(at)
    where = next(path for path in seen[0] if path in seen[1])
    return seen[0][where] > seen[1][where]


def _has_share(state: PartitionState, application: Application) -> bool:
    """Whether a quarter of the nodes is reserved for the application."""
    reserved = application.reservations.values()
    counted = [one for one in reserved if not one.after_preemption and not one.ask.shape.required_node]
    return len(counted) >= max(1, len(state.nodes) // 4)


def _may_reserve(state: PartitionState, ask: Allocation, nodes: list[Node]) -> bool:
    anew_at = state.applications[ask.application_id].reserves_anew_at
    since = anew_at if ask.shape.required_node else max(ask.created_ns / 1e9, anew_at)
    old = state.now >= since + RESERVE_AFTER_S
    return old and any(fits(node.capacity, ask.resources) for node in nodes)


def fits(room: Resources, wanted: Resources) -> bool:
    return all(value <= room.get(kind, 0) for kind, value in wanted.items() if value)


class Bound(NamedTuple):
    """A limit, and what counts against it: amounts, and applications that run."""

    limit: Allowance
    used: Resources
    running: list[str]
    kind: Literal["user", "group"]
    queue: str


def bounds(state: PartitionState, application: Application) -> list[Bound]:
    """Each limit of user and group on the path, straight from the configuration, with what counts against it."""
    limits, found = limits_of(state.config), list[Bound]()
    account = state.usage.accounts.get(application.rank)
    group = account.group_name if account else group_of(limits, application.user.groups, application.queue)
    for queue in application.queue.ancestry():
        here, below = limits.get(queue.path, QueueLimits()), everything_below(state, queue)
        user = here.users.get(application.user.name) or here.users.get("*")
        if user is not None:
            found.append(_bound(state, "user", queue, user, [o for o in below if o.user.name == application.user.name]))
        if group is not None and group in here.groups:
            counted = [one for one in below if _group(state, one) == group]
            found.append(_bound(state, "group", queue, here.groups[group], counted))
    return found


def _bound(
    state: PartitionState, kind: Literal["user", "group"], queue: Queue, limit: Allowance, counted: list[Application]
) -> Bound:
    used = total_of(one.charged for one in counted)
    return Bound(limit, used, [one.application_id for one in counted if _runs(state, one)], kind, queue.path)


def _group(state: PartitionState, application: Application) -> str | None:
    account = state.usage.accounts.get(application.rank)
    return account.group_name if account else None


def _runs(state: PartitionState, application: Application) -> bool:
    """Whether it counts as running for its user."""
    account = state.usage.accounts.get(application.rank)
    return account is not None and account.counted


def waits_for_placeholder(application: Application, ask: Allocation) -> bool:
    """Whether its task group still has a placeholder, whatever becomes of that."""
    every = [*application.requests.values(), *application.allocations.values()]
    return not ask.placeholder and any(one.placeholder and one.task_group == ask.task_group for one in every)


def replaceable(application: Application) -> list[tuple[str, str]]:
    """Asks and placeholders of which one could take the place of the other, or is too large for it."""
    return [
        (ask.key, one.key)
        for ask in application.requests.values()
        for one in application.allocations.values()
        if not ask.placeholder and one.placeholder and ask.task_group == one.task_group
        if not one.released and not one.preempted and ask.shape.constraint is None
    ]


def everything_below(state: PartitionState, queue: Queue) -> list[Application]:
    return [
        *(state.applications[name] for name in queue.applications),
        *(one for child in queue.children.values() for one in everything_below(state, child)),
    ]


def is_full(state: PartitionState, queue: Queue, application: Application) -> bool:
    """Whether no further application may start; one that got something already has."""
    below = everything_below(state, queue)
    running = [one for one in below if one.state in ACTIVE or one.application_id in one.queue.allocating]
    return application not in running and 0 < queue.max_applications <= len(running)


def _has_room(queue: Queue, ask: Allocation, application: Application) -> bool:
    maximum, own = queue.maximum or {}, application.reservations[ask.key].keeps if ask.reserved else {}
    return all(
        kind not in maximum
        or value <= 0
        or queue.allocated.get(kind, 0) + max(0, kept_for_others(queue, kind, own)) + value <= maximum[kind]
        for kind, value in ask.resources.items()
    )


def kept_for_others(queue: Queue, kind: str, own: Resources) -> int:
    """To an ask for which something is kept as well, what others still use who were asked to leave does not count."""
    return queue.kept.get(kind, 0) - own.get(kind, 0) - (queue.preempting.get(kind, 0) if own else 0)
