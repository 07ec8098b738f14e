"""Limits the log lines about something that fails and is tried again."""

from typing import Final

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
