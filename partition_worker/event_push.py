"""Events for the RM, as they happen: what the history has got since the last push, a batch every EVERY_S.

For an RM with the capability `events` only. They are a courtesy: not numbered, not kept, not sent again; what is more
than `event.requestCapacity` (and PUSHED_MAX) between two pushes is only in the history, and a number says how much that
is. An RM that has not read what it was told before the last push is sent none until it has, so that what is on its way
to it stays bounded.

Not here: the history (`event_ring.py`), and who asks for it (`events.py`).
"""

from typing import Final

from common.machine import NEVER
from common.outbox import Outbox
from common.resources import saturated
from common.rm_messages import EventRecord, EventResponse
from partition_worker.answers.events import cut
from partition_worker.event_ring import EventRing

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

    def look(self, ring: EventRing, now: float) -> None:
        """See whether there is something new."""
        if ring.instance != self._ring:
            self._ring, self._next, self._told = ring.instance, 0, 0
        if self.deadline == NEVER and ring.end > self._next:
            self.deadline = now + EVERY_S

    def due(self, now: float) -> bool:
        """Whether it is time for the next batch."""
        return self.deadline <= now

    def batch(self, ring: EventRing, most: int, news: Outbox) -> EventResponse | None:
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
                message=cut(one.message),
                timestamp_nano=at_ns,
                event_change_type=one.change,
                event_change_detail=one.detail,
                reference_id=one.reference_id,
                resource=saturated(one.resource),
            )
            for at_ns, one in zip(span.times_ns, span.happenings, strict=True)
        ]
        return EventResponse(events=records, missed=happened - len(records))
