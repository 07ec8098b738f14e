"""Actions of administrators: kill or move an application, stop a queue, cordon a node, and make single scheduling
decisions in manual mode.

For a viewer who may see only part of the partition, an action on something hidden gets the same answer as an action on
something that does not exist.

A manual scheduling step is one decision: an allocation, a placeholder swap, a reservation, or a preemption. It sees the
effects of earlier steps, as when the worker schedules by itself.
"""

import msgspec
from msgspec.json import encode

from yunishard.common.messages.query_messages import (
    Answer,
    ChangeNode,
    ChangeQueue,
    KillApplication,
    MoveApplication,
    Schedule,
)
from yunishard.common.messages.rm_messages import AllocationRelease
from yunishard.common.messages.wire import Incoming, decode_body
from yunishard.common.names import external_name
from yunishard.common.rest.records import DecisionView, KilledView, MovedView, NodeStateView, QueueStateView, StepsView
from yunishard.common.text_formats import format_count
from yunishard.partition_worker.engine.administration import NotDone, no_application, no_queue
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queue_traversal import Decision
from yunishard.partition_worker.engine.state import Release
from yunishard.partition_worker.redaction import Visibility
from yunishard.partition_worker.views import build_mark_view, build_node_state


def act(partition: Partition, rm: str, incoming: Incoming, now: float, *, manual: bool) -> tuple[Answer, list[Effect]]:
    """Carry out an administrator's request; returns the answer, and the effects for the RM.

    Raises:
        WireError: the request is malformed.
    """
    view: KilledView | MovedView | QueueStateView | NodeStateView | StepsView
    plain_name = external_name(rm, partition.name)
    try:
        match incoming.header.kind:
            case "KillApplication":
                kill = decode_body(KillApplication, incoming.body)
                application = _find_visible(partition, kill)
                effects = partition.kill(kill.application_id, kill.actor, now)
                name, state = kill.name or plain_name, str(application.state)
                outcome = f"{kill.application_id} in partition {name} is {state.lower()}"
                view = KilledView(application_id=kill.application_id, partition=name, state=state, outcome=outcome)
            case "MoveApplication":
                move = decode_body(MoveApplication, incoming.body)
                if not move.queue:
                    raise NotDone(400, "no queue to move the application to")
                application = _find_visible(partition, move)
                effects = partition.move(move.application_id, move.queue, move.actor, now)
                name, path = move.name or plain_name, application.queue.path
                outcome = f"{move.application_id} in partition {name} is in {path}"
                view = MovedView(application_id=move.application_id, partition=name, queue=path, outcome=outcome)
            case "ChangeQueue":
                view, effects = _change_queue(partition, decode_body(ChangeQueue, incoming.body), plain_name, now)
            case "ChangeNode":
                view, effects = _change_node(partition, decode_body(ChangeNode, incoming.body), plain_name, now)
            case _:
                wanted = decode_body(Schedule, incoming.body)
                name = wanted.name or plain_name
                if not manual:
                    needed = "`schedule` needs a system started with `yunishard up --manual`"
                    raise NotDone(409, f"partition {name} schedules automatically; {needed}")
                made = partition.schedule_each(now, wanted.steps)
                effects = [effect for _, follows in made for effect in follows]
                decisions = [_describe(decision, follows) for decision, follows in made]
                view = StepsView(partition=name, made=len(decisions), idle=partition.idle, decisions=decisions)
    except NotDone as refusal:
        return Answer(status=refusal.status, body=refusal.reason.encode()), []
    return Answer(status=200, body=encode(view)), effects


def _change_queue(
    partition: Partition, wanted: ChangeQueue, plain_name: str, now: float
) -> tuple[QueueStateView, list[Effect]]:
    queue = partition.tree.find(wanted.queue)
    visible = Visibility(partition, wanted.actor if wanted.seen_only else None)
    if queue is not None and not visible.shows_queue(queue):
        raise no_queue(wanted.queue)
    if wanted.action == "stop":
        effects = partition.stop_queue(wanted.queue, wanted.reason, wanted.actor, now)
    else:
        effects = partition.start_queue(wanted.queue, wanted.actor, now)
    queue = partition.tree.find(wanted.queue)
    above = None if queue is None or queue.parent is None else queue.parent.find_stopped()
    path, state = (wanted.queue.lower(), "") if queue is None else (queue.path, queue.status)
    name = wanted.name or plain_name
    until = "" if above is None else f"; it gets nothing before {above.path} is started"
    return QueueStateView(
        partition=name,
        queue=path,
        state=state,
        stopped=build_mark_view(partition.tree.stops.get(wanted.queue.lower())),
        stopped_above="" if above is None else above.path,
        outcome=f"{path} in partition {name} is {state.lower() or 'started'}{until}",
    ), effects


def _change_node(
    partition: Partition, wanted: ChangeNode, plain_name: str, now: float
) -> tuple[NodeStateView, list[Effect]]:
    match wanted.action:
        case "cordon":
            effects = partition.cordon_node(wanted.node_id, wanted.reason, wanted.actor, now)
        case "drain":
            effects = partition.drain_node(wanted.node_id, wanted.reason, wanted.actor, now)
        case "uncordon":
            effects = partition.uncordon_node(wanted.node_id, wanted.actor, now)
    view = build_node_state(partition, wanted.node_id, wanted.name or plain_name)
    rest = "" if wanted.action == "uncordon" else _describe_rest(view)
    outcome = f"{view.node_id} in partition {view.partition} is {view.state}{rest}"
    return msgspec.structs.replace(view, outcome=outcome), effects


def _describe_rest(view: NodeStateView) -> str:
    """Describe the allocations on a node that is drained or cordoned."""
    counts = [
        (view.running, "allocation", "running"),
        (view.leaving, "allocation", "leaving"),
        (view.required, "allocation", "staying, as they require the node"),
        (view.foreign, "foreign allocation", "staying"),
    ]
    parts = [f"{format_count(number, what)} {how}" for number, what, how in counts if number]
    return f": {', '.join(parts)}" if parts else ": nothing runs there"


def _find_visible(partition: Partition, message: KillApplication | MoveApplication) -> Application:
    """Find the application. It and the queue have to exist and, if `seen_only`, to be visible to the actor.

    Raises:
        NotDone: 404, also if one exists and is not visible.
    """
    application = partition.applications.get(message.application_id)
    visible = Visibility(partition, message.actor if message.seen_only else None)
    if application is None or not visible.shows_application(application):
        raise no_application(message.application_id, message.name or partition.name)
    if isinstance(message, MoveApplication):
        leaf = partition.tree.find(message.queue)
        if leaf is not None and not visible.shows_queue(leaf):
            raise no_queue(message.queue)
    return application


def _describe(decision: Decision, effects: list[Effect]) -> DecisionView:
    """A decision, and the releases that the RM is asked for because of it."""
    return DecisionView(
        kind=type(decision).__name__.lower(),
        application_id=decision.application.application_id,
        allocation_key=decision.ask.key,
        node_id="" if isinstance(decision, Release) else decision.node.node_id,
        releases=[one.part.allocation_key for one in effects if isinstance(one.part, AllocationRelease)],
    )
