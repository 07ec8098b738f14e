"""The lists that can be read of the history: from which columns each view is made, and by which it is narrowed.

Not here: which rows are wanted (`reading.py`), the tables (`schema.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from common.rest.history import (
    GapView,
    PastAllocationView,
    PastApplicationView,
    PastGroupView,
    PastQueueView,
    PastRow,
    PastUserView,
)

ListName = Literal["applications", "allocations", "queues", "users", "groups", "gaps"]

_WHOSE: Final = {"partition": "full_name", "rmId": "rm"}
_JSON: Final = frozenset(
    {"groups", "resource", "resourceHistory", "allocatedResource", "pendingResource", "resourceUsage"}
)
"""Keys of what is no number and no text."""


class PastList(NamedTuple):
    """A list, which has the name of its table."""

    view: type[PastRow]
    columns: Mapping[str, str]
    """By the key that the view shows."""
    queue: str = ""
    """The column by which it is narrowed to a queue; empty if it has none. So are those below."""
    user: str = ""
    group: str = ""
    application: str = ""
    state: bool = False
    """Whether it can be narrowed by a state."""

    @property
    def selected(self) -> str:
        """What stands between SELECT and FROM."""
        return ", ".join(self.columns.values())

    def row(self, values: Sequence[object]) -> PastRow:
        """What is shown of a row with these values of the columns.

        Raises:
            msgspec.MsgspecError: they are not what we write.
        """
        shown = {
            key: msgspec.json.decode(value) if key in _JSON and isinstance(value, str) else value
            for key, value in zip(self.columns, values, strict=True)
            if value is not None
        }
        return msgspec.convert(shown, self.view)


LISTS: Final[Mapping[ListName, PastList]] = {
    "applications": PastList(
        PastApplicationView,
        {
            **_WHOSE,
            "applicationID": "application",
            "queueName": "queue",
            "user": "user",
            "groups": "groups",
            "applicationState": "state",
            "submissionTime": "submitted",
            "startTime": "started",
            "finishedTime": "at",
            "allocationCount": "allocations",
            "message": "message",
            "resourceHistory": "used",
        },
        queue="queue",
        user="user",
        application="application",
        state=True,
    ),
    "allocations": PastList(
        PastAllocationView,
        {
            **_WHOSE,
            "allocationKey": "key",
            "applicationID": "application",
            "queueName": "queue",
            "user": "user",
            "nodeId": "node",
            "resource": "resources",
            "startTime": "began",
            "finishedTime": "ended",
            "terminationType": "how",
        },
        queue="queue",
        user="user",
        application="application",
        state=True,
    ),
    "queues": PastList(
        PastQueueView,
        {
            **_WHOSE,
            "timestamp": "at",
            "queueName": "entry.name",
            "runningApps": "running",
            "allocatedResource": "allocated",
            "pendingResource": "pending",
        },
        queue="entry.name",
    ),
    "users": PastList(
        PastUserView,
        {
            **_WHOSE,
            "timestamp": "at",
            "userName": "entry.name",
            "runningApps": "running",
            "resourceUsage": "allocated",
        },
        user="entry.name",
    ),
    "groups": PastList(
        PastGroupView,
        {
            **_WHOSE,
            "timestamp": "at",
            "groupName": "entry.name",
            "runningApps": "running",
            "resourceUsage": "allocated",
        },
        group="entry.name",
    ),
    "gaps": PastList(
        GapView,
        {**_WHOSE, "what": "what", "since": "at", "until": "until", "missed": "missed", "reason": "reason"},
    ),
}
