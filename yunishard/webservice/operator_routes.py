"""REST routes of changes that operators make: the actions of the catalogue, and the end of the session of a resource
manager.

The worker of the partition decides about them (`partition_worker/admin_actions.py`), or the broker
(`broker/rm_sessions.py`); the web service authorizes and audits.
"""

from collections.abc import Callable, Mapping
from typing import Final, cast

from yunishard.common.messages.query_messages import (
    Change,
    ChangeNode,
    ChangeQueue,
    EndSession,
    KillApplication,
    MoveApplication,
    NodeAction,
    QueueAction,
)
from yunishard.common.names import RM_ID
from yunishard.common.rest.catalogue import TABLES
from yunishard.common.rest.columns import Action, Table
from yunishard.common.rest.records import EndedView, KilledView, MovedView, NodeStateView, QueueStateView
from yunishard.webservice import parameters
from yunishard.webservice.broker_client import read_document
from yunishard.webservice.calls import RM_SHOWN_MAX, Call, Reply, find_partition
from yunishard.webservice.parameters import RM, Parameter, declare_flag, read_flag
from yunishard.webservice.router import Access, Route, RouteGroup
from yunishard.webservice.views import RequestError

OPERATIONS: Final = RouteGroup(
    "operations", "Changes to queues, applications, nodes and resource managers by operators."
)

_CONFLICT: Final = {409: "It is not possible now."}


# Objects of a partition -----------------------------------------------------------------------------------------------


def _change_queue(call: Call, action: str, partition: str) -> Change:
    path, reason = parameters.queue_path(call.segments["queue"]), call.query.get("reason", "")
    seen_only = call.viewer is not None
    return ChangeQueue(path, cast("QueueAction", action), call.requester, reason, seen_only=seen_only, name=partition)


def _change_node(call: Call, action: str, partition: str) -> Change:
    node, reason = call.segments["node"], call.query.get("reason", "")
    return ChangeNode(node, cast("NodeAction", action), call.requester, reason, name=partition)


def _kill(call: Call, _: str, partition: str) -> Change:
    application, seen_only = call.segments["application"], call.viewer is not None
    return KillApplication(application, call.requester, seen_only=seen_only, name=partition)


def _move(call: Call, _: str, partition: str) -> Change:
    queue, seen_only = parameters.queue_name(call.query["queue"]), call.viewer is not None
    return MoveApplication(call.segments["application"], queue, call.requester, seen_only=seen_only, name=partition)


_MakeMessage = Callable[[Call, str, str], Change]
"""From a request, the name of the action and that of the partition to the message."""

_MESSAGES: Final[Mapping[tuple[str, str], tuple[_MakeMessage, type[object]]]] = {
    ("queue", "stop"): (_change_queue, QueueStateView),
    ("queue", "start"): (_change_queue, QueueStateView),
    ("application", "kill"): (_kill, KilledView),
    ("application", "move"): (_move, MovedView),
    ("node", "cordon"): (_change_node, NodeStateView),
    ("node", "uncordon"): (_change_node, NodeStateView),
    ("node", "drain"): (_change_node, NodeStateView),
}
"""The message to the worker for an action, and its answer."""


def _declare_action(table: Table, action: Action) -> None:
    make_message, answer = _MESSAGES[table.noun, action.name]

    @Route(
        OPERATIONS,
        "POST",
        f"/ws/v1/partition/{{partition}}/{table.noun}/{{{table.noun}}}/{action.name}",
        Access.ADMINS if action.is_for_admins else Access.OWN,
        (answer,),
        summary=f"{action.about[0].upper()}{action.about[1:]}",
        description=action.more,
        parameters=(*(Parameter(one.name, one.meaning, required=one.is_required) for one in action.arguments), RM),
        statuses=_CONFLICT,
    )
    async def change(call: Call) -> Reply:
        """Change an object; the answer has its new state."""
        partition = await find_partition(call)
        for one in action.arguments:
            if one.is_required and not call.query.get(one.name):
                raise RequestError(400, f"add ?{one.name}=…: {one.meaning}")
        wanted = make_message(call, action.name, partition.shown)
        answer = await call.services.broker.change(wanted, partition=partition.entry.full_name)
        return Reply(read_document(answer).strip() + b"\n")


for _table in TABLES.values():
    for _action in _table.actions:
        _declare_action(_table, _action)


# Resource managers ----------------------------------------------------------------------------------------------------

_FORCE: Final = declare_flag(
    "force", "Whether to end it even while it is connected; it then registers again, with empty partitions."
)


@Route(
    OPERATIONS,
    "POST",
    "/ws/v1/rm/{rm}/end",
    Access.ADMINS,
    (EndedView,),
    parameters=(_FORCE,),
    statuses={409: "It is connected (see `force`)."},
)
async def end_manager(call: Call) -> Reply:
    """End the session of a resource manager that does not come back, and its partitions.

    As after its pause timeout: everything that it has is removed, and it starts empty if it registers again.
    """
    rm, force = call.segments["rm"], read_flag(call.query, "force")
    if not RM_ID.fullmatch(rm):  # no valid ID, and perhaps too long for a message
        raise RequestError(404, f"RM {rm[:RM_SHOWN_MAX]!r} is not registered")
    answer = await call.services.broker.change(EndSession(actor=call.requester, force=force), rm=rm)
    return Reply(read_document(answer).strip() + b"\n")
