"""What happened, for people: the last events, of which those that concern a name are shown.

Not here: the digest by which two runs are compared (`world.py`).
"""

from collections import deque
from typing import Final

KEPT: Final = 60_000
"""Events that are remembered."""

SHOWN: Final = 60
"""Events that are shown of a story."""

TEXT_MAX: Final = 300


class Story:
    """Events in order; what they say is made into text only when somebody reads it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.began = 0.0
        self._events: deque[tuple[float, str, object]] = deque(maxlen=KEPT)

    def note(self, who: str, what: object) -> None:
        """Something happened."""
        self._events.append((self.now, who, what))

    def about(self, names: tuple[str, ...], count: int = SHOWN) -> list[str]:
        """The last events that mention one of these, or the last of all."""
        lines: list[str] = []
        for at, who, what in reversed(self._events):
            line = f"{at - self.began:9.4f}  {who:<28} {what}"
            if not names or any(name in line for name in names):
                lines.append(line if len(line) <= TEXT_MAX else line[:TEXT_MAX] + "...")
            if len(lines) == count:
                break
        return lines[::-1]
