"""The cause of a failed attempt to place an ask, with its figures: the first limit, queue or node that had no room.

An attempt (`queue_traversal.py`) that failed looks it up, which costs the depth of the queue at most: no node is
examined, and no text is made. The conditions are those of the attempt; `explain/checks.py` evaluates all of them, also
those after the first that fails.
"""

from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.allocation import Amounts, AskShape
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.attempt_log import WaitCause
from yunishard.partition_worker.engine.nodes.nodes import Nodes
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.user_limits import QueueUsage, UsageAccount


def find_start_cause(application: Application, account: UsageAccount) -> WaitCause:
    """Return which limit of running applications keeps an application from starting."""
    for queue in application.queue.ancestry():
        running = queue.running + len(queue.allocating)
        if 0 < queue.max_applications <= running and application.application_id not in application.queue.allocating:
            return WaitCause(
                Reason.QUEUE_APPLICATION_LIMIT, queue.path, used=running, maximum=queue.max_applications, asked=1
            )
    for level in account.limits:
        if level.allowance is not None and not level.may_start():
            user, group = _charged_name(account, level)
            code = Reason.USER_APPLICATION_LIMIT if user else Reason.GROUP_APPLICATION_LIMIT
            running, maximum = len(level.applications), level.allowance.applications
            return WaitCause(code, level.path, user, group, used=running, maximum=maximum, asked=1)
    raise AssertionError(f"application {application.application_id} may start")


def find_limit_cause(account: UsageAccount, amounts: Amounts) -> WaitCause:
    """Return which limit of the user or group does not allow these amounts."""
    for level in account.limits:
        if level.allowance is not None and not level.has_room(amounts):
            user, group = _charged_name(account, level)
            code = Reason.USER_LIMIT if user else Reason.GROUP_LIMIT
            most, used = level.allowance.resources, level.used
            for kind, value in amounts:
                if value > 0 and kind in most and used.get(kind, 0) + value > most[kind]:
                    return WaitCause(code, level.path, user, group, "", kind, used.get(kind, 0), most[kind], value)
    raise AssertionError(f"the limits of {account.application.user.name} have room")


def _charged_name(account: UsageAccount, level: QueueUsage) -> tuple[str, str]:
    """Return the user, or the group, whose usage this is."""
    if any(one is level for one in account.user.upward):
        return account.application.user.name, ""
    return "", account.group_name or ""


def find_queue_cause(leaf: Queue, amounts: Amounts, search: str = "") -> WaitCause:
    """Return which queue has no room for these amounts: by its maximum, or because it keeps the room for others.
    `search` is what came of a search for victims.
    """
    for queue in leaf.ancestry():
        maximum = queue.maximum
        if maximum is None:
            continue
        code = Reason.QUEUE_MAXIMUM if queue.parent is not None else Reason.CLUSTER_FULL
        for kind, value in amounts:
            used = queue.allocated.get(kind, 0)
            if value > 0 and kind in maximum and used + value > maximum[kind]:
                return WaitCause(code, queue.path, "", "", "", kind, used, maximum[kind], value, search)
    kept = next((queue for queue in leaf.ancestry() if queue.kept), leaf)
    return WaitCause(Reason.QUEUE_ROOM_KEPT, kept.path, search=search)


def find_required_node_cause(nodes: Nodes, shape: AskShape) -> WaitCause | None:
    """Return why the node that an ask requires can neither take it nor be reserved for it; None if it can. As
    `Nodes.required_node`, but nothing is cached.
    """
    name = shape.required_node
    node = nodes.get(name)
    if node is None:
        return WaitCause(Reason.REQUIRED_NODE_MISSING, node=name)
    for kind, value in shape.amounts:
        total = node.capacity.get(kind, 0)
        if value > total:
            return WaitCause(Reason.REQUIRED_NODE_TOO_SMALL, "", "", "", name, kind, 0, total, value)
    if nodes.predicates.is_refused(shape, node):
        return WaitCause(Reason.REQUIRED_NODE_REFUSES, node=name)
    if any(one.after_preemption and not one.for_required_node for one in node.reservations.values()):
        return WaitCause(Reason.REQUIRED_NODE_KEPT, node=name)
    return None
