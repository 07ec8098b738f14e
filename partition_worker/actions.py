"""What administrators want done to an application of a partition, and what they are answered.

Who may see a part of it only gets the answer about what they may not see that they would get if it were not there.

Not here: what each action does and who may ask for it (`engine/administration.py`), who may see what (`visibility.py`).
"""

from msgspec.json import encode

from common.names import external
from common.query_messages import Answer, KillApplication, MoveApplication
from common.rest_records import KilledView, MovedView
from partition_worker.answers.visibility import Visibility
from partition_worker.engine.administration import NotDone, no_application, no_queue
from partition_worker.engine.effects import Effect
from partition_worker.engine.partition import Partition


def kill(partition: Partition, rm: str, message: KillApplication, now: float) -> tuple[Answer, list[Effect]]:
    """Kill an application: what the asker is answered, and what follows for everybody else."""
    application = partition.applications.get(message.application_id)
    try:
        _check_there(partition, message)
        effects = partition.kill(message.application_id, message.actor, now)
    except NotDone as refusal:
        return _refused(refusal), []
    assert application is not None, message.application_id
    name = message.name or external(rm, partition.name)
    view = KilledView(application_id=message.application_id, partition=name, state=str(application.state))
    return Answer(status=200, body=encode(view)), effects


def move(partition: Partition, rm: str, message: MoveApplication, now: float) -> tuple[Answer, list[Effect]]:
    """Move an application to another queue: what the asker is answered, and what follows for everybody else."""
    if not message.queue:
        return Answer(status=400, body=b"no queue to move the application to"), []
    try:
        _check_there(partition, message)
        effects = partition.move(message.application_id, message.queue, message.actor, now)
    except NotDone as refusal:
        return _refused(refusal), []
    queue = partition.applications[message.application_id].queue
    name = message.name or external(rm, partition.name)
    view = MovedView(application_id=message.application_id, partition=name, queue=queue.path)
    return Answer(status=200, body=encode(view)), effects


def _check_there(partition: Partition, message: KillApplication | MoveApplication) -> None:
    """See that what the message names is there and, where that matters, that the actor may see it.

    Raises:
        NotDone: 404, also for what is there and may not be seen.
    """
    application = partition.applications.get(message.application_id)
    visible = Visibility(partition, message.actor) if message.seen_only else None
    if application is None or (visible is not None and not visible.application(application)):
        raise no_application(message.application_id, message.name or partition.name)
    if visible is not None and isinstance(message, MoveApplication):
        leaf = partition.tree.find(message.queue)
        if leaf is not None and not visible.shows(leaf):
            raise no_queue(message.queue)


def _refused(refusal: NotDone) -> Answer:
    return Answer(status=refusal.status, body=refusal.reason.encode())
