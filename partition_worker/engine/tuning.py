"""What whoever runs the system may set for all partitions alike.

Not here: what the configuration of a partition says (`common/config/model.py`).
"""

import math
from dataclasses import dataclass
from typing import Final

RESERVATION_DELAY_S: Final = 2.0
"""How long an ask waits before a node is kept for it."""

PREEMPTION_PAUSE_S: Final = 15.0
"""How long an ask waits that looked for victims in vain."""

ASKS_MAX: Final = 2_000_000
"""Asks and allocations of a partition, if nothing else is said: about 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Settings of the engine."""

    reservation_delay_s: float = RESERVATION_DELAY_S
    """Infinite where no node is ever kept, but for asks that can run on one node only or that others had to go for."""
    preemption_pause_s: float = PREEMPTION_PAUSE_S
    preemption_threshold: float = 0.0
    """No ask makes others go while less than this part of the cluster is used, by the type of which most is; 0.0 to
    1.0. Asks that can run on one node only, and quotas, do so all the same.
    """
    asks_max: int = ASKS_MAX
    """Asks and allocations, foreign ones too, that a partition keeps; the next one is refused."""


DEFAULT: Final = Tuning()
"""As YuniKorn has it."""


def tuned(
    *, disable_reservation: bool, preemption_pause_s: float, preemption_threshold_percent: int, asks_max: int
) -> Tuning:
    """As the options of the command line say it."""
    return Tuning(
        reservation_delay_s=math.inf if disable_reservation else RESERVATION_DELAY_S,
        preemption_pause_s=preemption_pause_s,
        preemption_threshold=preemption_threshold_percent / 100,
        asks_max=asks_max,
    )
