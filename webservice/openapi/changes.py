"""What is said about the routes that change something in a partition (`webservice/partition_routes.py`)."""

from typing import Final

from common.query_messages import STEPS_MAX
from common.rest_records import KilledView, MovedView, StepsView
from webservice.openapi.operation import Area, Content, Operation, Parameter
from webservice.openapi.words import RM

_PARTITION: Final = "POST /ws/v1/partition/{partition}"
_CHANGING: Final = {
    409: "It is not possible now.",
    413: "The body is too large.",
}

_QUEUE: Final = Parameter("queue", "The full path of a leaf to go on in.", required=True)
_STEPS: Final = Parameter(
    "steps", "How many, one if it is not said.", {"type": "integer", "minimum": 1, "maximum": STEPS_MAX}
)

CHANGES: Final = Area(
    "changes",
    "What administrators do to applications, and decisions one at a time.",
    {
        f"{_PARTITION}/application/{{application}}/kill": Operation(
            "End an application and release all it has",
            (Content(KilledView),),
            parameters=(RM,),
            statuses=_CHANGING,
        ),
        f"{_PARTITION}/application/{{application}}/move": Operation(
            "Let an application go on in another queue",
            (Content(MovedView),),
            parameters=(_QUEUE, RM),
            statuses=_CHANGING,
        ),
        f"{_PARTITION}/schedule": Operation(
            "Make decisions, in a system that decides only when it is asked to",
            (Content(StepsView),),
            parameters=(_STEPS, RM),
            statuses=_CHANGING,
        ),
    },
)
