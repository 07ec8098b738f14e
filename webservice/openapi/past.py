"""What is said about the routes that tell the history (`webservice/history_routes.py`)."""

from collections.abc import Iterator
from typing import Final

from common.rest_records import (
    ApplicationsAtView,
    ContainersAtView,
    GapView,
    PastAllocationView,
    PastApplicationView,
    PastGroupView,
    PastPageView,
    PastQueueView,
    PastUserView,
)
from webservice.history.tables import LISTS, ListName
from webservice.history_routes import ALLOCATION_STATES, ENDED_STATES, LIMIT, LIMIT_MAX
from webservice.openapi.operation import ANY_TEXT, CSV, Area, Content, Operation, Parameter
from webservice.openapi.words import LINK

_HISTORY: Final = "GET /ws/v1/history"

_TIME: Final = "Such as `2026-01-31T12:00:00Z`, `1769860800` (seconds since 1970) or `-24h` (so long ago)."
_PARTITION: Final = Parameter("partition", "Only of this partition, which need not exist any more.")
_RM: Final = Parameter("rm", "Only of this resource manager, which need not be there any more.")
_COMMON: Final = (
    _PARTITION,
    _RM,
    Parameter("since", f"Nothing from before. {_TIME}"),
    Parameter("until", f"Nothing from then on. {_TIME}"),
    Parameter("limit", f"How many rows, {LIMIT} if not said.", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}),
    Parameter("after", "Where to go on: `next` of the answer before."),
    Parameter("format", "Instead of `Accept`.", {"type": "string", "enum": ["json", "csv", ""]}),
)
_QUEUE: Final = (
    Parameter("queue", "Only of this queue."),
    Parameter("subtree", "With it, whatever its value, also of all queues below."),
)
_STATE: Final = {"applications": ENDED_STATES, "allocations": ALLOCATION_STATES}
_OFF: Final = {500: "No history is kept."}

_PAGES: Final[dict[ListName, tuple[str, type[object]]]] = {
    "applications": ("Applications that have ended", PastPageView[PastApplicationView]),
    "allocations": ("Allocations that ran or run", PastPageView[PastAllocationView]),
    "queues": ("What queues had over time", PastPageView[PastQueueView]),
    "users": ("What users had over time", PastPageView[PastUserView]),
    "groups": ("What groups had over time", PastPageView[PastGroupView]),
    "gaps": ("Times of which something is not known", PastPageView[GapView]),
}


def _narrowing(name: ListName) -> Iterator[Parameter]:
    """The parameters by which a list can be narrowed."""
    one = LISTS[name]
    if one.queue:
        yield from _QUEUE
    for word in ("user", "group", "application"):
        if getattr(one, word):
            yield Parameter(word, f"Only of this {word}.")
    if one.state:
        yield Parameter("state", "Only those in this state.", {"type": "string", "enum": [*_STATE[name], ""]})


def _page(name: ListName) -> Operation:
    summary, rows = _PAGES[name]
    return Operation(
        summary,
        (Content(rows), Content(ANY_TEXT, CSV)),
        says="The oldest first, page by page. A parameter that does not exist here is refused.",
        parameters=(*_COMMON, *_narrowing(name)),
        headers={"Link": LINK},
    )


PAST: Final = Area(
    "history",
    "What there was, also before a restart.",
    {
        f"{_HISTORY}/apps": Operation(
            "How many applications ran, minute by minute",
            (Content(list[ApplicationsAtView]),),
            parameters=(_PARTITION, _RM),
            statuses=_OFF,
        ),
        f"{_HISTORY}/containers": Operation(
            "How many allocations there were, minute by minute",
            (Content(list[ContainersAtView]),),
            parameters=(_PARTITION, _RM),
            statuses=_OFF,
        ),
        **{f"{_HISTORY}/{name}": _page(name) for name in LISTS},
    },
)
