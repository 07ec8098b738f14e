"""The history of a partition: the newest events, numbered from 0 in the order in which they happened.

    ring.add(happenings, now)     what happened in one step
    ring.since(start, count)      what is still there of it

A number is never used again, and the oldest events go when there is no room. The history begins anew with the
partition, and a text that says which history it is tells that to those who read on.

Not here: which events there are (`engine/happenings.py`), how they are shown (`events.py`).
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from common.extra_config import DEFAULTS
from partition_worker.engine.effects import Happened, Happening

CAPACITY_MAX: Final = 1_000_000
"""Events that are kept at most, whatever is configured: about half a gigabyte."""


class Span(NamedTuple):
    """A run of events, and when each happened: strictly later than the one before it, in Unix nanoseconds."""

    times_ns: list[int]
    happenings: list[Happening]


class EventRing:
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
