"""What the engine wants told, as values: the shell turns them into messages and log lines.

Each effect names its cause, the number of the input or scheduling cycle that it follows from, so that everything that
left a partition can be traced to what came in.

Not here: messages (`partition_worker/outgoing_messages.py`).
"""

from typing import NamedTuple

from common.control_messages import GroupsWanted
from common.messages import Resources
from common.rm_messages import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    EventRecord,
    PredicatesAsked,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    SyncDone,
    UpdateContainerSchedulingState,
    UpdatedApplication,
)


class Note(NamedTuple):
    """Something for the log: an input that had no effect, and why. The RM is not told."""

    text: str
    for_people: bool = False
    """Whether whoever runs the system should see it: a change that somebody made, and what follows from it."""


class IgnoredRelease(NamedTuple):
    """A release that had no effect, and why. Announced without a number (`ReleasesIgnored`)."""

    release: AllocationRelease
    reason: str
    for_people: bool = False
    """As in a `Note`: the line for each release is of use only when looking for a fault."""

    @property
    def text(self) -> str:
        return f"release of {self.release.allocation_key}: {self.reason}"


class Happening(NamedTuple):
    """An event for the history, with the numbers of `common/event_codes.py`. When, says the order among others."""

    kind: int
    object_id: str
    reference_id: str
    change: int
    detail: int
    message: str
    resource: Resources
    """Shared with the books; never changed in place."""


Happened = tuple[int, str, str, int, int, str, Resources]
"""The fields of a `Happening`, as they are kept: several for each decision, of which hardly any is ever looked at."""


Part = (
    AcceptedNode
    | RejectedNode
    | AcceptedApplication
    | RejectedApplication
    | UpdatedApplication
    | Allocation
    | AllocationRelease
    | RejectedAllocation
    | EventRecord
    | UpdateContainerSchedulingState
    | GroupsWanted
    | PredicatesAsked
    | SyncDone
    | IgnoredRelease
    | Note
)


class Effect(NamedTuple):
    """One thing to tell, and the number of its cause."""

    cause: int
    part: Part
