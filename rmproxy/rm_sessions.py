"""RM sessions of the proxy, and flow control: what an RM may have in flight to each of its partitions.

Flow control needs only headers and sizes. A numbered command is in flight until an acknowledgement of it passes on its
way back; an update without a number, until its partition confirms it by its `ref`. Beyond the window the proxy refuses.
An `Ack` passes if it acknowledges something new that passed; an answer, if there was a question. So the windows of both
directions bound everything that passes.

A resumption resets the window, because commands in flight are then retransmitted; the rate of resumptions is limited
(`rate_limit.py`). Not here: what a message causes (`proxy.py`), gaps and repetitions (the partition detects them).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.rm_messages import QUESTIONS, ConfigurationUpdated, Registered
from yunishard.common.messages.session import WINDOW
from yunishard.common.messages.wire import Outgoing, make_outgoing

GRPC: Final = "grpc:"
"""Prefix of gRPC peers. They are in this process, and the gRPC port itself reports when an RM is away."""

UNNUMBERED_BYTES: Final = 1 << 20
"""Updates without a number in flight to a partition, with `HEADER_BYTES` for each; a larger one may pass alone."""

HEADER_BYTES: Final = 512
"""Cost of a message besides its body."""

LEAVING_MAX: Final = 256
"""Removed partitions of an RM whose last messages may still pass. Beyond it the oldest is dropped, and ends without an
acknowledgement of its RM."""

_MARK: Final = "unnumbered "
_DIGITS_MAX: Final = 9


class PartitionWindow:
    """The messages in flight between one session and one partition."""

    __slots__ = ("_acknowledged", "_highest_seq", "_in_flight", "_questions", "_size", "_unnumbered", "born", "life")

    def __init__(self, *, life: int = 0, born: int = 0) -> None:
        self.life = life
        """The partition's generation, to which sequence numbers belong."""
        self.born = born
        """The generation in which the RM got this partition; commands of an earlier one were meant for none."""
        self._highest_seq = self._acknowledged = self._questions = 0
        """Of messages from the partition: the last number, the last acknowledged one, questions without an answer."""
        self.resume()

    def resume(self) -> None:
        """Reset the window: both sides retransmit what is in flight."""
        self._in_flight: deque[tuple[int, int]] = deque()
        """Number and size."""
        self._size = self._unnumbered = self._acknowledged = 0

    @property
    def in_flight(self) -> int:
        """Numbered commands to the partition that are not acknowledged."""
        return len(self._in_flight)

    # From the RM ----------------------------------------------------------------------------------------------------

    def admit_command(self, header: Header, size: int) -> bool:
        """Return whether a command may pass now; if so, it counts as in flight."""
        if header.seq:
            if WINDOW.is_reached(len(self._in_flight), self._size):
                return False
            self._in_flight.append((header.seq, size))
            self._size += size
            return True
        cost = size + HEADER_BYTES
        if self._unnumbered and self._unnumbered + cost > UNNUMBERED_BYTES:
            return False
        self._unnumbered += cost
        return True

    def admit_ack(self, ack: int) -> bool:
        """Return whether an `Ack` acknowledges something new."""
        if not self._acknowledged < ack <= self._highest_seq:
            return False
        self._acknowledged = ack
        return True

    def admit_answer(self) -> bool:
        """Return whether the partition waits for an answer; if so, it is counted."""
        if not self._questions:
            return False
        self._questions -= 1
        return True

    # From the partition ---------------------------------------------------------------------------------------------

    def count_message(self, header: Header) -> None:
        """Update the window from a message of the partition."""
        if header.life != self.life:
            return
        if header.seq > self._highest_seq:
            self._highest_seq = header.seq
        in_flight, ack = self._in_flight, header.ack
        while in_flight and in_flight[0][0] <= ack:
            self._size -= in_flight.popleft()[1]
        if header.kind in QUESTIONS:
            self._questions += 1
        elif header.ref and header.ref.startswith(_MARK):
            size = header.ref.removeprefix(_MARK)
            if size.isdecimal() and len(size) <= _DIGITS_MAX:
                self._unnumbered = max(0, self._unnumbered - int(size))


@dataclass(slots=True)
class RmSession:
    """One RM's session: which peer it belongs to, its partitions, and when its last message came."""

    rm: str
    peer: str
    session: str
    last_message_at: float
    """Unix seconds."""
    windows: dict[str, PartitionWindow]
    """All and only its partitions, by normalised name."""
    messages_in: int = 0
    messages_out: int = 0
    """Messages of the RM and to it, for the metrics; later sessions of the RM continue the numbers."""
    leaving: dict[str, PartitionWindow] = field(default_factory=dict)
    """Partitions that were removed from the configuration and may still send last messages."""
    is_away: bool = False
    """Whether the RM was reported to the broker as silent; until the session is resumed."""
    resume_requested: bool = False
    """Whether the RM was requested to resume since it is away."""
    heartbeat_answered_at: float = 0.0

    def make_header(self, kind: str, ref: str = "") -> Header:
        """Make the header of a message about the whole session."""
        return Header(kind=kind, rm=self.rm, session=self.session, ref=ref)

    def build_message(self, message: Message) -> Outgoing:
        """Build a message to the RM about the whole session."""
        return make_outgoing(self.peer, message, self.make_header(type(message).__name__))

    def window_of(self, partition: str) -> PartitionWindow:
        """Return the window of a partition that sent a message; a partition that the RM no longer has gets one, too."""
        window = self.windows.get(partition) or self.leaving.get(partition)
        if window is None:
            window = self.leaving[partition] = PartitionWindow()
            if len(self.leaving) > LEAVING_MAX:
                del self.leaving[next(iter(self.leaving))]
        return window

    def restart_partition(self, header: Header) -> None:
        """Start a new window for the generation in the header; nothing sent to an earlier one counts."""
        before = self.windows.get(header.partition)
        if before is not None and header.life > before.life:
            self.windows[header.partition] = PartitionWindow(life=header.life, born=before.born)

    def change_partitions(self, updated: ConfigurationUpdated) -> None:
        """Apply a new set of partitions: those that stay keep their windows, removed ones may send last messages."""
        before = self.windows
        self.windows = {name: _window(before.get(name), updated.lives.get(name, 0)) for name in updated.partitions}
        for name, window in before.items():
            if name not in self.windows:
                self.leaving[name] = window
        for name in [*(name for name in self.leaving if name in self.windows), *list(self.leaving)[:-LEAVING_MAX]]:
            self.leaving.pop(name, None)


def open_session(peer: str, header: Header, registered: Registered, before: RmSession | None, now: float) -> RmSession:
    """Open or resume the session in the header, with empty windows: commands in flight are retransmitted."""
    known = before.windows if before is not None and before.session == header.session else {}
    windows = {name: _window(known.get(name), registered.lives.get(name, 0)) for name in registered.partitions}
    for window in windows.values():
        window.resume()
    session = RmSession(rm=header.rm, peer=peer, session=header.session, last_message_at=now, windows=windows)
    if before is not None:
        session.messages_in, session.messages_out = before.messages_in, before.messages_out
    return session


def make_ref(header: Header, size: int) -> str:
    """Return the `ref` under which a command travels on. Its partition repeats it to confirm one without a number."""
    return "" if header.seq else f"{_MARK}{size + HEADER_BYTES}"


def _window(before: PartitionWindow | None, life: int) -> PartitionWindow:
    if before is None:
        return PartitionWindow(life=life, born=life)
    return before if before.life == life else PartitionWindow(life=life, born=before.born)
