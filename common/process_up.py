"""Whether a process is there, as a figure: it says so itself, and who misses it says that it is not.

Not here: what else a process says of itself (`process_figures.py`).
"""

from typing import Final

from common.families import Family, gauge

LABELS: Final = ("process", "partition")
"""Of everything that is about a process; the partition is that of a worker."""

WORKER: Final = "partition_worker"
"""What the worker of a partition is called here."""

_WHAT: Final = (
    "Whether the process answers, or tells its figures; if not, its other series are missing. Worry at 0 for more than "
    "a minute: what dies is started again within seconds."
)


def up(process: str, partition: str = "", *, here: bool = True) -> Family:
    """Whether it is there."""
    return gauge("yunishard_process_up", _WHAT, LABELS, [((process, partition), int(here))])
