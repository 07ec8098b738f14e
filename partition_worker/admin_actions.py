"""Actions of administrators: kill or move an application, and make single scheduling decisions in manual mode.

For a viewer who may see only part of the partition, an action on something hidden gets the same answer as an action on
something that does not exist. Each function returns the answer, and the effects for the RM.

A manual scheduling step is one decision: an allocation, a placeholder swap, a reservation, or a preemption. It sees the
effects of earlier steps, as when the worker schedules by itself.
"""

from msgspec.json import encode

from common.names import external_name
from common.query_messages import Answer, KillApplication, MoveApplication, Schedule
from common.rest_records import DecisionView, KilledView, MovedView, StepsView
from common.rm_messages import AllocationRelease
from partition_worker.engine.administration import no_application, no_queue
from partition_worker.engine.application import Application
from partition_worker.engine.partition import Partition
from partition_worker.engine.queue_traversal import Decision
from partition_worker.engine.state import Effect, Release
from partition_worker.redaction import Visibility


def kill_application(
    partition: Partition, rm: str, message: KillApplication, now: float
) -> tuple[Answer, list[Effect]]:
    """Kill an application.

    Raises:
        NotDone: it does not exist, or the actor may not kill it.
    """
    application = _find_visible(partition, message)
    effects = partition.kill(message.application_id, message.actor, now)
    name = message.name or external_name(rm, partition.name)
    view = KilledView(application_id=message.application_id, partition=name, state=str(application.state))
    return Answer(status=200, body=encode(view)), effects


def move_application(
    partition: Partition, rm: str, message: MoveApplication, now: float
) -> tuple[Answer, list[Effect]]:
    """Move an application to another queue.

    Raises:
        NotDone: it does not exist, or the actor may not move it there.
    """
    if not message.queue:
        return Answer(status=400, body=b"no queue to move the application to"), []
    application = _find_visible(partition, message)
    effects = partition.move(message.application_id, message.queue, message.actor, now)
    name = message.name or external_name(rm, partition.name)
    view = MovedView(application_id=message.application_id, partition=name, queue=application.queue.path)
    return Answer(status=200, body=encode(view)), effects


def _find_visible(partition: Partition, message: KillApplication | MoveApplication) -> Application:
    """Find the application. It and the queue have to exist and, if `seen_only`, to be visible to the actor.

    Raises:
        NotDone: 404, also if one exists and is not visible.
    """
    application = partition.applications.get(message.application_id)
    visible = Visibility(partition, message.actor) if message.seen_only else None
    if application is None or (visible is not None and not visible.shows_application(application)):
        raise no_application(message.application_id, message.name or partition.name)
    if visible is not None and isinstance(message, MoveApplication):
        leaf = partition.tree.find(message.queue)
        if leaf is not None and not visible.shows_queue(leaf):
            raise no_queue(message.queue)
    return application


# Manual scheduling ----------------------------------------------------------------------------------------------------


def make_decisions(
    partition: Partition, rm: str, wanted: Schedule, now: float, *, manual: bool
) -> tuple[Answer, list[Effect]]:
    """Make up to so many decisions; returns the answer and the effects."""
    name = wanted.name or external_name(rm, partition.name)
    if not manual:
        reason = (
            f"partition {name} schedules automatically; `schedule` needs a system started with `yunishard up --manual`"
        )
        return Answer(status=409, body=reason.encode()), []
    made = partition.schedule_each(now, wanted.steps)
    decisions = [_describe(decision, follows) for decision, follows in made]
    effects = [effect for _, follows in made for effect in follows]
    view = StepsView(partition=name, made=len(decisions), idle=partition.idle, decisions=decisions)
    return Answer(status=200, body=encode(view)), effects


def _describe(decision: Decision, effects: list[Effect]) -> DecisionView:
    """A decision, and the releases that the RM is asked for because of it."""
    return DecisionView(
        kind=type(decision).__name__.lower(),
        application_id=decision.application.application_id,
        allocation_key=decision.ask.key,
        node_id="" if isinstance(decision, Release) else decision.node.node_id,
        releases=[part.allocation_key for _, part in effects if isinstance(part, AllocationRelease)],
    )
