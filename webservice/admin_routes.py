"""What administrators do to an application: end it, or let it go on in another queue.

The worker of its partition decides whether they may and whether it can be done. Not here: who asks (`people.py`).
"""

from typing import Final

from common.messages import Actor, KillApplication, MoveApplication
from webservice.calls import Call, Change, Changing, Named, Reply, Respond, document, partition_of
from webservice.errors import RequestError
from webservice.parameters import queue_name
from webservice.router import Route

_APPLICATION: Final = "/ws/v1/partition/{partition}/application/{application}"


async def kill(call: Call, actor: Actor) -> Reply:
    """Fail an application and release all it has."""
    partition = await partition_of(call)
    return await _change(call, partition, KillApplication(application_id=call.parameters["application"], actor=actor))


async def move(call: Call, actor: Actor) -> Reply:
    """Let an application go on in another leaf."""
    partition = await partition_of(call)
    if not call.query.get("queue"):
        raise RequestError(400, "Say where to with ?queue=PATH, the full path of a leaf such as root.a")
    queue = queue_name(call.query["queue"])
    wanted = MoveApplication(application_id=call.parameters["application"], queue=queue, actor=actor)
    return await _change(call, partition, wanted)


async def _change(call: Call, partition: Named, wanted: Change) -> Reply:
    return Reply(document(await call.link.change(wanted, partition=partition.full_name)).strip() + b"\n")


ROUTES: Final[tuple[Route[Respond | Changing], ...]] = (
    Route("POST", f"{_APPLICATION}/kill", Changing(kill, by_scheduler_admins=False)),
    Route("POST", f"{_APPLICATION}/move", Changing(move, by_scheduler_admins=False)),
)
