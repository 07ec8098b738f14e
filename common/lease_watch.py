"""Whether the holder of a lease in the store still renews it, judged by the elapsed time of the process that watches.

    another `expires` than before: renewed --> the lease lasts for its duration from then on
    the same for so long                   --> it has ended, and may be acquired if it is still the same

A watcher sees a renewal only when it looks, maybe long after it was written. The clock of the database tells when that
was, but it may jump, and after a failover another server has another clock. So it counts only if it agrees with the
watcher's own clock: about the time between the last two observations, and that the renewal was between them. Otherwise
the renewal may have been written just now.

Not here: reading and acquiring leases (`common/postgres/leases.py`).
"""

from typing import Final

LEFT_MAX: Final = 10
"""Durations of the watcher's own lease for which it may wait at most after a renewal: the holder's may be longer, as
the hosts of a cluster get another `lease-timeout` one after the other."""

DRIFT_MAX: Final = 1 / 12
"""The part of the duration by which the two clocks may disagree about the time between two observations, slow answers
included. The holder stops earlier than that (`broker/election.py`, SAFETY)."""

RELEASED: Final = 0.0
"""`expires` of a lease that its holder has released; also of one that was never held."""


class LeaseWatch:
    """Watches one lease. `duration_s` is that of the watcher, were it the holder."""

    def __init__(self, duration_s: float) -> None:
        self.is_renewed = False
        """Whether it was renewed between two observations, so its holder lives."""
        self.ends = 0.0
        """When it ends, unless it is renewed before."""
        self._duration_s = duration_s
        self._expires: float | None = None
        self._asked_at = 0.0
        """When the latest observation was requested: what it shows was written before, and a change after that."""
        self._clock_ahead = 0.0
        """By how much the clock of the database was ahead then."""

    def observe(self, expires: float, left_s: float, asked_at: float, now: float) -> None:
        """Note the lease as it was read between `asked_at` and `now`: `expires` identifies the renewal, and `left_s` is
        the time that is left by the clock of the database.
        """
        before, self._expires = self._expires, expires
        ahead_before, self._clock_ahead = self._clock_ahead, expires - left_s - now
        if expires == RELEASED:
            self.ends = now
        elif expires != before:
            self.is_renewed = before not in (None, RELEASED)
            is_one_clock = abs(self._clock_ahead - ahead_before) <= DRIFT_MAX * self._duration_s
            earliest = self._asked_at if self.is_renewed else now
            if not is_one_clock or now + left_s < earliest + self._duration_s:
                left_s = max(left_s, self._duration_s)
            self.ends = now + min(left_s, LEFT_MAX * self._duration_s)
        self._asked_at = asked_at

    def find_ended(self, now: float) -> float | None:
        """`expires` of the latest renewal if the lease has ended since; None if not, or not as far as is known."""
        return self._expires if self._expires is not None and now >= self.ends else None
