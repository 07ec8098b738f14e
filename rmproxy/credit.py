"""What an RM may still send to one of its partitions, so that no RM makes the core hold more than it promised.

Only headers and sizes are looked at. A numbered command is under way until an acknowledgement of it comes by on its
way back; an update without a number until its partition says so, by its `ref`. Beyond the credit the proxy refuses. An
`Ack` passes if it acknowledges something that came by and was not acknowledged; an answer if there was a question. So
everything that passes is bounded by the windows of both directions.

A resumption begins a new account, as what was under way comes again: an RM that does nothing but resume is slowed down
by `patience.py`. Not here: gaps and repetitions, which are the partition's to notice.
"""

from collections import deque
from typing import Final

from common.messages import Header
from common.outbox import WINDOW
from common.rm_messages import QUESTIONS

UNNUMBERED_BYTES: Final = 1 << 20
"""Updates without a number that may be under way to a partition, with `HEADER_BYTES` for each; a larger one may go when
there is no other."""

HEADER_BYTES: Final = 512
"""What a message costs besides its body."""

_MARK: Final = "unnumbered "
_DIGITS_MAX: Final = 9


class Credit:
    """The account of one (session, partition)."""

    __slots__ = ("_acknowledged", "_questions", "_size", "_told", "_under_way", "_unnumbered", "born", "life")

    def __init__(self, *, life: int = 0, born: int = 0) -> None:
        self.life = life
        """In which the partition is; numbers belong to it."""
        self.born = born
        """The life in which the RM got this partition: what was numbered before was meant for none."""
        self._told = self._acknowledged = self._questions = 0
        """Of the partition's words: the last number that came by, the last acknowledgement, questions not answered."""
        self.resume()

    def resume(self) -> None:
        """Whatever is under way comes again."""
        self._under_way: deque[tuple[int, int]] = deque()
        """Number and size."""
        self._size = self._unnumbered = self._acknowledged = 0

    @property
    def under_way(self) -> tuple[int, int]:
        """Commands on their way to the partition that are not acknowledged: how many, and the bytes of their bodies."""
        return len(self._under_way), self._size + self._unnumbered

    # From the RM ----------------------------------------------------------------------------------------------------

    def admits(self, header: Header, size: int) -> bool:
        """Whether a command may pass now; if so it counts as under way."""
        if header.seq:
            if WINDOW.reached(len(self._under_way), self._size):
                return False
            self._under_way.append((header.seq, size))
            self._size += size
            return True
        cost = size + HEADER_BYTES
        if self._unnumbered and self._unnumbered + cost > UNNUMBERED_BYTES:
            return False
        self._unnumbered += cost
        return True

    def acknowledges(self, ack: int) -> bool:
        """Whether an `Ack` says something new."""
        if not self._acknowledged < ack <= self._told:
            return False
        self._acknowledged = ack
        return True

    def answers(self) -> bool:
        """Whether somebody waits for an answer."""
        if not self._questions:
            return False
        self._questions -= 1
        return True

    # From the partition ---------------------------------------------------------------------------------------------

    def heard(self, header: Header) -> None:
        """A word of the partition comes by."""
        if header.life != self.life:
            return
        if header.seq > self._told:
            self._told = header.seq
        under_way, ack = self._under_way, header.ack
        while under_way and under_way[0][0] <= ack:
            self._size -= under_way.popleft()[1]
        if header.kind in QUESTIONS:
            self._questions += 1
        elif header.ref and header.ref.startswith(_MARK):
            self._unnumbered = max(0, self._unnumbered - _marked(header.ref.removeprefix(_MARK)))


def _marked(text: str) -> int:
    """The size in a mark; nothing if it is none of ours, which only a process that went mad can say."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else 0


def mark(header: Header, size: int) -> str:
    """The `ref` under which a command travels on; its partition repeats it once it has taken one without a number."""
    return "" if header.seq else f"{_MARK}{size + HEADER_BYTES}"
