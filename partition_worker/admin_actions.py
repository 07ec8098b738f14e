"""Actions of administrators: kill or move an application, and make single scheduling decisions in manual mode.

For a viewer who may see only part of the partition, an action on something hidden gets the same answer as an action on
something that does not exist.

A manual scheduling step is one decision: an allocation, a placeholder swap, a reservation, or a preemption. It sees the
effects of earlier steps, as when the worker schedules by itself.
"""

from msgspec.json import encode

from common.names import external_name
from common.query_messages import Answer, KillApplication, MoveApplication, Schedule
from common.rest_records import DecisionView, KilledView, MovedView, StepsView
from common.rm_messages import AllocationRelease
from common.wire import Incoming, decode_body
from partition_worker.engine.administration import NotDone, no_application, no_queue
from partition_worker.engine.application import Application
from partition_worker.engine.partition import Partition
from partition_worker.engine.queue_traversal import Decision
from partition_worker.engine.state import Effect, Release
from partition_worker.redaction import Visibility


def act(partition: Partition, rm: str, incoming: Incoming, now: float, *, manual: bool) -> tuple[Answer, list[Effect]]:
    """Carry out an administrator's request; returns the answer, and the effects for the RM.

    Raises:
        WireError: the request is malformed.
    """
    view: KilledView | MovedView | StepsView
    plain_name = external_name(rm, partition.name)
    try:
        match incoming.header.kind:
            case "KillApplication":
                kill = decode_body(KillApplication, incoming.body)
                application = _find_visible(partition, kill)
                effects = partition.kill(kill.application_id, kill.actor, now)
                state = str(application.state)
                view = KilledView(application_id=kill.application_id, partition=kill.name or plain_name, state=state)
            case "MoveApplication":
                move = decode_body(MoveApplication, incoming.body)
                if not move.queue:
                    raise NotDone(400, "no queue to move the application to")
                application = _find_visible(partition, move)
                effects = partition.move(move.application_id, move.queue, move.actor, now)
                path = application.queue.path
                view = MovedView(application_id=move.application_id, partition=move.name or plain_name, queue=path)
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
        releases=[part.allocation_key for _, part in effects if isinstance(part, AllocationRelease)],
    )
