"""How large or long something is, observed again and again: a count for each bucket and the sum.

A plain value: who has a clock measures, who is asked shows it (`families.py`).
"""

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""The reference's buckets, in seconds although the names of its families end in milliseconds."""


class Histogram:
    """What was observed. `counts` are not cumulative: those up to each bound but above the one before, and at the end
    those above the last.
    """

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """It took this long once more."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds
