"""REST routes of changes that operators make: stop and start a queue; cordon, uncordon and drain a node; end the
session of a resource manager.

The worker of the partition decides about them (`engine/operator_marks.py`), or the broker (`broker/rm_sessions.py`);
the web service authorizes and audits.
"""

from typing import Final

from yunishard.common.messages.query_messages import ChangeNode, ChangeQueue, EndSession, NodeAction, QueueAction
from yunishard.common.names import RM_ID
from yunishard.common.rest.records import EndedView, NodeStateView, QueueStateView
from yunishard.webservice import parameters
from yunishard.webservice.broker_client import read_document
from yunishard.webservice.calls import RM_SHOWN_MAX, Call, Reply, find_partition
from yunishard.webservice.parameters import RM, Parameter, declare_flag, read_flag
from yunishard.webservice.router import Access, Route, RouteGroup
from yunishard.webservice.views import RequestError

OPERATIONS: Final = RouteGroup("operations", "Changes to queues, nodes and resource managers by operators.")

_PARTITION: Final = "/ws/v1/partition/{partition}"
_REASON: Final = Parameter("reason", "Why, for other operators; part of events and of the state.")
_CONFLICT: Final = {409: "It is not possible now."}


def _declare(path: str, access: Access, answer: type[object], *more: Parameter) -> Route:
    path = f"{_PARTITION}/{path}"
    return Route(OPERATIONS, "POST", path, access, (answer,), parameters=(*more, RM), statuses=_CONFLICT)


# Queues -------------------------------------------------------------------------------------------------------------


@_declare("queue/{queue}/stop", Access.OWN, QueueStateView, _REASON)
async def stop_queue(call: Call) -> Reply:
    """Stop a queue and those below it: no new applications, and nothing new for those in it.

    What runs continues. It stays stopped, also over restarts and other configurations, until it is started.
    """
    return await _change_queue(call, "stop")


@_declare("queue/{queue}/start", Access.OWN, QueueStateView)
async def start_queue(call: Call) -> Reply:
    """Start a queue that was stopped.

    While a queue above it is stopped, it still gets nothing; `stoppedAbove` names that queue.
    """
    return await _change_queue(call, "start")


async def _change_queue(call: Call, action: QueueAction) -> Reply:
    partition = await find_partition(call)
    wanted = ChangeQueue(
        queue=parameters.queue_path(call.segments["queue"]),
        action=action,
        actor=call.requester,
        reason=call.query.get("reason", ""),
        seen_only=call.viewer is not None,
        name=partition.shown,
    )
    answer = await call.services.broker.change(wanted, partition=partition.entry.full_name)
    return Reply(read_document(answer).strip() + b"\n")


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


# Nodes --------------------------------------------------------------------------------------------------------------


@_declare("node/{node}/cordon", Access.ADMINS, NodeStateView, _REASON)
async def cordon_node(call: Call) -> Reply:
    """Keep new allocations from a node.

    What runs there continues. The node stays cordoned, also if it is registered again, until it is uncordoned.
    """
    return await _change_node(call, "cordon")


@_declare("node/{node}/uncordon", Access.ADMINS, NodeStateView)
async def uncordon_node(call: Call) -> Reply:
    """Let a node take allocations again, unless its resource manager drains it."""
    return await _change_node(call, "uncordon")


@_declare("node/{node}/drain", Access.ADMINS, NodeStateView, _REASON)
async def drain_node(call: Call) -> Reply:
    """Cordon a node, and ask its resource manager to release what runs there.

    Allocations that require the node stay. `leaving` counts those that have not ended yet; the request may be repeated.
    """
    return await _change_node(call, "drain")


async def _change_node(call: Call, action: NodeAction) -> Reply:
    partition = await find_partition(call)
    node, reason = call.segments["node"], call.query.get("reason", "")
    wanted = ChangeNode(node_id=node, action=action, actor=call.requester, reason=reason, name=partition.shown)
    answer = await call.services.broker.change(wanted, partition=partition.entry.full_name)
    return Reply(read_document(answer).strip() + b"\n")
