"""Waiting until a system has done all that it had to do.

It does not say so: an ask that fits nowhere is not answered. What can be seen is that no resource manager hears of
anything for a while, and how long a while has to be depends on how busy the machine is. So a silence counts when it is
as long as the trace says *and* as long as several questions over REST take just now; a question goes through the same
processes as an update does.

This is the one place of the tests where time passes for its own sake.
"""

import time
from collections.abc import Callable, Collection
from typing import Final

from tests.conformance.manager import RecordingManager

QUESTIONS: Final = 10
"""How many questions fit into a silence, at least."""
LIMIT_S: Final = 60.0
STEP_S: Final = 0.02


def silent_since(managers: Collection[RecordingManager], start_s: float) -> float:
    """When something was heard for the last time, `start_s` at the earliest."""
    return max([start_s, *(rm.last_heard_s for rm in managers)])


def await_silence(
    managers: Collection[RecordingManager], ask: Callable[[], object], *, quiet_s: float, limit_s: float = LIMIT_S
) -> float:
    """Wait for a silence of `quiet_s`, for `limit_s` at most; since when it lasts."""
    start_s = time.monotonic()
    needed_s = quiet_s
    while True:
        since_s = silent_since(managers, start_s)
        now_s = time.monotonic()
        if now_s - start_s >= limit_s:
            return since_s
        if now_s - since_s < needed_s:
            time.sleep(min(STEP_S, needed_s))
            continue
        ask()
        needed_s = max(quiet_s, QUESTIONS * (time.monotonic() - now_s))
        if now_s - since_s >= needed_s and silent_since(managers, start_s) == since_s:
            return since_s
