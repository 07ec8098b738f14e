"""The file of queues that the core watches, in the simulation: people edit it, and the broker writes back to it.

Not here: who edits it (`asker.py`), and what an edit means (the broker knows).
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.sim.timeline import Timeline
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import ChangedFile, WriteFile
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import FILE

WRITE_MAX_S: Final = 0.05


class QueuesFile:
    """Its text, and the broker that watches it, the latest."""

    def __init__(self, text: str, timeline: Timeline, rng: random.Random) -> None:
        self.text = text
        self._timeline = timeline
        self._rng = rng
        self._tell: Callable[[Incoming], None] = lambda _: None

    def open(self, tell: Callable[[Incoming], None]) -> Callable[[Outgoing], None]:
        """Another broker watches it from now on; where it gives what is to be written."""
        self._tell = tell
        return self._give

    def edit(self, text: str) -> None:
        """It has this text now, and the broker sees that."""
        if text != self.text:
            self.text = text
            told = make_outgoing("", ChangedFile(text=text))
            self._tell(Incoming(FILE, told.header, told.body))

    def _give(self, message: Outgoing) -> None:
        wanted = decode_body(WriteFile, message.body)
        self._timeline.after(self._rng.uniform(0, WRITE_MAX_S), partial(self._write, wanted))

    def _write(self, wanted: WriteFile) -> None:
        """Unless somebody has written something else since."""
        if compute_checksum(self.text) == wanted.replaces:
            self.edit(wanted.text)
