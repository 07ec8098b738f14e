"""What the broker counts as it decides; all of it begins at 0 with the process.

Not here: what people are told of it (`figures.py`).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from common.histogram import Histogram

Outcome = Literal["committed", "objected", "expired", "unstartable", "unrecorded", "ended"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("committed", "objected", "expired", "unstartable", "unrecorded", "ended")
"""Of a roll-out: in force; a worker said no; not all answered in time; a worker cannot start; the disk did not take it;
its RM was gone.
"""

ROLLOUT_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)


@dataclass(slots=True)
class Tally:
    """Counts of what has happened."""

    rollouts: Counter[Outcome] = field(default_factory=Counter)
    rollout_s: Histogram = field(default_factory=lambda: Histogram(ROLLOUT_BOUNDS_S))
    """How long those took that were committed."""
    granted: int = 0
    refused: int = 0
    """Registrations."""
    renewed: int = 0
    """Leases that went over to another worker, as theirs was silent."""
    recoveries: Counter[str] = field(default_factory=Counter)
    """Workers that came back, by what they had of their partition (`revival.py`)."""
    written: int = 0
    unwritten: int = 0
    """What the record has taken, and what it could not."""
    astray: Counter[str] = field(default_factory=Counter)
    """RM id to nodes that it has registered for partitions that it does not have."""
