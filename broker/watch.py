"""Who has been silent for too long: workers lose their leases, the RMs of a proxy are away, one that stays away ends.

Everybody is looked at once in LOOK_S. A look that comes late by more than LATE_S means that this process itself stood
still: so long it heard nobody, and that is nobody's fault. Not here: what being away means (`presence.py`).
"""

from typing import Final

from broker.books import Books
from broker.changes import Changes
from broker.presence import gave_up, went_away
from broker.said import resumption_wanted
from common.machine import NEVER, Send

LOOK_S: Final = 1.0
"""Between two looks: so much later than it might be a silence is noticed."""

LATE_S: Final = 1.0
"""A look may be late by this much because there is much to do."""

OVERDUE_S: Final = 30.0
"""A worker that was never seen for so long is worth a warning; the supervisor goes on trying to start it. Where a
change waits for it, that has a deadline of its own.
"""


class Watch:
    """When somebody was last looked at, and who then counts as gone."""

    def __init__(self, books: Books, changes: Changes) -> None:
        self._books = books
        self._changes = changes
        self.deadline = NEVER
        """When the next look is due."""

    def arm(self, now: float) -> None:
        """Look from now on, if there is anybody to look at."""
        roster, policy = self._books.roster, self._books.policy
        if not (roster.away or roster.heard or (roster.seats and policy.lease_s < NEVER)):
            self.deadline = NEVER
        elif self.deadline == NEVER:
            self.deadline = now + LOOK_S

    def peer_heard(self, peer: str, now: float) -> list[Send]:
        """A proxy is there, or a front end. RMs that were away as their proxy was silent do not know, and resume."""
        roster = self._books.roster
        again = peer not in roster.heard
        roster.heard[peer] = now
        if not again:
            return []
        back = (one for one in roster.registrations.values() if one.proxy == peer and one.rm in roster.away)
        return [send for one in back for send in resumption_wanted(one, "its proxy was silent")]

    def look(self, now: float) -> list[Send]:
        """Who is silent now, and what follows."""
        late = now - self.deadline
        self.deadline = now + LOOK_S
        if late > LATE_S:
            self._books.warnings.append(f"the broker did not run for {late:.1f} s: all deadlines are extended by that")
            self._books.roster.extend(late, now)
            self._changes.extend(late)
        self._look_at_workers(now)
        return [*self._look_at_proxies(now), *self._look_at_managers(now)]

    def _look_at_workers(self, now: float) -> None:
        roster, policy = self._books.roster, self._books.policy
        for partition, seat in tuple(roster.seats.items()):
            if seat.present:
                if now - seat.heard >= policy.lease_s:
                    self._books.warnings.append(
                        f"worker {seat.worker} was silent for {now - seat.heard:.0f} s: another one takes over"
                    )
                    roster.renew(partition)
                    self._books.tally.renewed += 1
            elif not seat.missed_since:
                seat.missed_since = now
            elif now - seat.missed_since >= OVERDUE_S and self._changes.concerning(partition) is None:
                self._books.warnings.append(f"worker {seat.worker} has not connected within {OVERDUE_S:g} s")
                seat.missed_since = NEVER

    def _look_at_proxies(self, now: float) -> list[Send]:
        roster, sends = self._books.roster, []
        for peer in [name for name, heard in roster.heard.items() if now - heard >= self._books.policy.silence_s]:
            del roster.heard[peer]
            for one in [one for one in roster.registrations.values() if one.proxy == peer]:
                sends += went_away(self._books, one, f"its proxy {peer} is silent", now)
        return sends

    def _look_at_managers(self, now: float) -> list[Send]:
        pause_s, sends = self._books.policy.pause_s, []
        for rm in [rm for rm, since in self._books.roster.away.items() if now - since >= pause_s]:
            self._books.warnings.append(f"RM {rm} has been away for {pause_s:.0f} s: its partitions end")
            sends += gave_up(self._books, self._changes, rm)
        return sends
