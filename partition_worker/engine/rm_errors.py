"""Errors of the resource manager in its asks and allocations, counted by cause.

The partition rejects such an item with the reason. Nothing else follows from it, so the health check shows these errors
for a while and does not fail.
"""

from collections import deque
from enum import StrEnum
from typing import Final

SHOWN_S: Final = 600.0
"""Seconds for which the health check shows an error."""

SLOT_S: Final = 10.0
"""Seconds of which the errors are counted together, so that a flood of errors takes no memory."""


class RmError(StrEnum):
    """The cause of an error."""

    UNKNOWN_APPLICATION = "unknown-application"
    """There is no such application, or it has ended."""
    UNKNOWN_NODE = "unknown-node"
    NO_RESOURCES = "no-resources"
    NEGATIVE_RESOURCES = "negative-resources"


class RmErrors:
    """The errors since the partition was created or recovered."""

    def __init__(self) -> None:
        self.counts: dict[RmError, int] = dict.fromkeys(RmError, 0)
        self._slots: deque[tuple[float, dict[RmError, int]]] = deque(maxlen=int(SHOWN_S / SLOT_S))
        """The start of each slot with errors, and their number by cause; the oldest first."""

    @property
    def total(self) -> int:
        """Errors of all causes."""
        return sum(self.counts.values())

    def count(self, cause: RmError, now: float) -> None:
        """Count an error."""
        self.counts[cause] += 1
        start = now - now % SLOT_S
        if not self._slots or self._slots[-1][0] != start:
            self._slots.append((start, {}))
        slot = self._slots[-1][1]
        slot[cause] = slot.get(cause, 0) + 1

    def count_recent(self, now: float) -> dict[str, int]:
        """Return the number of errors within the last SHOWN_S, by cause."""
        recent = [slot for start, slot in self._slots if start > now - SHOWN_S]
        totals = {cause.value: sum(slot.get(cause, 0) for slot in recent) for cause in RmError}
        return {cause: number for cause, number in totals.items() if number}
