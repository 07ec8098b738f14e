"""Times at which something happens to an application if nothing else does first.

Not here: what happens then (`lifecycle.py`, `gangs.py`, `readiness/readiness.py`).
"""

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from common.machine import NEVER

if TYPE_CHECKING:
    from partition_worker.engine.application import Alarm, Application


SPARE_MAX: Final = 64
"""So many more that no longer count may wait than at their last removal."""

_Entry = tuple[float, int, "Alarm", "Application"]


class Timers:
    """Deadlines in order. One that was superseded is not removed at once: its number no longer is the application's."""

    def __init__(self) -> None:
        self._waiting: list[_Entry] = []
        self._last = 0
        self._kept = 0
        """How many were waiting when those that no longer count were last removed."""

    def __len__(self) -> int:
        """Those that are kept, whether or not they still count: not many more than once did."""
        return len(self._waiting)

    @property
    def deadline(self) -> float:
        """When the next one that still counts is due, or NEVER."""
        while self._waiting and not self._counts(self._waiting[0]):
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else NEVER

    def entries(self) -> list[_Entry]:
        """Those that count, the next one first."""
        return sorted((entry for entry in self._waiting if self._counts(entry)), key=lambda entry: entry[:2])

    @property
    def last(self) -> int:
        """The number of the one that was started last."""
        return self._last

    def recall(self, entries: Iterable[_Entry], last: int) -> None:
        """Go on where one was that is remembered (`engine/memory`)."""
        for entry in entries:
            _, number, alarm, application = entry
            application.alarms[alarm] = number
            self._waiting.append(entry)
        heapq.heapify(self._waiting)
        self._kept, self._last = len(self._waiting), last

    def start(self, application: "Application", alarm: "Alarm", at: float) -> None:
        """Wake the application at this time; replaces an earlier alarm of this kind."""
        self._last += 1
        application.alarms[alarm] = self._last
        heapq.heappush(self._waiting, (at, self._last, alarm, application))
        if len(self._waiting) > 2 * self._kept + SPARE_MAX:
            self._waiting = [entry for entry in self._waiting if self._counts(entry)]
            heapq.heapify(self._waiting)
            self._kept = len(self._waiting)

    def stop(self, application: "Application", alarm: "Alarm") -> None:
        application.alarms.pop(alarm, None)

    def due(self, now: float) -> "tuple[Application, Alarm] | None":
        """The next application whose time has come, once, and what for."""
        if self.deadline > now:
            return None
        _, _, alarm, application = heapq.heappop(self._waiting)
        del application.alarms[alarm]
        return application, alarm

    @staticmethod
    def _counts(entry: _Entry) -> bool:
        _, number, alarm, application = entry
        return application.alarms.get(alarm) == number
