"""Delays between a process that ended early and the next one in its place.

Used by the supervisor for processes, and by the broker for the workers of a partition.
"""

from typing import Final

FIRST_S: Final = 0.2
"""The first delay after a process that ended early."""

LONGEST_S: Final = 30.0
"""The longest delay: each is twice the previous one, up to this."""

STEADY_S: Final = 60.0
"""A process that ran for at least this long restarts at once, and its next delay is FIRST_S again."""


class RestartDelay:
    """Exponential backoff of one process.

    Restarts never cease. A partition whose worker keeps dying must not stop the others, and the usual causes (a full
    disk, a machine without free memory) often pass by themselves. One attempt in LONGEST_S seconds is cheap, and each
    is logged. No jitter: there are few processes, on one machine.
    """

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def next_delay(self, lifetime_s: float) -> float:
        """Seconds to wait after a process ended that ran for `lifetime_s` seconds."""
        if lifetime_s >= STEADY_S:
            self._next_s = FIRST_S
            return 0.0
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, LONGEST_S)
        return delay_s
