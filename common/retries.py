"""Repeated attempts: the delay before a process that ended early starts again, and limits on log lines: about
something that fails again, and about clients.

The supervisor delays processes, and the broker the workers of a partition.
"""

import math
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


# Log lines ------------------------------------------------------------------------------------------------------------

REPEAT_S: Final = 60.0
"""Seconds in which further failures are not logged after a line, for whatever reason and if there was success between
them: several clients may have different reasons in turn. The first failure is logged at once.
"""


class RepeatedFailure:
    """Whether failures are logged; with the time as an argument, so that machines can use it."""

    def __init__(self) -> None:
        self._reason = ""
        """The reason that was logged last; empty after a success."""
        self._due = 0.0
        """When the next line may be logged."""

    def is_news(self, reason: str, now: float) -> bool:
        """Whether to log this failure."""
        if reason == self._reason or now < self._due:
            return False
        self._reason, self._due = reason, now + REPEAT_S
        return True

    def is_over(self) -> bool:
        """Note a success; whether to log it, because the failure was logged."""
        reason, self._reason = self._reason, ""
        return bool(reason)


LOG_EVERY_S: Final = 60.0
"""Seconds in which so many log lines are written, and further ones are counted."""


class LogLimit:
    """Rate limit of log lines about clients, so that they cannot fill the log: so many in a minute. The next line
    counts those that were left out.
    """

    def __init__(self, lines_max: int) -> None:
        self._lines_max = lines_max
        self._minute_start = -math.inf
        self._logged = self._unlogged = 0

    def admit(self, now: float) -> str | None:
        """Return what to append to a log line at this time in seconds; None if the line is left out."""
        if now - self._minute_start >= LOG_EVERY_S:
            self._minute_start, self._logged = now, 0
        if self._logged >= self._lines_max:
            self._unlogged += 1
            return None
        self._logged += 1
        more = f" (and {self._unlogged} more)" if self._unlogged else ""
        self._unlogged = 0
        return more
