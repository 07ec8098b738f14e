"""What waits until an RM's proxy knows of another set of partitions.

Whoever has added a partition over REST may have its RM use it at once. For a native RM that is no matter, it hears of
the partition itself; but an RM of the gRPC port would be refused by a proxy that does not know the partition yet. So
the proxy is told first, sends an `Echo` back, and then the answer goes out. The end of a partition waits likewise: once
the proxy refuses what is for it, and all that it sent before has gone to the worker, nothing can get lost between them.
A proxy that is gone holds up nothing for long.

Not here: what is announced (`update.py`).
"""

from dataclasses import dataclass
from typing import Final

from common.control_messages import Echo
from common.machine import NEVER, Send, send
from common.messages import Header

ECHO_MAX_S: Final = 1.0
"""How long anything waits for the proxy, which otherwise takes a millisecond."""


@dataclass(frozen=True, slots=True)
class _Held:
    deadline: float
    sends: list[Send]


class Announcements:
    """All that waits, by the number of its echo."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._numbers = 0

    @property
    def deadline(self) -> float:
        """When the first of them has waited for long enough."""
        return min((one.deadline for one in self._held.values()), default=NEVER)

    def after(self, proxy: str, rm: str, sends: list[Send], now: float) -> list[Send]:
        """Let these go out once the proxy has taken what was sent to it before about an RM."""
        self._numbers += 1
        ref = str(self._numbers)
        self._held[ref] = _Held(now + ECHO_MAX_S, sends)
        return [send(proxy, Echo(), Header(kind="Echo", rm=rm, ref=ref))]

    def heard(self, ref: str) -> list[Send]:
        """The echo has come: what waited for it."""
        held = self._held.pop(ref, None)
        return held.sends if held else []

    def overdue(self, now: float) -> list[Send]:
        """What has waited for long enough."""
        late = [ref for ref, one in self._held.items() if one.deadline <= now]
        return [one for ref in late for one in self.heard(ref)]
