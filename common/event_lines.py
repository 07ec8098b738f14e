"""A piece of the history of a partition, as its worker gives it to those who pass events on as they happen.

Not here: what people get (`/ws/v1/events/batch` and `/ws/v1/events/stream`).
"""

from typing import Final, Generic, TypeVar

from msgspec import Struct

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
