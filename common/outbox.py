"""Numbering, acknowledgement and repetition in one lane: one (session, partition, direction).

The sender keeps what is not acknowledged in an `Outbox`, the receiver drops what it has seen with an `Inbox`, and so
each message takes effect once, whatever was lost or repeated between them. The same two classes bound what is on its
way: a sender whose outbox is full stops producing. That is the whole flow control; no other queue needs a limit of
its own.

Not here: sockets, and when to acknowledge (`session.py` for the RM's side, `partition_worker/partition_host.py` for the
core's).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

WINDOW_MESSAGES: Final = 1024
"""Messages that a sender may have unacknowledged in one lane. When it is reached the sender waits: a partition stops
allocating, an RM's update call waits."""

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The same in bytes of their bodies. Whoever has fewer under way may send one more message, of any size: so the largest
one that there may be goes too, and what is under way is bounded by this and one message."""

BACKLOG_MAX_MESSAGES: Final = 8 * WINDOW_MESSAGES
"""News that may wait for an RM that goes on sending commands, which have their own answers, and acknowledges nothing.
Beyond it its commands are refused; an RM that keeps to its window never comes near.
"""

ACK_EVERY_MESSAGES: Final = 64
"""A receiver acknowledges at least this often, so that a lane never stands still for want of an acknowledgement."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a lane may be under way without its acknowledgement."""

    messages: int = WINDOW_MESSAGES
    size: int = WINDOW_BYTES
    """In bytes of bodies."""

    def reached(self, messages: int, size: int) -> bool:
        """Whether who has so much under way has to wait."""
        return messages >= self.messages or size >= self.size


WINDOW: Final = Window()


class Outbox:
    """The sender's half: numbers messages from 1 and keeps each until it is acknowledged."""

    def __init__(self, last: int = 0, waiting: Iterable[tuple[int, str, bytes]] = ()) -> None:
        """A new one, or one that goes on after the number `last` with what waits for its acknowledgement."""
        self.last = last
        self.window = WINDOW
        """Another one if the receiver says so."""
        self._waiting: deque[tuple[int, str, bytes]] = deque(waiting)
        self._size = sum(len(body) for _, _, body in self._waiting)

    @property
    def size(self) -> int:
        """Bytes of the bodies that wait."""
        return self._size

    @property
    def acknowledged(self) -> int:
        """The highest number that was acknowledged."""
        return self.last - len(self._waiting)

    @property
    def full(self) -> bool:
        return self.window.reached(len(self._waiting), self._size)

    def __len__(self) -> int:
        """How many messages wait for their acknowledgement."""
        return len(self._waiting)

    def add(self, kind: str, body: bytes) -> int:
        """Keep a message; its number."""
        self.last += 1
        self._waiting.append((self.last, kind, body))
        self._size += len(body)
        return self.last

    def acknowledge(self, seq: int) -> bool:
        """Forget everything up to and including `seq`; whether that made room. Old acknowledgements change nothing."""
        before = len(self._waiting)
        while self._waiting and self._waiting[0][0] <= seq:
            self._size -= len(self._waiting.popleft()[2])
        return len(self._waiting) < before

    def unacknowledged(self) -> Iterator[tuple[int, str, bytes]]:
        """(number, kind, body) of what must be sent again after a break, oldest first."""
        return iter(tuple(self._waiting))


class Arrival(Enum):
    """What the number of a message says about it."""

    NEXT = "next"
    SEEN = "seen"
    GAP = "gap"


class Inbox:
    """The receiver's half: knows the last number whose effect is in its state."""

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def arrival(self, seq: int) -> Arrival:
        """NEXT: take it and call `took`. SEEN: drop it, acknowledge again. GAP: something before it is missing."""
        if seq <= self.last:
            return Arrival.SEEN
        return Arrival.NEXT if seq == self.last + 1 else Arrival.GAP

    def took(self, seq: int) -> None:
        """Record that the effect of `seq` is in the state."""
        assert seq == self.last + 1, (seq, self.last)
        self.last = seq
