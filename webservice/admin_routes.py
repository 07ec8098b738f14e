"""What administrators do: end an application, let it go on in another queue, have a partition decide step by step.

The worker of the partition decides whether they may and whether it can be done, but for steps, which are for scheduler
administrators only. Not here: who asks (`people.py`).
"""

import re
from typing import Final

from common.query_messages import STEPS_MAX, Actor, KillApplication, MoveApplication, Schedule
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Change, Changing, Named, Reply, document, partition_of
from webservice.errors import RequestError
from webservice.parameters import queue_name
from webservice.router import Route

_PARTITION: Final = "/ws/v1/partition/{partition}"
_APPLICATION: Final = f"{_PARTITION}/application/{{application}}"


async def kill(call: Call, actor: Actor) -> Reply:
    """Fail an application and release all it has."""
    partition = await partition_of(call)
    wanted = KillApplication(
        application_id=call.parameters["application"],
        actor=actor,
        seen_only=call.viewer is not None,
        name=partition.shown,
    )
    return await _change(call, partition, wanted)


async def move(call: Call, actor: Actor) -> Reply:
    """Let an application go on in another leaf."""
    partition = await partition_of(call)
    if not call.query.get("queue"):
        raise RequestError(400, "Say where to with ?queue=PATH, the full path of a leaf such as root.a")
    queue = queue_name(call.query["queue"])
    wanted = MoveApplication(
        application_id=call.parameters["application"],
        queue=queue,
        actor=actor,
        seen_only=call.viewer is not None,
        name=partition.shown,
    )
    return await _change(call, partition, wanted)


async def schedule(call: Call, actor: Actor) -> Reply:
    """Make `?steps=N` decisions (one if it is not said) in a partition that decides only when asked to."""
    partition = await partition_of(call)
    wanted = Schedule(steps=_steps(call.query.get("steps", "1")), name=partition.shown)
    return await _change(call, partition, wanted)


def _steps(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= STEPS_MAX:
        raise RequestError(400, f"Say how many with ?steps=N, a whole number from 1 to {STEPS_MAX}, not {text[:32]!r}")
    return int(text)


async def _change(call: Call, partition: Named, wanted: Change) -> Reply:
    return Reply(document(await call.link.change(wanted, partition=partition.full_name)).strip() + b"\n")


ROUTES: Final[tuple[ApiRoute, ...]] = (
    Route("POST", f"{_APPLICATION}/kill", Changing(kill), Access.OWN),
    Route("POST", f"{_APPLICATION}/move", Changing(move), Access.OWN),
    Route("POST", f"{_PARTITION}/schedule", Changing(schedule), Access.ADMINS),
)
