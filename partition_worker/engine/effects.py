"""What the engine wants told, as values: the shell turns them into messages and log lines.

Each effect names its cause, the number of the input or scheduling cycle that it follows from, so that everything that
left a partition can be traced to what came in.

Not here: messages (`partition_worker/news.py`).
"""

from typing import NamedTuple

from common.messages import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    EventRecord,
    GroupsWanted,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    UpdatedApplication,
)


class Note(NamedTuple):
    """Something for the log: an input that had no effect, and why. The RM is not told."""

    text: str
    for_people: bool = False
    """Whether whoever runs the system should see it: a change that somebody made, and what follows from it."""


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
    | GroupsWanted
    | Note
)


class Effect(NamedTuple):
    """One thing to tell, and the number of its cause."""

    cause: int
    part: Part
