"""What is said about the routes that look into the scheduler while it runs (`webservice/debug_routes.py`)."""

from typing import Final

from webservice.openapi.operation import (
    ANY_OBJECT,
    ANY_TEXT,
    BINARY,
    HTML,
    JSON,
    TEXT,
    Area,
    Content,
    Operation,
    Parameter,
)
from webservice.openapi.words import RM

_HIDDEN: Final = "Only with the setting `debug`; without it the path is unknown."
_PARTITION: Final = Parameter("partition", "The worker of this partition, instead of the web service.")
_PROCESS: Final = Parameter(
    "process",
    "Which process; `worker` goes with `partition`.",
    {"type": "string", "enum": ["webservice", "broker", "worker"]},
)
_DEBUG: Final = Parameter("debug", "Other than 0: as text to read.")
_RM: Final = Parameter("rm", "Whose partition it is.")
_AS_WANTED: Final = (Content(ANY_TEXT, BINARY), Content(ANY_TEXT, TEXT))


def _seconds(most: float) -> Parameter:
    return Parameter("seconds", "How long.", {"type": "number", "exclusiveMinimum": 0, "maximum": most})


def _seen(summary: str, *more: Parameter) -> Operation:
    return Operation(summary, _AS_WANTED, says=_HIDDEN, parameters=(_PROCESS, _PARTITION, _RM, _DEBUG, *more))


INSIDE: Final = Area(
    "inside",
    "What the scheduler knows, and what its processes do.",
    {
        "GET /debug/fullstatedump": Operation(
            "The state dump: everything, in one document",
            (Content(ANY_OBJECT),),
            says="Made piece by piece, one at a time. What is missing is listed under `unanswered`.",
            parameters=(RM,),
        ),
        "GET /ws/v1/fullstatedump": Operation("Where the state dump is", (), redirects=True),
        "GET /ws/v1/stack": Operation("Where the stacks are", (), redirects=True),
        "GET /debug/stack": Operation(
            "Stacks of all threads and tasks",
            (Content(ANY_TEXT, JSON),),
            says=f"Text, although the type says JSON. {_HIDDEN}",
            parameters=(_PROCESS, _PARTITION, _RM),
        ),
        "GET /debug/pprof/": Operation("What there is", (Content(ANY_TEXT, HTML),), says=_HIDDEN),
        "GET /debug/pprof/allocs": _seen("Memory in use, and for what"),
        "GET /debug/pprof/block": _seen("Where threads and tasks wait"),
        "GET /debug/pprof/cmdline": Operation(
            "The command line, with a zero between arguments", (Content(ANY_TEXT, TEXT),), says=_HIDDEN
        ),
        "GET /debug/pprof/goroutine": _seen("Stacks of all threads and tasks"),
        "GET /debug/pprof/heap": _seen("Memory in use, and for what"),
        "GET /debug/pprof/mutex": _seen("Where threads and tasks wait"),
        "GET /debug/pprof/profile": _seen("Where the time goes", _seconds(60)),
        "GET /debug/pprof/symbol": Operation("Whether there are symbols", (Content(ANY_TEXT, TEXT),), says=_HIDDEN),
        "GET /debug/pprof/threadcreate": _seen("Stacks of all threads and tasks"),
        "GET /debug/pprof/trace": _seen("When which thread was where", _seconds(5)),
    },
)
