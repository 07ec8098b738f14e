"""The use of queues over time and what waits in them, as means over intervals: `usage.csv` of a result folder.

Changes are kept as numbers in arrays, because a long trace has millions of them.

Not here: files (`result_folder.py`).
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import Limit

ROOT: Final = "root"

INTERVALS_MAX: Final = 1_000
"""Intervals of `usage.csv`, all equally long."""

INTERVALS_MIN: Final = 100
USAGE_ROWS_MAX: Final = 1_000_000
"""Lines of `usage.csv`. With so many queues and resource types that there would be more, the intervals are longer, but
not fewer than `INTERVALS_MIN`.
"""


class _Changes(NamedTuple):
    """The changes of one leaf queue, in order of time."""

    times: "array[float]"
    amounts: "array[int]"
    """Indexes of the amounts of the log."""
    used: "array[int]"
    pending: "array[int]"


class QueueLimits(NamedTuple):
    """The configured bounds of a queue."""

    guaranteed: Resources
    maximum: Limit


class UsageRow(NamedTuple):
    """The mean usage of one resource type by one queue in one interval, in base units."""

    time: float
    """Start of the interval."""
    queue: str
    resource: str
    used: float
    pending: float


class UsageLog:
    """The changes of all queues. Times are seconds since the start of the trace."""

    def __init__(self) -> None:
        self.limits: dict[str, QueueLimits] = {}
        """The queues that exist or existed, by path."""
        self._changes: dict[str, _Changes] = {}
        self._amounts: list[Resources] = []
        self._indexes: dict[int, int] = {}

    def note(self, queue: str, resources: Resources, time: float, *, used: int, pending: int) -> None:
        """Change what a leaf queue uses, and what waits in it, by this amount: 1, 0 or -1 times."""
        index = self._indexes.get(id(resources))
        if index is None:
            index = self._indexes[id(resources)] = len(self._amounts)
            self._amounts.append(resources)  # keeps it, so that no other object gets its id
        found = self._changes.get(queue)
        if found is None:
            found = self._changes[queue] = _Changes(array("d"), array("q"), array("b"), array("b"))
        found.times.append(time)
        found.amounts.append(index)
        found.used.append(used)
        found.pending.append(pending)

    def average(self, *, span: float, types: Sequence[str]) -> list[UsageRow]:
        """Return the means over equal intervals of `span`, for all queues; by time, queue and type."""
        paths = sorted(self.limits, key=lambda path: path.split("."))
        rows_each = max(1, len(paths) * len(types))
        count = max(min(INTERVALS_MAX, USAGE_ROWS_MAX // rows_each), INTERVALS_MIN) if span > 0 else 1
        width = span / count if span > 0 else 1.0
        series = {(path, kind): ([0.0] * count, [0.0] * count) for path in paths for kind in types}
        for leaf, changes in sorted(self._changes.items()):
            for kind in types:
                amounts = [resources.get(kind, 0) for resources in self._amounts]
                if not any(amounts):
                    continue
                for which, signs in enumerate((changes.used, changes.pending)):
                    means = _average(changes, signs, amounts, width=width, count=count)
                    for path in list_levels(leaf):
                        total = series[path, kind][which]
                        for interval, mean in enumerate(means):
                            total[interval] += mean
        return [
            UsageRow(interval * width, path, kind, series[path, kind][0][interval], series[path, kind][1][interval])
            for interval in range(count)
            for path in paths
            for kind in types
        ]


def list_levels(leaf: str) -> list[str]:
    """Return the paths of a queue and of those above it, the root first."""
    parts = leaf.split(".")
    return [".".join(parts[:level]) for level in range(1, len(parts) + 1)]


def _average(
    changes: _Changes, signs: "array[int]", amounts: Sequence[int], *, width: float, count: int
) -> list[float]:
    """Return the mean in each interval of an amount that begins at 0 and changes step by step."""
    steps = [0] * (count + 1)
    """Change of the amount in each interval, which all later ones have."""
    parts = [0.0] * count
    """Contribution of the changes in an interval to its own mean."""
    for time, index, sign in zip(changes.times, changes.amounts, signs, strict=True):
        change = sign * amounts[index]
        if change:
            interval = min(int(time / width), count - 1)
            steps[interval] += change
            parts[interval] += change * max((interval + 1) - time / width, 0.0)
    means = []
    level = 0
    for interval in range(count):
        means.append(max(level + parts[interval], 0.0))
        level += steps[interval]
    return means
