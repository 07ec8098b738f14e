"""How fast requests are sent to the API server: a bound on their rate, and pauses between repetitions. Pure.

Not here: requests (`client.py`).
"""

import random
from typing import Final

FIRST_PAUSE_S: Final = 0.1
"""Seconds before the first repetition of a request. Each pause is twice the one before."""

LONGEST_PAUSE_S: Final = 15.0
"""The longest pause between repetitions of a request."""


class RequestRate:
    """Bounds requests in time: `per_s` a second, and up to `burst` at once after a pause."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._interval_s = 1 / per_s
        self._ahead_s = (burst - 1) / per_s
        self._next_at = 0.0

    def reserve(self, now: float) -> float:
        """Return the seconds after which the caller may send its request."""
        at = max(self._next_at, now - self._ahead_s)
        self._next_at = at + self._interval_s
        return max(0.0, at - now)


class Backoff:
    """Pauses between repetitions: each twice the one before, up to a bound, and drawn between half of it and all."""

    def __init__(self, longest_s: float = LONGEST_PAUSE_S) -> None:
        self._longest_s = longest_s
        self._next_s = FIRST_PAUSE_S

    def next_pause(self) -> float:
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        self._next_s = FIRST_PAUSE_S
