"""Virtual time: what is to happen, in order.

Two things that are due at the same moment happen in the order in which they were planned, so the same seed tells the
same story. Not here: what happens.
"""

import heapq
from collections.abc import Callable
from typing import Final

BEGIN_S: Final = 1_000_000.0
"""When every simulation begins, in Unix seconds."""


class Timeline:
    """What is planned, and how late it is."""

    def __init__(self) -> None:
        self.now = BEGIN_S
        self.steps = 0
        """How many things have happened."""
        self._plans: list[tuple[float, int, Callable[[], None]]] = []
        """When, in which order, and what. No two have the same number, so what is never compared."""
        self._numbers = 0

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Let this happen then, or at once if that has passed."""
        self._numbers += 1
        heapq.heappush(self._plans, (max(when, self.now), self._numbers, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Let this happen so much later."""
        self.at(self.now + seconds, action)

    def step(self) -> None:
        """The next thing happens. Something is always planned: processes look at their clocks, RMs say they live."""
        self.now, _, action = heapq.heappop(self._plans)
        self.steps += 1
        action()
