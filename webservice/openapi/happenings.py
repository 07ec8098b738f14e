"""What is said about the routes that tell events (`webservice/partition_routes.py`)."""

from typing import Final

from common.rest_records import BatchView
from common.unsigned import UINT_MAX
from webservice.openapi.operation import ANY_OBJECT, Area, Content, Operation, Parameter, Schema
from webservice.openapi.words import RM

_PARTITION: Final = Parameter("partition", "Whose events. Not needed if the RM that is meant has one partition.")
_NOT_SAID: Final[Schema] = {"const": ""}
_NUMBER: Final[Schema] = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": UINT_MAX}, _NOT_SAID]}
_AT_LEAST_ONE: Final[Schema] = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": UINT_MAX}, _NOT_SAID]}
_OFF: Final = {500: "Events are switched off."}
_SEVERAL: Final = {409: "The RM that is meant has several partitions and none was named."}

HAPPENINGS: Final = Area(
    "events",
    "What happened, event by event. Each partition has a history of its own.",
    {
        "GET /ws/v1/events/batch": Operation(
            "Events from a number on",
            (Content(BatchView),),
            says="The n-th record has the number `start` + n: go on there, or at `LowestID` if that is gone."
            " `EventRecords` is `null` if there is no such event.",
            parameters=(
                Parameter("start", "The number of the first; 0 if not said.", _NUMBER),
                Parameter("count", "How many at most.", _AT_LEAST_ONE),
                _PARTITION,
                RM,
            ),
            statuses={**_OFF, **_SEVERAL},
        ),
        "GET /ws/v1/events/stream": Operation(
            "Events as they happen, one in a line",
            (Content(ANY_OBJECT),),
            says="The first line has `InstanceUUID`, each further one is an event. Who is too slow is cut off, with an"
            " error as the last line.",
            parameters=(
                Parameter(
                    "count", "How many of those that have happened already come first; none if not said.", _NUMBER
                ),
                _PARTITION,
                RM,
            ),
            statuses={**_OFF, **_SEVERAL},
            streams=True,
        ),
    },
)
