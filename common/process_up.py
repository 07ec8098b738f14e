"""Whether a process is there and can work, as a figure: it says so itself, and who misses it says that it is not.

Not here: what else a process says of itself (`process_figures.py`).
"""

from typing import Final

from common.metrics import Family, gauge

LABELS: Final = ("process", "partition")
"""Of everything that is about a process; the partition is that of a worker."""

WORKER: Final = "partition_worker"
"""What the worker of a partition is called here."""

_WHAT: Final = (
    "Whether the process answers, or tells its figures; if not, its other series are missing. Worry at 0 for more than "
    "a minute: what dies is started again within seconds."
)


_STUCK: Final = (
    "Whether nothing becomes durable, so that nothing is told, or the worker cannot start because it cannot use its "
    "journal. Worry at 1: the disk is full or broken."
)


def journal_stuck(partition: str, *, stuck: bool) -> Family:
    """Whether its journal takes nothing: the worker says so, or whoever knows that it cannot start."""
    return gauge("yunishard_journal_stuck", _STUCK, ("partition",), [((partition,), int(stuck))])


def up(process: str, partition: str = "", *, here: bool = True) -> Family:
    """Whether it is there."""
    return gauge("yunishard_process_up", _WHAT, LABELS, [((process, partition), int(here))])
