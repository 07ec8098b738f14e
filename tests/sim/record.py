"""The broker's record in the simulation: the real one (`broker/record_file.py`), in memory, on a late or full disk.

It outlives the brokers. What one has handed over and the disk had not taken is lost when it dies, or is just there.

Not here: when the disk is late or full (`faults.py`).
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.record_file import IN_MEMORY, RecordFile
from common.control_messages import ManagerRecord, Recorded
from common.messages import Header
from common.names import RECORD
from common.wire import Incoming, Outgoing, decode_body, make_outgoing
from tests.sim.timeline import Timeline

WRITE_MAX_S: Final = 0.004
LATE_MAX_S: Final = 0.8
COPIES_MAX: Final = 8
"""Earlier states to which the record can go back."""

COPIED: Final = 0.2
"""The share of what is written before which there is a copy."""


class DurableRecord:
    """The file, and the broker that has it open."""

    def __init__(self, timeline: Timeline, rng: random.Random) -> None:
        self.late = False
        self.full = False
        self.record = RecordFile(IN_MEMORY, wake=lambda: None)
        self.checksums: set[str] = set()
        """Of configurations in records that were lost; only asked for membership."""
        self._timeline = timeline
        self._rng = rng
        self._waiting: deque[Outgoing] = deque()
        self._clear_at = 0.0
        self._owner = 0
        self._copies: deque[bytes] = deque(maxlen=COPIES_MAX)

    def ever_recorded(self) -> set[str]:
        """The checksums of all configurations, those of records that were lost among them."""
        histories = self.record.read_histories().values()
        return self.checksums | {entry.checksum for history in histories for entry in history.entries}

    def lose(self) -> None:
        """The file is gone."""
        self.checksums = self.ever_recorded()
        self.record.close()
        self.record = RecordFile(IN_MEMORY, wake=lambda: None)
        self._waiting.clear()

    def go_back(self) -> bool:
        """The file is one of its earlier copies; whether there was one."""
        if not self._copies:
            return False
        self.checksums = self.ever_recorded()
        self.record.close()
        self.record = RecordFile(IN_MEMORY, wake=lambda: None)
        self.record._file.deserialize(self._rng.choice(self._copies))
        self.record._open()
        self._waiting.clear()
        return True

    def open(self, answer: Callable[[Incoming], None]) -> Callable[[Outgoing], None]:
        """Another broker has it from now on; where it gives what is to be kept."""
        if self._waiting and self._rng.random() < 0.5:
            self.record.send(self._waiting[0])
            self.record.receive()
        self._waiting.clear()
        self._owner += 1
        return partial(self._give, answer, self._owner)

    def _give(self, answer: Callable[[Incoming], None], owner: int, message: Outgoing) -> None:
        if owner != self._owner:
            return  # a broker that stood still while the next one began, and has not noticed yet that it is over
        self._waiting.append(message)
        delay = self._rng.uniform(0.0001, LATE_MAX_S if self.late else WRITE_MAX_S)
        self._clear_at = max(self._clear_at, self._timeline.now + delay)
        self._timeline.at(self._clear_at, partial(self._write, answer, owner))

    def _write(self, answer: Callable[[Incoming], None], owner: int) -> None:
        if owner != self._owner or not self._waiting:
            return
        message = self._waiting.popleft()
        if self.full and message.header.kind == "ManagerRecord":
            number = decode_body(ManagerRecord, message.body).number
            told = make_outgoing("", Recorded(number=number, problem="the disk is full"))
            answer(Incoming(RECORD, Header(kind="Recorded", rm=message.header.rm), told.body))
            return
        if self.full and message.header.kind == "ProbeRecord":
            told = make_outgoing("", Recorded(number=0, problem="the disk is full"))
            answer(Incoming(RECORD, told.header, told.body))
            return
        if self._rng.random() < COPIED:
            self._copies.append(self.record._file.serialize())
        self.record.send(message)
        while (incoming := self.record.receive()) is not None:
            answer(incoming)
