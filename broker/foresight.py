"""Messages with the text of a large configuration wait until another process has read it; everything else goes on.

    arrived --a large text that nobody has read--> waiting --the reader has--> as if it arrived now
        |
        +--anything else--> at once, but for what must not overtake those that wait

For the machine behind this it is as if the message had been longer on its way. It reads a text by itself where the
reader could not, and where a text is not in the message: an earlier version that an RM begins with, or what the last
broker had recorded. Messages about the coming and going of RMs stay in their order; what is only routed, answers, votes
and signs of life pass by.

Not here: reading (`reader.py`), and what follows from a text (`switch.py`).
"""

from collections import deque
from contextlib import suppress
from typing import Final

import msgspec

from broker.judgement import Understanding, understood
from common.control_messages import ChangedFile
from common.machine import Delivery, Machine, Send
from common.messages import Header
from common.names import READER
from common.query_messages import ChangeConfig
from common.rm_messages import RegisterResourceManager, UpdateConfiguration
from common.wire import WireError, decoded

LARGE_BYTES: Final = 64 << 10
"""A message with the text of a configuration that has fewer takes less time to read than to ask about: 30 ms."""

LINE_MAX: Final = 1_000
"""Messages that wait. When there are more the text is read here after all, and nothing waits any more."""

ORDERED: Final = frozenset(
    {
        *("RegisterResourceManager", "UpdateConfiguration", "ChangeConfig", "ChangedFile"),
        *("Resume", "Leave", "ManagerAway"),
    }
)
"""What does not overtake a text that is being read; nor does the Hello of anybody but a worker."""


class Foresight:
    """A machine that is spared the reading of large texts."""

    def __init__(self, machine: Machine, understanding: Understanding = understood) -> None:
        self._machine = machine
        self._understanding = understanding
        self._line: deque[Delivery] = deque()
        """The first one is that whose text is being read."""
        self._text = ""
        """That text."""
        self._asked = 0
        """How many texts have been given to the reader."""

    @property
    def deadline(self) -> float:
        return self._machine.deadline

    def tick(self, now: float) -> list[Send]:
        return self._machine.tick(now)

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        if delivery.source == READER:
            return self._heard(delivery, now)
        if self._line:
            if not _is_ordered(delivery.header):
                return self._machine.handle(delivery, now)
            self._line.append(delivery)
            return self._all(now) if len(self._line) > LINE_MAX else []
        text = self._unread(delivery)
        return self._machine.handle(delivery, now) if text is None else self._ask(text, delivery)

    def _heard(self, delivery: Delivery, now: float) -> list[Send]:
        """A text has been read, or cannot be by anybody but us."""
        if not self._line or delivery.header.ref != str(self._asked):
            return []
        with suppress(msgspec.MsgspecError):  # then nothing was learned: the reader has ended without a word
            self._understanding.learn(self._text, delivery.body)
        sends = self._machine.handle(self._line.popleft(), now)
        while self._line:
            text = self._unread(self._line[0])
            if text is not None:
                return [*sends, *self._ask(text)]
            sends += self._machine.handle(self._line.popleft(), now)
        self._text = ""
        return sends

    def _ask(self, text: str, *arrived: Delivery) -> list[Send]:
        """Have the text read that the first one in the line has."""
        self._line.extend(arrived)
        self._asked += 1
        self._text = text
        return [Send(READER, Header(kind="ReadText", ref=str(self._asked)), text.encode())]

    def _all(self, now: float) -> list[Send]:
        """Everything that waits, without the reader."""
        line, self._line, self._text = self._line, deque(), ""
        return [one for delivery in line for one in self._machine.handle(delivery, now)]

    def _unread(self, delivery: Delivery) -> str | None:
        """The large text in a message, if it is not known what it says."""
        if len(delivery.body) < LARGE_BYTES:
            return None
        try:
            text = _text_in(delivery)
        except WireError:  # the machine says what is wrong with it
            return None
        return text if len(text) >= LARGE_BYTES and not self._understanding.knows(text) else None


def _is_ordered(header: Header) -> bool:
    return header.kind in ORDERED or (header.kind == "Hello" and not header.partition)


def _text_in(delivery: Delivery) -> str:
    match delivery.header.kind:
        case "RegisterResourceManager":
            return decoded(RegisterResourceManager, delivery.body).config
        case "UpdateConfiguration":
            return decoded(UpdateConfiguration, delivery.body).config
        case "ChangeConfig":
            return decoded(ChangeConfig, delivery.body).config
        case "ChangedFile":
            return decoded(ChangedFile, delivery.body).text
    return ""
