"""What a worker tells whoever keeps a history of its partition: what happened since it was asked before, and how things
are now. One answer is of one moment, so that its parts agree with each other.

Inside arrays, as there may be ten thousand of them each second. Not here: what of that the REST API shows
(`common/rest_records.py`), how often it is asked for (`webservice/history/collector.py`).
"""

from typing import Final, Generic, TypeVar

from msgspec import Struct, field

from common.messages import Resources

EVENTS_MAX: Final = 10_000
"""Events that are read for one answer, about a hundredth of a second for the worker."""

ENDED_MAX: Final = 1_000
"""Ended applications in one answer."""

KEYS_MAX: Final = 100_000
"""Keys of running allocations in one answer. A partition that has more does not say which they are."""


class AllocationRecord(Struct, frozen=True, array_like=True, gc=False):
    """What happened to an allocation, and when."""

    at_ns: int
    key: str
    application_id: str
    queue: str
    user: str
    node_id: str
    resources: Resources


class Began(AllocationRecord, frozen=True, array_like=True, tag="began", gc=False):
    """It got its node."""


class Ended(AllocationRecord, frozen=True, array_like=True, tag="ended", gc=False):
    """It is gone, by a release of this type (`NODE_REMOVED` if it went with its node)."""

    how: str


class Failing(Struct, frozen=True, array_like=True, tag="failing", gc=False):
    """An application fails or has failed, and why."""

    at_ns: int
    application_id: str
    message: str


Happened = Began | Ended | Failing


class EndedApplication(Struct, frozen=True, array_like=True, gc=False):
    """An application that has completed, failed, was removed or rejected. Times in Unix nanoseconds, 0 is never."""

    application_id: str
    queue: str
    user: str
    groups: list[str]
    state: str
    submitted_ns: int
    started_ns: int
    finished_ns: int
    """Of no two in a partition the same, and rising."""
    message: str = ""
    used: dict[str, Resources] = field(default_factory=dict)
    """Amounts times seconds of all its allocations, by instance type."""
    preempted: dict[str, Resources] = field(default_factory=dict)
    placeholders: dict[str, Resources] = field(default_factory=dict)


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """What a queue with all below it, or a user or group, has at the moment."""

    name: str
    running: int
    """Applications."""
    allocated: Resources
    pending: Resources = field(default_factory=dict)
    """Asks without a node; known of queues only."""


class Sample(Struct, frozen=True, array_like=True):
    """How a partition is at the moment. Whoever has and wants nothing is not mentioned."""

    running: int
    """Applications in the state Running."""
    allocated: int
    """Allocations since the partition began."""
    released: int
    """Of those, and of those that an RM reported, that were released."""
    capacity: Resources
    used: Resources
    queues: list[Usage]
    users: list[Usage]
    groups: list[Usage]


class Account(Struct, frozen=True, kw_only=True):
    """The answer to the question `account`."""

    instance: str
    """Which history of events it is: numbers of another one mean nothing in this one."""
    tracked: bool
    """Whether events are added to it at present."""
    first: int
    """The number of the first event that was read: the one asked for, or a later one if that is gone."""
    next: int
    """The number with which to go on."""
    first_ns: int = 0
    """When the first event that was read happened; 0 if none was."""
    last_ns: int = 0
    """The same of the last one."""
    happened: list[Happened]
    ended: list[EndedApplication]
    """Those that finished after the time asked for, the oldest ones in this order."""
    sample: Sample | None = None
    """If asked for."""
    keys: list[str] | None = None
    """Of all allocations that run, if asked for, not too many, and no event is left to read."""


# Events for streams ---------------------------------------------------------------------------------------------------

EVENT_LINES: Final = "event-lines"
"""The `what` of a `Query` for them. Its `args`: `start`, the number of the first one, or nothing for none at all;
`count`, how many at most."""

COUNT_MAX: Final = 1000
"""Events in one answer, whatever is asked for; it takes the worker some ten milliseconds to write them down."""

RecordT = TypeVar("RecordT")


class EventLines(Struct, Generic[RecordT], frozen=True, kw_only=True):
    """Events from `first` on, one after the other."""

    instance: str
    """Which history it is."""
    tracking: bool
    """Whether anything is added to it at present."""
    streams_max: int
    """How many may be told of it at a time; fewer than there are end nothing."""
    streams_per_host_max: int
    """How many of them that say the same `Host`."""
    lowest: int
    """The number of the oldest event that is there."""
    end: int
    """The number that the next event to happen will have."""
    first: int
    """That of the first event given: the one wanted, or the oldest if that is gone."""
    records: list[RecordT]
