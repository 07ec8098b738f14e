"""Holds back what may not be said yet: about each thing of which something is being made durable, everything.

    open --shut--> shut --opened--> open, and what waited goes out in the order in which it was to be said

Not here: what is made durable, and when it is (`keeping.py`).
"""

from collections.abc import Callable
from typing import Final

from common.machine import Send

HELD_MAX: Final = 1_000
"""Messages that wait for one thing. The disk takes a millisecond, so that this is only met while it takes nothing at
all; what comes then is dropped as by a link that breaks, and whoever waits for it asks again."""


class Gate:
    """What waits, by the thing that it is about."""

    def __init__(self, about: Callable[[Send], str]) -> None:
        """`about` says what a message is about; empty for what never waits."""
        self._about = about
        self._held: dict[str, list[Send]] = {}

    def shut(self, thing: str) -> None:
        """From now on everything about it waits."""
        self._held.setdefault(thing, [])

    def is_shut(self, thing: str) -> bool:
        return thing in self._held

    def opened(self, thing: str) -> list[Send]:
        """Nothing about it waits any more: what did."""
        return self._held.pop(thing, [])

    def passed(self, sends: list[Send]) -> list[Send]:
        """What of these may be said now; the others wait."""
        if not self._held:
            return sends
        free: list[Send] = []
        for one in sends:
            held = self._held.get(self._about(one))
            if held is None:
                free.append(one)
            elif len(held) < HELD_MAX:
                held.append(one)
        return free
