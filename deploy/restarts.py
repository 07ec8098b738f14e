"""When a process that died may start again: soon at first, then ever later, so that one that cannot live costs
nothing.

It never gives up. A partition whose worker keeps dying must not take the others down with it, and what makes a
process die (a full disk, a machine short of memory) often passes by itself; one attempt in LONGEST_S seconds is
cheap, and each is logged. Only a system that cannot start at all is given up, and `supervisor.py` decides that. No
jitter: the processes are few and on one machine.

Not here: noticing deaths (`processes.py`), what else must happen because of one (`supervisor.py`).
"""

from typing import Final

FIRST_S: Final = 0.2
"""The pause before the first new start."""

LONGEST_S: Final = 30.0
"""No pause is longer: each is twice the one before, up to this."""

STEADY_S: Final = 60.0
"""A process that lived this long is well: its next pause is the first one again."""


class Restarts:
    """The pauses of one process. `FIRST_S <= next pause <= LONGEST_S`."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def pause(self, lived_s: float) -> float:
        """Seconds to wait now that the process died after `lived_s` seconds of life."""
        if lived_s >= STEADY_S:
            self._next_s = FIRST_S
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, LONGEST_S)
        return pause_s
