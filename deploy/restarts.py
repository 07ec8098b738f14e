"""When a process that died may start again: at once if it had been well, soon if not, then ever later, so that one that
cannot live costs nothing.

It never gives up. A partition whose worker keeps dying must not take the others down with it, and what makes a
process die (a full disk, a machine short of memory) often passes by itself; one attempt in LONGEST_S seconds is
cheap, and each is logged. Only a system that cannot start at all is given up, and `supervisor.py` decides that. No
jitter: the processes are few and on one machine.

Not here: noticing deaths (`processes.py`), what else must happen because of one (`supervisor.py`).
"""

from typing import Final

FIRST_S: Final = 0.2
"""The first pause of a process that did not live for long."""

LONGEST_S: Final = 30.0
"""No pause is longer: each is twice the one before, up to this."""

STEADY_S: Final = 60.0
"""A process that lived this long was well: it starts again at once, and its next pause is the first one again."""


class Restarts:
    """The pauses of one process: none, or from FIRST_S to LONGEST_S."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def pause(self, lived_s: float) -> float:
        """Seconds to wait now that the process died after `lived_s` seconds of life."""
        if lived_s >= STEADY_S:
            self._next_s = FIRST_S
            return 0.0
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, LONGEST_S)
        return pause_s
