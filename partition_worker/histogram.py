"""How long something takes, observed again and again: a count for each bucket and the sum.

A plain value: who has a clock measures (`service.py`), who is asked shows it (`figures.py`).
"""

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""The reference's buckets, in seconds although the names of its families end in milliseconds."""


class Histogram:
    """Observed durations. `counts` are not cumulative: those up to each bound but above the one before, and at the
    end those above the last.
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """It took this long once more."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds
