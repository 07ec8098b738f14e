"""Keep the newest events of a partition in a bounded ring buffer, and push them to the RM in batches.

    ring.add(happenings, now)     append the events of one step
    ring.since(start, count)      read events from a number on

Events are numbered from 0 and no number is reused; when the buffer is full, the oldest events are dropped. A new
partition incarnation starts an empty buffer with another `instance`, so that readers detect it.

An RM with the capability `events` receives new events every EVERY_S. Pushed events are not numbered, persisted or
repeated. Events beyond `event.requestCapacity` (and PUSHED_MAX) are skipped, and the message states how many. Nothing
is pushed while an RM has not acknowledged what it was sent before the last push, which bounds the data in flight.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from common.extra_config import DEFAULTS
from common.resources import saturated
from common.rm_messages import EventRecord, EventResponse
from common.session import Outbox
from common.wire import NEVER
from partition_worker.engine.effects import Happened, Happening

MESSAGE_BYTES_MAX: Final = 1024
"""A longer message is cut, and ends with three dots."""

CAPACITY_MAX: Final = 1_000_000
"""Events that are kept at most, whatever is configured: about half a gigabyte."""


class Span(NamedTuple):
    """A run of events, and when each happened: strictly later than the one before it, in Unix nanoseconds."""

    times_ns: list[int]
    happenings: list[Happening]


class EventRingBuffer:
    """The newest events, numbered from `lowest` to `highest`; both are 0 while there are none."""

    def __init__(self, name: str, capacity: int = DEFAULTS.event_ring_buffer_capacity) -> None:
        digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
        self.instance = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))
        """Which history this is, in the form of a UUID; two whose names differ never have the same."""
        self._happenings: deque[Happened] = deque(maxlen=capacity)
        self._times_ns: deque[int] = deque(maxlen=capacity)
        """When each of them happened. Not pairs: they would be three more objects for each allocation."""
        self._added = 0
        self._last_ns = 0

    def __len__(self) -> int:
        return len(self._happenings)

    @property
    def lowest(self) -> int:
        return self._added - len(self._happenings) if self._happenings else 0

    @property
    def highest(self) -> int:
        return self._added - 1 if self._happenings else 0

    @property
    def end(self) -> int:
        """The number that the next event will have."""
        return self._added

    def add(self, happenings: Sequence[Happened], now: float) -> None:
        """Append the events of one step, in order."""
        first_ns = max(self._last_ns + 1, int(now * 1e9))
        self._last_ns = first_ns + len(happenings) - 1
        self._happenings.extend(happenings)
        self._times_ns.extend(range(first_ns, self._last_ns + 1))
        self._added += len(happenings)

    def resize(self, capacity: int) -> None:
        """Keep so many from now on, if that is no more than can be; the newest of those that are there."""
        capacity = min(capacity, CAPACITY_MAX)
        if capacity != self._happenings.maxlen:
            self._happenings = deque(self._happenings, maxlen=capacity)
            self._times_ns = deque(self._times_ns, maxlen=capacity)

    def since(self, start: int, most: int) -> Span | None:
        """Up to so many events from this number on, or None if there is none of this number."""
        if not self._happenings or not self.lowest <= start <= self.highest:
            return None
        first = start - self.lowest
        behind = min(first + most, len(self._happenings))
        found = [Happening._make(happened) for happened in islice(self._happenings, first, behind)]
        return Span(list(islice(self._times_ns, first, behind)), found)


def truncate_message(message: str) -> str:
    """A message that is not too long for an event."""
    if len(message) * 4 <= MESSAGE_BYTES_MAX or len(raw := message.encode()) <= MESSAGE_BYTES_MAX:
        return message
    return raw[: MESSAGE_BYTES_MAX - 3].decode(errors="ignore") + "..."


# Push to the RM -------------------------------------------------------------------------------------------------------

EVERY_S: Final = 2.0
"""From the first event that was not pushed to the push."""


PUSHED_MAX: Final = 10_000
"""Events in a push, whatever is configured: some 2 MiB."""


class EventPush:
    """How far the RM has been told. `deadline` is when the next batch is due, or NEVER."""

    def __init__(self) -> None:
        self.deadline = NEVER
        self._ring = ""
        self._next = self._told = 0
        """The next event to tell; the last news that the RM had been told at the last push."""

    def look(self, ring: EventRingBuffer, now: float) -> None:
        """See whether there is something new."""
        if ring.instance != self._ring:
            self._ring, self._next, self._told = ring.instance, 0, 0
        if self.deadline == NEVER and ring.end > self._next:
            self.deadline = now + EVERY_S

    def due(self, now: float) -> bool:
        """Whether it is time for the next batch."""
        return self.deadline <= now

    def batch(self, ring: EventRingBuffer, most: int, news: Outbox) -> EventResponse | None:
        """What has happened since, the oldest first; None if that is nothing, or the RM does not read its news."""
        self.deadline = NEVER
        if news.acknowledged < self._told:
            return None
        self._told = news.last
        span = ring.since(max(self._next, ring.lowest), min(most, PUSHED_MAX))
        happened, self._next = ring.end - self._next, ring.end
        if span is None:
            return None
        records = [
            EventRecord(
                type=one.kind,
                object_id=one.object_id,
                message=truncate_message(one.message),
                timestamp_nano=at_ns,
                event_change_type=one.change,
                event_change_detail=one.detail,
                reference_id=one.reference_id,
                resource=saturated(one.resource),
            )
            for at_ns, one in zip(span.times_ns, span.happenings, strict=True)
        ]
        return EventResponse(events=records, missed=happened - len(records))
