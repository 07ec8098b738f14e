"""The answers of a worker about its recorded events: for the history (query `account`), and for event streams (query
`event-lines`).

Records are encoded as arrays, as there may be ten thousand of them each second. The parts of an answer are of the same
moment. Not here: the REST API's form of events (`common/rest/records.py`), the queries
(`yunishard/webservice/history`).
"""

from typing import Final, Generic, TypeVar

from msgspec import Struct, field

from yunishard.common.messages.kinds import Resources

EVENTS_MAX: Final = 10_000
"""Events of one answer, about a hundredth of a second for the worker."""

ENDED_MAX: Final = 1_000
"""Ended applications in one answer."""

KEYS_MAX: Final = 100_000
"""Keys of running allocations in one answer. A partition with more sends none."""


class AllocationRecord(Struct, frozen=True, array_like=True, gc=False):
    """An event of an allocation."""

    at_ns: int
    key: str
    application_id: str
    queue: str
    user: str
    node_id: str
    resources: Resources


class Began(AllocationRecord, frozen=True, array_like=True, tag="began", gc=False):
    """The allocation was placed on its node."""


class Ended(AllocationRecord, frozen=True, array_like=True, tag="ended", gc=False):
    """The allocation was released with this type (`NODE_REMOVED` if its node was removed)."""

    how: str


class Failing(Struct, frozen=True, array_like=True, tag="failing", gc=False):
    """An application fails or has failed, with the reason."""

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
    """Unique in the partition, and increasing."""
    message: str = ""
    used: dict[str, Resources] = field(default_factory=dict)
    """Amounts times seconds of all its allocations, by instance type."""
    preempted: dict[str, Resources] = field(default_factory=dict)
    placeholders: dict[str, Resources] = field(default_factory=dict)


class Usage(Struct, frozen=True, array_like=True, gc=False):
    """The present usage of a queue with all below it, or of a user or group."""

    name: str
    running: int
    """Applications."""
    allocated: Resources
    pending: Resources = field(default_factory=dict)
    """Asks without a node; of queues only."""


class Sample(Struct, frozen=True, array_like=True):
    """The present usage of a partition, without queues, users and groups that use nothing."""

    running: int
    """Applications in the state Running."""
    allocated: int
    """Allocations since the partition began."""
    released: int
    """Releases, also of allocations that an RM reported."""
    capacity: Resources
    used: Resources
    queues: list[Usage]
    users: list[Usage]
    groups: list[Usage]


class Account(Struct, frozen=True, kw_only=True):
    """The answer to the query `account`."""

    instance: str
    """Identifies the event ring buffer: numbers of another one do not apply."""
    tracked: bool
    """Whether events are recorded at present."""
    first: int
    """The number of the first event of the answer: the requested one, or a later one if that was overwritten."""
    next: int
    """The number after the last event of the answer."""
    first_ns: int = 0
    """Time of the first event; 0 if there is none."""
    last_ns: int = 0
    """Time of the last event."""
    happened: list[Happened]
    ended: list[EndedApplication]
    """The oldest ones that finished after the requested time, in this order."""
    sample: Sample | None = None
    """If requested."""
    keys: list[str] | None = None
    """Of all running allocations, if requested, not too many, and no later event exists."""


# Events for streams ---------------------------------------------------------------------------------------------------

EVENT_LINES: Final = "event-lines"
"""The `what` of the query. Its `args`: `start`, the number of the first event, or nothing for none; `count`, the
maximum of events.
"""

COUNT_MAX: Final = 1000
"""The maximum of events in one answer, some ten milliseconds for the worker."""

RecordT = TypeVar("RecordT")


class EventLines(Struct, Generic[RecordT], frozen=True, kw_only=True):
    """Events from `first` on, in order."""

    instance: str
    """Identifies the event ring buffer."""
    tracking: bool
    """Whether events are recorded at present."""
    streams_max: int
    """The maximum of streams. Lowering it closes none."""
    streams_per_host_max: int
    """The maximum of streams with the same `Host` header."""
    lowest: int
    """The number of the oldest event in the buffer."""
    end: int
    """The number of the next event."""
    first: int
    """The number of the first event of the answer: the requested one, or the oldest if that was overwritten."""
    records: list[RecordT]
