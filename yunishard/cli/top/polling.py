"""Polls a resource of the REST API again and again, at a cost that is bounded.

A poll sends the entity tag of its last answer, so that an unchanged resource costs almost nothing. The next one waits
at least COST_FACTOR times as long as the answer took, so that watching never keeps the system busy; after a failure it
waits longer each time. The dashboard (`yunishard/webservice/ui/api.js`) does the same.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from yunishard.cli.commands.rest import Answer, Rest
from yunishard.cli.main import CommandFailed

PERIOD_S: Final = 2.0
"""Seconds between two requests, unless answers are slow."""

COST_FACTOR: Final = 20
"""A poll waits this many times as long as its answer took, so that it costs at most a twentieth of a processor."""

BACK_OFF_MAX_S: Final = 60.0
"""The longest pause, after failures or a slow answer."""


class Poll:
    """Requests of one view; the resource may change with its filters."""

    def __init__(self, rest: Rest, *, period_s: float = PERIOD_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._period_s = period_s
        self._clock = clock
        self._target: tuple[Sequence[str], Mapping[str, str]] = ((), {})
        """The path and the query of the last request."""
        self._tag = ""
        """Of the last answer; empty if there is none."""
        self.wait_s = 0.0
        """Seconds to wait before the next request."""

    def request(self, path: Sequence[str], query: Mapping[str, str]) -> Answer | None:
        """Request the resource; None if it has not changed since the last answer. Blocks.

        Raises:
            CommandFailed: the system does not answer, or refuses.
        """
        if self._target != (path, query):
            self._target, self._tag = (path, query), ""
        began = self._clock()
        try:
            answer = self._rest.poll(self._tag, *path, **query)
        except CommandFailed:
            self._tag = ""
            self.wait_s = min(BACK_OFF_MAX_S, max(2 * self.wait_s, self._period_s))
            raise
        took_s = self._clock() - began
        self.wait_s = min(BACK_OFF_MAX_S, max(self._period_s, COST_FACTOR * took_s))
        if answer.is_unchanged:
            return None
        self._tag = answer.tag
        return answer
