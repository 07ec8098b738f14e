"""What the allocations of an application used until they ended: amounts times whole seconds, by type of instance.

For those who are charged by it. Not here: showing it (`partition_worker/answers/sights.py`).
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from common.messages import Resources

if TYPE_CHECKING:
    from partition_worker.engine.applications.allocation import Allocation


class Use(StrEnum):
    """What an allocation was when it ended."""

    REAL = "real"
    PREEMPTED = "preempted"
    PLACEHOLDER = "placeholder"


History = dict[tuple[Use, str], Resources]
"""For each use and instance type the sum of amounts times seconds."""


def record(history: History, allocation: "Allocation", instance_type: str, ended_ns: int) -> None:
    """An allocation on a node of this type ended; what ran for less than a second used 0 of each."""
    seconds = max(0, (ended_ns - allocation.bound_ns) // 1_000_000_000)
    use = Use.PREEMPTED if allocation.preempted else Use.PLACEHOLDER if allocation.placeholder else Use.REAL
    total = history.setdefault((use, instance_type), {})
    for kind, amount in allocation.resources.items():
        total[kind] = total.get(kind, 0) + amount * seconds
