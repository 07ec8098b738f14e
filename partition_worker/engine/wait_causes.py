"""The causes of failed attempts to place asks, with their figures: limits, queues and nodes without room.

An attempt (`queue_traversal.py`) that failed returns one, which costs the comparison that failed: no node is examined,
and no text is made. `explain/checks.py` makes all comparisons, also those after the first that fails, and shows the
same values.
"""

from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.amounts import Amounts, find_excess
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.attempt_log import WaitCause
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.user_limits import QueueUsage, UsageAccount


def find_start_cause(application: Application, account: UsageAccount) -> WaitCause:
    """Return which limit of running applications keeps an application from starting."""
    full = application.queue.find_queue_without_opening()
    if full is not None and application.application_id not in application.queue.allocating:
        return count_in_queue(full)
    return next(count_in_limit(account, level) for level in account.limits if not level.may_start())


def count_in_queue(queue: Queue) -> WaitCause:
    """Return how many applications a queue runs, of those that it may."""
    running = queue.running + len(queue.allocating)
    return WaitCause(Reason.QUEUE_APPLICATION_LIMIT, queue.path, used=running, maximum=queue.max_applications, asked=1)


def count_in_limit(account: UsageAccount, level: QueueUsage) -> WaitCause:
    """Return how many applications the user or the group runs, of those that a limit allows."""
    assert level.allowance is not None, level.path
    user, group = _charged_name(account, level)
    code = Reason.USER_APPLICATION_LIMIT if user else Reason.GROUP_APPLICATION_LIMIT
    running, maximum = len(level.applications), level.allowance.applications
    return WaitCause(code, level.path, user, group, used=running, maximum=maximum, asked=1)


def find_limit_cause(account: UsageAccount, level: QueueUsage, amounts: Amounts) -> WaitCause:
    """Return what a limit of the user or the group lacks for these amounts, which it does not allow."""
    assert level.maximums is not None, level.path
    excess = find_excess(level.used_sum, amounts, level.maximums)
    assert excess >= 0, level.path
    return compare_with_limit(account, level, *amounts.name(excess))


def compare_with_limit(account: UsageAccount, level: QueueUsage, kind: str, value: int) -> WaitCause:
    """Return how a limit of the user or the group compares with an amount."""
    assert level.allowance is not None, level.path
    user, group = _charged_name(account, level)
    code = Reason.USER_LIMIT if user else Reason.GROUP_LIMIT
    used, maximum = level.used.get(kind, 0), level.allowance.resources[kind]
    return WaitCause(code, level.path, user, group, "", kind, used, maximum, value)


def _charged_name(account: UsageAccount, level: QueueUsage) -> tuple[str, str]:
    """Return the user, or the group, whose usage this is."""
    if any(one is level for one in account.user.upward):
        return account.application.user.name, ""
    return "", account.group_name or ""


def find_queue_cause(queue: Queue, amounts: Amounts, search: Reason | None = None) -> WaitCause:
    """Return what a queue lacks for these amounts, which do not fit it: its maximum is too small, or it keeps the room
    for others. `search` is what came of a search for victims.
    """
    excess = find_excess(queue.allocated_sum, amounts, queue.limits or [])
    if excess < 0:
        return WaitCause(Reason.QUEUE_ROOM_KEPT, queue.path, search=search)
    return compare_with_queue(queue, *amounts.name(excess), search)


def compare_with_queue(queue: Queue, kind: str, value: int, search: Reason | None = None) -> WaitCause:
    """Return how the maximum of a queue compares with an amount; that of the root is the size of the cluster."""
    assert queue.maximum is not None, queue.path
    code = Reason.QUEUE_MAXIMUM if queue.parent is not None else Reason.CLUSTER_FULL
    used, maximum = queue.allocated.get(kind, 0), queue.maximum[kind]
    return WaitCause(code, queue.path, "", "", "", kind, used, maximum, value, search)


def find_required_node_cause(node: Node | None, shape: AskShape, code: Reason) -> WaitCause:
    """Return why the node that an ask requires can neither take it nor be reserved for it (`Nodes.find_obstacle`)."""
    if code is Reason.REQUIRED_NODE_TOO_SMALL and node is not None:
        return compare_with_size(node, shape.amounts)[0]
    return WaitCause(code, node=shape.required_node)


def compare_with_size(node: Node, amounts: Amounts) -> list[WaitCause]:
    """Return each amount for which a required node is too small even when it is empty."""
    code, name, capacity = Reason.REQUIRED_NODE_TOO_SMALL, node.node_id, node.capacity
    return [
        WaitCause(code, "", "", "", name, kind, 0, capacity.get(kind, 0), value)
        for kind, value in amounts
        if value > capacity.get(kind, 0)
    ]
