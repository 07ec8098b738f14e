"""How the replay's time runs: log seconds from real seconds, and how fast things happen.

Both are told the real time, so tests need none. Not here: who sleeps until when (`drive.py`).
"""

from collections import deque
from typing import Final

RATE_WINDOW_S: Final = 3.0


class Clock:
    """Stands at 0 until it is started, then runs `speed` log seconds in a real one."""

    def __init__(self, *, speed: float) -> None:
        assert speed > 0
        self.speed = speed
        self._started_s: float | None = None

    def start(self, real_s: float) -> None:
        """Begin; starting twice changes nothing."""
        if self._started_s is None:
            self._started_s = real_s

    def elapsed_s(self, real_s: float) -> float:
        """Real seconds since the start."""
        return 0.0 if self._started_s is None else real_s - self._started_s

    def log_s(self, real_s: float) -> float:
        """Log seconds since the start."""
        return self.elapsed_s(real_s) * self.speed


class Rate:
    """How fast a counter grows, over the last `RATE_WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def per_second(self, real_s: float, count: int) -> float:
        """Note the counter and give its rate; 0 until there are two notes."""
        self._samples.append((real_s, count))
        while len(self._samples) > 2 and self._samples[1][0] <= real_s - RATE_WINDOW_S:
            self._samples.popleft()
        first_s, first = self._samples[0]
        return (count - first) / (real_s - first_s) if real_s > first_s else 0.0
