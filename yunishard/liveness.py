"""Liveness of one session: when to send a heartbeat, when the core counts as gone, when to try again. A pure machine.

    open --silence--> attempting <--unanswered-- attempting     open: a heartbeat when nothing else was sent or received
      ^                 |    |                   paused: the core requested it; then one more attempt
      +----answered-----+    +--asked to wait--> paused --over--> attempting

The pauses between attempts double from BACKOFF_S to BACKOFF_MAX_S. Each is longer by a random part, so that many RMs do
not return at the same moment. Not here: what an attempt is, and the source of randomness (`connection.py`).
"""

from collections.abc import Callable
from typing import Final, Literal

from common.wire import NEVER

BACKOFF_S: Final = 1.0
BACKOFF_MAX_S: Final = 32.0
"""Seconds to wait for the answer to an attempt before the next one: at first, and at most."""

JITTER: Final = 0.25
"""Largest random extension of a pause, as a part of it."""

Action = Literal["nothing", "heartbeat", "reconnect", "retry"]
"""The next action: `reconnect` is an attempt on a new connection, `retry` one on the present connection."""


class Liveness:
    """Timers of one session, in seconds of any one clock; `random` returns numbers from 0 to 1."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._heartbeat_s = self._silence_s = NEVER
        self._sent_at = self._received_at = self._heartbeat_at = 0.0
        """When anything was sent, anything was received, a heartbeat was due."""
        self._attempts = 0
        """Since the last answer."""
        self._next_at = NEVER
        """Time of the next attempt; NEVER while open, and while an answer may take any time."""
        self.is_open = False
        self.is_paused = False
        """Whether nothing may be sent before `deadline`."""

    @property
    def is_attempting(self) -> bool:
        """Whether an attempt is in progress that will time out."""
        return self._next_at < NEVER and not self.is_paused

    @property
    def deadline(self) -> float:
        """When to call `next_action`."""
        if not self.is_open:
            return self._next_at
        heartbeat_at = max(min(self._sent_at, self._received_at), self._heartbeat_at) + self._heartbeat_s
        return min(heartbeat_at, self._received_at + self._silence_s)

    def record_sent(self, now: float) -> None:
        """A message was sent."""
        self._sent_at = now

    def record_received(self, now: float) -> None:
        """A message was received."""
        self._received_at = now

    def open(self, heartbeat_ms: int, silence_ms: int, now: float) -> None:
        """The core answered, and expects these intervals; 0 turns a timer off."""
        self._heartbeat_s = heartbeat_ms / 1000 or NEVER
        self._silence_s = silence_ms / 1000 or NEVER
        self._sent_at = self._received_at = self._heartbeat_at = now
        self._attempts, self._next_at, self.is_paused, self.is_open = 0, NEVER, False, True

    def suspend(self) -> None:
        """Turn all timers off: the answer to the present call may take any time."""
        self._next_at, self.is_paused, self.is_open = NEVER, False, False

    def start_attempt(self, now: float) -> None:
        """An attempt was made; the next one follows without an answer in time."""
        self._next_at, self.is_paused, self.is_open = now + self._backoff_s(), False, False

    def pause(self, seconds: float, now: float) -> None:
        """The core requested a pause of at least so long."""
        self._next_at, self.is_paused, self.is_open = now + max(self._backoff_s(), seconds), True, False

    def next_action(self, now: float, *, reading: bool = True) -> Action:
        """Return what to do now. `reading` is whether messages were read at all.

        The core is given the time by which this call is late, as a suspended process does not receive messages.
        """
        if now < self.deadline:
            return "nothing"
        if not self.is_open:
            return "retry" if self.is_paused else "reconnect"
        self._received_at = now if not reading else min(now, self._received_at + now - self.deadline)
        if now >= self._received_at + self._silence_s:
            return "reconnect"
        self._heartbeat_at = now
        return "heartbeat"

    def _backoff_s(self) -> float:
        seconds = min(BACKOFF_S * 2.0**self._attempts, BACKOFF_MAX_S)
        self._attempts = min(self._attempts + 1, 16)
        return seconds * (1 + JITTER * self._random())
