"""Time for a trace: the real clock, and waiting until a system has done everything that it had to do.

A system does not report that it is idle: an ask that fits nowhere has no answer. What can be observed is that no RM
receives anything for a while, and how long that has to be depends on how busy the machine is. So a silence counts when
it is as long as the trace demands *and* as long as several questions over REST take now; a question passes the same
processes as an update does. On a virtual clock (`virtual.py`) a question takes no time, and neither does waiting.
"""

import time
from collections.abc import Callable, Collection
from typing import Final, Protocol

from tests.conformance.manager import RecordingManager

QUESTIONS: Final = 10
"""How many questions fit into a silence, at least."""
LIMIT_S: Final = 60.0
STEP_S: Final = 0.02


class Clock(Protocol):
    """The time of the system that a trace is played to."""

    def now(self) -> float:
        """Seconds since an arbitrary moment."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class RealClock:
    """The clock of this machine."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


def silent_since(managers: Collection[RecordingManager], start_s: float) -> float:
    """When the latest message was received, `start_s` at the earliest."""
    return max([start_s, *(rm.last_heard_s for rm in managers)])


def await_silence(
    clock: Clock,
    managers: Collection[RecordingManager],
    ask: Callable[[], object],
    *,
    quiet_s: float,
    limit_s: float = LIMIT_S,
) -> float:
    """Wait for a silence of `quiet_s`, at most `limit_s`; return since when it lasts."""
    start_s = clock.now()
    needed_s = quiet_s
    while True:
        since_s = silent_since(managers, start_s)
        now_s = clock.now()
        if now_s - start_s >= limit_s:
            return since_s
        if now_s - since_s < needed_s:
            clock.sleep(min(STEP_S, needed_s))
            continue
        ask()
        needed_s = max(quiet_s, QUESTIONS * (clock.now() - now_s))
        if now_s - since_s >= needed_s and silent_since(managers, start_s) == since_s:
            return since_s


def await_condition(clock: Clock, holds: Callable[[], bool], *, limit_s: float) -> None:
    """Wait until the condition holds, at most `limit_s`."""
    end_s = clock.now() + limit_s
    while not holds() and clock.now() < end_s:
        clock.sleep(STEP_S)
