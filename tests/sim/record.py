"""The broker's record in the simulation: the real one (`broker/sqlite_store.py`), in memory, on a late or full disk.

It outlives the brokers. A write takes time, and so does the message that it is done. When a broker dies, some of what
it had handed over is there although it never heard of that, and the rest is lost.

Not here: when the disk is late or full (`faults.py`).
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.sim.timeline import Timeline
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.broker.store import Store, execute
from yunishard.common.messages.wire import Incoming, Outgoing
from yunishard.common.sqlite_file import IN_MEMORY

WRITE_MAX_S: Final = 0.004
LATE_MAX_S: Final = 0.8
COPIES_MAX: Final = 8
"""Earlier states to which the record can go back."""

COPIED: Final = 0.2
"""The share of what is written before which there is a copy."""


def read_latest_text(store: Store, rm: str) -> str:
    """The text of the latest version of an RM."""
    latest = store.read_histories()[rm].latest
    assert latest is not None
    version = store.read_version(rm, latest.number)
    assert version is not None
    return version.config


class DurableRecord:
    """The file, and the broker that has it open."""

    def __init__(self, timeline: Timeline, rng: random.Random) -> None:
        self.late = False
        self.full = False
        self.record = SqliteStore(IN_MEMORY)
        self.checksums: set[str] = set()
        """Of configurations in records that were lost; only asked for membership."""
        self._timeline = timeline
        self._rng = rng
        self._waiting: deque[Outgoing] = deque()
        self._clear_at = 0.0
        self._owner = 0
        self._copies: deque[bytes] = deque(maxlen=COPIES_MAX)

    @property
    def store(self) -> Store:
        return self.record

    def ever_recorded(self) -> set[str]:
        """The checksums of all configurations, those of records that were lost among them."""
        histories = self.record.read_histories().values()
        return self.checksums | {entry.checksum for history in histories for entry in history.entries}

    def lose(self) -> None:
        """The file is gone."""
        self.checksums = self.ever_recorded()
        self.record.close()
        self.record = SqliteStore(IN_MEMORY)
        self._waiting.clear()

    def go_back(self) -> bool:
        """The file is one of its earlier copies; whether there was one."""
        if not self._copies:
            return False
        self.checksums = self.ever_recorded()
        self.record.close()
        self.record = SqliteStore(IN_MEMORY)
        self.record._file.deserialize(self._rng.choice(self._copies))
        self._waiting.clear()
        return True

    def open(self, answer: Callable[[Incoming], None]) -> Callable[[Outgoing], None]:
        """Another broker has it from now on; where it gives what is to be kept."""
        for message in list(self._waiting)[: self._rng.randint(0, len(self._waiting))]:
            execute(self.record, message)
        self._waiting.clear()
        self._owner += 1
        return partial(self._give, answer, self._owner)

    def _give(self, answer: Callable[[Incoming], None], owner: int, message: Outgoing) -> None:
        if owner != self._owner:
            return  # a broker that stood still while the next one began, and has not noticed yet that it is over
        self._waiting.append(message)
        self._later(self._write, answer, owner)

    def _write(self, answer: Callable[[Incoming], None], owner: int) -> None:
        if owner != self._owner or not self._waiting:
            return
        if self._rng.random() < COPIED:
            self._copies.append(self.record._file.serialize())
        incoming = execute(self.record, self._waiting.popleft(), "the disk is full" if self.full else "")
        self._later(self._answer, answer, owner, incoming)

    def _answer(self, answer: Callable[[Incoming], None], owner: int, incoming: Incoming) -> None:
        if owner == self._owner:
            answer(incoming)

    def _later(self, step: Callable[..., None], *arguments: object) -> None:
        """After what was planned before, as one thread does it all."""
        delay = self._rng.uniform(0.0001, LATE_MAX_S if self.late else WRITE_MAX_S)
        self._clear_at = max(self._clear_at, self._timeline.now + delay)
        self._timeline.at(self._clear_at, partial(step, *arguments))
