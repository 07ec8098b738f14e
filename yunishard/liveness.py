"""When an RM says that it is still there, when it counts the core as gone, and when it tries again: a machine.

    talking --silence--> trying <--unanswered-- trying      talking: a heartbeat when nothing else was said or heard
       ^                   |  |                 pausing: somebody asked for it; then one more attempt
       +-----answered------+  +--asked to wait--> pausing --over--> trying

The pauses between attempts double from BACKOFF_S to BACKOFF_MAX_S, each somewhat longer by chance, so that many RMs do
not come back at the same moment. Not here: what an attempt is, and whose chance it is (`link.py`).
"""

from collections.abc import Callable
from typing import Final, Literal

from common.wire import NEVER

BACKOFF_S: Final = 1.0
BACKOFF_MAX_S: Final = 32.0
"""How long the answer to an attempt may take before the next one: at first, and at most."""

JITTER: Final = 0.25
"""By how much a pause may be longer, as a part of it."""

Due = Literal["nothing", "heartbeat", "renew", "again"]
"""What to do: say that we are here; try on a new connection; or on the one that there is."""


class Pulse:
    """Of one session. Times are seconds of any one clock; `chance` gives numbers from 0 to 1."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._heartbeat_s = self._silence_s = NEVER
        self._said = self._heard = self._beat = 0.0
        """When anything was said, anything heard, a heartbeat due."""
        self._attempts = 0
        """Since the last answer."""
        self._next = NEVER
        """When to try again; NEVER while talking, and while an answer may take as long as it likes."""
        self.is_talking = False
        self.pausing = False
        """Whether nothing is to be said before `deadline`."""

    @property
    def attempting(self) -> bool:
        """Whether an attempt is under way that counts as unanswered after a while."""
        return self._next < NEVER and not self.pausing

    @property
    def deadline(self) -> float:
        """When to ask what is due."""
        if not self.is_talking:
            return self._next
        beat_at = max(min(self._said, self._heard), self._beat) + self._heartbeat_s
        return min(beat_at, self._heard + self._silence_s)

    def said(self, now: float) -> None:
        self._said = now

    def heard(self, now: float) -> None:
        self._heard = now

    def talking(self, heartbeat_ms: int, silence_ms: int, now: float) -> None:
        """The core answered, and this is what it expects; 0 is never."""
        self._heartbeat_s = heartbeat_ms / 1000 or NEVER
        self._silence_s = silence_ms / 1000 or NEVER
        self._said = self._heard = self._beat = now
        self._attempts, self._next, self.pausing, self.is_talking = 0, NEVER, False, True

    def calling(self) -> None:
        """A call was made whose answer may take as long as it likes."""
        self._next, self.pausing, self.is_talking = NEVER, False, False

    def trying(self, now: float) -> None:
        """An attempt was made."""
        self._next, self.pausing, self.is_talking = now + self._pause(), False, False

    def pause(self, seconds: float, now: float) -> None:
        """The core asked for a pause; 0 leaves it to us."""
        self._next, self.pausing, self.is_talking = now + max(self._pause(), seconds), True, False

    def due(self, now: float, *, reading: bool = True) -> Due:
        """What to do now. `reading` says whether anything could be heard at all.

        A process that was stopped for a while could not either: the time by which it is late is given to the core.
        """
        if now < self.deadline:
            return "nothing"
        if not self.is_talking:
            return "again" if self.pausing else "renew"
        self._heard = now if not reading else min(now, self._heard + now - self.deadline)
        if now >= self._heard + self._silence_s:
            return "renew"
        self._beat = now
        return "heartbeat"

    def _pause(self) -> float:
        seconds = min(BACKOFF_S * 2.0**self._attempts, BACKOFF_MAX_S)
        self._attempts = min(self._attempts + 1, 16)
        return seconds * (1 + JITTER * self._chance())
