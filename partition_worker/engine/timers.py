"""Times at which something happens to an application if nothing else does first.

Not here: what happens then (`lifecycle.py`).
"""

import heapq
from typing import TYPE_CHECKING

from common.machine import NEVER

if TYPE_CHECKING:
    from partition_worker.engine.applications.application import Application


class Timers:
    """Deadlines in order. One that was superseded is not removed: its number no longer is the application's."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Application]] = []
        self._last = 0

    @property
    def deadline(self) -> float:
        """When the next one that still counts is due, or NEVER."""
        while self._waiting and self._waiting[0][2].timer != self._waiting[0][1]:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else NEVER

    def start(self, application: "Application", at: float) -> None:
        """Wake the application at this time; replaces its earlier timer."""
        self._last += 1
        application.timer = self._last
        heapq.heappush(self._waiting, (at, self._last, application))

    def stop(self, application: "Application") -> None:
        application.timer = 0

    def due(self, now: float) -> "Application | None":
        """The next application whose time has come, once."""
        if self.deadline > now:
            return None
        application = heapq.heappop(self._waiting)[2]
        application.timer = 0
        return application
