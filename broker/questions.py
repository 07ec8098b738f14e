"""Questions that workers have not answered, so that nobody waits for a worker that died with them.

Not here: what is asked (the web service, the proxy), and the answers, which go by unopened.
"""

from collections.abc import Container
from typing import Final

from broker.said import answer
from common.machine import Send

QUESTIONS_MAX: Final = 1_024
"""Questions to one partition that are remembered. Beyond it the oldest is forgotten: should its worker die, whoever
asked it waits as long as they have the patience to."""


class Questions:
    """By partition: who asked under which reference, the oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, dict[tuple[str, str], None]] = {}

    def asked(self, partition: str, asker: str, ref: str) -> None:
        """A question is on its way."""
        open_ = self._open.setdefault(partition, {})
        open_[asker, ref] = None
        if len(open_) > QUESTIONS_MAX:
            del open_[next(iter(open_))]

    def answered(self, partition: str, asker: str, ref: str) -> None:
        """Its answer goes by."""
        open_ = self._open.get(partition)
        if open_ is not None:
            open_.pop((asker, ref), None)
            if not open_:
                del self._open[partition]

    def lost(self, partition: str) -> list[Send]:
        """The worker has begun anew, or is gone: what those are answered who still wait."""
        text = b"the worker of this partition began anew before it could answer: ask again"
        return [answer(asker, ref, 503, text) for asker, ref in self._open.pop(partition, {})]

    def ended(self, there: Container[str]) -> list[Send]:
        """The same of all partitions that are not there any more."""
        return [one for partition in [name for name in self._open if name not in there] for one in self.lost(partition)]
